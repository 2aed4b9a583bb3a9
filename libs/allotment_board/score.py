"""Ranks of nodes for one request: whether it fits, its points, its best fit, in one integer.

    rank = (weight × points of device, fit and host + terms) · 2²³ + (2²³ − 1 − leftover)

−1 where the request does not fit. Totals end at `TOTAL_MOST`, so that ranks fit 63 bits; whether
weights can reach that is known beforehand, and what cannot be does not cost anything.

The loops do all of it, position by position, but for terms that compare nodes with each other:
these need all positions at once, and NumPy does them here (`_compare`).
"""

import numpy as np

from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.rules.bounds import bounds_of
from allotment.core.placement.rules.nodeorder import POINTS, NodeOrder
from allotment.core.placement.rules.points import (
    FULL_MICRO,
    LEFTOVER_BITS,
    POINT_MICRO,
    POINTS_MOST,
    TOTAL_MOST,
)
from allotment.core.placement.rules.switches import switches_of
from allotment.core.placement.rules.terms import NONE, most_micro, weights_of
from allotment_board import plan
from allotment_board.columns import Columns
from allotment_board.encode import DeviceNumbers, encode
from allotment_board.interpod import Rules
from allotment_board.loops import Loops, MachineCode
from allotment_board.packing import Bools, Ints
from allotment_board.rows import Call, Row, admitted_cards, scratch_of
from allotment_board.terms import Images, ImageSizes, More
from allotment_board.top import KEPT_MOST, NO_FIT
from allotment_proto.facts import ALONE, Policy

_MOVED_MAX = KEPT_MOST
"""From here on it is cheaper to search the row again than to move rank after rank."""

_no_column: Ints = np.zeros(0, np.int64)
_no_mask: Bools = np.zeros((0, 0), np.bool_)
_no_parts: Ints = np.zeros((0, 0), np.int64)
_points = np.array(POINTS)
_MOST = 1 << 62


class Scorer:
    """Scores positions of rows under one policy."""

    def __init__(self, columns: Columns, policy: Policy, device: DevicePolicy) -> None:
        self._columns = columns
        self._policy = policy
        self._device = DeviceNumbers(columns, policy, device)
        self._all: Ints = np.arange(len(columns))
        self._weights = weights_of(policy)
        self._switches = switches_of(policy)
        self._sizes = ImageSizes(columns)
        order = self._weights.nodeorder
        self._constant = 0 if order is None else _constant_micro(order)
        self._image_micro = 0 if order is None else order.images * POINT_MICRO
        most = (policy.device_weight + policy.fit_weight) * POINTS_MOST
        most += policy.host_weight * FULL_MICRO
        self._most = most + most_micro(self._weights)
        self._is_plain = self._weights == NONE and self._most <= TOTAL_MOST
        """Neither do plugins count nor can totals be cut off: points are the whole rank."""
        self._found = np.zeros((plan.FOUND, len(columns)), np.int64)
        """Room for what the loops find at the positions of one call."""

    def prepare(self, row: Row) -> None:
        """What a new row needs in addition to its columns."""
        request, nodes = row.shape.request, len(self._columns)
        if request.company != ALONE or request.attachments:
            row.rules = Rules(self._columns, request, self._switches)
            row.varies = True
        if request.images and self._image_micro:
            row.images = Images(self._columns, self._sizes, request)
        bonuses = bounds_of(request).bonuses
        if not self._is_plain or bonuses:
            names = [term.name for term, _ in self._weights.active()]
            columns = zip(bonuses, row.static.bonuses, strict=True)
            row.more = More(
                nodes,
                names,
                self._constant,
                [(bonus.term, column) for bonus, column in columns],
                None if row.images is None else (row.images, self._image_micro),
                is_capped=self._most + sum(bonus.most for bonus in bonuses) > TOTAL_MOST,
            )
        row.encoded = encode(self._columns, row, self._policy, self._device, self._weights)

    def score(self, row: Row, at: Ints) -> None:
        """Score the positions `at` (repetitions do no harm) and store ranks and chosen cards."""
        in_use, call = MachineCode.loops, row.call
        more, order, compares = row.more, self._weights.nodeorder, False
        if more is not None:
            compares = order is not None and _is_relative(row)
            # From comparing to not comparing every rank means something else: score all of them.
            if compares != more.is_relative:
                more.is_relative = compares
                at, call = self._all, None
            more.take_over_fixed(at)
        # Machine code may arrive between any two calls, and takes arrays where the uncompiled loops
        # take views: what was made for the ones must not reach the others.
        if call is None or call.loops is not in_use:
            call = self._call(in_use, row)
            row.call = None if row.varies else call
        listed = in_use.listed(at)
        in_use.choose_cards(listed, *call.first)
        row.feasible += in_use.rank_and_store(listed, *call.then)
        if more is not None and order is not None and compares:
            self._compare(row, more, order, at)

    def _call(self, in_use: Loops, row: Row) -> Call:
        """The row's arguments of these loops, without positions."""
        columns, more, encoded = self._columns, row.more, row.encoded
        assert encoded is not None
        mask = admitted_cards(row, columns)
        encoded[plan.HAS_MASK] = mask is not None
        encoded[plan.IS_COMPARED] = more is not None and more.is_relative
        request, taken = in_use.listed(encoded), in_use.taken
        found = taken(self._found)
        codes, numbers = taken(row.static.codes), taken(_numbers(row))
        rank, fit, chosen, top = map(taken, (row.rank, row.fit, row.chosen, row.top.kept))
        host, packed, keys, sizes, unrequested, networks = map(
            taken,
            (
                columns.host,
                columns.packed,
                columns.keys,
                columns.sizes,
                columns.unrequested,
                columns.network,
            ),
        )
        scratch = scratch_of(in_use, columns.depth, len(row.shape.asks))
        admitted = taken(_no_mask if mask is None else mask)
        first = (
            *(found, host, packed, keys, networks, sizes, codes, numbers),
            *(admitted, request, scratch, chosen),
        )
        given = taken(row.fit_micro)
        fixed, parts, kept = _no_column, _no_parts, _no_column
        if more is not None:
            fixed, parts, kept = more.fixed, more.micro, more.kept
        then = (
            *(found, host, sizes, unrequested, taken(fixed), request),
            *(rank, fit, given, taken(parts), taken(kept), top),
        )
        return Call(in_use, first, then)

    def _compare(self, row: Row, more: More, order: NodeOrder, at: Ints) -> None:
        """Rank all positions by what they earn alone and compared with the others."""
        more.relative_micro = _relative_micro(row, order)
        micro = more.alone_micro + more.relative_micro
        if more.is_capped:
            micro = np.minimum(micro, TOTAL_MOST)
        rank: Ints = np.where(row.fit, (micro << LEFTOVER_BITS) + more.kept, NO_FIT)
        differs = rank != row.rank
        differs[at] = True  # the same rank may have other cards now
        at = differs.nonzero()[0]
        top, before, rank = row.top, row.rank[at], rank[at]
        # What was and stays below the floor does not touch the best. Many moves cost more than a
        # search, so then the best are forgotten and found when they are asked for.
        moved = (np.maximum(before, rank) >= top.floor_rank).nonzero()[0]
        row.rank[at] = rank
        if len(moved) > _MOVED_MAX:
            top.forget()
            return
        for number in moved.tolist():
            top.change(int(at[number]), int(before[number]), int(rank[number]))


def _numbers(row: Row) -> Ints:
    """Reasons against nodes (N,) besides their facts: other pods, and what is kept for some."""
    if row.rules is None:
        return row.static.codes if row.excluded is None else row.excluded
    return row.rules.numbers if row.excluded is None else row.rules.numbers + row.excluded


# ---- `rules.relative` on columns: what nodes earn compared with the others that fit. It is
# worked out for all positions at once whenever anything changed, because one node can matter to
# every other; rows without such terms never come here.


def _constant_micro(order: NodeOrder) -> int:
    """What every node earns if nothing makes one better than another."""
    return order.taints * POINTS * POINT_MICRO


def _is_relative(row: Row) -> bool:
    """Whether anything does: a preference, a taint, another pod."""
    rules = row.rules
    return bool(
        row.static.softs
        or row.shape.request.constraints.preferred
        or (rules is not None and rules.is_relative)
    )


def _relative_micro(row: Row, order: NodeOrder) -> Ints:
    """What every position earns; any number where the pod does not fit."""
    static, rules, fit = row.static, row.rules, row.fit
    points: Ints = order.taints * _scaled_down(static.soft, fit)
    if row.shape.request.constraints.preferred:
        points += order.affinity * _scaled_up(static.earned, fit)
    if rules is not None and rules.is_relative:
        points += order.pods * _scaled_between(rules.pods_raw(), fit)
        if rules.has_wishes:
            points += order.spread * _scaled_spread(*rules.spread_raw(fit))
    points *= POINT_MICRO
    return points


def _scaled_up(raw: Ints, fit: Bools) -> Ints:
    most = int(raw.max(initial=0, where=fit))
    points: Ints = raw * _points // most if most else np.zeros(len(raw), np.int64)
    return points


def _scaled_down(raw: Ints, fit: Bools) -> Ints:
    points: Ints = _points - _scaled_up(raw, fit)
    return points


def _scaled_between(raw: Ints, fit: Bools) -> Ints:
    least = int(raw.min(initial=_MOST, where=fit))
    most = int(raw.max(initial=-_MOST, where=fit))
    if most <= least:
        return np.zeros(len(raw), np.int64)
    points: Ints = (raw - least) * _points // (most - least)
    return points


def _scaled_spread(raw: Ints, takes_part: Bools) -> Ints:
    most = int(raw.max(initial=0, where=takes_part))
    if not most:
        return _points * takes_part
    least = int(raw.min(initial=_MOST, where=takes_part))
    points: Ints = _points * (most + least - raw) // most
    return points * takes_part
