"""nodeorder's terms by what is in use on a node: least, most and balanced allocation.

Points are integers; what upstream computes in floating point is in micro-points here, each share
rounded to the nearest. `relative` and `images` have the terms that compare nodes. Source:
Kubernetes' `noderesources`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO, near_share_micro
from allotment.core.placement.rules.score_term import (
    CPU_NAME,
    MEMORY_NAME,
    Amount,
    amount_of,
)
from allotment.core.plugin_arguments import Argument, Arguments, Kind, number, weight
from allotment_proto.facts import PluginUse, PodRequest

POINTS = 100
GPU = "nvidia.com/gpu"
"""The only extended resource that balanced allocation counts."""
_BALANCED_COMPARES_SINCE = 33
"""The minor version of Kubernetes since which `balanced` compares a node with its state before:
1.36 does and 1.32 does not; versions in between are unknown.
"""


_ARGUMENTS: Arguments = {
    "leastrequested.weight": weight(1),
    "mostrequested.weight": weight(0),
    "nodeaffinity.weight": weight(2),
    "podaffinity.weight": weight(2),
    "balancedresource.weight": weight(1),
    "tainttoleration.weight": weight(3),
    "imagelocality.weight": weight(1),
    "podtopologyspread.weight": weight(2),
    "balancedresource.kubernetesMinor": Argument(Kind.INTEGER, 36),
}


class NodeOrder(NamedTuple):
    """Weights of nodeorder's terms, 0 … 1000; each term is worth 0 … 100 points."""

    least: int
    most: int
    balanced: int
    affinity: int
    taints: int
    pods: int
    spread: int
    images: int
    balanced_compares: bool
    """Whether `balanced` rewards making a node more even, not an even node."""


def nodeorder_points(node: Node, request: PodRequest, order: NodeOrder) -> int:
    """least, most and balanced, each times its weight."""
    cpu, memory = amount_of(node, CPU_NAME), amount_of(node, MEMORY_NAME)
    unrequested_milli, unrequested_bytes = request.unrequested
    loads = (
        Amount(cpu.used + node.unrequested_milli + request.cpu_milli + unrequested_milli, cpu.size),
        Amount(
            memory.used + node.unrequested_bytes + request.memory_bytes + unrequested_bytes,
            memory.size,
        ),
    )
    points = order.least * least_points(loads) + order.most * most_points(loads)
    if order.balanced:
        needs = [(cpu, request.cpu_milli), (memory, request.memory_bytes)]
        gpus = dict(request.extended).get(GPU, 0)
        if gpus:
            needs.append((amount_of(node, GPU), gpus))
        before = [amount for amount, _ in needs]
        after = [Amount(amount.used + need, amount.size) for amount, need in needs]
        if not order.balanced_compares:
            points += order.balanced * even_points(after)
        elif any(need for _, need in needs):
            points += order.balanced * balanced_points(even_points(before), even_points(after))
    return points


def least_points(loads: Sequence[Amount]) -> int:
    """The mean of what is free, 0 … 100; resources that a node does not have are left out."""
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
    count, total = len(shares), sum(shares)
    spread = sum((count * share - total) ** 2 for share in shares)
    unit = count**3 * (FULL_MICRO // POINTS) ** 2
    lost = 0
    while spread > lost * lost * unit:
        lost += 1
    return POINTS - lost


def balanced_points(before: int, after: int) -> int:
    """How much more even the node becomes, from 50 points for no change."""
    return 50 + (50 + after - before) // 2


class NodeOrderTerm:
    """An entry in `terms.TERMS`."""

    name = "nodeorder"
    arguments = _ARGUMENTS

    def weights(self, use: PluginUse) -> NodeOrder | None:
        return NodeOrder(
            least=number(use, _ARGUMENTS, "leastrequested.weight"),
            most=number(use, _ARGUMENTS, "mostrequested.weight"),
            balanced=number(use, _ARGUMENTS, "balancedresource.weight"),
            affinity=number(use, _ARGUMENTS, "nodeaffinity.weight"),
            taints=number(use, _ARGUMENTS, "tainttoleration.weight"),
            pods=number(use, _ARGUMENTS, "podaffinity.weight"),
            spread=number(use, _ARGUMENTS, "podtopologyspread.weight"),
            images=number(use, _ARGUMENTS, "imagelocality.weight"),
            balanced_compares=number(use, _ARGUMENTS, "balancedresource.kubernetesMinor")
            >= _BALANCED_COMPARES_SINCE,
        )

    def most_micro(self, weights: NodeOrder) -> int:
        return sum(weights[:-1]) * FULL_MICRO

    def micro(self, node: Node, request: PodRequest, weights: NodeOrder) -> int:
        return nodeorder_points(node, request, weights) * POINT_MICRO
