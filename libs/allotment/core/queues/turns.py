"""Namespaces take turns among pods and groups that nothing else orders.

So a namespace with thousands of waiting pods delays another's next pod by one turn, not by
thousands. The order of turns follows from the log: the namespace that was served longest ago comes
first. Within a namespace the older comes first. Priority, and whatever else the plugins of the
policy order by, counts before turns do.
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
    """The items in order, level by level; within a level namespaces take turns.

    `items` are sorted by level, then by arrival. The smaller a namespace's number in `served`, the
    sooner its turn; those without one come first, and of equals the one that arrived first.
    """
    for _, tied in groupby(items, key=level):
        rows: dict[str, list[_T]] = {}
        for item in tied:
            rows.setdefault(namespace(item), []).append(item)
        names = sorted(rows, key=lambda name: served.get(name, 0))
        yield from take_turns(iter(rows[name]) for name in names)


def take_turns(rows: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """The next item of each row, again and again, until all rows end. Rows are read lazily."""
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
