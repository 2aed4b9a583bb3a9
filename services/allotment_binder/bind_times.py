"""How long this binder takes for a pod: preparing it and its Binding, under Volcano's names, and
how long after an acknowledgement the pod is sent that waited for it.
"""

import time
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeVar

from allotment.core.explain.rows.acknowledgement import Place
from allotment.core.metrics.histograms import Histogram, spread
from allotment.core.metrics.schedule import stage_duration, task_latency

PRE_BIND, BIND, PRE_BOUND = "PreBind", "Bind", "PreBound"
T = TypeVar("T")


class _Turn(NamedTuple):
    """A device plugin was done with a pod, and these others waited for that."""

    at_ms: int
    waiting: set[str]


class BindTimes:
    """The histograms; of the first two other rows are the scorer's."""

    def __init__(self) -> None:
        self._stage = stage_duration()
        self._task = task_latency()
        self._turn = Histogram(
            "allot_acknowledgement_to_binding_milliseconds",
            "from the record of an acknowledgement until the Binding that waited for it is sent",
            spread(0.5, 500, 20),
        )
        self._turns: dict[Place, _Turn] = {}

    def histograms(self) -> list[Histogram]:
        return [self._stage, self._task, self._turn]

    def acknowledged(self, place: Place, waiting: Collection[str], at_ms: int) -> None:
        """A device plugin is done with a pod for which these wait, as a record of that Unix time
        shows. The next of them that is sent counts; later ones waited for something else.
        """
        if waiting:
            self._turns[place] = _Turn(at_ms, set(waiting))

    def gone(self, uid: str) -> None:
        """A pod is gone that may have waited."""
        for place, turn in list(self._turns.items()):
            turn.waiting.discard(uid)
            if not turn.waiting:
                del self._turns[place]

    def begin(self, uid: str, created_ms: int, place: Place | None) -> "BindTime":
        """A pod's turn has come; it was created at that Unix time. `place` is what its device
        plugin will be asked, None if none will be.
        """
        turn = None if place is None else self._turns.pop(place, None)
        acknowledged_ms = turn.at_ms if turn is not None and uid in turn.waiting else None
        return BindTime(self._stage, self._task, self._turn, created_ms, acknowledged_ms)


class BindTime:
    """One pod's: `prepared` right before its Binding, `bound` when that has succeeded."""

    def __init__(
        self,
        stage: Histogram,
        task: Histogram,
        turn: Histogram,
        created_ms: int,
        acknowledged_ms: int | None,
    ) -> None:
        self._stage = stage
        self._task = task
        self._turn = turn
        self._created_ms = created_ms
        self._acknowledged_ms = acknowledged_ms
        self._sent_us = _now_us()

    async def prepared(self, prepare: Callable[[], Awaitable[T]]) -> T:
        """Do what has to be done before the Binding, and time it."""
        begun_us = _now_us()
        found = await prepare()
        self._sent_us = _now_us()
        self._stage.observe(self._sent_us - begun_us, PRE_BIND)
        now_us = time.time_ns() // 1000
        self._task.observe(now_us - self._created_ms * 1000, PRE_BOUND)
        if self._acknowledged_ms is not None:
            self._turn.observe(now_us - self._acknowledged_ms * 1000)
            self._acknowledged_ms = None
        return found

    def bound(self) -> None:
        self._stage.observe(_now_us() - self._sent_us, BIND)


def _now_us() -> int:
    return time.perf_counter_ns() // 1000
