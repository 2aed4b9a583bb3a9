"""`relative` on columns: what nodes earn beside the others on which the pod fits.

It is worked out for all positions at once whenever anything changed, because one node can matter to
every other; rows without such terms never come here.
"""

import numpy as np

from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.board.rows import Row
from allotment.core.placement.rules.nodeorder import POINTS, NodeOrder
from allotment.core.placement.rules.points import POINT_MICRO

_points = np.array(POINTS)
_MOST = 1 << 62


def constant_micro(order: NodeOrder) -> int:
    """What every node earns if nothing makes one better than another."""
    return order.taints * POINTS * POINT_MICRO


def is_relative(row: Row) -> bool:
    """Whether anything does: a preference, a taint, another pod."""
    rules = row.rules
    return bool(
        row.static.softs
        or row.shape.request.constraints.preferred
        or (rules is not None and rules.is_relative)
    )


def relative_micro(row: Row, order: NodeOrder) -> Ints:
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
