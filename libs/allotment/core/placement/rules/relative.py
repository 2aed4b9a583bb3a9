"""nodeorder's terms that compare a node with the others on which the pod fits, in plain loops.

Each term first has a raw value on every such node; then all values are scaled to 0 … 100 points:
preferred node affinity, taints with PreferNoSchedule, preferred pod affinity (the pod's own and
other pods' about it), preferred topology spread. Images (`images`) come in points from the start.
Sources: Kubernetes' plugins `nodeaffinity`, `tainttoleration`, `interpodaffinity`,
`podtopologyspread`.

The last one's logarithm is taken in fixed point from exact decimal arithmetic, so that it is the
same on every machine. `allotment_board.score` has the same on columns.
"""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.images import image_points
from allotment.core.placement.rules.interpod import (
    Earns,
    Prefers,
    Question,
    count,
    is_spread_over,
    stays,
)
from allotment.core.placement.rules.nodeorder import POINTS, NodeOrder
from allotment.core.placement.rules.points import POINT_MICRO
from allotment.core.placement.rules.selectors import term_matches, tolerates
from allotment_proto.facts import Constraints, PodPreference, PodRequest, Spread, Taint, Toleration

_PREFER_NO_SCHEDULE = "PreferNoSchedule"
LOG_BITS = 20
_EXACT = Context(prec=50)


def relative_micro(
    feasible: Sequence[Node], nodes: Sequence[Node], request: PodRequest, order: NodeOrder
) -> list[int]:
    """What each feasible node earns compared with the others. `nodes` are all nodes, with their
    pods.
    """
    constraints = request.constraints
    points = [0] * len(feasible)
    for weight, earned in (
        (order.affinity, scaled_up([affinity_raw(n, constraints) for n in feasible])),
        (order.taints, scaled_down([_taints_raw(n, constraints) for n in feasible])),
        (order.pods, scaled_between(_pods_raw(feasible, nodes, request))),
        (order.spread, _spread_points(feasible, nodes, request)),
        (order.images, image_points(feasible, nodes, request)),
    ):
        points = [sum_ + weight * value for sum_, value in zip(points, earned, strict=True)]
    return [value * POINT_MICRO for value in points]


def _spread_points(
    feasible: Sequence[Node], nodes: Sequence[Node], request: PodRequest
) -> list[int]:
    if not wished_spreads(request):
        return [0] * len(feasible)
    return scaled_spread(_spread_raw(feasible, nodes, request))


# ---- raw values


def affinity_raw(node: Node, constraints: Constraints) -> int:
    """The weights of the preferred terms that match."""
    return sum(
        preference.weight
        for preference in constraints.preferred
        if term_matches(preference.term, node.labels, node.name)
    )


def _taints_raw(node: Node, constraints: Constraints) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    assert node.fact is not None
    return soft_taints(node.fact.taints, constraints.tolerations)


def soft_taints(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> int:
    return sum(
        taint.effect == _PREFER_NO_SCHEDULE and not tolerates(taint, tolerations)
        for taint in taints
    )


def opinions(request: PodRequest) -> list[tuple[str, Question]]:
    """By topology key, the questions for the pod's preferences and for other pods' preferences
    about it.
    """
    company = request.company
    own: dict[str, list[PodPreference]] = {}
    for preference in company.preferred:
        own.setdefault(preference.term.topology_key, []).append(preference)
    asked: list[tuple[str, Question]] = [(key, Earns(tuple(some))) for key, some in own.items()]
    return asked + [(subject.topology_key, Prefers(subject)) for subject in company.wanted]


def _pods_raw(feasible: Sequence[Node], nodes: Sequence[Node], request: PodRequest) -> list[int]:
    """The weights of all preferences that pods in the node's domains match, or have."""
    raw = [0] * len(feasible)
    for key, question in opinions(request):
        counts = count(nodes, key, question)
        for number, node in enumerate(feasible):
            if key in node.labels:
                raw[number] += counts[node.labels[key]]
    return raw


def wished_spreads(request: PodRequest) -> tuple[Spread, ...]:
    return tuple(rule for rule in request.company.spread if not rule.is_required)


def _spread_raw(
    feasible: Sequence[Node], nodes: Sequence[Node], request: PodRequest
) -> list[int | None]:
    """The pods in the node's domains, each constraint weighted by its number of domains; None for
    nodes that lack a label.
    """
    rules = wished_spreads(request)
    keys = frozenset(rule.term.topology_key for rule in rules)
    complete = [all(key in node.labels for key in keys) for node in feasible]
    sums = [0] * len(feasible)
    for rule in rules:
        key = rule.term.topology_key
        domains = {n.labels[key] for n, has in zip(feasible, complete, strict=True) if has}
        there = [node for node in nodes if is_spread_over(node, request, rule, keys)]
        counts: Mapping[str, int] = count(there, key, stays(rule))
        weight = log_weight(len(domains))
        for number, node in enumerate(feasible):
            pods = counts.get(node.labels.get(key, ""), 0)
            sums[number] += pods * weight + (rule.max_skew - 1 << LOG_BITS)
    half = 1 << LOG_BITS - 1
    return [
        sum_ + half >> LOG_BITS if has else None for sum_, has in zip(sums, complete, strict=True)
    ]


@lru_cache(maxsize=4096)
def log_weight(domains: int) -> int:
    """The natural logarithm of the number of domains plus two, in fixed point."""
    exact = Decimal(domains + 2).ln(_EXACT)
    return int((exact * (1 << LOG_BITS)).to_integral_value())


# ---- to 0 … 100 points


def scaled_up(raw: Sequence[int]) -> list[int]:
    """The greatest gets 100; zero stays zero."""
    most = max(raw, default=0)
    return [value * POINTS // most if most else 0 for value in raw]


def scaled_down(raw: Sequence[int]) -> list[int]:
    """The greatest gets 0, and zero gets 100."""
    return [POINTS - value for value in scaled_up(raw)]


def scaled_between(raw: Sequence[int]) -> list[int]:
    """The least gets 0 and the greatest 100; all 0 if they are equal."""
    least, most = min(raw, default=0), max(raw, default=0)
    return [(value - least) * POINTS // (most - least) if most > least else 0 for value in raw]


def scaled_spread(raw: Sequence[int | None]) -> list[int]:
    """The node with the fewest pods gets most; nodes that do not take part get 0."""
    known = [value for value in raw if value is not None]
    least, most = min(known, default=0), max(known, default=0)
    return [
        0 if value is None else POINTS if not most else POINTS * (most + least - value) // most
        for value in raw
    ]
