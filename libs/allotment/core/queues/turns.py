"""Namespaces take turns among pods and groups that nothing else orders.

So a namespace with thousands of waiting pods delays another's next pod by a turn and not by
thousands. Whose turn it is follows from the log: the namespace that was given something longest ago
comes first. Within a namespace the older comes first. Priority, and whatever else the plugins of
the policy order by, counts before turns do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeVar

_T = TypeVar("_T", bound=object)


def in_turns(
    items: Iterable[_T],
    level: Callable[[_T], object],
    namespace: Callable[[_T], str],
    served: Mapping[str, int],
) -> Iterator[_T]:
    """Things in order, level by level; within one the namespaces take turns.

    `items` are sorted by level, then by arrival. The smaller a namespace's number in `served`, the
    sooner its turn comes; those without one come first, and of equals the one that arrived first.
    """
    for _, tied in groupby(items, key=level):
        rows: dict[str, list[_T]] = {}
        for item in tied:
            rows.setdefault(namespace(item), []).append(item)
        names = sorted(rows, key=lambda name: served.get(name, 0))
        yield from take_turns(iter(rows[name]) for name in names)


def take_turns(rows: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """The next of each row, and again, until all came to their end. Rows are asked for lazily."""
    while True:
        left: list[Iterator[_T]] = []
        for row in rows:
            for item in row:
                yield item
                left.append(row)
                break
        if not left:
            return
        rows = left
