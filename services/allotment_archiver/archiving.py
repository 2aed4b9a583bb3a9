"""One round of archiving: copy closed segments of the log, and remove those that may leave NATS.

In this order, so that whatever stops it loses nothing:

1. A closed segment is written to a local file, its chain checked against its `SegmentClosed`, and
   stored. Then a process of its own reads it back from the archive and folds it to the digest of
   the state at its end. `SegmentArchived` says so in the log.
2. `SegmentsDropped` says up to which record segments leave the stream; then they are purged. Only
   whole segments leave, only archived ones, and never the newest closed one.
3. Archived files that are older than wanted are deleted, the oldest first.

A log that is full takes neither record. Then the copy that was just verified is reason enough: the
segment is purged first, and the records follow.
"""

import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import anyio.to_process
import anyio.to_thread

from allotment.adapters.archive.file import Header, SegmentBroken, Writer
from allotment.adapters.archive.index import SUFFIX, write_index
from allotment.adapters.archive.store import ArchiveUnreachable, Store, Stored
from allotment.adapters.archive.verify import Verified, verify_stored
from allotment.adapters.telemetry.log import Logger
from allotment.core.ledger.segments import ClosedSegment, Segments
from allotment.core.logport import AppendResult, Landed, LogUnavailable, Record
from allotment.core.units import rfc3339
from allotment_archiver.learned import Before, Learned
from allotment_archiver.settings import Keeps
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import Envelope, Event, SegmentArchived, SegmentsDropped

NEEDED = (subjects.DECISION, subjects.OUTCOME, subjects.SEGMENT, subjects.CHECKPOINT)
"""The next record on each of these must follow the last one, so that one stays in the stream."""
_DAY_MS = 86_400_000


class ArchivedLog(Protocol):
    """As much of a log as archiving it takes."""

    identity: str

    async def first_seq(self) -> int: ...

    async def last_seq(self) -> int: ...

    async def last_on(self, subject: str) -> int: ...

    async def first_on(self, subject: str, from_seq: int) -> Record | None: ...

    async def record(self, seq: int) -> Record | None: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult: ...

    async def taken_bytes(self) -> int: ...

    async def purge(self, last_seq: int) -> None: ...


class Unwritten(Exception):
    """Raised when the log does not take a record; the next round tries again."""


class Archiver:
    """Does rounds of archiving for one log. `archived` and `dropped` count segments, `stored` is
    what the archive held last.
    """

    def __init__(
        self,
        log: ArchivedLog,
        store: Store,
        keeps: Keeps,
        by: str,
        logger: Logger,
        work_dir: Path | None = None,
    ) -> None:
        self.archived = 0
        self.dropped = 0
        self.stored: Sequence[Stored] = ()
        self._log = log
        self._store = store
        self._keeps = keeps
        self._by = by
        self._logger = logger
        self._work_dir = work_dir
        self._learned = Learned(log)

    @property
    def segments(self) -> Segments:
        return self._learned.segments

    @property
    def waiting(self) -> int:
        """How many closed segments are not archived."""
        return sum(one.archived is None for one in self.segments.live)

    async def run(self) -> None:
        """One round. Raises ArchiveUnreachable, SegmentBroken, Unwritten, LogUnavailable,
        LogDamaged, OSError (no room for the local file).
        """
        await self._learned.look()
        self.stored = await anyio.to_thread.run_sync(self._store.list)
        while due := [one for one in self.segments.live if one.archived is None]:
            await self._archive(due[0])
        if self._keeps.drops:
            await self._drop()
        await self._expire()

    async def _archive(self, segment: ClosedSegment) -> None:
        """Have a sound copy in the archive, and say so in the log."""
        closed, begun_s = segment.closed, time.monotonic()
        found = [one for one in self.stored if one.number == closed.number]
        verified = None
        for stored in found:
            verified = verified or await self._sound(stored, segment)
        if verified is None:
            verified = await self._write(segment)
        header = verified.header
        event = SegmentArchived(
            number=closed.number,
            uri=self._store.uri(header.name),
            sha256=verified.sha256,
            size_bytes=verified.size_bytes,
        )
        await self._say(event, f"archived/{closed.number}", makes_room=segment)
        self.archived += 1
        self._logger.info(
            "segment archived",
            number=closed.number,
            uri=event.uri,
            bytes=event.size_bytes,
            records=closed.last_seq - closed.first_seq + 1,
            seconds=round(time.monotonic() - begun_s, 1),
        )

    async def _sound(self, stored: Stored, segment: ClosedSegment) -> Verified | None:
        """An archived file, if it is sound; None for a torn one, which is written again. Raises
        SegmentBroken for another log's."""
        try:
            verified = await self._verified(stored)
        except SegmentBroken as error:
            self._logger.warning("archived file is written again", reason=str(error))
            return None
        closed, header = segment.closed, verified.header
        if (header.chain, header.digest) == (closed.chain, closed.digest):
            return verified
        raise SegmentBroken(
            stored.name,
            f"the archive at {self._store.url} holds another log's segment {closed.number}: give "
            "each log an archive of its own",
        )

    async def _write(self, segment: ClosedSegment) -> Verified:
        header = await self._header(segment)
        with tempfile.TemporaryDirectory(prefix="allotment-", dir=self._work_dir) as directory:
            path = Path(directory) / header.name
            size = await self._fill(path, header)
            index = await anyio.to_process.run_sync(write_index, path, cancellable=True)
            for each in (index, path):  # so no segment is there without its index
                await anyio.to_thread.run_sync(self._store.put, each, each.name)
        stored = Stored(header.number, header.first_seq, header.last_seq, size, 0, header.name)
        return await self._verified(stored)

    async def _verified(self, stored: Stored) -> Verified:
        """Read it back and fold it, in a process of its own: both take long."""
        return await anyio.to_process.run_sync(
            verify_stored, self._store.url, stored, cancellable=True
        )

    async def _fill(self, path: Path, header: Header) -> int:
        """Write the segment to a local file; its size."""

        def add(batch: Sequence[Record]) -> None:
            for record in batch:
                writer.add(record)

        file = await anyio.to_thread.run_sync(lambda: path.open("wb"))
        with file:
            writer = await anyio.to_thread.run_sync(Writer, file, header)
            async with aclosing(self._log.read(header.first_seq, header.last_seq)) as batches:
                async for batch in batches:
                    await anyio.to_thread.run_sync(add, batch)
            return (await anyio.to_thread.run_sync(writer.close)).size_bytes

    async def _header(self, segment: ClosedSegment) -> Header:
        closed = segment.closed
        before = self._learned.before.get(closed.number)
        first, last = [await self._log.record(seq) for seq in (closed.first_seq, closed.last_seq)]
        if before is None or first is None or last is None:
            raise SegmentBroken(
                f"segment {closed.number}",
                f"records {closed.first_seq} to {closed.last_seq} have left NATS, and no sound copy"
                f" is in the archive at {self._store.url}",
                closed.first_seq,
            )
        return _header_of(segment, before, first, last, self._log.identity)

    async def _drop(self) -> None:
        """Let segments leave the stream that need not stay."""
        end = await self._droppable()
        if end:
            gone = sum(one.closed.last_seq <= end for one in self.segments.live)
            await self._say(SegmentsDropped(last_seq=end), f"dropped/{end}")
            self.dropped += gone
            self._logger.info("segments leave NATS", lastSeq=end, segments=gone)
        if await self._log.first_seq() <= self.segments.dropped_seq:
            await self._log.purge(self.segments.dropped_seq)

    async def _droppable(self) -> int:
        """The last record that need not stay, 0 if all must."""
        live = self.segments.live[: -self._keeps.live_segments]
        if not live:
            return 0
        needed = await self._needed()
        begins, ends = await self._log.first_seq(), await self._log.last_seq()
        taken_bytes, now_ms, end = await self._log.taken_bytes(), time.time_ns() // 1_000_000, 0
        for one in live:
            last_seq = one.closed.last_seq
            left_bytes = taken_bytes * (ends - last_seq) // max(ends - begins + 1, 1)
            if (
                one.archived is None
                or last_seq >= needed
                or now_ms - one.closed.at_ms < self._keeps.live_days * _DAY_MS
                or left_bytes < self._keeps.live_bytes
            ):
                break
            end = last_seq
        return end

    async def _needed(self) -> int:
        """The first record that must stay because the next one on its subject follows it."""
        lasts = [await self._log.last_on(subject) for subject in NEEDED]
        return min(seq for seq in lasts if seq) if any(lasts) else 0

    async def _expire(self) -> None:
        """Delete archived files that are older than wanted and of no use for the stream."""
        if not self._keeps.archive_days:
            return
        old_ms = time.time_ns() // 1_000_000 - self._keeps.archive_days * _DAY_MS
        begins = await self._log.first_seq()
        for stored in self.stored[:-1]:
            if stored.written_ms >= old_ms or stored.last_seq >= begins:
                break
            if stored.index_ms:
                await anyio.to_thread.run_sync(self._store.delete, stored.name + SUFFIX)
            await anyio.to_thread.run_sync(self._store.delete, stored.name)
            self._logger.info("archived segment deleted", name=stored.name)

    async def _say(
        self, event: Event, name: str, *, makes_room: ClosedSegment | None = None
    ) -> None:
        """Append a record about the archive and learn of it. Raises Unwritten."""
        now_ms = time.time_ns() // 1_000_000
        payload = encode(Envelope(at_ms=now_ms, by=self._by, events=(event,)))
        answer = await self._appended(payload, name)
        if not isinstance(answer, Landed) and answer.reason == "full" and makes_room is not None:
            await self._make_room(makes_room)
            answer = await self._appended(payload, name)
        if not isinstance(answer, Landed):
            await self._learned.look()
            raise Unwritten(f"the log does not take {type(event).__name__}: {answer.message}")
        await self._learned.look()

    async def _appended(self, payload: bytes, name: str) -> AppendResult:
        after = self._learned.archive_seq
        return await self._log.compare_and_append(
            subjects.ARCHIVE,
            payload,
            msg_id=f"{name}/{self._by}/{after}.{time.time_ns()}",
            expected_seq=after,
        )

    async def _make_room(self, segment: ClosedSegment) -> None:
        """The log is full: what is archived and verified leaves it before it is recorded."""
        last_seq = segment.closed.last_seq
        is_newest = segment == self.segments.live[-1]
        if not self._keeps.drops or is_newest or last_seq >= await self._needed():
            raise Unwritten("the log is full: raise its limit (allot log limit SIZE)")
        self._logger.warning("the log is full; an archived segment leaves it", lastSeq=last_seq)
        await self._log.purge(last_seq)


def _header_of(
    segment: ClosedSegment, before: Before, first: Record, last: Record, log: str
) -> Header:
    closed = segment.closed
    return Header(
        log=log,
        number=closed.number,
        first_seq=closed.first_seq,
        last_seq=closed.last_seq,
        first_time=rfc3339(first.time_ns // 1_000_000),
        last_time=rfc3339(last.time_ns // 1_000_000),
        chain_before=before.chain,
        chain=closed.chain,
        digest=closed.digest,
        checkpoint_seq=before.checkpoint_seq,
        written_by=f"allotment {version('allotment')}",
    )


TROUBLES = (ArchiveUnreachable, SegmentBroken, Unwritten, LogUnavailable, OSError)
"""What the next round may find mended."""
