"""A service's live state: the log followed and folded, from a snapshot, a checkpoint or nothing.

Everybody who waits for something waits for a sequence or for "anything new" here. A record that
cannot be read changes nothing, is remembered with its reason, and everything else continues.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from allotment.adapters.log.checkpoints import Checkpoint, CheckpointDamaged, digest_of_image
from allotment.adapters.log.snapshots import SnapshotStore, digests_of
from allotment.adapters.telemetry.log import Logger, one_line
from allotment.core import chain
from allotment.core.ledger import check, snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogDamaged, LogUnavailable, Record, digest_of
from allotment_proto import subjects
from allotment_proto.codec import UNREADABLE, UndecodableError, decode_envelope
from allotment_proto.events import ENVELOPE_VERSION, Decided, Envelope, SegmentClosed

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
HEADS_KEPT = 4096
"""Of so many of the last records the chain's heads are known: decisions name those of their basis.
"""
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
    """Raised when the books do not balance, or are not those of the other replicas: a defect of
    ours, and no decision may follow.
    """


class LevelUnknown(Exception):
    """Raised when the log holds records of a level that this release does not know."""


class Seam(NamedTuple):
    """The state right after a record that may end a segment; see `core/ledger/segments.py`."""

    seq: int
    digest: str
    chain: str


OnSeam = Callable[[Seam, bytes], None]
"""Called with the image of the state at a seam; must not wait."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What a service keeps for its next start."""

    chain: bytes
    segment_bytes: int
    image: bytes


class Fold:
    """Follows `log` into `state`. Run `run` in a task group; it says so when it is caught up."""

    def __init__(
        self,
        log: FollowedLog,
        logger: Logger,
        snapshots: SnapshotStore | None = None,
        checkpoint: Callable[[int], Awaitable[Checkpoint | None]] | None = None,
    ) -> None:
        """`checkpoint` finds the log's newest one, or (not 0) the newest before a record, from
        which a fold can start as well; see `newest_checkpoint`.
        """
        self.state = ClusterState()
        self.segment_bytes = 0
        """What the records of the open segment hold, up to the state's sequence."""
        self.on_seam: list[OnSeam] = []
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
        self._checkpoint = checkpoint
        self._heads: dict[int, bytes] = {0: chain.START}
        """The chain's heads at the last records, the newest last."""
        self._seam: Seam | None = None
        self._bytes_at_seam = 0
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

    def chain_at(self, seq: int) -> str:
        """The chain's head at one of the last records, "" if it is not known any longer."""
        return self._heads[seq].hex() if seq in self._heads else ""

    async def run(self) -> None:
        """Follow for ever. Raises LogDamaged when history is missing or another one, BooksBroken
        for a defect, LevelUnknown for a log of a newer release.
        """
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
                        if self.state.segments.open.closing == record.seq:
                            await self._reach_seam()
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

    async def at_rest(self) -> None:
        """Wait until no record is taking effect, the note of a seam included."""
        async with self._still:
            pass

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
            kept = _Kept(self._heads[seq], self.segment_bytes, await self._encoded())
            await self._snapshots.save(seq, msgspec.msgpack.encode(kept), record)
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
        """Start from the snapshot or a checkpoint, the furthest that can be used."""
        async with aclosing(self._starts(last_seq)) as starts:
            async for seq, start in starts:
                try:
                    self.state = await anyio.to_thread.run_sync(snapshot.decode, start.image)
                except snapshot.SnapshotError as error:
                    self._logger.warning("snapshot ignored", seq=seq, reason=str(error))
                    continue
                self._check_level()
                self._snapshot_seq = self._checked_seq = self.state.seq
                self._heads = {seq: start.chain}
                self.segment_bytes = start.segment_bytes
                for hears in self.restored:
                    hears(seq, start.image)
                return

    async def _starts(self, last_seq: int) -> AsyncGenerator[tuple[int, _Kept]]:
        """From where the fold can start, the furthest first."""
        kept, before_seq = await self._kept(last_seq), 0
        while self._checkpoint is not None:
            try:
                found = await self._checkpoint(before_seq)
            except CheckpointDamaged as error:
                self._logger.warning(
                    "a checkpoint is damaged; the log is folded from an older one or its beginning",
                    record=error.closed_seq,
                    reason=str(error),
                )
                before_seq = error.closed_seq
                continue
            if kept is not None and (found is None or kept[0] >= found.closed.last_seq):
                yield kept
                kept = None
            if found is None:
                return
            before_seq = found.closed_seq
            yield found.closed.last_seq, _Kept(bytes.fromhex(found.closed.chain), 0, found.image)
        if kept is not None:
            yield kept

    async def _kept(self, last_seq: int) -> tuple[int, _Kept] | None:
        """What was kept at an earlier end, if it is of this log."""
        if self._snapshots is None:
            return None
        found = await self._snapshots.load(last_seq, digests_of(self._log))
        for ignored in self._snapshots.ignored:
            self._logger.warning("snapshot ignored", path=ignored.path, reason=ignored.message)
        if found is None:
            return None
        try:
            return found[0], msgspec.msgpack.decode(found[1], type=_Kept)
        except UNREADABLE as error:
            reason = f"not a snapshot: {error}"
            self._logger.warning("snapshot ignored", seq=found[0], reason=reason)
            return None

    async def _reach_seam(self) -> None:
        """Note what the state is where a segment may end."""
        image = await self._encoded()
        digest = await anyio.to_thread.run_sync(digest_of_image, image)
        self._seam = Seam(self.state.seq, digest, self.chain_at(self.state.seq))
        self._bytes_at_seam = self.segment_bytes
        for hears in self.on_seam:
            hears(self._seam, image)

    def _pass_seam(self, seq: int, closed: SegmentClosed) -> None:
        """Hold the state that this process had where a segment ended against the checkpoint there.
        Raises BooksBroken, LogDamaged.
        """
        seam, self._seam = self._seam, None
        if seam is None or seam.seq != closed.last_seq:
            return  # the fold began later
        self.segment_bytes -= self._bytes_at_seam
        where = f"segment {closed.number} ends with record {seam.seq}"
        if seam.chain != closed.chain:
            raise LogDamaged(
                f"{where}, where its binder had the chain's head {closed.chain} (record {seq}) and "
                f"this process has {seam.chain}: they have read different records"
            )
        if seam.digest != closed.digest:
            raise BooksBroken(
                f"{where}, where its binder had the state {closed.digest} (record {seq}) and this "
                f"process has {seam.digest}: they have read the same records to different states"
            )

    def _check_level(self) -> None:
        """Raises LevelUnknown."""
        level = self.state.segments.level
        if level > ENVELOPE_VERSION:
            raise LevelUnknown(
                f"the log holds records of level {level} since record {self.state.seq} or before, "
                f"and this release reads up to {ENVELOPE_VERSION}: start a newer release"
            )

    def _take(self, record: Record) -> int:
        """Let a record take effect; how many events it held."""
        self._last = record
        self._link(record)
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
        if is_decision and envelope.chain is not msgspec.UNSET:
            self._hold_against_chain(envelope, record.seq)
        live = self.state.segments.live
        if live and live[-1].closed_seq == record.seq:
            self._pass_seam(record.seq, live[-1].closed)
        if record.subject == subjects.SEGMENT:
            self._check_level()
        self._events_since_snapshot += len(events)
        self._tell(self.listeners, record, envelope)
        return len(events)

    def _link(self, record: Record) -> None:
        """Lead the chain on to a record."""
        head = next(reversed(self._heads.values()))
        self._heads[record.seq] = chain.linked(head, record)
        if len(self._heads) > HEADS_KEPT:
            del self._heads[next(iter(self._heads))]
        self.segment_bytes += len(record.payload)

    def _hold_against_chain(self, envelope: Envelope, seq: int) -> None:
        """Raises LogDamaged for a decision that stands on other records than were read here."""
        for event in envelope.events:
            if not isinstance(event, Decided):
                continue
            known = self.chain_at(event.checked)
            if known and known != envelope.chain:
                raise LogDamaged(
                    f"the decision {seq} stands on record {event.checked} with the chain's head "
                    f"{envelope.chain}, and this process has {known} there: they have read "
                    "different records"
                )

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
