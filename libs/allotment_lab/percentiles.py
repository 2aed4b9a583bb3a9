"""Percentiles of what was measured."""

from collections.abc import Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def percentile(ordered: Sequence[Number], percent: int) -> Number:
    """The smallest value that `percent` of an ordered, non-empty sequence do not exceed: one of
    those measured (the nearest rank), never one between two.
    """
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]
