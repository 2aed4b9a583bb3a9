"""A service's live state: the log followed and folded, from a snapshot or from nothing.

Everybody who waits for something waits for a sequence or for "anything new" here. A record that
cannot be read changes nothing, is remembered with its reason, and everything else continues.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from allotment.adapters.log.snapshots import SnapshotStore, digests_of
from allotment.adapters.telemetry.log import Logger, one_line
from allotment.core.ledger import check, snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogUnavailable, Record, digest_of
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope

SNAPSHOT_EVERY_EVENTS = 200_000
"""A record holds one event or hundreds; what a start must fold again is counted in events."""
SNAPSHOT_EVERY_EVENTS_BEHIND = 1_000_000
"""The same while it catches up: what is written then is only for a start that is killed in it, and
encoding the state costs as much as folding tens of thousands of events.
"""
CHECK_EVERY_RECORDS = 20
"""So often one node's books are checked, node after node: all at once would hold everything up."""
TURN_EVENTS = 100
"""After a record of so many the event loop's other tasks have a turn: a lease must be renewed."""
UNREADABLE_KEPT = 100
REACH_FIRST_S = 0.1
REACH_S = 2.0


Made = TypeVar("Made")


class FollowedLog(Protocol):
    """As much of a log as folding it takes."""

    async def last_seq(self) -> int: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]: ...


class Unreadable(NamedTuple):
    """A record that was skipped."""

    seq: int
    subject: str
    reason: str


Listener = Callable[[Record, Envelope], None]
"""Called after a record took effect; must not wait."""


class BooksBroken(Exception):
    """Raised when the books do not balance: a defect of ours, and no decision may follow."""


class Fold:
    """Follows `log` into `state`. Run `run` in a task group; it says so when it is caught up."""

    def __init__(
        self, log: FollowedLog, logger: Logger, snapshots: SnapshotStore | None = None
    ) -> None:
        self.state = ClusterState()
        self.head = 0
        """The highest sequence known to be in the log."""
        self.unreadable: deque[Unreadable] = deque(maxlen=UNREADABLE_KEPT)
        self.unreadable_total = 0
        self.listener_failures = 0
        self.restored: list[Callable[[int, bytes], None]] = []
        """Called with sequence and image of the snapshot that the fold starts from, if it does."""
        self.listeners: list[Listener] = []
        self.passed_over: list[Callable[[Record], None]] = []
        """Called with every unreadable record; must not wait."""
        self.caught_up = anyio.Event()
        self._log = log
        self._logger = logger
        self._snapshots = snapshots
        self._turn = anyio.Event()
        self._still = anyio.Lock(fast_acquire=True)
        """Held while the state is changed, or read in a thread."""
        self._last: Record | None = None
        """The record at the state's sequence, once one was folded here."""
        self._snapshot_seq = 0
        self._events_since_snapshot = 0
        self._checked_seq = 0
        self._checked_rows = 0

    @property
    def last(self) -> Record | None:
        """The record at the state's sequence, once one was folded here."""
        return self._last

    async def run(self) -> None:
        """Follow for ever. Raises LogDamaged when history is missing, BooksBroken for a defect."""
        start = await self._log.last_seq()
        self.head = start
        await self._restore(start)
        if self.state.seq >= start:
            await self._check_aside()
            self.caught_up.set()
        async with aclosing(self._log.follow(self.state.seq)) as batches:
            async for batch in batches:
                async with self._still:  # once for all: else each record may wait for other work
                    for record in batch:
                        if self._take(record) >= TURN_EVENTS:
                            await anyio.lowlevel.checkpoint()
                self.head = max(self.head, self.state.seq)
                if self.state.seq >= start and not self.caught_up.is_set():
                    await self._check_aside()
                    self.caught_up.set()
                turn, self._turn = self._turn, anyio.Event()
                turn.set()
                due = SNAPSHOT_EVERY_EVENTS_BEHIND
                if self.caught_up.is_set():
                    self._check_in_turn()
                    due = SNAPSHOT_EVERY_EVENTS
                if self._events_since_snapshot >= due:
                    await self.save_snapshot()

    async def wait_for(self, seq: int) -> None:
        """Wait until the state has reached `seq`."""
        while self.state.seq < seq:
            await self._turn.wait()

    async def reach(self, seq: int) -> bool:
        """Wait until the state has reached a sequence that a message names; return whether it did.

        A message may name any: one that the log does not have delays its reader only briefly.
        """
        if await self._reached(seq, REACH_FIRST_S):
            return True
        try:
            if seq > await self._log.last_seq():
                return False
        except LogUnavailable as error:
            self._logger.debug("where the log ends is not known now", reason=str(error))
        return await self._reached(seq, REACH_S)

    async def _reached(self, seq: int, within_s: float) -> bool:
        """Wait for so long, and for readers that keep records waiting meanwhile (`off_loop`)."""
        while True:
            with anyio.move_on_after(within_s):
                await self.wait_for(seq)
            if self.state.seq >= seq or not self._still.locked():
                return self.state.seq >= seq

    async def changed(self) -> None:
        """Wait until something new took effect."""
        await self._turn.wait()

    async def off_loop(self, work: Callable[[], Made]) -> Made:
        """Run `work` in a thread and return its result. The state does not change meanwhile:
        records wait, and so does other work, while the event loop's other tasks go on.

        What reads the state for longer than some milliseconds has its place here: on the loop it
        would hold up the lease and all messages. Cancelled, this waits until the work has ended.
        """
        async with self._still:
            return await anyio.to_thread.run_sync(work)

    async def save_snapshot(self) -> None:
        """Keep the state for the next start. A snapshot is a cache: failing is worth a warning.

        Not while `run` is active elsewhere: the state must not move. Other tasks have their turns.
        """
        self._events_since_snapshot = 0
        if self._snapshots is None or self._last is None or self.state.seq == self._snapshot_seq:
            return
        seq, record = self._last.seq, digest_of(self._last)
        try:
            await self._snapshots.save(seq, await self._encoded(), record)
        except (OSError, OverflowError) as error:  # no disk; a number that no snapshot can hold
            self._logger.warning("snapshot not written", seq=seq, reason=str(error))
            return
        self._snapshot_seq = seq

    async def _encoded(self) -> bytes:
        steps = snapshot.encoding(self.state)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                image: bytes = done.value
                return image
            await anyio.lowlevel.checkpoint()

    async def _restore(self, last_seq: int) -> None:
        if self._snapshots is None:
            return
        found = await self._snapshots.load(last_seq, digests_of(self._log))
        for ignored in self._snapshots.ignored:
            self._logger.warning("snapshot ignored", path=ignored.path, reason=ignored.message)
        if found is None:
            return
        try:
            self.state = await anyio.to_thread.run_sync(snapshot.decode, found[1])
        except snapshot.SnapshotError as error:
            self._logger.warning("snapshot ignored", seq=found[0], reason=str(error))
            return
        self._snapshot_seq = self._checked_seq = self.state.seq
        for hears in self.restored:
            hears(*found)

    def _take(self, record: Record) -> int:
        """Let a record take effect; how many events it held."""
        self._last = record
        is_decision = record.subject == subjects.DECISION
        try:
            envelope = decode_envelope(record.payload, record.subject)
        except UndecodableError as error:
            pass_over(self.state, record.seq, is_decision=is_decision)
            self.unreadable.append(Unreadable(record.seq, record.subject, error.reason))
            self.unreadable_total += 1
            self._logger.warning(
                "record skipped", seq=record.seq, subject=record.subject, reason=error.reason
            )
            self._tell(self.passed_over, record)
            return 0
        events = envelope.events
        failed = apply_record(self.state, events, record.seq, is_decision=is_decision)
        for event, raised in failed:
            reason = f"{type(event).__name__} is skipped: {one_line(raised)}"
            self.unreadable.append(Unreadable(record.seq, record.subject, reason))
            self.unreadable_total += 1
            self._logger.error(
                "defect; event skipped",
                error=raised,
                seq=record.seq,
                subject=record.subject,
            )
        if failed:
            self._check()
        self._events_since_snapshot += len(events)
        self._tell(self.listeners, record, envelope)
        return len(events)

    def _tell(
        self, hearers: Iterable[Callable[..., None]], record: Record, *read: Envelope
    ) -> None:
        """Call each listener with a record. One that fails does not keep it from the others."""
        for hears in hearers:
            try:
                hears(record, *read)
            except Exception as error:  # the state is what the log says, regardless
                self.listener_failures += 1
                self._logger.error("defect; a record was not followed", error=error, seq=record.seq)

    def _check(self) -> None:
        """Check all books. Raises BooksBroken."""
        self._checked_seq = self.state.seq
        self._believe(check.check(self.state))

    async def _check_aside(self) -> None:
        """The same in a thread."""
        self._checked_seq = self.state.seq
        self._believe(await self.off_loop(lambda: check.check(self.state)))

    def _check_in_turn(self) -> None:
        """Check as many nodes as are due since the last time. Raises BooksBroken."""
        rows = self.state.rows
        while self.state.seq - self._checked_seq >= CHECK_EVERY_RECORDS:
            self._checked_seq += CHECK_EVERY_RECORDS
            node = rows[self._checked_rows % len(rows)] if rows else None
            self._checked_rows += 1
            if node is not None:
                self._believe(list(check.check_node(self.state, node)))

    def _believe(self, wrong: list[str]) -> None:
        if wrong:
            raise BooksBroken(f"at sequence {self.state.seq}: " + "; ".join(wrong[:5]))
