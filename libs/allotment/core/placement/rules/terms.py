"""What plugins think of a node by what is in use there, in plain loops: the formulas.

Sources: Kubernetes' `noderesources` (least and most allocated, balanced allocation), Volcano's
plugins `binpack` and `resource-strategy-fit`. Points are integers; what upstream counts in floating
point is counted in micro-points here, each share rounded to the nearest of them.

`board_terms` has the same on columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO, near_share_micro
from allotment.core.placement.rules.term_weights import (
    CPU,
    MEMORY,
    Binpack,
    NodeOrder,
    Strategy,
    StrategyFit,
    Weights,
)
from allotment_proto.facts import PodRequest

POINTS = 100
GPU = "nvidia.com/gpu"
"""The one extended resource that balanced allocation looks at."""
EVEN_STEP_MICRO = 2 * FULL_MICRO // POINTS
"""How far apart two shares are for each point that is lost."""


class Amount(NamedTuple):
    """How much of a resource is in use, and how much there is."""

    used: int
    size: int


def host_terms(node: Node, request: PodRequest, weights: Weights) -> tuple[tuple[str, int], ...]:
    """The weighted terms of the plugins that are on, but for what is relative to other nodes."""
    terms = []
    if weights.nodeorder is not None:
        points = nodeorder_points(node, request, weights.nodeorder)
        terms.append(("nodeorder", points * POINT_MICRO))
    if weights.binpack is not None:
        terms.append(("binpack", binpack_micro(weights.binpack, _asked(node, request))))
    if weights.fit is not None:
        terms.append(("resource-strategy-fit", fit_micro(weights.fit, _asked(node, request))))
    return tuple(terms)


def nodeorder_points(node: Node, request: PodRequest, order: NodeOrder) -> int:
    """least, most and balanced, each times its weight."""
    cpu, memory = _amount(node, CPU), _amount(node, MEMORY)
    unsaid_milli, unsaid_bytes = request.unsaid
    loads = (
        Amount(cpu.used + node.unsaid_milli + request.cpu_milli + unsaid_milli, cpu.size),
        Amount(memory.used + node.unsaid_bytes + request.memory_bytes + unsaid_bytes, memory.size),
    )
    points = order.least * least_points(loads) + order.most * most_points(loads)
    if order.balanced:
        needs = [(cpu, request.cpu_milli), (memory, request.memory_bytes)]
        gpus = dict(request.extended).get(GPU, 0)
        if gpus:
            needs.append((_amount(node, GPU), gpus))
        before = [amount for amount, _ in needs]
        after = [Amount(amount.used + need, amount.size) for amount, need in needs]
        if not order.balanced_compares:
            points += order.balanced * even_points(after)
        elif any(need for _, need in needs):
            points += order.balanced * balanced_points(even_points(before), even_points(after))
    return points


def least_points(loads: Sequence[Amount]) -> int:
    """The mean of what is free, 0 … 100; what a node has none of does not count."""
    known = [load for load in loads if load.size]
    points = sum(max(load.size - load.used, 0) * POINTS // load.size for load in known)
    return points // len(known) if known else 0


def most_points(loads: Sequence[Amount]) -> int:
    """The mean of what is in use, 0 … 100."""
    known = [load for load in loads if load.size]
    points = sum(min(load.used, load.size) * POINTS // load.size for load in known)
    return points // len(known) if known else 0


def even_points(amounts: Iterable[Amount]) -> int:
    """100 × (1 − σ) of the shares in use, truncated. In integers: with n shares and S their sum,
    σ² = Σ (n·share − S)² ÷ n³, and the points lost are the least k with (100·σ)² ≤ k².
    """
    shares = [near_share_micro(amount.used, amount.size) for amount in amounts if amount.size]
    number, total = len(shares), sum(shares)
    spread = sum((number * share - total) ** 2 for share in shares)
    unit = number**3 * (FULL_MICRO // POINTS) ** 2
    lost = 0
    while spread > lost * lost * unit:
        lost += 1
    return POINTS - lost


def balanced_points(before: int, after: int) -> int:
    """How much more even the node becomes, from 50 points for no change."""
    return 50 + (50 + after - before) // 2


def binpack_micro(binpack: Binpack, asked: Iterable[tuple[str, Amount]]) -> int:
    """The mean share in use of the resources that are asked for and listed; 0 if one of them would
    be overbooked. `asked` has each resource as it is with the pod.
    """
    total, divisor = 0, 0
    for name, amount in asked:
        weight = binpack.resources.get(name)
        if weight is None:
            continue
        divisor += weight
        if weight and amount.size:
            if amount.used > amount.size:
                return 0
            total += weight * near_share_micro(amount.used, amount.size)
    return binpack.weight * total // divisor if divisor else 0


def fit_micro(fit: StrategyFit, asked: Iterable[tuple[str, Amount]]) -> int:
    """The same with the share in use or the share that is free, by each resource's strategy."""
    total, divisor = 0, 0
    for name, amount in asked:
        strategy = fit.of(name)
        if strategy is None:
            continue
        divisor += strategy.weight
        if amount.size:
            if amount.used > amount.size:
                return 0
            total += strategy.weight * strategy_micro(strategy, amount)
    return fit.weight * total // divisor if divisor else 0


def strategy_micro(strategy: Strategy, amount: Amount) -> int:
    in_use = near_share_micro(amount.used, amount.size)
    return in_use if strategy.most else FULL_MICRO - in_use


def _asked(node: Node, request: PodRequest) -> Iterator[tuple[str, Amount]]:
    """Every resource that the pod asks for, as it is on the node with the pod."""
    needs = ((CPU, request.cpu_milli), (MEMORY, request.memory_bytes), *request.extended)
    for name, need in needs:
        if need:
            used, size = _amount(node, name)
            yield name, Amount(used + need, size)


def _amount(node: Node, name: str) -> Amount:
    fact = node.fact
    assert fact is not None
    if name == CPU:
        size, free = fact.cpu_milli, node.cpu_milli_free
    elif name == MEMORY:
        size, free = fact.memory_bytes, node.memory_bytes_free
    else:
        size, free = dict(fact.extended).get(name, 0), node.extended_free.get(name, 0)
    return Amount(size - max(free, 0), size)
