"""`terms` on columns: what plugins think of many nodes at once, by what is in use there.

Only nodes that the pod fits on are ranked, so a resource that is asked for is there and suffices;
for other nodes any number will do. Rows are short as a rule, and then a step costs the same however
long it is: what can be done for several resources at once is, and constants are multiplied before.
"""

from typing import NamedTuple

import numpy as np

from allotment.core.placement.board.arrays import (
    CPU,
    HOST_MEMORY,
    SIZE_CPU,
    SIZE_EXTENDED,
    SIZE_MEMORY,
)
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.kernel_layout import (
    BALANCED,
    COMPARES,
    GPU_NEED,
    GPU_ROW,
    HAS_NODEORDER,
    LEAST,
    LOAD_CPU,
    LOAD_MEMORY,
    MEAN_CONSTANT,
    MEAN_CPU,
    MEAN_DIVISOR,
    MEAN_FIELDS,
    MEAN_MEMORY,
    MOST,
    SHARE_FIELDS,
    TERMS_LENGTH,
    WITH_CPU,
    WITH_MEMORY,
)
from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.policies.base import View
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO
from allotment.core.placement.rules.term_weights import CPU as CPU_NAME
from allotment.core.placement.rules.term_weights import MEMORY as MEMORY_NAME
from allotment.core.placement.rules.term_weights import NodeOrder, Strategy, Weights
from allotment.core.placement.rules.terms import EVEN_STEP_MICRO, GPU, POINTS
from allotment_proto.facts import PodRequest

_HOST = slice(SIZE_CPU, SIZE_MEMORY + 1)
_FREE = slice(CPU, HOST_MEMORY + 1)
UNCHANGED = 50 + 25
"""Points of a node that the pod makes neither more even nor less: 50 + (50 + 0) ÷ 2."""

_points = np.array(POINTS)
_full = np.array(FULL_MICRO)
_even_step = np.array(EVEN_STEP_MICRO)
_round_up = np.array(EVEN_STEP_MICRO - 1)
_zero, _one, _two = np.array(0), np.array(1), np.array(2)
_sum = np.add.reduce
_LOST = {
    number: np.array([k * k * number**3 * (FULL_MICRO // POINTS) ** 2 for k in range(POINTS)])
    for number in (2, 3)
}
"""By how many shares there are: the greatest spread at which so many points are lost."""


class _Resource(NamedTuple):
    """A resource that the pod asks for: its host row, its column of sizes, how much."""

    row: int
    column: int
    need: Ints


class _Mean(NamedTuple):
    """One plugin's weighted mean of shares, in micro-points: weights by resource are below 0 for
    shares that are free, and `constant` makes up for it."""

    host: Ints | None
    """(2,) the weights of CPU and memory; None if neither counts."""
    others: tuple[tuple[_Resource, Ints], ...]
    constant: Ints
    divisor: Ints


class Terms:
    """The plugins' terms for one request."""

    def __init__(self, columns: Columns, request: PodRequest, weights: Weights) -> None:
        self._columns = columns
        order = self._order = weights.nodeorder
        cpu_milli, memory_bytes = request.cpu_milli, request.memory_bytes
        unsaid_milli, unsaid_bytes = request.unsaid
        self._load = np.array([[cpu_milli + unsaid_milli], [memory_bytes + unsaid_bytes]])
        need = [[cpu_milli], [memory_bytes]]
        compares = order is not None and order.balanced and order.balanced_compares
        self._need = np.array([need, [[0], [0]]] if compares else [need])
        """(1 or 2, 2, 1): with the pod; and without it, if that is compared."""
        asked: dict[str, _Resource] = {}
        if cpu_milli:
            asked[CPU_NAME] = _Resource(CPU, SIZE_CPU, np.array(cpu_milli))
        if memory_bytes:
            asked[MEMORY_NAME] = _Resource(HOST_MEMORY, SIZE_MEMORY, np.array(memory_bytes))
        for name, amount in request.extended:
            row = columns.resource(name)
            if row is not None and amount:
                asked[name] = _Resource(row, row + SIZE_EXTENDED, np.array(amount))
        gpus = self._gpus = asked.get(GPU)
        self._is_balanced = order is not None and bool(
            order.balanced and (cpu_milli or memory_bytes or gpus or not order.balanced_compares)
        )
        names = [] if order is None else ["nodeorder"]
        self._means: list[_Mean] = []
        if weights.binpack is not None:
            names.append("binpack")
            listed = weights.binpack.resources.items()
            found = {name: Strategy(True, weight) for name, weight in listed}
            self._means.append(_mean(weights.binpack.weight, asked, found))
        if weights.fit is not None:
            names.append("resource-strategy-fit")
            strategies = {name: weights.fit.of(name) for name in asked}
            found = {name: strategy for name, strategy in strategies.items() if strategy}
            self._means.append(_mean(weights.fit.weight, asked, found))
        self.names = tuple(names)
        """The terms that `micro` gives, in order."""

    def told(self) -> tuple[Ints, Ints, Ints]:
        """The same in numbers, for the compiled loops: `terms`, `means` and `shares` of a plan."""
        terms = np.zeros(TERMS_LENGTH, np.int64)
        terms[LOAD_CPU], terms[LOAD_MEMORY] = self._load[:, 0]
        terms[WITH_CPU], terms[WITH_MEMORY] = self._need[0, :, 0]
        terms[GPU_ROW] = -1
        if self._gpus is not None:
            terms[GPU_ROW], terms[GPU_NEED] = self._gpus.row, self._gpus.need
        if self._order is not None:
            terms[HAS_NODEORDER] = 1
            terms[LEAST], terms[MOST] = self._order.least, self._order.most
            terms[BALANCED] = self._order.balanced if self._is_balanced else 0
            terms[COMPARES] = self._order.balanced_compares
        means = np.zeros((len(self._means), MEAN_FIELDS), np.int64)
        shares: list[tuple[int, int, int, int]] = []
        for number, mean in enumerate(self._means):
            if mean.host is not None:
                means[number, [MEAN_CPU, MEAN_MEMORY]] = mean.host
            means[number, [MEAN_CONSTANT, MEAN_DIVISOR]] = mean.constant, mean.divisor
            shares += [(number, x.row, int(x.need), int(weight)) for x, weight in mean.others]
        return terms, means, np.array(shares, np.int64).reshape(-1, SHARE_FIELDS)

    def micro(self, view: View) -> list[Ints]:
        """The terms (M,), in the order of `names`."""
        if not self.names:
            return []
        sizes: Ints = self._columns.sizes.take(view.at, axis=2)
        size, scaled, half, bits = sizes[_HOST].swapaxes(0, 1)
        used = size - view.host[_FREE]
        shares = (used + self._need) >> bits
        np.minimum(shares, scaled, out=shares)
        shares *= _full
        shares += half
        shares //= scaled
        found = []
        if self._order is not None:
            found.append(self._nodeorder(self._order, view, sizes, used, shares))
        for mean in self._means:
            total = mean.constant if mean.host is None else mean.host @ shares[0] + mean.constant
            for resource, weight in mean.others:
                total = total + weight * _share(view, sizes, resource, resource.need)
            found.append(total // mean.divisor)
        return found

    def _nodeorder(
        self, order: NodeOrder, view: View, sizes: Ints, used: Ints, shares: Ints
    ) -> Ints:
        micro: Ints = _zero
        size, columns = sizes[_HOST, 0], self._columns
        if order.least or order.most:
            load = used + self._load
            if columns.has_unsaid:
                load += columns.unsaid.take(view.at, axis=1)
            np.minimum(load, size, out=load)
            divisor = np.maximum(size, _one) if columns.is_hollow else size
            if order.least:
                points = self._host_mean((size - load) * _points // divisor, size)
                micro = points * (order.least * POINT_MICRO)
            if order.most:
                points = self._host_mean(load * _points // divisor, size)
                micro = micro + points * (order.most * POINT_MICRO)
        if self._is_balanced:
            lost = self._lost(view, sizes, shares)
            points = _points - lost[0]
            if order.balanced_compares:
                points = (lost[1] - lost[0]) // _two
                points += UNCHANGED
            micro = micro + points * (order.balanced * POINT_MICRO)
        return micro

    def _host_mean(self, points: Ints, size: Ints) -> Ints:
        """The mean of CPU's and memory's points over those that the node has."""
        if not self._columns.is_hollow:
            mean: Ints = _sum(points, axis=0)
            mean //= _two
            return mean
        there = size > _zero
        number = np.maximum(_sum(there, axis=0), _one)
        mean = _sum(points * there, axis=0)
        mean //= number
        return mean

    def _lost(self, view: View, sizes: Ints, shares: Ints) -> Ints:
        """Points that are lost by being uneven; see `terms.even_points`."""
        there: Bools | None = sizes[_HOST, 0] > _zero if self._columns.is_hollow else None
        if self._gpus is not None:
            with_pod = _share(view, sizes, self._gpus, self._gpus.need)
            gpus = [with_pod, _share(view, sizes, self._gpus, _zero)]
            return np.array(
                [
                    _lost_of_three(np.concatenate((two, gpu[None])), there)
                    for two, gpu in zip(shares, gpus, strict=False)
                ]
            )
        lost: Ints = np.abs(shares[:, 0] - shares[:, 1])
        if there is not None:
            lost *= there[0] & there[1]
        lost += _round_up
        lost //= _even_step
        return lost


def _mean(weight: int, asked: dict[str, _Resource], by_name: dict[str, Strategy]) -> _Mean:
    factors = {
        name: weight * strategy.weight * (1 if strategy.most else -1)
        for name, strategy in by_name.items()
        if name in asked
    }
    free = sum(-factor for factor in factors.values() if factor < 0)
    divisor = sum(by_name[name].weight for name in factors)
    host = [factors.get(CPU_NAME, 0), factors.get(MEMORY_NAME, 0)]
    others = tuple(
        (asked[name], np.array(factor))
        for name, factor in factors.items()
        if name not in (CPU_NAME, MEMORY_NAME)
    )
    return _Mean(
        np.array(host) if any(host) else None,
        others,
        np.array(free * FULL_MICRO),
        np.array(max(divisor, 1)),
    )


def _share(view: View, sizes: Ints, resource: _Resource, need: Ints) -> Ints:
    """`points.near_share_micro` of one resource with `need` more in use."""
    size, scaled, half, bits = sizes[resource.column]
    share: Ints = np.minimum(size - view.host[resource.row] + need >> bits, scaled)
    share *= _full
    share += half
    share //= scaled
    return share


def _lost_of_three(shares: Ints, there: Bools | None) -> Ints:
    """The same of CPU, memory and a third resource (3, M), which is always there."""
    counts = np.ones(shares.shape, np.bool_)
    if there is not None:
        counts[:2] = there
    shares = shares * counts
    number = _sum(counts, axis=0)
    spread = _sum((number * shares - _sum(shares, axis=0)) ** 2 * counts, axis=0)
    lost = np.where(number == 3, _LOST[3].searchsorted(spread), _LOST[2].searchsorted(spread))
    of_one: Ints = np.where(number == 1, 0, lost)
    return of_one
