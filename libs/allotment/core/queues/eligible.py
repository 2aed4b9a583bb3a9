"""Which pods and groups may preempt others: those whose preemption policy is not Never."""

from allotment.core.ledger.model import ClusterState
from allotment_proto.events import PodObserved, PriorityClassObserved

_EVICTING = frozenset(("preempt", "reclaim"))
"""The actions that evict."""
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
"""kube-scheduler's words."""


def class_of(state: ClusterState, name: str) -> PriorityClassObserved | None:
    """The PriorityClass of that name, without one the cluster's default; None if there is none."""
    known = state.classes.get(name)
    if known is not None:
        return known
    defaults = [found for found in state.classes.values() if found.is_default]
    return max(defaults, key=lambda found: (found.value, found.name), default=None)


def _group_preempts(state: ClusterState, key: str) -> bool:
    """Whether the PriorityClass of a PodGroup allows it to preempt others."""
    group = state.groups.get(key)
    if group is None or group.fact is None:
        return True
    found = class_of(state, group.fact.priority_class)
    return found is None or found.preempts


def can_evict(state: ClusterState) -> bool:
    """Whether the policy has an action that evicts."""
    return state.is_batched and not _EVICTING.isdisjoint(state.policy.actions)


def is_never(state: ClusterState, fact: PodObserved) -> bool:
    """Whether only the preemption policy of the pod or of its group keeps it from preempting
    others.
    """
    return can_evict(state) and not (fact.preempts and _group_preempts(state, fact.group))
