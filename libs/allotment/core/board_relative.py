"""`relative` on columns, and what rows keep for it: totals before nodes are compared.

Where a pod fits, and how good a place is by itself, is scored where something changed only. What a
node earns beside the others is worked out for all positions at once whenever anything changed; rows
without such terms never come here.
"""

import numpy as np

from allotment.core.board_terms import Terms
from allotment.core.packing import Bools, Ints
from allotment.core.points import POINT_MICRO
from allotment.core.term_weights import NodeOrder
from allotment.core.terms import POINTS

_points = np.array(POINTS)


class More:
    """Of a row (N,): each plugin's term, the sum of all terms and what is kept of the cards, and
    what nodes earn beside the others: by position, or the same everywhere."""

    def __init__(self, positions: int, terms: Terms) -> None:
        self.terms = terms
        self.parts = [np.zeros(positions, np.int64) for _ in terms.names]
        self.alone_micro = np.zeros(positions, np.int64)
        self.kept = np.zeros(positions, np.int64)
        self.relative_micro: Ints | int = -1
        """−1: not worked out yet."""

    def relative_at(self, position: int) -> int:
        found = self.relative_micro
        return found if isinstance(found, int) else int(found[position])


def scaled_up(raw: Ints, fit: Bools) -> Ints:
    """`relative.scaled_up`, over the positions that fit; any number elsewhere."""
    most = int(raw.max(initial=0, where=fit))
    points: Ints = raw * _points // most if most else np.zeros(len(raw), np.int64)
    return points


def scaled_down(raw: Ints, fit: Bools) -> Ints:
    points: Ints = _points - scaled_up(raw, fit)
    return points


def scaled_between(raw: Ints, fit: Bools) -> Ints:
    least = int(raw.min(initial=1 << 62, where=fit))
    most = int(raw.max(initial=-(1 << 62), where=fit))
    if most <= least:
        return np.zeros(len(raw), np.int64)
    points: Ints = (raw - least) * _points // (most - least)
    return points


def scaled_spread(raw: Ints, takes_part: Bools) -> Ints:
    most = int(raw.max(initial=0, where=takes_part))
    if not most:
        return _points * takes_part
    least = int(raw.min(initial=1 << 62, where=takes_part))
    points: Ints = _points * (most + least - raw) // most
    return points * takes_part


def constant_micro(order: NodeOrder) -> int:
    """What every node earns if nothing makes one better than another."""
    return order.taints * POINTS * POINT_MICRO
