"""Work by key: each at most once at a time, when it is due, and again later when it failed."""

import heapq
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
    """Raised when the server said no, and will say so again unless somebody changes something."""


class Work(Generic[K]):
    """Keys that are to be worked on. `add` from anywhere in the event loop.

    An error beside Again is a defect, and ends the work on its key for a while, not the others':
    one odd object must not hold up all. `on_failure` is given the key and what was raised.
    """

    def __init__(self, random: Random, on_failure: Callable[[K, Exception], None]) -> None:
        self.done = 0
        self.defects = 0
        self._random = random
        self._on_failure = on_failure
        self._due_s: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._number = 0
        self._busy: set[K] = set()
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
        async with anyio.create_task_group() as group:
            while True:
                await places.acquire()
                key = await self._next()
                self._busy.add(key)
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
            wait_s: float | None = None
            held: list[tuple[float, int, K]] = []
            found: K | None = None
            while self._timers:
                due_s, number, key = self._timers[0]
                if self._due_s.get(key) != due_s:  # it was planned anew
                    heapq.heappop(self._timers)
                    continue
                if due_s > anyio.current_time():
                    wait_s = due_s - anyio.current_time()
                    break
                heapq.heappop(self._timers)
                if key in self._busy:
                    held.append((due_s, number, key))
                    continue
                del self._due_s[key]
                found = key
                break
            for timer in held:
                heapq.heappush(self._timers, timer)
            if found is not None:
                return found
            with anyio.move_on_after(wait_s):
                await self._stirred.wait()
