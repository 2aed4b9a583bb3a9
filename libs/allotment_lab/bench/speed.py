"""How fast this machine is just now: the CPU time of one turn of an empty loop.

A virtual machine may run Python several times as fast for moments as it does otherwise (its host
switches the prediction of branches on and off): on the machine of the baseline the loop takes 130
ns, and now and then 30 or 40 for some tenths of a second. The quickest of a few timings finds just
these moments. So a look is the median of many short loops, there is one before and one after what
is measured, and looks that are far apart say that what was measured cannot be scaled.
"""

import time
from statistics import median

TURNS = 20_000
LOOPS = 51
CHANGE_PERCENT_MAX = 20
"""Looks that differ by more do not tell at what speed the bench ran."""

_looks: list[float] = []


def begin() -> None:
    """Forget all looks and take the first."""
    _looks.clear()
    look()


def look() -> float:
    """Take a look, at a moment that matters to what is measured; an empty loop's turn, CPU ns."""
    _looks.append(median(_turn_ns() for _ in range(LOOPS)))
    return _looks[-1]


def calibrate_ns() -> float:
    """A last look, and the median of all since `begin`."""
    look()
    return round(median(_looks), 1)


def change_percent() -> float:
    """By how much the slowest of all looks since `begin` is slower than the quickest."""
    return round(100 * (max(_looks) / min(_looks) - 1), 1) if _looks else 0.0


def _turn_ns() -> float:
    start = time.thread_time_ns()
    for _ in range(TURNS):
        pass
    return (time.thread_time_ns() - start) / TURNS
