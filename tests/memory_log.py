"""The log in memory, with the same semantics as the real one and faults on request.

Two faces over one set of records: `MemoryLogCore` is synchronous and deterministic, so a seeded
simulation under virtual time can drive it without an event loop; `MemoryLog` is the asynchronous
port (`allotment.core.logport.Log`) that services, the CLI and what-if runs take.

It behaves like a single-replica JetStream stream where that is stricter: the expectation is checked
before the id, so a resend of a compare-and-append that landed is refused and must be settled by
looking at the record that took the place.
"""

from collections.abc import AsyncGenerator, Callable
from enum import StrEnum

import anyio
import anyio.lowlevel
import msgspec

from allotment.adapters.log.checkpoints import Checkpoint, newest_checkpoint
from allotment.core.logport import (
    AppendResult,
    Landed,
    LogDamaged,
    LogUnavailable,
    Record,
    Refused,
    is_same,
    settle,
)

BATCH_RECORDS_MAX = 1024


class Fault(StrEnum):
    """What becomes of one send of an append."""

    NONE = "none"
    LOST = "lost"  # never reaches the log, no answer
    ANSWER_LOST = "answer_lost"  # the log decides, the answer does not arrive
    LATE = "late"  # no answer now; the log decides when `deliver_late` is called


class Append(msgspec.Struct, frozen=True):
    """One append as it is sent. `expected_seq` None: unconditional."""

    subject: str
    payload: bytes
    msg_id: str
    expected_seq: int | None = None


class MemoryLogCore:
    """The records and the rules; no clock, no dice, no event loop.

    `max_bytes` counts payloads only; a record that does not fit is refused with "full".
    """

    def __init__(
        self, *, max_bytes: int | None = None, clock_ns: Callable[[], int] | None = None
    ) -> None:
        self.records: list[Record] = []
        self.first_seq = 1
        """The oldest record that can be read; those before it were purged."""
        self.listeners: set[Callable[[], None]] = set()
        self._max_bytes = max_bytes
        self._clock_ns = clock_ns or (lambda: (len(self.records) + 1) * 1_000_000)
        self._bytes = 0
        self._last_on_subject: dict[str, int] = {}
        self._seq_of_id: dict[str, int] = {}
        self._late: list[Append] = []

    @property
    def last_seq(self) -> int:
        return len(self.records)

    def try_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int | None = None
    ) -> AppendResult:
        """Decide one append as the server would: expectation, then id, then space."""
        last = self._last_on_subject.get(subject, 0)
        if expected_seq is not None and expected_seq != last:
            return Refused("wrong_last_sequence", last, f"wrong last sequence: {last}")
        if (stored := self._seq_of_id.get(msg_id)) is not None:
            if expected_seq is not None and not is_same(
                self.records[stored - 1], payload=payload, msg_id=msg_id
            ):
                return Refused("id_taken", last, f"id {msg_id!r} names another record")
            return Landed(stored, duplicate=True)
        if self._max_bytes is not None and self._bytes + len(payload) > self._max_bytes:
            return Refused("full", last, "maximum bytes exceeded")
        seq = len(self.records) + 1
        self.records.append(Record(seq, subject, payload, self._clock_ns(), msg_id))
        self._bytes += len(payload)
        self._last_on_subject[subject] = seq
        self._seq_of_id[msg_id] = seq
        for listener in tuple(self.listeners):
            listener()
        return Landed(seq)

    def send(self, append: Append, fault: Fault = Fault.NONE) -> AppendResult | None:
        """One send of an append under a fault; None is "no answer", the unknown ending."""
        if fault is Fault.LOST:
            return None
        if fault is Fault.LATE:
            self._late.append(append)
            return None
        result = self._decide(append)
        return None if fault is Fault.ANSWER_LOST else result

    def deliver_late(self) -> int:
        """The ghosts arrive: decide every late append now, in order sent. Returns how many."""
        late, self._late = self._late, []
        for append in late:
            self._decide(append)
        return len(late)

    def settle(self, append: Append, answer: AppendResult) -> AppendResult:
        """What an answer to a compare-and-append means once the record in its place was read."""
        if not isinstance(answer, Refused) or append.expected_seq is None:
            return answer
        took_place = self.first_on_subject(append.subject, append.expected_seq + 1)
        if took_place is None:
            return answer
        return settle(answer, took_place, payload=append.payload, msg_id=append.msg_id)

    def last_on(self, subject: str) -> int:
        """The sequence of the newest record on `subject`, 0 when there is none."""
        return self._last_on_subject.get(subject, 0)

    def first_on_subject(self, subject: str, from_seq: int) -> Record | None:
        """The first record on `subject` at or after `from_seq`."""
        start = max(from_seq, self.first_seq) - 1
        return next((r for r in self.records[start:] if r.subject == subject), None)

    def _decide(self, append: Append) -> AppendResult:
        return self.try_append(
            append.subject, append.payload, msg_id=append.msg_id, expected_seq=append.expected_seq
        )


class MemoryLog:
    """The asynchronous port over a core. Several may share one core, each with faults of its own.

    `faults` is asked before every send. Unanswered sends are repeated every `resend_s` until
    `budget_s` is spent, then LogUnavailable is raised.
    """

    def __init__(
        self,
        core: MemoryLogCore | None = None,
        *,
        faults: Callable[[Append], Fault] | None = None,
        resend_s: float = 0.02,
        budget_s: float = 15.0,
    ) -> None:
        self.core = core or MemoryLogCore()
        self.warnings: tuple[str, ...] = ()
        self.identity = "memory"
        self._faults = faults or (lambda append: Fault.NONE)
        self._resend_s = resend_s
        self._budget_s = budget_s

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        return await self._send_until_answered(Append(subject, payload, msg_id))

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult:
        append = Append(subject, payload, msg_id, expected_seq)
        return self.core.settle(append, await self._send_until_answered(append))

    async def first_seq(self) -> int:
        await anyio.lowlevel.checkpoint()
        return self.core.first_seq

    async def last_seq(self) -> int:
        await anyio.lowlevel.checkpoint()
        return self.core.last_seq

    async def last_on(self, subject: str) -> int:
        await anyio.lowlevel.checkpoint()
        return self.core.last_on(subject)

    async def record(self, seq: int) -> Record | None:
        await anyio.lowlevel.checkpoint()
        is_there = self.core.first_seq <= seq <= len(self.core.records)
        return self.core.records[seq - 1] if is_there else None

    async def first_on(self, subject: str, from_seq: int) -> Record | None:
        await anyio.lowlevel.checkpoint()
        return self.core.first_on_subject(subject, from_seq)

    async def checkpoint(self, before_seq: int = 0) -> Checkpoint | None:
        return await newest_checkpoint(self, before_seq)

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        records = self.core.records
        if after_seq + 1 < self.core.first_seq:
            raise LogDamaged(f"the log begins at {self.core.first_seq}")
        if after_seq > len(records):
            raise LogDamaged(f"the log ends at {len(records)}, but {after_seq} was asked for")
        while True:
            await anyio.lowlevel.checkpoint()
            if len(records) > after_seq:
                batch = records[after_seq : after_seq + BATCH_RECORDS_MAX]
                after_seq = batch[-1].seq
                yield batch
                continue
            grown = anyio.Event()
            self.core.listeners.add(grown.set)
            try:
                await grown.wait()
            finally:
                self.core.listeners.discard(grown.set)

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        last_seq = min(last_seq, self.core.last_seq)
        for start in range(max(first_seq, self.core.first_seq) - 1, last_seq, BATCH_RECORDS_MAX):
            await anyio.lowlevel.checkpoint()
            yield self.core.records[start : min(start + BATCH_RECORDS_MAX, last_seq)]

    async def _send_until_answered(self, append: Append) -> AppendResult:
        with anyio.move_on_after(self._budget_s):
            while True:
                await anyio.lowlevel.checkpoint()
                answer = self.core.send(append, self._faults(append))
                if answer is not None:
                    return answer
                await anyio.sleep(self._resend_s)
        raise LogUnavailable(f"no answer to {append.msg_id!r} within {self._budget_s:g} s")
