"""Appends facts and outcomes to the log, in order, many in one record when they gather.

While one append is under way new events queue up; they travel together in the next record. So the
rate of appends follows the disk, and the rate of events does not. (Decisions go another way: each
is its own compare-and-append.)
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

import anyio

from allotment.core.logport import Log, Refused
from allotment_proto.codec import encode
from allotment_proto.events import ENVELOPE_VERSION, Envelope, Event

EVENTS_PER_RECORD_MAX = 500
FULL_RETRY_S = 1.0


class Recorder:
    """A queue of events and the loop that appends them. `run` never gives an event up.

    `by` names the service and instance, `subject_of` the subject of a record with these events.
    `on_full` hears the log's words while it takes nothing more, and "" when it does again.
    """

    def __init__(
        self,
        log: Log,
        by: str,
        subject_of: Callable[[tuple[Event, ...]], str],
        on_full: Callable[[str], None],
    ) -> None:
        self.appended_events = 0
        self.appended_records = 0
        self._log = log
        self._by = by
        self._subject_of = subject_of
        self._run_id = f"{by}-{time.time_ns()}"
        self._on_full = on_full
        self._queue: deque[Event] = deque()
        self._stirred = anyio.Event()

    def put(self, events: Iterable[Event]) -> None:
        self._queue.extend(events)
        if self._queue:
            self._stirred.set()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        """Append for ever. Raises LogUnavailable when an append cannot be settled."""
        while True:
            while not self._queue:
                self._stirred = anyio.Event()
                await self._stirred.wait()
            events = [
                self._queue.popleft() for _ in range(min(len(self._queue), EVENTS_PER_RECORD_MAX))
            ]
            await self._append(tuple(events))

    async def _append(self, events: tuple[Event, ...]) -> None:
        payload = encode(
            Envelope(
                v=ENVELOPE_VERSION, at_ms=time.time_ns() // 1_000_000, by=self._by, events=events
            )
        )
        subject = self._subject_of(events)
        msg_id = f"{self._run_id}/{self.appended_records}"
        while isinstance(
            answer := await self._log.append(subject, payload, msg_id=msg_id), Refused
        ):
            if answer.reason == "too_large" and len(events) > 1:
                half = len(events) // 2
                await self._append(events[:half])
                await self._append(events[half:])
                return
            self._on_full(answer.message)
            await anyio.sleep(FULL_RETRY_S)
        self._on_full("")
        self.appended_records += 1
        self.appended_events += len(events)
