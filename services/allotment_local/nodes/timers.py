"""Many delayed actions on one clock, run by one task: a thousand pods need no thousand tasks.

The clock is an argument, so tests move time by hand and call `run_due`.
"""

import heapq
import logging
from collections.abc import Callable

import anyio

BATCH = 200
"""Actions run before other tasks get a turn."""
_logger = logging.getLogger(__name__)


class Timer:
    """One action to come. Cancelling is free; the entry is dropped when its time comes."""

    __slots__ = ("action", "due_s")

    def __init__(self, due_s: float, action: Callable[[], None]) -> None:
        self.due_s = due_s
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """Actions in order of their time; those of the same time in the order they were asked for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._asked = 0
        self._earlier = anyio.Event()

    def now(self) -> float:
        """The clock these timers run on, in seconds."""
        return self._clock()

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run `action` in `delay_s` seconds, never within this call."""
        timer = Timer(self._clock() + delay_s, action)
        self._asked += 1
        heapq.heappush(self._heap, (timer.due_s, self._asked, timer))
        if self._heap[0][2] is timer:
            self._earlier.set()
        return timer

    def run_due(self, limit: int = BATCH) -> int:
        """Run up to `limit` actions whose time has come; returns how many."""
        done = 0
        while done < limit and self._heap and self._heap[0][0] <= self._clock():
            _, _, timer = heapq.heappop(self._heap)
            if timer.action is None:
                continue
            done += 1
            try:
                timer.action()
            except Exception:
                # One pod's trouble must not stop the others, nor the API server around us.
                _logger.exception("a timer of the fake nodes failed")
        return done

    async def run(self) -> None:
        """Run actions for ever, sleeping in between; end it by cancelling."""
        while True:
            self._earlier = anyio.Event()
            if self.run_due():
                await anyio.lowlevel.checkpoint()
            elif not self._heap:
                await self._earlier.wait()
            else:
                with anyio.move_on_after(self._heap[0][0] - self._clock()):
                    await self._earlier.wait()
