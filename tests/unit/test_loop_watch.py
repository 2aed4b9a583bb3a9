"""For how long an event loop answered nobody, by the clock and by what it computed itself."""

import time

import anyio
import anyio.to_thread
import pytest

from allotment.adapters.service.loop_watch import BOUNDS_S, CPU, WALL, LoopWatch
from allotment.adapters.telemetry.metrics import ServiceMetrics

BLOCKED_S = 0.4
LONG_S = 0.1
"""Much shorter than the loop is blocked, much longer than it is otherwise."""


def _long(watch: LoopWatch, clock: str) -> int:
    """How many times were longer than that."""
    rows = watch.blocked.rows
    return sum(rows[clock,].counts[BOUNDS_S.index(LONG_S) + 1 :]) if (clock,) in rows else 0


def _compute() -> None:
    end_s = time.thread_time() + BLOCKED_S
    while time.thread_time() < end_s:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("computes", [True, False])
async def test_a_loop_that_answers_nobody_is_noticed(*, computes: bool) -> None:
    watch = LoopWatch(ServiceMetrics("filter"))
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        await anyio.sleep(0.05)
        if computes:
            _compute()
        else:
            time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is what is to be noticed
        await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    assert _long(watch, WALL) >= 1
    assert _long(watch, CPU) == computes


@pytest.mark.anyio
async def test_what_other_threads_compute_does_not_count_as_the_loops_own() -> None:
    watch = LoopWatch(ServiceMetrics("filter"))
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        await anyio.to_thread.run_sync(_compute)
        group.cancel_scope.cancel()
    assert _long(watch, CPU) == 0
