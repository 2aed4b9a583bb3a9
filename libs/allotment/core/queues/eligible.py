"""Who may have others evicted for it: pods and groups whose preemption policy is not Never."""

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.unserved import unserved
from allotment.core.reasons import cut
from allotment_proto.events import PodObserved, PriorityClassObserved

_EVICTING = frozenset(("preempt", "reclaim"))
"""The actions that evict."""
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
"""As kube-scheduler says it."""


def class_of(state: ClusterState, name: str) -> PriorityClassObserved | None:
    """The PriorityClass of a name; of none the cluster's default, if there is one."""
    known = state.classes.get(name)
    if known is not None:
        return known
    defaults = [found for found in state.classes.values() if found.is_default]
    return max(defaults, key=lambda found: (found.value, found.name), default=None)


def _group_preempts(state: ClusterState, key: str) -> bool:
    """Whether the PriorityClass of a PodGroup lets it have others evicted."""
    group = state.groups.get(key)
    if group is None or group.fact is None:
        return True
    found = class_of(state, group.fact.priority_class)
    return found is None or found.preempts


def is_never(state: ClusterState, fact: PodObserved) -> bool:
    """Whether it is for its own or its group's policy that nobody is evicted for a pod."""
    can_evict = state.is_batched and not _EVICTING.isdisjoint(state.policy.actions)
    return can_evict and not (fact.preempts and _group_preempts(state, fact.group))


def with_eligibility(state: ClusterState, fact: PodObserved, text: str) -> str:
    """Why a pod waits, what nobody offers of what it asks for, and that nobody makes room for it if
    that is so.
    """
    lacks = [_sentence(one) for one in unserved(state, fact.request)]
    never = [NEVER] if is_never(state, fact) else []
    if not lacks and not never:
        return text
    ended = text if text.endswith((".", "?")) else f"{text}."
    return cut(" ".join([ended, *lacks, *never]))


def _sentence(text: str) -> str:
    """With a capital, unless it begins with an argument, which has to be written as it is."""
    begun = text if text.startswith("deviceshare.") else text[:1].upper() + text[1:]
    return begun if begun.endswith("?") else f"{begun}."
