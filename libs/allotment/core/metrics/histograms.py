"""Counted values: how often a duration fell into which bucket. Cheap to count, read when scraped.

Durations come in integer microseconds. Bounds and what is shown are in milliseconds in the metrics
that have Volcano's names, and in seconds in our own.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from allotment.core.trace_ids import trace_id

US_PER_MS = 1000
US_PER_S = 1_000_000


class Example(NamedTuple):
    """One of the values that were counted: of which pod (uid), and by which record. Most
    are never looked up: their trace is worked out on request.
    """

    value_us: int
    uid: str
    seq: int
    at_ms: int

    @property
    def trace_id(self) -> str:
        """The pod's trace."""
        return trace_id(self.uid)


def spread(least_ms: float, most_ms: float, number: int) -> tuple[float, ...]:
    """So many bounds from the least to the most, each the same multiple of the one before."""
    growth = (most_ms / least_ms) ** (1 / (number - 1))
    return tuple(float(f"{least_ms * growth**step:.4g}") for step in range(number))


class _Buckets:
    """The counts of one row. The last bucket has no bound."""

    __slots__ = ("counts", "examples", "sum_us")

    def __init__(self, number: int) -> None:
        self.counts = [0] * (number + 1)
        self.sum_us = 0
        self.examples: dict[int, Example] = {}
        """By bucket, the last value of it that came with one."""

    def cumulative(self) -> list[int]:
        """How many values were at most each bound; the last: how many there were."""
        return list(accumulate(self.counts))


class Histogram:
    """One metric: its rows by label values."""

    __slots__ = ("bounds", "labels", "name", "rows", "text", "unit_us")

    def __init__(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        labels: tuple[str, ...] = (),
        unit_us: int = US_PER_MS,
    ) -> None:
        """`bounds` are in units of `unit_us`, and so is what is shown."""
        self.name = name
        self.text = text
        self.bounds = tuple(bounds)
        self.labels = labels
        self.unit_us = unit_us
        self.rows: dict[tuple[str, ...], _Buckets] = {}
        if not labels:
            self.rows[()] = _Buckets(len(self.bounds))

    def observe(self, value_us: int, *labels: str, example: Example | None = None) -> None:
        """Count one duration, of which `example` tells. One below 0 (clocks of two machines) counts
        as 0.
        """
        row = self.rows.get(labels)
        if row is None:
            row = self.rows[labels] = _Buckets(len(self.bounds))
        value_us = max(value_us, 0)
        bucket = bisect_left(self.bounds, value_us / self.unit_us)
        row.counts[bucket] += 1
        row.sum_us += value_us
        if example is not None:
            row.examples[bucket] = example
