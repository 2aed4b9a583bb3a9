"""Ranks of nodes for one request: whether it fits, its points, its best fit, in one integer.

    rank = (device weight × device points + host weight × host points) · 2²³ + (2²³ − 1 − leftover)

−1 where the request does not fit. Ranks hold up to 63 bits because weights are at most
`policy.WEIGHT_MAX` and points at most `POINTS_MOST`.
"""

import numpy as np

from allotment.core.board_rows import Row, best_cards, good_cards, take
from allotment.core.board_top import KEEP, NO_FIT
from allotment.core.columns import CPU_WEIGHT, HOST_SUM, KIB_WEIGHT, Columns
from allotment.core.packing import Bools, Ints
from allotment.core.points import (
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    POINTS_MOST,
)
from allotment.core.policies.base import DevicePolicy, View
from allotment.core.shapes import HOST_ROWS, Shape
from allotment_proto.facts import Policy

MOVED_MAX = 4 * KEEP
"""From here on it is cheaper to search the row again than to move rank after rank."""

_all = np.logical_and.reduce
_full = np.array(FULL_MICRO)
_zero = np.array(0)
_host_bits = np.array(HOST_BITS + 1)
_leftover_max = np.array(LEFTOVER_MOST)
_no_fit = np.array(NO_FIT)
_nothing = np.array(0)


class Scorer:
    """Scores positions of rows under one policy."""

    def __init__(self, columns: Columns, policy: Policy, device: DevicePolicy) -> None:
        self._columns = columns
        self._device = device
        self._host_policy = policy.host_policy if policy.host_weight else "none"
        self._device_weight = np.array(policy.device_weight << LEFTOVER_BITS)
        self._host_weight = np.array(policy.host_weight << LEFTOVER_BITS)
        self._first = np.arange(len(columns)) * columns.depth

    def score(self, row: Row, at: Ints) -> None:
        """Score the positions `at` (repetitions do no harm) and store ranks and chosen cards."""
        shape = row.shape
        view = View(self._columns, at, self._first[: len(at)])
        fit: Bools = _all(view.host[:HOST_ROWS] >= shape.host_need)
        for resource, amount in shape.extended_need:
            fit &= view.host[resource] >= amount
        if row.static.refused:
            fit &= row.static.codes.take(at) == 0
        points, leftover = self._device.bare(view, shape)
        for ask, stored in zip(shape.asks, row.slots, strict=True):
            good, keys = good_cards(row, ask, view), view.keys
            if ask.order == "preferred":
                good &= fit[:, None]
                keys = self._device.keys(view, shape, ask, good)
            slots, flat, best = best_cards(view, ask, good, keys)
            fit &= (best if ask.number == 1 else best[:, -1]) >= _zero
            stored[at] = slots.astype(stored.dtype)
            of_cards, left = self._device.score(view, shape, ask, best, flat)
            if ask.number > 1:
                of_cards, left = of_cards.sum(axis=1), left.sum(axis=1)
            points = of_cards if points is None else points + of_cards
            leftover = left if leftover is None else leftover + left
            if len(shape.asks) > 1:
                take(view, ask, best, flat)
        if points is not None and shape.may_exceed:
            points = np.minimum(points, POINTS_MOST)
        total = _nothing if points is None else points * self._device_weight
        if leftover is not None:
            total = total + np.maximum(_leftover_max - leftover, _zero)
        else:
            total = total + _leftover_max
        if self._host_policy != "none":
            total = total + self._host_weight * self._host_points(shape, view.host)
        self._store(row, at, np.where(fit, total, _no_fit), fit)

    def _host_points(self, shape: Shape, host: Ints) -> Ints:
        cpu_milli, memory_kib = shape.host_charge
        total = host[CPU_WEIGHT] * cpu_milli
        total += host[KIB_WEIGHT] * memory_kib
        total += host[HOST_SUM]
        points: Ints = total >> _host_bits
        return points if self._host_policy == "binpack" else _full - points

    def _store(self, row: Row, at: Ints, rank: Ints, fit: Bools) -> None:
        top = row.top
        moved = (np.maximum(row.rank[at], rank) >= top.floor_rank).nonzero()[0]
        row.rank[at] = rank
        row.fit[at] = fit
        row.feasible = int(np.count_nonzero(row.fit))
        if len(moved) > MOVED_MAX:
            top.forget()
        else:
            for position, value in zip(at[moved].tolist(), rank[moved].tolist(), strict=True):
                top.change(position, value)
