"""`terms` on columns: what plugins think of many nodes at once, by what is in use there.

Only nodes that the pod fits on are ranked, so a resource that is asked for is there and suffices;
for other nodes any number will do.
"""

from typing import NamedTuple

import numpy as np

from allotment.core.columns import (
    CPU,
    HOST_MEMORY,
    SIZE_CPU,
    SIZE_EXTENDED,
    SIZE_MEMORY,
    Columns,
)
from allotment.core.packing import Bools, Ints
from allotment.core.points import FULL_MICRO, POINT_MICRO
from allotment.core.policies.base import View
from allotment.core.term_weights import CPU as CPU_NAME
from allotment.core.term_weights import MEMORY as MEMORY_NAME
from allotment.core.term_weights import NodeOrder, Strategy, Weights
from allotment.core.terms import EVEN_STEP_MICRO, GPU, POINTS
from allotment_proto.facts import PodRequest

_points = np.array(POINTS)
_full = np.array(FULL_MICRO)
_even_step = np.array(EVEN_STEP_MICRO)
_round_up = np.array(EVEN_STEP_MICRO - 1)
_zero, _one, _two = np.array(0), np.array(1), np.array(2)
_even_change = np.array(50 + 25)
"""50 + (50 + change) ÷ 2."""
_sum = np.add.reduce
_HOST = slice(SIZE_CPU, SIZE_MEMORY + 1)
_FREE = slice(CPU, HOST_MEMORY + 1)


class _Resource(NamedTuple):
    """A resource that the pod asks for: its host row, its column of sizes, how much."""

    row: int
    column: int
    need: Ints
    weight: int
    is_most: bool


class _Shares(NamedTuple):
    """One plugin's mean of shares."""

    name: str
    weight: int
    divisor: int
    resources: tuple[_Resource, ...]


class Terms:
    """The plugins' terms for one request."""

    def __init__(self, columns: Columns, request: PodRequest, weights: Weights) -> None:
        self._columns = columns
        self._order = weights.nodeorder
        cpu_milli, memory_bytes = request.cpu_milli, request.memory_bytes
        unsaid_milli, unsaid_bytes = request.unsaid
        self._need = np.array([[cpu_milli], [memory_bytes]])
        self._load = np.array([[cpu_milli + unsaid_milli], [memory_bytes + unsaid_bytes]])
        known = {CPU_NAME: (CPU, SIZE_CPU), MEMORY_NAME: (HOST_MEMORY, SIZE_MEMORY)}
        needs = {CPU_NAME: cpu_milli, MEMORY_NAME: memory_bytes, **dict(request.extended)}
        for name, _ in request.extended:
            row = columns.resource(name)
            if row is not None:
                known[name] = row, row + SIZE_EXTENDED
        asked = [(name, *known[name], needs[name]) for name in known if needs[name]]
        gpus = (_Resource(r, c, np.array(n), 0, True) for name, r, c, n in asked if name == GPU)
        self._gpus = next(gpus, None)
        self._asks = bool(cpu_milli or memory_bytes or self._gpus)
        self._shares: list[_Shares] = []
        if weights.binpack is not None:
            listed = weights.binpack.resources
            strategies = {name: Strategy(True, listed[name]) for name in known if name in listed}
            self._add("binpack", weights.binpack.weight, asked, strategies)
        if weights.fit is not None:
            found = {name: weights.fit.of(name) for name in known}
            strategies = {name: s for name, s in found.items() if s is not None}
            self._add("resource-strategy-fit", weights.fit.weight, asked, strategies)
        names = [] if self._order is None else ["nodeorder"]
        self.names = (*names, *(shares.name for shares in self._shares))
        """The terms that `micro` gives, in order."""

    def _add(
        self,
        name: str,
        weight: int,
        asked: list[tuple[str, int, int, int]],
        strategies: dict[str, Strategy],
    ) -> None:
        resources = tuple(
            _Resource(row, column, np.array(need), strategies[key].weight, strategies[key].most)
            for key, row, column, need in asked
            if key in strategies
        )
        divisor = sum(resource.weight for resource in resources)
        self._shares.append(_Shares(name, weight, divisor, resources))

    def micro(self, view: View) -> list[Ints]:
        """The terms (M,), in the order of `names`."""
        sizes: Ints = np.ascontiguousarray(self._columns.sizes.take(view.at, axis=0).T)
        after: dict[int, Ints] = {}
        found = []
        if self._order is not None:
            found.append(self._nodeorder(self._order, view, sizes, after) * POINT_MICRO)
        return found + [self._mean(shares, view, sizes, after) for shares in self._shares]

    def _mean(self, shares: _Shares, view: View, sizes: Ints, after: dict[int, Ints]) -> Ints:
        total: Ints = np.zeros(len(view.at), np.int64)
        for resource in shares.resources:
            column = resource.column
            share = after.get(column)
            if share is None:
                share = after[column] = _after(view, sizes, resource)
            total += resource.weight * (share if resource.is_most else _full - share)
        if shares.divisor:
            total *= shares.weight
            total //= shares.divisor
        return total

    def _nodeorder(self, order: NodeOrder, view: View, sizes: Ints, after: dict[int, Ints]) -> Ints:
        size = sizes[_HOST, 0]
        used = size - np.maximum(view.host[_FREE], _zero)
        points: Ints = np.zeros(len(view.at), np.int64)
        if order.least or order.most:
            load = used + self._load
            load += self._columns.unsaid.take(view.at, axis=0).T
            np.minimum(load, size, out=load)
            divisor = np.maximum(size, _one) if self._columns.is_hollow else size
            if order.least:
                points += order.least * self._host_mean((size - load) * _points // divisor, size)
            if order.most:
                points += order.most * self._host_mean(load * _points // divisor, size)
        if order.balanced and (self._asks or not order.balanced_compares):
            points += order.balanced * self._balanced(order, view, sizes, used, after)
        return points

    def _host_mean(self, points: Ints, size: Ints) -> Ints:
        """The mean of CPU's and memory's points over those that the node has."""
        if not self._columns.is_hollow:
            mean: Ints = _sum(points, axis=0) // _two
            return mean
        there = size > _zero
        number = np.maximum(_sum(there, axis=0), _one)
        mean = _sum(points * there, axis=0)
        mean //= number
        return mean

    def _balanced(
        self, order: NodeOrder, view: View, sizes: Ints, used: Ints, after: dict[int, Ints]
    ) -> Ints:
        scaled, bits = sizes[_HOST, 1], sizes[_HOST, 2]
        filled = used + self._need
        shares = _near(filled, scaled, bits)
        after[SIZE_CPU], after[SIZE_MEMORY] = shares
        there: Bools | None = sizes[_HOST, 0] > _zero if self._columns.is_hollow else None
        gpus, gpus_before = None, None
        if self._gpus is not None:
            gpus = after[self._gpus.column] = _after(view, sizes, self._gpus)
            gpus_before = _before(view, sizes, self._gpus)
        points = _even(shares, gpus, there)
        if order.balanced_compares:
            before = _near(used, scaled, bits)
            change: Ints = points - _even(before, gpus_before, there)
            points = _even_change + change // _two
        return points


def _near(used: Ints, scaled: Ints, bits: Ints) -> Ints:
    """`points.near_share_micro`."""
    share = np.minimum(used >> bits, scaled)
    share *= _full
    share += scaled >> _one
    share //= scaled
    return share


def _after(view: View, sizes: Ints, resource: _Resource) -> Ints:
    """The share of one resource that is in use with the pod."""
    size, scaled, bits = sizes[resource.column]
    return _near(size - view.host[resource.row] + resource.need, scaled, bits)


def _before(view: View, sizes: Ints, resource: _Resource) -> Ints:
    size, scaled, bits = sizes[resource.column]
    return _near(size - view.host[resource.row], scaled, bits)


def _even(shares: Ints, gpus: Ints | None, there: Bools | None) -> Ints:
    """`terms.even_points`; with `there`, only of shares that count."""
    if gpus is None:
        apart = np.abs(shares[0] - shares[1])
        if there is not None:
            apart *= there[0] & there[1]
        points: Ints = _points - (apart + _round_up) // _even_step
        return points
    counts = np.ones((3, len(gpus)), np.bool_)
    if there is not None:
        counts[:2] = there
    three = np.stack((shares[0], shares[1], gpus)) * counts
    number = _sum(counts, axis=0)
    spread = _sum((number * three - _sum(three, axis=0)) ** 2 * counts, axis=0)
    lost = np.where(number == 3, _LOST[3].searchsorted(spread), _LOST[2].searchsorted(spread))
    points = np.where(number == 1, 0, lost)
    return _points - points


_LOST = {
    number: np.array([k * k * number**3 * (FULL_MICRO // POINTS) ** 2 for k in range(POINTS)])
    for number in (2, 3)
}
"""By how many shares there are: the greatest spread at which so many points are lost."""
