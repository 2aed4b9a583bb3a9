"""What the board keeps per request and per constraints, and arithmetic that its parts share."""

import numpy as np

from allotment.core import reasons
from allotment.core.columns import CORES, MEMORY, SLOTS, Bools, Columns, Ints
from allotment.core.shapes import Ask, Shape

NO_FIT = -1

CODES = ("", *reasons.EXPLANATIONS)
"""Reason codes by number, so that they fit a column; number 0 is "none"."""
NUMBER = {code: number for number, code in enumerate(CODES)}

every = np.logical_and.reduce
_NOT_ASKED = object()
"""Not a fact, and not the absence of one."""


class Static:
    """Per position the reason why the constraints refuse the node (0: they do not)."""

    def __init__(self, positions: int) -> None:
        self.codes = np.zeros(positions, np.int64)
        self.facts: list[object] = [_NOT_ASKED] * positions
        self.refused = 0
        """How many positions have a reason."""
        self.cursor = 0


class Row:
    """One request's answers by position, up to date to `cursor` in the list of changes."""

    def __init__(self, shape: Shape, static: Static, allowed: Bools | None, columns: Columns):
        self.shape = shape
        self.static = static
        self.allowed = allowed
        self.kinds = len(columns.kinds)
        self.cursor = 0
        self.feasible = 0
        self.rank = np.full(len(columns), NO_FIT, np.int64)
        self.slots: list[Ints] = [
            np.zeros((len(columns), ask.number), np.int64)
            for ask in shape.asks
            if ask.number <= columns.depth
        ]
        self.reasons: Ints | None = None
        """Numbers of the reasons where it does not fit; made when first asked for."""
        self.reasons_cursor = 0
        self.is_impossible = (
            shape.unlisted or shape.unknown_family or len(self.slots) < len(shape.asks)
        )
        """No node can have what is asked for, whatever is free."""


def good_cards(row: Row, ask: Ask, at: Ints, kind: Ints, free: Ints) -> Bools:
    """Which cards (M, D) take one unit of the request."""
    good: Bools = every(free >= ask.need.take(kind, axis=1), axis=0)
    return good if row.allowed is None else good & row.allowed.take(at, axis=0)


def take(
    free: Ints, keys: dict[str, Ints], flat: Ints, charge: Ints, cores_pct: int, depth: int
) -> None:
    """Charge chosen cards on copies, for the pod's next device request."""
    free[SLOTS].reshape(-1)[flat] -= 1
    free[MEMORY].reshape(-1)[flat] -= charge
    free[CORES].reshape(-1)[flat] -= cores_pct
    if "fullest" in keys:
        keys["fullest"].reshape(-1)[flat] += charge * depth
    if "emptiest" in keys:
        keys["emptiest"].reshape(-1)[flat] -= depth
