"""For how long an event loop leaves others waiting: the lease, health checks, all messages.

A task asks to be woken after a short time and notes how much later it is woken. That is wall time,
and on a busy machine mostly the doing of other processes; how much of it the loop's own thread
computed is noted along with it. Each look wakes the process, so an idle one looks seldom. Of a time
that begins just after a look, at most `LOOK_S` is missed.
"""

import time

import anyio

from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.metrics.histograms import Histogram

US_PER_S = 1_000_000
LOOK_S = 0.01
IDLE_LOOK_S = 0.2
BUSY_PART = 0.05
"""A process that used more of the time than this looks closely."""
BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
WALL, CPU = "wall", "cpu"


class LoopWatch:
    """Run `run` along with all else."""

    def __init__(self, metrics: ServiceMetrics) -> None:
        self.blocked = Histogram(
            "allot_loop_blocked_seconds",
            "how long the event loop was blocked, and how much of that was its own computing",
            BOUNDS_S,
            ("clock",),
            unit_us=US_PER_S,
        )
        metrics.expose_histograms([self.blocked])

    async def run(self) -> None:
        """Look for ever."""
        look_s = LOOK_S
        while True:
            asked_s, cpu_s, used_s = time.monotonic(), time.thread_time(), time.process_time()
            await anyio.sleep(look_s)
            took_s = time.monotonic() - asked_s
            late_s = max(took_s - look_s, 0.0)
            self.blocked.observe(round(late_s * US_PER_S), WALL)
            computed_s = min(time.thread_time() - cpu_s, late_s)
            self.blocked.observe(round(computed_s * US_PER_S), CPU)
            is_busy = time.process_time() - used_s > BUSY_PART * took_s
            look_s = LOOK_S if is_busy else IDLE_LOOK_S
