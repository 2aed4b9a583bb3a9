"""Counted values: how often a duration fell into which bucket. Cheap to count, read when scraped.

Durations come in integer microseconds; bounds and what is shown are in milliseconds, as in the
metrics of Volcano that these stand for.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

US_PER_MS = 1000


def spread(least_ms: float, most_ms: float, number: int) -> tuple[float, ...]:
    """So many bounds from the least to the most, each the same multiple of the one before."""
    growth = (most_ms / least_ms) ** (1 / (number - 1))
    return tuple(float(f"{least_ms * growth**step:.4g}") for step in range(number))


class _Buckets:
    """The counts of one row. The last bucket has no bound."""

    __slots__ = ("counts", "sum_us")

    def __init__(self, number: int) -> None:
        self.counts = [0] * (number + 1)
        self.sum_us = 0

    def cumulative(self) -> list[int]:
        """How many values were at most each bound; the last: how many there were."""
        return list(accumulate(self.counts))


class Histogram:
    """One metric: its rows by label values."""

    __slots__ = ("bounds_ms", "labels", "name", "rows", "text")

    def __init__(
        self, name: str, text: str, bounds_ms: Sequence[float], labels: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.text = text
        self.bounds_ms = tuple(bounds_ms)
        self.labels = labels
        self.rows: dict[tuple[str, ...], _Buckets] = {}
        if not labels:
            self.rows[()] = _Buckets(len(self.bounds_ms))

    def observe(self, value_us: int, *labels: str) -> None:
        """Count one duration. One below 0 (clocks of two machines) counts as 0."""
        row = self.rows.get(labels)
        if row is None:
            row = self.rows[labels] = _Buckets(len(self.bounds_ms))
        value_us = max(value_us, 0)
        row.counts[bisect_left(self.bounds_ms, value_us / US_PER_MS)] += 1
        row.sum_us += value_us
