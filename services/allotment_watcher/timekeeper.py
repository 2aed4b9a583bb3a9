"""Records the time when a job has waited long enough, or was promised something for long enough,
and
the pods that a device plugin has not served for long: the log has no clock.
"""

import time
from collections.abc import Callable, Iterable

import anyio

from allotment.core.ledger import health
from allotment.core.ledger.model import ClusterState
from allotment.core.queues.round.deadlines import has_passed
from allotment_proto.events import TimePassed

LOOK_S = 0.9
"""A promise to a group lasts for two looks at most, so others wait less than 2 s for it."""
UNSERVED_AFTER_S = 20.0
"""A device plugin serves a pod in a second or two once it is its turn."""


class Turns:
    """Whose turn it is at each device plugin, and since when."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def late(self, state: ClusterState, now_s: float) -> tuple[str, ...]:
        """The uids of the pods whose turn it has been for long; then it begins again."""
        since_s = {uid: self._since_s.get(uid, now_s) for uid in health.unserved(state)}
        late = [uid for uid, at_s in since_s.items() if now_s - at_s >= UNSERVED_AFTER_S]
        self._since_s = {**since_s, **dict.fromkeys(late, now_s)}
        return tuple(sorted(late))


async def keep_time(
    state: ClusterState, tell: Callable[[Iterable[TimePassed]], None], period_s: float = LOOK_S
) -> None:
    """Look at the clock for ever and again; tell when a deadline has passed."""
    turns = Turns()
    while True:
        now_ms = time.time_ns() // 1_000_000
        late = turns.late(state, time.monotonic())
        if late or has_passed(state, now_ms):
            tell([TimePassed(at_ms=now_ms, unserved=late)])
        await anyio.sleep(period_s)
