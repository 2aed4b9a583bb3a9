"""One log: what has left NATS is read from the archive, the rest from the stream."""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from allotment.adapters.archive.archive import Archive
from allotment.adapters.archive.file import SegmentBroken
from allotment.adapters.archive.store import ArchiveUnreachable
from allotment.adapters.log.checkpoints import (
    Checkpoint,
    CheckpointDamaged,
    checkpoint_at,
    completing,
)
from allotment.core.errors import AllotError
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import SegmentArchived, SegmentClosed

NAME_ONE = "make it reachable, or name a copy: --archive URL (or ALLOT_ARCHIVE)"


class LiveLog(Protocol):
    """As much of the stream as this takes."""

    @property
    def identity(self) -> str: ...

    async def first_seq(self) -> int: ...

    async def last_seq(self) -> int: ...

    async def last_on(self, subject: str) -> int: ...

    async def first_on(self, subject: str, from_seq: int) -> Record | None: ...

    async def record(self, seq: int) -> Record | None: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]: ...


class WholeLog:
    """The log from its first record that is anywhere. The archive is looked at only when records
    are wanted that the stream no longer has. Every method may raise AllotError: what is missing,
    where it should be, and what to do.
    """

    def __init__(
        self, live: LiveLog, archive: str | None = None, cache: Path | None = None
    ) -> None:
        """`archive`: its URL, if not the one that the log names."""
        self.identity = live.identity
        self.last_seq = live.last_seq
        self.read_live = live.read
        """Only what is in NATS."""
        self.near_seq = live.first_seq
        """The first record that is in NATS."""
        self._live = live
        self._url = archive
        self._cache = cache
        self._archive: Archive | None = None
        self._left = 1
        """The records before this one have left the stream; it was asked when one was not there."""
        self.damaged: dict[int, str] = {}
        """What is wrong with the checkpoints that were not used, by the records that end them."""

    async def first_seq(self) -> int:
        """The oldest record that can be read. Looks again what is in the archive."""
        begins, self._archive = await self._live.first_seq(), None
        if begins == 1 or await self.archive_url() is None:
            return begins
        return min((await self._reaching(begins - 1)).first_seq, begins)

    async def archive_url(self) -> str | None:
        """Where the archive is, None if neither the caller nor the log says so."""
        if self._url is None:
            async with aclosing(completing(self._live)) as checkpoints:
                async for closed, _ in checkpoints:  # a segment is archived soon after it is closed
                    said = await self._live.first_on(subjects.ARCHIVE, closed.seq)
                    for event in () if said is None else _events(said):
                        if isinstance(event, SegmentArchived):
                            self._url = event.uri.rpartition("/")[0]
                            return self._url
        return self._url

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """As of the port."""
        at = max(first_seq, 1)
        last_seq = min(last_seq, await self._live.last_seq())
        while at <= last_seq:
            begins = await self._live.first_seq()
            if at < begins:
                batches = self._archived(at, min(last_seq, begins - 1))
            else:
                batches = self._live.read(at, last_seq)
            async with aclosing(batches):
                async for batch in batches:
                    if batch[0].seq != at:  # the records before it have left the stream meanwhile
                        break
                    yield batch
                    at = batch[-1].seq + 1

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        """As of the port."""
        begins = await self._live.first_seq()
        if after_seq + 1 < begins:
            async with aclosing(self.read(after_seq + 1, begins - 1)) as batches:
                async for batch in batches:
                    yield batch
            after_seq = begins - 1
        async with aclosing(self._live.follow(after_seq)) as batches:
            async for batch in batches:
                yield batch

    async def record(self, seq: int) -> Record | None:
        """The record at `seq`, None where there is none."""
        found = None if seq < self._left else await self._live.record(seq)
        if found is None and seq >= self._left:
            self._left = await self._live.first_seq()
        if found is None and 1 <= seq < self._left:
            async with aclosing(self._archived(seq, seq)) as batches:
                async for batch in batches:
                    return batch[0]
        return found

    async def seq_before(self, until_ns: int) -> int:
        """The last record before the first one that was written at a time or later, as far as times
        do not go back.
        """
        begins, after = await self._live.first_seq(), await self._live.last_seq() + 1
        low, high = begins, after
        while low < high:
            middle = (low + high) // 2
            record = await self._live.record(middle)
            if record is None or record.time_ns < until_ns:  # None: it has left the stream
                low = middle + 1
            else:
                high = middle
        if low > begins or begins == 1 or await self.archive_url() is None:
            return low - 1
        archive = await self._reaching(begins - 1)
        try:
            return min(await archive.seq_before(until_ns), begins - 1)
        except (ArchiveUnreachable, SegmentBroken) as error:
            raise self._missing(1, begins - 1, error) from error

    async def checkpoint(self, before_seq: int, before_ns: int | None = None) -> Checkpoint | None:
        """The newest checkpoint before a sequence, and before a time; None where there is none."""
        begins = await self._live.first_seq()
        async with aclosing(completing(self._live)) as records:
            async for record, closed in records:
                if closed is None or closed.last_seq >= before_seq:
                    continue
                if before_ns is not None and record.time_ns >= before_ns:  # not the binder's clock
                    continue
                try:
                    return await checkpoint_at(self._live, record)
                except CheckpointDamaged as error:
                    self.damaged[error.closed_seq] = str(error)
                    if closed.last_seq < begins:
                        raise AllotError(f"the log is damaged: {error}") from error
        if begins == 1 or before_seq < 1:
            return None
        last_seq = min(before_seq, begins - 1)
        archive = await self._reaching(last_seq)
        try:
            return await archive.checkpoint(before_seq, before_ns)
        except (ArchiveUnreachable, SegmentBroken) as error:
            raise self._missing(1, last_seq, error) from error

    async def indexed_seq(self) -> int:
        """Up to here the archive says whom records concern, 0 if there is none."""
        if await self.archive_url() is None:
            return 0
        return (await self._reaching(0)).indexed_seq

    async def index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        """What it says under some keys, of the segments that begin up to a record."""
        archive = await self._reaching(0)
        try:
            return await archive.index_of(keys, last_seq)
        except (ArchiveUnreachable, SegmentBroken) as error:
            raise AllotError(f"the archive cannot be read: {error}", NAME_ONE) from error

    async def _archived(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        archive = await self._reaching(last_seq)
        if archive.first_seq > first_seq:
            missing = min(last_seq, archive.first_seq - 1)
            raise AllotError(
                f"records {first_seq} to {missing} have left NATS, and the archive at "
                f"{archive.store.url} begins with record {archive.first_seq}",
                f"ask about what is later, or {NAME_ONE.partition(', or ')[2]}",
            )
        try:
            async with aclosing(archive.read(first_seq, last_seq)) as batches:
                async for batch in batches:
                    yield batch
        except (ArchiveUnreachable, SegmentBroken) as error:
            raise self._missing(first_seq, last_seq, error) from error

    async def _reaching(self, seq: int) -> Archive:
        """The archive, which has a record. Raises AllotError."""
        if self._archive is not None and self._archive.last_seq >= seq:
            return self._archive
        url = await self.archive_url()
        if url is None:
            raise AllotError(
                f"the records up to {seq} have left NATS, and the log names no archive",
                "name the archive: --archive URL (or ALLOT_ARCHIVE)",
            )
        try:
            archive = await Archive.open(url, self._cache)
            await self._check_history(archive)
        except (ArchiveUnreachable, SegmentBroken, ValueError) as error:
            raise self._missing(1, seq, error) from error
        if archive.last_seq < seq:
            raise AllotError(
                f"the records up to {seq} have left NATS, and the archive at {url} ends with record"
                f" {archive.last_seq}",
                NAME_ONE,
            )
        self._archive = archive
        return archive

    async def _check_history(self, archive: Archive) -> None:
        """Hold the chain's head where the archive meets NATS against the one that NATS names.
        Raises SegmentBroken for another log's archive, and what reading may raise.
        """
        last_seq = await self._live.first_seq() - 1
        stored = next((each for each in archive.files if each.last_seq == last_seq), None)
        record = await self._live.first_on(subjects.CHECKPOINT, last_seq + 1)
        if stored is None or record is None:
            return
        file = archive.segment(stored)
        header = await anyio.to_thread.run_sync(lambda: file.header)
        for event in _events(record):
            if not isinstance(event, SegmentClosed) or event.last_seq != last_seq:
                continue
            if event.chain != header.chain:
                raise SegmentBroken(
                    stored.name,
                    f"it is of another log: record {record.seq} in NATS names the chain's head"
                    f" {event.chain} at {last_seq}, and the file {header.chain}",
                )

    def _missing(self, first_seq: int, last_seq: int, error: Exception) -> AllotError:
        return AllotError(
            f"records {first_seq} to {last_seq} have left NATS, and cannot be read from the"
            f" archive: {error}",
            NAME_ONE,
        )


def _events(record: Record) -> tuple[object, ...]:
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()
