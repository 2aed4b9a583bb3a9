"""Tells the log what time it is when somebody has waited long enough, or was promised something for
long enough: the log has no clock.
"""

import time
from collections.abc import Callable, Iterable

import anyio

from allotment.core.ledger.model import ClusterState
from allotment.core.queues.round.deadlines import has_passed
from allotment_proto.events import TimePassed

LOOK_S = 0.9
"""A promise to a group lasts for two looks at most, and nobody waits for it for 2 s."""


async def keep_time(
    state: ClusterState, tell: Callable[[Iterable[TimePassed]], None], period_s: float = LOOK_S
) -> None:
    """Look at the clock for ever and again; tell when a deadline has passed."""
    while True:
        now_ms = time.time_ns() // 1_000_000
        if has_passed(state, now_ms):
            tell([TimePassed(at_ms=now_ms)])
        await anyio.sleep(period_s)
