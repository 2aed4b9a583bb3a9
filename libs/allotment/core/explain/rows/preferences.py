"""Which preferences have no effect, because the policy does not weigh them.

Preferred affinity and anti-affinity, soft spread constraints and PreferNoSchedule taints are points
of plugin nodeorder. Without the plugin, or with a weight of 0, they do not count.
"""

from allotment.core.placement.rules.terms import weights_of
from allotment_proto.events import PodObserved
from allotment_proto.facts import BUILT_IN_TIERS, Policy

TAINTS = "PreferNoSchedule taints"
_NODES = "preferred node affinity"
_PODS = "preferred pod affinity or anti-affinity"
_SPREAD = "soft topology spread"


def ignored(policy: Policy) -> tuple[str, ...]:
    """The kinds of preferences that do not count under the policy."""
    order = weights_of(policy).nodeorder
    if order is None:
        return (_NODES, _PODS, _SPREAD, TAINTS)
    weights = {
        _NODES: order.affinity,
        _PODS: order.pods,
        _SPREAD: order.spread,
        TAINTS: order.taints,
    }
    return tuple(kind for kind, weight in weights.items() if not weight)


def ignored_of(policy: Policy, fact: PodObserved) -> tuple[str, ...]:
    """The kinds of a pod's preferences that do not count under the policy."""
    constraints, others = fact.request.constraints, fact.request.company
    has = {
        _NODES: bool(constraints.preferred),
        _PODS: bool(others.preferred),
        _SPREAD: any(not rule.is_required for rule in others.spread),
    }
    return tuple(kind for kind in ignored(policy) if has.get(kind))


def why_ignored(policy: Policy) -> str:
    """Why `ignored` kinds do not count, without a full stop."""
    if policy.tiers == BUILT_IN_TIERS:
        return "the built-in policy does not weigh them"
    if weights_of(policy).nodeorder is None:
        return "the policy has no plugin nodeorder"
    return "the policy gives them a weight of 0 in nodeorder"
