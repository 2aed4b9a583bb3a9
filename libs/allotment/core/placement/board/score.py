"""Ranks of nodes for one request: whether it fits, its points, its best fit, in one integer.

    rank = (weight × points of device, fit and host) · 2²³ + (2²³ − 1 − leftover)

−1 where the request does not fit. Where plugins count, their terms are added to the points. Totals
end at `TOTAL_MOST`, so that ranks fit 63 bits; whether weights can reach that is known beforehand,
and what cannot be does not cost anything.
"""

import numpy as np

from allotment.core.placement.board.arrays import CPU_WEIGHT, HOST_SUM, KIB_WEIGHT
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.images import Images, ImageSizes
from allotment.core.placement.board.interpod import Rules
from allotment.core.placement.board.kernel_layout import HAS_MASK
from allotment.core.placement.board.kernel_plan import Loops, MachineCode, plan_of
from allotment.core.placement.board.kernel_top import KEPT_MOST, NO_FIT
from allotment.core.placement.board.more import More
from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.board.relative import constant_micro, is_relative, relative_micro
from allotment.core.placement.board.rows import (
    Row,
    Told,
    admitted_cards,
    best_cards,
    good_cards,
    take,
)
from allotment.core.placement.board.shapes import HOST_ROWS, Ask, Shape
from allotment.core.placement.board.terms import Terms
from allotment.core.placement.policies.base import DevicePolicy, View
from allotment.core.placement.rules.bounds import bounds_of
from allotment.core.placement.rules.points import (
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    POINT_MICRO,
    POINTS_MOST,
    TOTAL_MOST,
    weighs_host,
)
from allotment.core.placement.rules.switches import switches_of
from allotment.core.placement.rules.term_weights import NONE, most_micro, weights_of
from allotment_proto.facts import ALONE, Policy

MOVED_MAX = KEPT_MOST
"""From here on it is cheaper to search the row again than to move rank after rank."""

_all = np.logical_and.reduce
_full = np.array(FULL_MICRO)
_zero = np.array(0)
_host_bits = np.array(HOST_BITS + 1)
_leftover_max = np.array(LEFTOVER_MOST)
_no_fit = np.array(NO_FIT)
_nothing = np.array(0)
_points_most = np.array(POINTS_MOST)
_total_most = np.array(TOTAL_MOST)
_leftover_bits = np.array(LEFTOVER_BITS)
_no_images: Ints = np.zeros(0, np.int64)
_no_mask = np.zeros((0, 0), np.bool_)
_no_parts = np.zeros((0, 0), np.int64)


class Scorer:
    """Scores positions of rows under one policy."""

    def __init__(self, columns: Columns, policy: Policy, device: DevicePolicy) -> None:
        self._columns = columns
        self._policy = policy
        self._device = device
        self._host_policy = policy.host_policy if weighs_host(policy) else "none"
        self._device_weight = np.array(policy.device_weight << LEFTOVER_BITS)
        self._host_weight = np.array(policy.host_weight << LEFTOVER_BITS)
        self._first = np.arange(len(columns)) * columns.depth
        self._all: Ints = np.arange(len(columns))
        self._weights = weights_of(policy)
        self._switches = switches_of(policy)
        self._fit_weight: Ints = np.array(policy.fit_weight)
        self._weighs_fit = policy.fit_weight > 0
        self._plain_device_weight: Ints = np.array(policy.device_weight)
        self._plain_host_weight: Ints = np.array(policy.host_weight)
        self._sizes = ImageSizes(columns)
        order = self._weights.nodeorder
        self._constant = np.array(0 if order is None else constant_micro(order))
        self._image_micro = 0 if order is None else order.images * POINT_MICRO
        most = (policy.device_weight + policy.fit_weight) * POINTS_MOST
        most += policy.host_weight * FULL_MICRO
        self._most = most + most_micro(self._weights)
        self._is_plain = self._weights == NONE and self._most <= TOTAL_MOST
        """Neither do plugins count nor can totals be cut off: points are the whole rank."""

    def prepare(self, row: Row) -> None:
        """What a new row needs beside its columns."""
        request = row.shape.request
        if request.company != ALONE or request.attachments:
            row.rules = Rules(self._columns, request, self._switches)
            row.varies = True
        if request.images and self._image_micro:
            row.images = Images(self._columns, self._sizes, request)
            row.varies = True
        worths = bounds_of(request).worths
        if not self._is_plain or worths:
            terms = Terms(self._columns, request, self._weights)
            most = self._most + sum(worth.most for worth in worths)
            row.more = More(
                len(self._columns),
                terms,
                int(self._constant),
                [
                    (worth.term, column)
                    for worth, column in zip(worths, row.static.worths, strict=True)
                ],
                is_cut=most > TOTAL_MOST,
            )

    def score(self, row: Row, at: Ints) -> None:
        """Score the positions `at` (repetitions do no harm) and store ranks and chosen cards."""
        told, loops = row.told, MachineCode.loops
        if told is not None and told[0] and loops is not None:
            row.feasible += loops.score_shares(at, *told[1])
            return
        compares = self._weights.nodeorder is not None and is_relative(row)
        if row.more is not None and compares != row.more.is_relative:
            row.more.is_relative = compares
            at = self._all
        plan = None if loops is None or compares else self._plan(row)
        if loops is None or plan is None:
            self._score(row, at)
        else:
            self._run(loops, row, plan, at)

    def _plan(self, row: Row) -> Ints | None:
        if not row.is_planned:
            row.is_planned = True
            row.plan = plan_of(
                self._columns,
                row,
                self._policy,
                self._device.name,
                image_micro=self._image_micro,
                is_cut=row.more is not None and row.more.is_cut,
            )
        return row.plan

    def _run(self, loops: Loops, row: Row, plan: Ints, at: Ints) -> None:
        """Score in machine code."""
        told = row.told
        if told is None:
            told = self._tell(row, plan)
            row.told = None if row.varies else told
        counts_shares_alone, arguments = told
        score = loops.score_shares if counts_shares_alone else loops.score_positions
        row.feasible += score(at, *arguments)

    def _tell(self, row: Row, plan: Ints) -> Told:
        """Whether `kernel.score_shares` knows all that counts, and what the loops take beside
        positions.
        """
        columns = self._columns
        mask = admitted_cards(row, columns)
        plan[HAS_MASK] = mask is not None
        free, found = (columns.host, columns.packed, columns.keys), (row.rank, row.fit, row.chosen)
        others = mask, row.barred, row.rules, row.images, row.more
        if row.shape.asks and not self._weighs_fit and not any(each is not None for each in others):
            return True, (*free, row.static.codes, plan, *found, row.top.kept)
        return False, (
            *free,
            columns.sizes,
            columns.unsaid,
            row.static.codes,
            _numbers(row),
            _no_mask if mask is None else mask,
            _no_images if row.images is None else row.images.points,
            plan,
            *found,
            row.fit_micro,
            _no_parts if row.more is None else row.more.micro,
            row.top.kept,
        )

    def _score(self, row: Row, at: Ints) -> None:
        """Score in NumPy."""
        shape = row.shape
        view = View(self._columns, at, self._first[: len(at)])
        fit: Bools = _all(view.host[:HOST_ROWS] >= shape.host_need)
        for resource, amount in shape.extended_need:
            fit &= view.host[resource] >= amount
        if row.static.refused:
            fit &= row.static.codes.take(at) == 0
        if row.rules is not None:
            fit &= row.rules.numbers.take(at) == 0
        if row.barred is not None:
            fit &= row.barred.take(at) == 0
        points, leftover = self._device.bare(view, shape)
        fit_micro: Ints = _nothing
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
            if self._weighs_fit:
                fit_micro = fit_micro + self._fit_of(ask, best)
            if len(shape.asks) > 1:
                take(view, ask, best, flat)
        if shape.may_exceed:
            points = None if points is None else np.minimum(points, _points_most)
            fit_micro = np.minimum(fit_micro, _points_most)
        if self._weighs_fit and shape.asks:
            row.fit_micro[at if row.wastes else 0] = fit_micro
            fit_micro = fit_micro * self._fit_weight
        if row.more is not None:
            micro = fit_micro if points is None else points * self._plain_device_weight + fit_micro
            self._score_more(row, row.more, view, fit, micro, leftover)
            return
        total = _nothing if points is None else points * self._device_weight
        total = total + (fit_micro << _leftover_bits)
        if leftover is not None:
            total = total + np.maximum(_leftover_max - leftover, _zero)
        else:
            total = total + _leftover_max
        if self._host_policy != "none":
            total = total + self._host_weight * self._host_points(shape, view.host)
        self._store(row, at, np.where(fit, total, _no_fit), fit)

    def _score_more(
        self,
        row: Row,
        more: More,
        view: View,
        fit: Bools,
        micro: Ints,
        leftover: Ints | None,
    ) -> None:
        """The same where plugins count or totals can be cut off; `micro` is what the cards earn."""
        at, order, compares = view.at, self._weights.nodeorder, more.is_relative
        if self._host_policy != "none":
            micro = micro + self._plain_host_weight * self._host_points(row.shape, view.host)
        terms = more.terms.micro(view)
        if row.images is not None:  # part of nodeorder's term, which is the first
            terms[0] = terms[0] + row.images.points.take(at) * self._image_micro
        for part, term in zip(more.parts, terms, strict=True):
            part[at] = term
            micro = micro + term
        for _, column in more.worths:
            micro = micro + column.take(at)
        kept = _leftover_max if leftover is None else np.maximum(_leftover_max - leftover, _zero)
        if compares or more.is_cut:
            more.alone_micro[at] = micro
        if order is not None and compares:
            more.kept[at] = kept
            row.fit[at] = fit
            more.relative_micro = relative_micro(row, order)
            rank = _ranks(more, more.alone_micro + more.relative_micro, more.kept, row.fit)
            differs = rank != row.rank
            differs[at] = True  # the same rank may have other cards now
            at = differs.nonzero()[0]
            self._store(row, at, rank[at], row.fit[at])
        else:
            self._store(row, at, _ranks(more, micro + self._constant, kept, fit), fit)

    def _fit_of(self, ask: Ask, best: Ints) -> Ints:
        """The points of the chosen cards for what is asked for of what they give."""
        if not ask.wastes:
            return np.array(ask.number * FULL_MICRO)
        micro: Ints = ask.fit_micro[best & self._columns.kind_mask]
        return micro if ask.number == 1 else micro.sum(axis=1)

    def _host_points(self, shape: Shape, host: Ints) -> Ints:
        cpu_milli, memory_kib = shape.host_charge
        total = host[CPU_WEIGHT] * cpu_milli
        total += host[KIB_WEIGHT] * memory_kib
        total += host[HOST_SUM]
        points: Ints = total >> _host_bits
        return points if self._host_policy == "binpack" else _full - points

    def _store(self, row: Row, at: Ints, rank: Ints, fit: Bools) -> None:
        top, before = row.top, row.rank[at]
        moved = (np.maximum(before, rank) >= top.floor_rank).nonzero()[0]
        row.rank[at] = rank
        row.fit[at] = fit
        row.feasible = int(np.count_nonzero(row.fit))
        if len(moved) > MOVED_MAX:
            top.forget()
            return
        of_position = dict(zip(at[moved].tolist(), moved.tolist(), strict=True))
        for position, number in of_position.items():
            top.change(position, int(before[number]), int(rank[number]))


def _numbers(row: Row) -> Ints:
    """What speaks against nodes (N,) beside their facts: other pods, and for whom they are kept."""
    if row.rules is None:
        return row.static.codes if row.barred is None else row.barred
    return row.rules.numbers if row.barred is None else row.rules.numbers + row.barred


def _ranks(more: More, micro: Ints, kept: Ints, fit: Bools) -> Ints:
    if more.is_cut:
        micro = np.minimum(micro, _total_most)
    ranks: Ints = np.where(fit, (micro << _leftover_bits) + kept, _no_fit)
    return ranks
