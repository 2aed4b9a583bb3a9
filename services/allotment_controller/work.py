"""Work by key: each at most once at a time, when it is due, and again later when it failed.

Owners of keys (namespaces) take turns, and one of them has at most half of the workers: however
much one of them brings, another's next key comes soon.
"""

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from random import Random
from typing import Generic, Never, TypeVar

import anyio

from allotment.adapters.kube.watch_events import Backoff

K = TypeVar("K", bound=Hashable)
BACKOFF = Backoff(first_s=0.2, max_s=30.0)


class Again(Exception):
    """Raised by work that could not be finished now; the text says why, for the service's log."""


class Denied(Again):
    """Raised when the server refused, and will refuse again until something changes."""


class Work(Generic[K]):
    """Keys that are to be worked on. `add` from anywhere in the event loop.

    Any other error is a defect, and ends the work on its key for a while, not the others':
    one odd object must not hold up all. `on_failure` is given the key and what was raised.
    """

    def __init__(
        self,
        random: Random,
        on_failure: Callable[[K, Exception], None],
        owner_of: Callable[[K], Hashable] = lambda key: "",
    ) -> None:
        self.done = 0
        self.defects = 0
        self._random = random
        self._on_failure = on_failure
        self._due_s: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._number = 0
        self._owner_of = owner_of
        self._ready: dict[Hashable, dict[K, None]] = {}
        """Keys that are due, by owner; the owner whose turn is next is in front."""
        self._busy: set[K] = set()
        self._busy_of: Counter[Hashable] = Counter()
        self._most_of_one = 1
        self._failed: dict[K, int] = {}
        self._stirred = anyio.Event()

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Work on `key` in `delay_s`, or earlier if that was planned."""
        due_s = anyio.current_time() + delay_s
        if self._due_s.get(key, due_s + 1.0) <= due_s:
            return
        self._due_s[key] = due_s
        self._number += 1
        heapq.heappush(self._timers, (due_s, self._number, key))
        self._stirred.set()

    def __len__(self) -> int:
        return len(self._due_s) + len(self._busy)

    async def run(self, handle: Callable[[K], Awaitable[None]], workers: int) -> Never:
        """Work until cancelled, on `workers` keys at once. `handle` raises Again for what is to be
        tried later.
        """
        places = anyio.Semaphore(workers, fast_acquire=True)
        self._most_of_one = max(workers // 2, 1)
        async with anyio.create_task_group() as group:
            while True:
                await places.acquire()
                key = await self._next()
                self._busy.add(key)
                self._busy_of[self._owner_of(key)] += 1
                group.start_soon(self._work, handle, key, places)
        raise AssertionError("work never ends by itself")

    async def _work(
        self, handle: Callable[[K], Awaitable[None]], key: K, places: anyio.Semaphore
    ) -> None:
        try:
            await handle(key)
        except Exception as error:
            self._fail(key, error)
        else:
            self._failed.pop(key, None)
            self.done += 1
        finally:
            self._busy.discard(key)
            self._busy_of[self._owner_of(key)] -= 1
            self._stirred.set()
            places.release()

    def _fail(self, key: K, why: Exception) -> None:
        self.defects += not isinstance(why, Again)
        times = self._failed[key] = self._failed.get(key, 0) + 1
        self._on_failure(key, why)
        self.add(key, BACKOFF.delay_s(times, self._random))

    async def _next(self) -> K:
        while True:
            self._stirred = anyio.Event() if self._stirred.is_set() else self._stirred
            wait_s = self._take_due()
            key = self._choose()
            if key is not None:
                return key
            with anyio.move_on_after(wait_s):
                await self._stirred.wait()

    def _take_due(self) -> float | None:
        """Make the keys ready that are due; how long until the next one is, None without one."""
        while self._timers:
            due_s, _, key = self._timers[0]
            if self._due_s.get(key) == due_s:  # else it was planned again
                wait_s = due_s - anyio.current_time()
                if wait_s > 0:
                    return wait_s
                self._ready.setdefault(self._owner_of(key), {})[key] = None
            heapq.heappop(self._timers)
        return None

    def _choose(self) -> K | None:
        """The next key of the owner whose turn it is and that may have another worker."""
        for owner, keys in self._ready.items():
            if self._busy_of[owner] >= self._most_of_one:
                continue
            key = next((key for key in keys if key not in self._busy), None)
            if key is None:
                continue
            del self._ready[owner], keys[key], self._due_s[key]
            if keys:
                self._ready[owner] = keys  # behind all others
            if not self._busy_of[owner]:
                del self._busy_of[owner]
            return key
        return None
