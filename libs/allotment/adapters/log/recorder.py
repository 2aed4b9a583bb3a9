"""Appends facts and outcomes to the log, in order, many in one record when they gather.

While one append is under way new events queue up; they travel together in the next record. So the
rate of appends follows the disk, and the rate of events does not. Events without a waiter go with
the next awaited event, or after a short time. Of several observations of one pod that gathered only
the last is written: each is complete. But of a record that a device plugin may have served in
between (`PodObserved.standing`) the log needs all of them. (Decisions go another way: each is its
own compare-and-append.)

A record is read before it is written: one event that no service could read would take up to 499
others with it. Such an event, and one that is too large, is left out by itself.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import anyio

from allotment.core.logport import AppendResult, Refused
from allotment_proto.codec import UndecodableError, check_envelope, encode
from allotment_proto.events import Envelope, Event, PodGone, PodObserved

EVENTS_PER_RECORD_MAX = 500
REFUSED_MAX = 1000
FULL_RETRY_S = 1.0
UNAWAITED_S = 0.1
"""How long events without a waiter may stay in the queue."""


class Appends(Protocol):
    """Where records go: a log, or an object that says after which of its records they may come."""

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult: ...


class Recorder:
    """A queue of events and the loop that appends them. `run` never gives an event up.

    `by` names the service and instance, `subject_of` the subject of a record with these events.
    `on_full` hears the log's words while it takes nothing more, and "" when it does again;
    `on_refused` gets a single event that no record can hold, which is left out.
    `gather_s`: how long the first event of a record waits for others, unless it is awaited.
    """

    def __init__(
        self,
        log: Appends,
        by: str,
        subject_of: Callable[[tuple[Event, ...]], str],
        on_full: Callable[[str], None],
        on_refused: Callable[[Event, str], None],
        *,
        gather_s: float = 0.0,
    ) -> None:
        self._records = 0
        self._gather_s = gather_s
        self._log = log
        self._by = by
        self._subject_of = subject_of
        self._run_id = f"{by}-{time.time_ns()}"
        self._on_full = on_full
        self._on_refused = on_refused
        self._refused: dict[bytes, None] = {}
        """Digests of events that were left out: the events themselves may be large."""
        self._queue: dict[int, Event] = {}
        """In order of arrival, by a running number."""
        self._numbers = itertools.count()
        self._observed: dict[str, int] = {}
        """Pods whose observation waits in the queue → its number."""
        self._stirred = anyio.Event()
        self._awaited = anyio.Event()

    def put(self, events: Iterable[Event], *, awaited: bool = True) -> None:
        """Queue events. `awaited`: a caller waits for them."""
        for event in events:
            number = next(self._numbers)
            if isinstance(event, PodObserved) and event.rv:
                last = self._queue.get(self._observed.get(event.uid, -1))
                if isinstance(last, PodObserved) and last.standing in (None, event.standing):
                    number = self._observed[event.uid]
                self._observed[event.uid] = number
            elif isinstance(
                event, PodObserved | PodGone
            ):  # without a version: it could not be read
                self._observed.pop(event.uid, None)
            self._queue[number] = event
            if awaited:
                self._awaited.set()
        if self._queue:
            self._stirred.set()

    @property
    def waiting(self) -> int:
        """How many events are queued."""
        return len(self._queue)

    def refuses(self, event: Event) -> bool:
        """Whether this very event was left out: putting it again changes nothing."""
        return bool(self._refused) and _digest(event) in self._refused

    async def run(self) -> None:
        """Append for ever. Raises LogUnavailable when an append cannot be settled."""
        while True:
            while not self._queue:
                self._stirred = anyio.Event()
                await self._stirred.wait()
            if self._gather_s:
                await anyio.sleep(self._gather_s)
            if not self._awaited.is_set():
                with anyio.move_on_after(UNAWAITED_S):
                    await self._awaited.wait()
            events = tuple(self._take())
            if not self._queue:
                self._awaited = anyio.Event()
            await self._append(events)

    def _take(self) -> list[Event]:
        numbers = list(itertools.islice(self._queue, EVENTS_PER_RECORD_MAX))
        events = [self._queue.pop(number) for number in numbers]
        for event, number in zip(events, numbers, strict=True):
            if isinstance(event, PodObserved) and self._observed.get(event.uid) == number:
                del self._observed[event.uid]
        return events

    async def _append(self, events: tuple[Event, ...]) -> None:
        envelope = Envelope(at_ms=time.time_ns() // 1_000_000, by=self._by, events=events)
        try:
            payload, subject = encode(envelope), self._subject_of(events)
            check_envelope(payload)
        except (UndecodableError, ValueError) as error:  # halves of characters are a ValueError
            await self._apart(events, f"no service could read it: {error}")
            return
        msg_id = f"{self._run_id}/{self._records}"
        while isinstance(
            answer := await self._log.append(subject, payload, msg_id=msg_id), Refused
        ):
            if answer.reason == "too_large":
                await self._apart(events, f"it is too large for the log: {answer.message}")
                return
            self._on_full(answer.message)
            await anyio.sleep(FULL_RETRY_S)
        self._on_full("")
        self._records += 1

    async def _apart(self, events: tuple[Event, ...], why: str) -> None:
        """Append what no record can hold in halves; leave a single event out."""
        if len(events) > 1:
            half = len(events) // 2
            await self._append(events[:half])
            await self._append(events[half:])
            return
        self._refused[_digest(events[0])] = None
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._on_refused(events[0], why)


def _digest(event: Event) -> bytes:
    """The same for equal events, also for those that cannot be encoded."""
    return hashlib.sha256(repr(event).encode(errors="surrogatepass")).digest()
