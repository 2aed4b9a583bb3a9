"""Objects that change too often, or whose namespace has written too much: recorded later."""

from collections import Counter
from collections.abc import Callable
from typing import Never

import anyio

from allotment_watcher.throttle import Spending

LATE_EVERY_S = 1.0
LATE_AT_ONCE = 256
"""Objects of one namespace that are looked at again at a time."""
NAMED_MAX = 20
OTHERS = "(others)"


class Late:
    """What is to be looked at again, each by its uid or name; the newest look counts."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._waiting: dict[str, tuple[str, Callable[[], None]]] = {}
        """Namespace, and how to look again."""

    def __len__(self) -> int:
        return len(self._waiting)

    def by_namespace(self) -> dict[tuple[str, ...], int]:
        """How many objects of each namespace wait; only of some of them by name."""
        found = Counter(namespace for namespace, _ in self._waiting.values())
        named = found.most_common(NAMED_MAX)
        rest = found.total() - sum(count for _, count in named)
        rows: dict[tuple[str, ...], int] = {(name,): count for name, count in named}
        return rows | {(OTHERS,): rest} if rest else rows

    def add(self, key: str, namespace: str, look: Callable[[], None]) -> None:
        self._waiting[key] = namespace, look

    def drop(self, key: str) -> None:
        """What is recorded of the object is what it is now, or it is gone."""
        self._waiting.pop(key, None)

    def clear(self) -> None:
        self._waiting.clear()

    async def run(self, *also: Callable[[], None]) -> Never:
        """Look again for ever; `also` are called each time."""
        while True:
            await anyio.sleep(LATE_EVERY_S)
            for look in (self.look, *also):
                look()
        raise AssertionError("unreachable")

    def look(self) -> None:
        """Look again at objects that may be recorded now. Those that may not wait at the end."""
        self._spending.forget_rested()
        looked = Counter[str]()
        for key, (namespace, look) in list(self._waiting.items()):
            if looked[namespace] < LATE_AT_ONCE and not self._spending.is_spent(namespace):
                looked[namespace] += 1
                del self._waiting[key]
                look()
