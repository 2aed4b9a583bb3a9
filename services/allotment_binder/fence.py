"""One binder at a time writes: what a life wrote too late is refused once another one has begun.

The lease says who is active. It cannot keep one that was frozen, or cut off, from finishing what it
had begun: it may still say that a Binding failed which its successor sends in these moments, and
then the cards of a pod that runs would count as free. So the log itself keeps lives apart, as it
keeps decisions apart. A life begins with a record of its own on each subject that it writes; what
it appends there must follow the last record on the subject that it has read (or, a decision, the
last that the state holds). Whatever an earlier life has under way is refused from then on, and a
binder that reads that another life began ends its own at once. So all that is reserved when a life
has read its own beginning was decided by others, who may have sent its Binding, and nothing is
afterwards.

Only the beginning of another life ends one. Any other record that turns up on these subjects is
skipped: it is read like every record of the log, and the next append follows it.

A beginning is appended on a condition as well: that nothing came after what stood last there before
the lease was looked at. So one that was frozen with its beginning on the way ends no other life.

While the log takes nothing, no life begins, and nothing is bound: its outcome could not be
recorded.
"""

import random
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import anyio

from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.core.logport import AppendResult, Landed, Record
from allotment_binder.settings import BinderSettings
from allotment_proto.codec import encode
from allotment_proto.events import Envelope

FULL_RETRY_S = 1.0
YIELDS_S = 2.0
"""How long, at least, a life that another one ended waits to hear that its lease is lost; at most
twice that, by chance. Should it still hold the lease, it begins again: another process writes
as a binder, and has to be found."""
_ADVICE = (
    "once is normal after this binder was frozen or cut off; if it happens again and again, "
    "something else writes to the log with the binder's NATS user"
)

_BEGINNING = re.compile(r"life/.+/[0-9a-f]{16}/(?P<subject>\S+)")
"""The id of a record with which a life begins. Later releases must begin theirs in the same way."""

OnFull = Callable[[str], None]
"""Hears the log's words while it takes nothing more, and "" when it does again."""


class FencedLog(Protocol):
    """As much of a log as fencing it takes."""

    async def last_on(self, subject: str) -> int: ...

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult: ...


def is_beginning(record: Record, envelope: Envelope) -> bool:
    """Whether a record begins a binder's life on its subject: an empty one, whose id says so."""
    found = _BEGINNING.fullmatch(record.msg_id)
    return not envelope.events and found is not None and found["subject"] == record.subject


class Fence:
    """One life's right to append to `subjects`. `ended_by` says who ended it, if anybody did."""

    def __init__(
        self,
        log: FencedLog,
        by: str,
        subjects: Sequence[str],
        is_held: Callable[[], bool],
        on_full: OnFull,
    ) -> None:
        """`is_held` tells whether the lease is, by the holder's own clock."""
        self.ended_by = ""
        self._log = log
        self._by = by
        self._is_held = is_held
        self._on_full = on_full
        self._id = f"life/{by}/{secrets.token_hex(8)}"
        self._last = dict.fromkeys(subjects, 0)
        """By subject, the last record that is this life's, or was read in it and began no other."""
        self._begun: set[str] = set()
        """The subjects on which this life was read to have begun."""
        self._reached: Reached | None = None
        self._scope = anyio.CancelScope()

    @property
    def subjects(self) -> Collection[str]:
        """Where this life appends."""
        return self._last.keys()

    def on_record(self, record: Record, envelope: Envelope) -> None:
        """Called with every record that is read: whether another life began after this one."""
        if record.subject not in self._last:
            return
        if record.msg_id == f"{self._id}/{record.subject}":
            self._begun.add(record.subject)
        elif record.subject in self._begun and is_beginning(record, envelope):
            self._end(f"{envelope.by}, which began with record {record.seq}")
        else:
            self.on_passed_over(record)

    def on_passed_over(self, record: Record) -> None:
        """Called with every record that cannot be read: no beginning is such a one."""
        if record.subject in self._begun and not self.ended_by:
            self._last[record.subject] = max(self._last[record.subject], record.seq)

    async def live(self, life: Callable[[], Awaitable[None]], reached: "Reached") -> None:
        """Begin, wait with `reached` until the beginning was read, and live. Returns when the life
        ends, another one began, or the lease was lost before it began. Raises
        LogUnavailable when the log does not answer.
        """
        self._reached = reached
        with self._scope:
            for subject in self._last:
                self._last[subject] = await self._begin(subject)
            await reached(max(self._last.values()))
            await life()

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        """Append right after the last record on the subject that began no other life. Once another
        one began there, this never returns: this life ends. Raises LogUnavailable.
        """
        assert self._reached is not None, "nothing is appended outside `live`"
        sent_as = msg_id
        while True:
            if self.ended_by:
                await anyio.sleep_forever()
            answer = await self._log.compare_and_append(
                subject, payload, msg_id=sent_as, expected_seq=self._last[subject]
            )
            if isinstance(answer, Landed):
                self._last[subject] = max(self._last[subject], answer.seq)
                return answer
            if answer.reason != "wrong_last_sequence":
                return answer
            # Until what took the place was read: it ends this life, or is skipped.
            await self._reached(answer.last_subject_seq or await self._log.last_on(subject))
            # What is refused at R3 may leave its id behind: the next attempt has one of its own.
            sent_as = f"{msg_id}@{self._last[subject]}"

    async def _begin(self, subject: str) -> int:
        """Append the beginning on one subject; its sequence."""
        envelope = Envelope(at_ms=time.time_ns() // 1_000_000, by=self._by, events=())
        payload, msg_id = encode(envelope), f"{self._id}/{subject}"
        while True:
            # In this order: who gets the lease from now on begins after what stands last now.
            last_seq = await self._log.last_on(subject)
            if not self._is_held():
                self._scope.cancel()
                await anyio.sleep_forever()
            answer = await self._log.compare_and_append(
                subject, payload, msg_id=msg_id, expected_seq=last_seq
            )
            if isinstance(answer, Landed):
                self._on_full("")
                return answer.seq
            if answer.reason == "wrong_last_sequence":
                continue  # a decision or an outcome was on its way; or the lease went
            self._on_full(answer.message)
            await anyio.sleep(FULL_RETRY_S)

    def _end(self, by: str) -> None:
        self.ended_by = self.ended_by or by
        self._scope.cancel()


Reached = Callable[[int], Awaitable[None]]


async def live_once(
    ctx: ServiceContext[BinderSettings],
    world: World,
    subjects: Sequence[str],
    on_full: OnFull,
    life: Callable[[Fence], Awaitable[None]],
) -> None:
    """One life, until the lease is lost or another binder began one."""
    by = f"binder/{ctx.settings.instance}"
    fence = Fence(world.log, by, subjects, lambda: world.lease.is_held, on_full)
    world.fold.listeners.append(fence.on_record)
    world.fold.passed_over.append(fence.on_passed_over)
    try:
        async with anyio.create_task_group() as group:

            async def end_when_lost() -> None:
                await world.lease.lost()
                ctx.log.warning("lease lost", reason=world.lease.lost_because)
                group.cancel_scope.cancel()

            group.start_soon(end_when_lost)
            await fence.live(lambda: life(fence), world.fold.wait_for)
            if fence.ended_by:
                ctx.log.warning(
                    "this binder stops: another one writes", by=fence.ended_by, advice=_ADVICE
                )
                await anyio.sleep(YIELDS_S * random.uniform(1, 2))
            else:
                await world.lease.lost()
            group.cancel_scope.cancel()
    finally:
        on_full("")  # from now on another binder knows
        world.fold.listeners.remove(fence.on_record)
        world.fold.passed_over.remove(fence.on_passed_over)
