"""How long this binder takes for a pod, under Volcano's names: preparing it, and its Binding."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from allotment.core.metrics.histograms import Histogram
from allotment.core.metrics.schedule import stage_duration, task_latency

PRE_BIND, BIND, PRE_BOUND = "PreBind", "Bind", "PreBound"
T = TypeVar("T")


class BindTimes:
    """The histograms, in the names of which other rows are the scorer's."""

    def __init__(self) -> None:
        self._stage = stage_duration()
        self._task = task_latency()

    def histograms(self) -> list[Histogram]:
        return [self._stage, self._task]

    def begin(self, created_ms: int) -> "BindTime":
        """A pod's turn has come; it was created at that Unix time."""
        return BindTime(self._stage, self._task, created_ms)


class BindTime:
    """One pod's: `prepared` right before its Binding, `bound` when that has succeeded."""

    def __init__(self, stage: Histogram, task: Histogram, created_ms: int) -> None:
        self._stage = stage
        self._task = task
        self._created_ms = created_ms
        self._sent_us = _now_us()

    async def prepared(self, prepare: Callable[[], Awaitable[T]]) -> T:
        """Do what has to be done before the Binding, and time it."""
        begun_us = _now_us()
        found = await prepare()
        self._sent_us = _now_us()
        self._stage.observe(self._sent_us - begun_us, PRE_BIND)
        self._task.observe(time.time_ns() // 1000 - self._created_ms * 1000, PRE_BOUND)
        return found

    def bound(self) -> None:
        self._stage.observe(_now_us() - self._sent_us, BIND)


def _now_us() -> int:
    return time.perf_counter_ns() // 1000
