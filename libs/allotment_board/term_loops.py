"""Loops over columns for the score terms of `rules.terms`: the same integers as `ScoreTerm.micro`.

A loop is called for one position, with

    position  the node
    host      (N nodes, R): what is free there, see `loop_parts`
    sizes     (S, 4, N): how much there is, see `loop_parts`
    unrequested (2, N): CPU (milli) and memory (bytes) that scores add to what is in use
    encoded   (T,): all numbers of the request
    start     where in `encoded` those of this term begin

`encode` makes the numbers that the loop reads from its `start` on. A policy with a term that has no
row in `LOOPS` is not for the board.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from allotment.core.placement.rules.nodeorder import GPU, POINTS, NodeOrder, NodeOrderTerm
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO
from allotment.core.placement.rules.resource_shares import (
    Binpack,
    BinpackTerm,
    Strategy,
    StrategyFit,
    StrategyFitTerm,
    needs_of,
)
from allotment_board.loop_parts import (
    CPU,
    EXTENDED,
    HOST_MEMORY,
    SIZE_CPU,
    SIZE_MEMORY,
    Array,
    part,
    share_of,
)
from allotment_proto.facts import PodRequest

RowOf = Callable[[str], int | None]
"""The host row of a resource; None if no node has it."""


class TermLoop(NamedTuple):
    loop: Callable[..., int]
    encode: Callable[[PodRequest, Any, RowOf], Sequence[int]]


# ---- nodeorder

_EVEN_STEP_MICRO = 2 * FULL_MICRO // POINTS
"""How far apart two shares are for each point that is lost."""
_UNCHANGED = 50 + 25
"""Points of a node that the pod makes neither more even nor less: 50 + (50 + 0) ÷ 2."""
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


def _encode_nodeorder(request: PodRequest, weights: NodeOrder, row_of: RowOf) -> Sequence[int]:
    cpu_milli, memory_bytes = request.cpu_milli, request.memory_bytes
    unrequested_milli, unrequested_bytes = request.unrequested
    gpu_row, gpus = row_of(GPU), dict(request.extended).get(GPU, 0)
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


# ---- binpack and resource-strategy-fit: a weighted mean of shares

_CONSTANT, _DIVISOR, _COUNT, _SHARES = range(4)
"""Places from `start` on: what free shares add, the divisor, how many shares there are, and where
they begin."""
_ROW, _NEED, _FACTOR, _SHARE_FIELDS = range(4)
"""Fields of a share: its host row, what the pod asks for, and its factor, below 0 for a share that
is free."""


@part
def _mean_loop(
    position: int, host: Array, sizes: Array, unrequested: Array, encoded: Array, start: int
) -> int:
    """The weighted mean of shares. Only nodes that the pod fits on are scored, so nothing would be
    overbooked there."""
    total = encoded[start + _CONSTANT]
    first = start + _SHARES
    for share in range(first, first + encoded[start + _COUNT] * _SHARE_FIELDS, _SHARE_FIELDS):
        row, need = encoded[share + _ROW], encoded[share + _NEED]
        total += encoded[share + _FACTOR] * share_of(position, host, sizes, row, need)
    mean: int = total // encoded[start + _DIVISOR]
    return mean


def _encode_mean(
    weight: int,
    strategies: Mapping[str, Strategy],
    needs: Iterable[tuple[str, int]],
    row_of: RowOf,
) -> Sequence[int]:
    shares: list[int] = []
    constant = divisor = count = 0
    for name, need in needs:
        strategy, row = strategies.get(name), row_of(name)
        if strategy is None or row is None:
            continue
        divisor += strategy.weight
        factor = weight * strategy.weight
        if not strategy.most:  # a free share is 100 points less the one in use
            constant += factor * FULL_MICRO
            factor = -factor
        if factor:
            shares += (row, need, factor)
            count += 1
    return (constant, max(divisor, 1), count, *shares)


def _encode_binpack(request: PodRequest, weights: Binpack, row_of: RowOf) -> Sequence[int]:
    strategies = {name: Strategy(True, weight) for name, weight in weights.resources.items()}
    return _encode_mean(weights.weight, strategies, needs_of(request), row_of)


def _encode_strategy_fit(request: PodRequest, weights: StrategyFit, row_of: RowOf) -> Sequence[int]:
    needs = list(needs_of(request))
    found = {name: strategy for name, _ in needs if (strategy := weights.of(name))}
    return _encode_mean(weights.weight, found, needs, row_of)


LOOPS: dict[str, TermLoop] = {
    NodeOrderTerm.name: TermLoop(_nodeorder_loop, _encode_nodeorder),
    BinpackTerm.name: TermLoop(_mean_loop, _encode_binpack),
    StrategyFitTerm.name: TermLoop(_mean_loop, _encode_strategy_fit),
}
"""By the name of the term."""
