"""Rows that say the same but for a name, as one row: ``200 × default/web-0 …``."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")
PLACES_SHOWN = 3


def grouped(items: Iterable[T], shape: Callable[[T], Hashable]) -> list[list[T]]:
    """Those of equal shape together, in the order in which the shapes first occur."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(shape(item), []).append(item)
    return list(found.values())


def runs(items: Iterable[T], shape: Callable[[T], object]) -> list[list[T]]:
    """Those of equal shape that follow one another, where the order matters."""
    return [list(same) for _, same in groupby(items, shape)]


def many(names: Sequence[str]) -> str:
    """The one name, or how many there are and the first."""
    return names[0] if len(names) == 1 else f"{len(names):,} × {names[0]} …"


def places(nodes: Iterable[str]) -> str:
    """Where they are, most first: ``gpu-01 (8), gpu-02``; three nodes, and how many more."""
    counts = Counter(node for node in nodes if node)
    shown = [
        f"{node} ({count})" if count > 1 else node
        for node, count in counts.most_common(PLACES_SHOWN)
    ]
    more = len(counts) - PLACES_SHOWN
    return ", ".join([*shown, f"{more} more nodes"] if more > 0 else shown)
