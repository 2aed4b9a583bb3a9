"""How long this binder takes for a pod: preparing it and its Binding, under Volcano's names, and
how long after an acknowledgement the pod is sent that waited for it.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from allotment.core.explain.rows.acknowledgement import Place
from allotment.core.metrics.histograms import Histogram, spread
from allotment.core.metrics.schedule import stage_duration, task_latency

PRE_BIND, BIND, PRE_BOUND = "PreBind", "Bind", "PreBound"
T = TypeVar("T")


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
        self._turns: dict[Place, tuple[int, int]] = {}
        """The sequence and time of the record since which it is another pod's turn."""

    def histograms(self) -> list[Histogram]:
        return [self._stage, self._task, self._turn]

    def acknowledged(self, place: Place, seq: int, at_ms: int) -> None:
        """A device plugin is done with a pod for which others wait, as the record of a sequence and
        Unix time shows. The pod that is sent next counts if it was decided before that.
        """
        self._turns[place] = seq, at_ms

    def begin(self, decided_seq: int, created_ms: int, place: Place | None) -> "BindTime":
        """The turn of a pod has come that was created at a Unix time and decided by the record of a
        sequence. `place` is what its device plugin will be asked, None if none will be.
        """
        turn = None if place is None else self._turns.pop(place, None)
        acknowledged_ms = None if turn is None or turn[0] < decided_seq else turn[1]
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
