"""Groups that were created for pods: their names are uids, which do not show whose they are."""

from collections.abc import Sequence

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import owner_of
from allotment.core.explain.rows.schema import AHEAD_SHOWN, Place
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import PodObserved


def place_in_queue(
    state: ClusterState, waiting: Sequence[str], name: str, whys: Whys
) -> Place | None:
    """The place of a group (`NAMESPACE/NAME`) or of a lone pod (`pod NAMESPACE/NAME`) in the
    waiting line; None if it does not wait.
    """
    if name not in waiting:
        return None
    at = waiting.index(name)
    ahead = dict.fromkeys(waiting[:at])
    able = {
        queue_name(pod.fact)
        for pod in (state.pods[uid] for uid in state.pending)
        if queue_name(pod.fact) in ahead and not whys.is_never(pod, or_invalid=True)
    }
    first = [_said(state, each) for each in ahead if each in able]
    return Place(
        position=at + 1,
        length=len(waiting),
        ahead=tuple(first[:AHEAD_SHOWN]),
        never=len(ahead) - len(first),
    )


def queue_name(fact: PodObserved) -> str:
    """The name under which a pod, or its group, waits in its queue."""
    return fact.group or f"pod {fact.namespace}/{fact.name}"


def _said(state: ClusterState, waiting: str) -> str:
    namespace, _, name = waiting.partition("/")
    owner = owner_of(state, namespace, name)
    return f"{namespace}/{owner}" if owner else waiting
