"""One resource's objects and its recent history: what lists and watches read.

The history is the queue of every watcher: a watcher is only a position in it, so a write costs the
same with one watcher or a hundred. Who falls behind the oldest remembered event gets 410 and lists
again. Each version of an object is encoded to JSON at most once; lists, replies and all watchers
share those bytes.
"""

import asyncio
from bisect import bisect_right
from operator import attrgetter
from typing import Literal

import msgspec

from allotment_local.apiserver.errors import JsonObject

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
encode = msgspec.json.Encoder().encode


class Entry:
    """One version of one object."""

    __slots__ = ("_encoded", "name", "namespace", "obj", "version")

    def __init__(self, namespace: str, name: str, obj: JsonObject, version: int) -> None:
        self.namespace = namespace
        self.name = name
        self.obj = obj
        self.version = version
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = encode(self.obj)
        return self._encoded


class Event:
    """One write: the object after it and, for selectors that watch transitions, before it."""

    __slots__ = ("_line", "entry", "previous", "type", "version")

    def __init__(self, type_: EventType, entry: Entry, previous: Entry | None) -> None:
        self.type = type_
        self.entry = entry
        self.previous = previous
        self.version = entry.version
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The event as every unfiltered watcher reads it."""
        if self._line is None:
            self._line = watch_line(self.type, self.entry.encoded)
        return self._line


def watch_line(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), encoded)


class Collection:
    """All objects of one resource, by namespace and name; cluster-wide ones under namespace ""."""

    def __init__(self, *, oldest_version: int, history_limit: int) -> None:
        self._by_namespace: dict[str, dict[str, Entry]] = {}
        self._count = 0
        self._history: list[Event] = []
        self._history_limit = history_limit
        self._dropped = 0
        self._waiting: list[asyncio.Future[None]] = []
        # A watch may start at this version: everything after it is still in the history.
        self.oldest_version = oldest_version

    def __len__(self) -> int:
        return self._count

    def get(self, namespace: str, name: str) -> Entry | None:
        objects = self._by_namespace.get(namespace)
        return objects.get(name) if objects else None

    def entries(self, namespace: str | None = None) -> list[Entry]:
        """In the order they were created; of one namespace, or of all with None."""
        if namespace is not None:
            return list(self._by_namespace.get(namespace, {}).values())
        return [entry for objects in self._by_namespace.values() for entry in objects.values()]

    def oldest(self) -> Entry | None:
        """The entry that was created first, among those not written to since; None when empty."""
        firsts = [next(iter(objects.values())) for objects in self._by_namespace.values()]
        return min(firsts, key=attrgetter("version"), default=None)

    def record(self, event: Event) -> None:
        """Apply one write and wake its waiters."""
        entry = event.entry
        if event.type == "DELETED":
            objects = self._by_namespace[entry.namespace]
            del objects[entry.name]
            self._count -= 1
            if not objects:
                del self._by_namespace[entry.namespace]
        else:
            objects = self._by_namespace.setdefault(entry.namespace, {})
            self._count += entry.name not in objects
            objects[entry.name] = entry
        self._history.append(event)
        if len(self._history) > 2 * self._history_limit:
            surplus = len(self._history) - self._history_limit
            self.oldest_version = self._history[surplus - 1].version
            del self._history[:surplus]
            self._dropped += surplus
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self, timeout_s: float) -> None:
        """Return at the next write, after `timeout_s`, or when woken for shutdown."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def position_after(self, version: int) -> int:
        """Where in the history the first event newer than `version` is, or will be."""
        return self._dropped + bisect_right(self._history, version, key=attrgetter("version"))

    def since(self, position: int, limit: int) -> list[Event] | None:
        """Up to `limit` events from `position` on; None when that part is forgotten."""
        start = position - self._dropped
        if start < 0:
            return None
        return self._history[start : start + limit]
