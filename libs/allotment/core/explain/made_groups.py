"""Groups that were created for pods: their names are uids, which do not show whose they are."""

from collections.abc import Sequence

from allotment.core.explain.pod_story import generated_base
from allotment.core.explain.schema import AHEAD_SHOWN, Place
from allotment.core.explain.why import Whys
from allotment.core.jobs.keys import MADE_GROUP
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import PodObserved


def owner_of(state: ClusterState, namespace: str, name: str) -> str:
    """The owner of a group that is named by a uid: the pod with this uid, else the common prefix of
    its pods' generated names; empty for other groups, and where prefixes differ.
    """
    group = state.groups.get(f"{namespace}/{name}")
    if group is None or not name.startswith(MADE_GROUP):
        return ""
    uid = name.removeprefix(MADE_GROUP)
    if uid in group.members and uid in state.pods:
        return state.pods[uid].fact.name
    pods = (state.pods[each].fact.name for each in group.members if each in state.pods)
    names = {generated_base(pod) or pod for pod in pods}
    return names.pop() if len(names) == 1 else ""


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
