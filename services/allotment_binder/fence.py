"""One binder writes at a time: what a life wrote too late is refused once another one has begun.

The lease says who is active. It cannot keep one that was frozen, or cut off, from finishing what it
had begun: it may still say that a Binding failed which its successor sends in these moments, and
then the cards of a pod that runs would count as free. So the log itself keeps lives apart, as it
keeps decisions apart. A life begins with an empty record on each subject that it writes; what it
appends there must follow its own last record (an outcome), or the last decision that it has read (a
decision). Whatever an earlier life has under way is refused from then on, and who reads that
another one began ends at once. So all that is reserved when a life has read its own beginning was
decided by others, who may have sent its Binding, and nothing is afterwards.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.core.logport import AppendResult, Landed, Log, Record
from allotment_binder.settings import BinderSettings
from allotment_proto.codec import encode
from allotment_proto.events import Envelope
from allotment_proto.registry import version_of

FULL_RETRY_S = 1.0
YIELDS_S = 2.0
"""How long a life that another one ended waits to hear that its lease is lost. Should it hold the
lease all the same, two binders that do not share a lease take turns, and say so."""

OnFull = Callable[[str], None]
"""Hears the log's words while it takes nothing more, and "" when it does again."""


class Fence:
    """One life's right to append to `subjects`. `ended_by` says who began after it, if anybody."""

    def __init__(self, log: Log, by: str, subjects: Sequence[str], on_full: OnFull) -> None:
        self.ended_by = ""
        self._log = log
        self._by = by
        self._on_full = on_full
        self._id = f"life/{by}/{secrets.token_hex(8)}"
        self._last = dict.fromkeys(subjects, 0)
        """By subject, the last record of this life."""
        self._begun: set[str] = set()
        """The subjects on which this life was read to have begun."""
        self._scope = anyio.CancelScope()

    def on_record(self, record: Record, envelope: Envelope) -> None:
        """Called with every record that is read: whether another life began after this one."""
        if envelope.events or record.subject not in self._last:
            return
        if record.msg_id.startswith(self._id):
            self._begun.add(record.subject)
        elif record.subject in self._begun:
            self._end(envelope.by)

    async def live(self, life: Callable[[], Awaitable[None]], reached: "Reached") -> None:
        """Begin, wait with `reached` until the beginning was read, and live. Returns when the life
        ends or another one began. Raises LogUnavailable when the log does not answer.
        """
        with self._scope:
            for subject in self._last:
                self._last[subject] = await self._begin(subject)
            await reached(max(self._last.values()))
            await life()

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        """Append right after this life's last record on the subject. Who cannot, as another life
        began or wrote there, never returns: this life ends. Raises LogUnavailable.
        """
        answer = await self._log.compare_and_append(
            subject, payload, msg_id=msg_id, expected_seq=self._last[subject]
        )
        if isinstance(answer, Landed):
            self._last[subject] = answer.seq
        elif answer.reason == "wrong_last_sequence":
            self._end(f"whoever wrote record {answer.last_subject_seq}")
            await anyio.sleep_forever()
        return answer

    async def _begin(self, subject: str) -> int:
        envelope = Envelope(
            v=version_of(()), at_ms=time.time_ns() // 1_000_000, by=self._by, events=()
        )
        payload, msg_id = encode(envelope), f"{self._id}/{subject}"
        while not isinstance(
            answer := await self._log.append(subject, payload, msg_id=msg_id), Landed
        ):
            self._on_full(answer.message)
            await anyio.sleep(FULL_RETRY_S)
        self._on_full("")
        return answer.seq

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
    fence = Fence(world.log, f"binder/{ctx.settings.instance}", subjects, on_full)
    world.fold.listeners.append(fence.on_record)
    try:
        async with anyio.create_task_group() as group:

            async def end_when_lost() -> None:
                await world.lease.lost()
                ctx.log.warning("lease lost", reason=world.lease.lost_because)
                group.cancel_scope.cancel()

            group.start_soon(end_when_lost)
            await fence.live(lambda: life(fence), world.fold.wait_for)
            ctx.log.warning("another binder began to write", by=fence.ended_by)
            await anyio.sleep(YIELDS_S)
            group.cancel_scope.cancel()
    finally:
        world.fold.listeners.remove(fence.on_record)
