"""nodeorder's terms by what is in use on a node: least, most and balanced allocation.

Points are integers; what upstream counts in floating point is counted in micro-points here, each
share rounded to the nearest of them. What nodeorder adds by comparing nodes is in `relative` and in
`images`. Source: Kubernetes' `noderesources`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO, near_share_micro
from allotment.core.placement.rules.score_term import (
    CPU,
    CPU_NAME,
    EXTENDED,
    HOST_MEMORY,
    MEMORY_NAME,
    SIZE_CPU,
    SIZE_MEMORY,
    Amount,
    Array,
    amount_of,
    part,
    share_of,
)
from allotment.core.plugin_arguments import Argument, Arguments, Kind, number, weight
from allotment_proto.facts import PluginUse, PodRequest

POINTS = 100
_GPU = "nvidia.com/gpu"
"""The one extended resource that balanced allocation looks at."""
_EVEN_STEP_MICRO = 2 * FULL_MICRO // POINTS
"""How far apart two shares are for each point that is lost."""
_UNCHANGED = 50 + 25
"""Points of a node that the pod makes neither more even nor less: 50 + (50 + 0) ÷ 2."""
_BALANCED_COMPARES_SINCE = 33
"""The minor version of Kubernetes from which on `balanced` compares a node with itself before.
It was so in 1.36 and not in 1.32; between them it is not known."""


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
    """Whether `balanced` rewards what makes a node more even, or an even node."""


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
        gpus = dict(request.extended).get(_GPU, 0)
        if gpus:
            needs.append((amount_of(node, _GPU), gpus))
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


# ---- the same as a loop body

_LEAST, _MOST, _BALANCED, _COMPARES, _LOAD_CPU, _LOAD_MEMORY, _CPU, _MEMORY, _GPU_ROW, _GPUS = (
    range(10)
)
"""Places from `start` on. `_CPU`, `_MEMORY` and `_GPUS` are what the pod asks for; loads are what
it adds to the use that least and most count. A `_GPU_ROW` below 0: it asks for none."""


@part
def _nodeorder_loop(
    position: int, host: Array, sizes: Array, unrequested: Array, encoded: Array, start: int
) -> int:
    """`nodeorder_points` in micro-points."""
    least, most, balanced = (
        encoded[start + _LEAST],
        encoded[start + _MOST],
        encoded[start + _BALANCED],
    )
    cpu, memory = sizes[SIZE_CPU, 0, position], sizes[SIZE_MEMORY, 0, position]
    total = 0
    if least != 0 or most != 0:
        load_cpu = cpu - host[position, CPU] + encoded[start + _LOAD_CPU] + unrequested[0, position]
        load_memory = memory - host[position, HOST_MEMORY]
        load_memory += encoded[start + _LOAD_MEMORY] + unrequested[1, position]
        load_cpu, load_memory = min(load_cpu, cpu), min(load_memory, memory)
        known = max(int(cpu > 0) + int(memory > 0), 1)
        points = (cpu - load_cpu) * POINTS // max(cpu, 1)
        points += (memory - load_memory) * POINTS // max(memory, 1)
        total += points // known * least
        points = load_cpu * POINTS // max(cpu, 1)
        points += load_memory * POINTS // max(memory, 1)
        total += points // known * most
    if balanced != 0:
        lost = _lost_points(position, host, sizes, encoded, start, 1)
        if encoded[start + _COMPARES] == 1:
            before = _lost_points(position, host, sizes, encoded, start, 0)
            total += ((before - lost) // 2 + _UNCHANGED) * balanced
        else:
            total += (POINTS - lost) * balanced
    return total * POINT_MICRO


@part
def _lost_points(
    position: int, host: Array, sizes: Array, encoded: Array, start: int, with_pod: int
) -> int:
    """Points that are lost by being uneven, with the pod or without it; see `even_points`."""
    cpu, memory = sizes[SIZE_CPU, 0, position], sizes[SIZE_MEMORY, 0, position]
    cpu_share = share_of(position, host, sizes, CPU, with_pod * encoded[start + _CPU])
    memory_share = share_of(position, host, sizes, HOST_MEMORY, with_pod * encoded[start + _MEMORY])
    if encoded[start + _GPU_ROW] < 0:
        if cpu <= 0 or memory <= 0:
            return 0
        # Of two shares σ is half their distance, so that no square has to be taken.
        return (abs(cpu_share - memory_share) + _EVEN_STEP_MICRO - 1) // _EVEN_STEP_MICRO
    gpu_share = share_of(
        position, host, sizes, encoded[start + _GPU_ROW], with_pod * encoded[start + _GPUS]
    )
    count = 1 + int(cpu > 0) + int(memory > 0)
    if count == 1:
        return 0
    total = gpu_share
    if cpu > 0:
        total += cpu_share
    if memory > 0:
        total += memory_share
    spread = (count * gpu_share - total) ** 2
    if cpu > 0:
        spread += (count * cpu_share - total) ** 2
    if memory > 0:
        spread += (count * memory_share - total) ** 2
    unit = count * count * count * (FULL_MICRO // POINTS) ** 2
    low, high = 0, POINTS
    while low < high:  # the least number of points whose square reaches the spread
        middle = (low + high) // 2
        if spread > middle * middle * unit:
            low = middle + 1
        else:
            high = middle
    return low


class NodeOrderTerm:
    """The row in `terms.TERMS`."""

    name = "nodeorder"
    arguments = _ARGUMENTS
    loop = staticmethod(_nodeorder_loop)

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

    def encode(
        self, request: PodRequest, weights: NodeOrder, row_of: Callable[[str], int | None]
    ) -> Sequence[int]:
        cpu_milli, memory_bytes = request.cpu_milli, request.memory_bytes
        unrequested_milli, unrequested_bytes = request.unrequested
        gpu_row, gpus = row_of(_GPU), dict(request.extended).get(_GPU, 0)
        if gpu_row is None or not gpus:
            gpu_row = -EXTENDED
        asks = cpu_milli or memory_bytes or gpus
        return (
            weights.least,
            weights.most,
            weights.balanced if asks or not weights.balanced_compares else 0,
            weights.balanced_compares,
            cpu_milli + unrequested_milli,
            memory_bytes + unrequested_bytes,
            cpu_milli,
            memory_bytes,
            gpu_row,
            gpus,
        )
