"""What was read of a log, kept in files for the next question: its records in stretches, and of
each stretch whom its records concern. A cache, never a truth.

Each stretch begins where the one before it ends, and the newest is held against the record that
the log has there: a log that lost its tail and grew again keeps the stretches before the cut. A
file that is torn or altered is dropped with all that come after it, and those records are read from
the log again.
"""

import re
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio.to_thread
import msgspec

from allotment.adapters.log.sealed import Ignored, age_s, seal, unseal
from allotment.adapters.log.snapshots import digests_of
from allotment.core.explain.history.concerned import StretchIndex, Thing, key_of
from allotment.core.logport import Record, digest_of
from allotment_proto.codec import UndecodableError, decode_envelope

STRETCH_RECORDS = 16_384
STRETCH_BYTES = 32 << 20
WORTH_RECORDS = 1_000
"""So many new records are worth writing."""
FRAME_RECORDS = 512
_FRAMES_OPEN = 16
_INDEXES_OPEN, _INDEXES_DECODED = 128, 8
_LEVEL = 1
FORMAT = 1
"""To be raised with what `StretchIndex` says of a log: then its records are indexed again."""
_NAME = re.compile(rf"index-{FORMAT}-(\d{{20}})-(\d{{20}})-(\d{{16}})")
_LEFT_S = 3600
"""After so long no other process is still writing a file."""


class ReadLog(Protocol):
    """As much of a log as keeping it takes."""

    async def last_seq(self) -> int: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...


class _Stretch(NamedTuple):
    """The records from one sequence to another, none of them written after a time."""

    first: int
    last: int
    latest_ms: int

    @property
    def index_name(self) -> str:
        return f"index-{FORMAT}-{self.first:020d}-{self.last:020d}-{self.latest_ms:016d}"

    @property
    def records_name(self) -> str:
        return f"records-{self.first:020d}-{self.last:020d}"


class KeptLog:
    """A log, of which each record is read once: then it comes from `directory`. Without one, what
    was read is held in memory.
    """

    def __init__(self, log: ReadLog, directory: Path | None = None, log_identity: str = "") -> None:
        self.last_seq = log.last_seq
        self._log = log
        self._directory = directory
        self._identity = log_identity
        self.trouble = ""
        """Why nothing can be written, "" while it can; then what is read is held in memory."""
        self._is_writing = directory is not None
        self._stretches: list[_Stretch] | None = None
        self._pending: list[Record] = []
        """The records after the last stretch, as far as they were read."""
        self._pending_bytes = 0
        self._tail = StretchIndex()
        """Of the first `_indexed` of these."""
        self._indexed = 0
        self._open_indexes: OrderedDict[_Stretch, bytes] = OrderedDict()
        self._recent: OrderedDict[_Stretch, StretchIndex] = OrderedDict()
        self._packed: tuple[_Stretch, list[bytes]] | None = None
        self._frames: OrderedDict[tuple[_Stretch, int], list[Record]] = OrderedDict()

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records `first_seq` to `last_seq`, both included, in batches; ends at the tail."""
        await self._open()
        at = max(first_seq, 1)
        while at <= last_seq and (found := await self._kept_from(at)):
            yield found[: last_seq - at + 1]
            at += len(found)
        if at > last_seq:
            return
        # Those before are read as well, unless only one is asked for: a question will need them.
        start = at if at == last_seq else min(at, self._end + len(self._pending) + 1)
        async with aclosing(self._log.read(start, last_seq)) as batches:
            async for batch in batches:
                await self._gather(batch)
                if batch[-1].seq >= at:
                    yield batch[max(at - batch[0].seq, 0) :]

    async def records(self, seqs: Iterable[int]) -> list[Record]:
        """The records at these sequences, as far as the log has them, in order."""
        found: list[Record] = []
        for seq in sorted(set(seqs)):
            async with aclosing(self.read(seq, seq)) as batches:
                found += [record async for batch in batches for record in batch]
        return found

    async def about(self, things: Collection[Thing], last_seq: int) -> dict[Thing, list[int]]:
        """By each of these the sequences, in order and up to one that the log has, of the records
        that concern it.
        """
        indexes = await self._indexes([key_of(thing) for thing in things], last_seq)
        found = {}
        for thing in things:
            seqs = (seq for index in indexes for seq in index.about.get(key_of(thing), ()))
            found[thing] = [seq for seq in seqs if seq <= last_seq]
        return found

    async def uids_of(self, name: str, last_seq: int) -> list[str]:
        """The pods of a name, or of a family (see `StretchIndex.uids`), the oldest first; some may
        have been seen only after `last_seq`.
        """
        indexes = await self._indexes([name], last_seq)
        return list(dict.fromkeys(uid for index in indexes for uid in index.uids.get(name, ())))

    async def seq_before(self, ms: int) -> int:
        """A sequence up to which every record was written before a time; more may follow."""
        stretches = await self._open()
        late = next((each for each in stretches if each.latest_ms >= ms), None)
        return self._end if late is None else late.first - 1

    async def close(self) -> None:
        """Write what was read, if it is worth it."""
        if self._is_writing and len(self._pending) >= WORTH_RECORDS:
            await self._write()

    @property
    def _end(self) -> int:
        return self._stretches[-1].last if self._stretches else 0

    async def _open(self) -> list[_Stretch]:
        """The stretches that stand on the log's records."""
        if self._stretches is not None:
            return self._stretches
        found = self._stretches = await anyio.to_thread.run_sync(self._listed)
        digest_at = digests_of(self._log)
        while found:
            sealed = await self._unseal(found[-1], found[-1].index_name)
            if sealed and await digest_at(found[-1].last) == sealed[1]:
                break
            await self._drop(found[-1])
        return found

    def _listed(self) -> list[_Stretch]:
        if self._directory is None or not self._directory.is_dir():
            return []
        paths = {path.name: path for path in self._directory.iterdir()}
        names = filter(None, map(_NAME.fullmatch, paths))
        listed = [_Stretch(*map(int, name.groups())) for name in names]
        found: list[_Stretch] = []
        for each in sorted(listed, key=lambda each: (each.first, -each.last)):
            if each.first == (found[-1].last + 1 if found else 1):
                found.append(each)
        used = {name for each in found for name in (each.index_name, each.records_name)}
        for name, path in paths.items():
            is_ours = name.startswith(("index-", "records-")) and name not in used
            if is_ours and age_s(path) > _LEFT_S:
                path.unlink(missing_ok=True)
        return found

    async def _unseal(self, stretch: _Stretch, name: str) -> tuple[bytes, str] | None:
        """What a file of a stretch holds, with the digest of its last record; None if it is not
        what was written.
        """
        assert self._directory is not None
        path = self._directory / name
        found = await anyio.to_thread.run_sync(unseal, path, self._identity, stretch.last)
        return None if isinstance(found, Ignored) else (found.payload, found.record)

    async def _drop(self, stretch: _Stretch) -> None:
        """Forget a stretch and all after it; they are read from the log again."""
        stretches = self._stretches or []
        at = stretches.index(stretch)
        dropped = stretches[at:]
        del stretches[at:]
        self._forget_pending()
        await anyio.to_thread.run_sync(self._remove, dropped)

    def _remove(self, stretches: Iterable[_Stretch]) -> None:
        assert self._directory is not None
        for each in stretches:
            for name in (each.index_name, each.records_name):
                (self._directory / name).unlink(missing_ok=True)

    def _forget_pending(self) -> None:
        self._pending, self._pending_bytes = [], 0
        self._tail, self._indexed = StretchIndex(), 0

    # Records

    async def _kept_from(self, seq: int) -> list[Record]:
        """Some records from a sequence on, none where it is not kept."""
        if seq > self._end:
            at = seq - self._end - 1
            return self._pending[at : at + FRAME_RECORDS]
        stretches = await self._open()
        stretch = stretches[bisect_left(stretches, seq, key=lambda each: each.last)]
        number, at = divmod(seq - stretch.first, FRAME_RECORDS)
        frame = self._frames.get((stretch, number))
        if frame is None:
            if self._packed is None or self._packed[0] != stretch:
                sealed = await self._unseal(stretch, stretch.records_name)
                if sealed is None:
                    await self._drop(stretch)
                    return []
                self._packed = stretch, msgspec.msgpack.decode(sealed[0], type=list[bytes])
            plain = zlib.decompress(self._packed[1][number])
            frame = self._frames[stretch, number] = msgspec.msgpack.decode(plain, type=list[Record])
            if len(self._frames) > _FRAMES_OPEN:
                self._frames.popitem(last=False)
        return frame[at:]

    async def _gather(self, batch: Sequence[Record]) -> None:
        if batch[0].seq != self._end + len(self._pending) + 1:
            return
        self._pending += batch
        self._pending_bytes += sum(len(record.payload) for record in batch)
        is_full = len(self._pending) >= STRETCH_RECORDS or self._pending_bytes >= STRETCH_BYTES
        if is_full and self._is_writing:
            await self._write()

    async def _write(self) -> None:
        """Make a stretch of what is pending; one before that is small becomes a part of it."""
        stretches, pending = await self._open(), self._pending
        last = stretches[-1] if stretches else None
        small: list[_Stretch] = []
        if last and last.last - last.first + 1 + len(pending) <= STRETCH_RECORDS:
            async with aclosing(self.read(last.first, last.last)) as batches:
                before = [record async for batch in batches for record in batch]
            if last not in stretches:  # it was not sound: what is pending follows nothing
                return
            small, pending = [last], before + pending
        try:
            stretch = await anyio.to_thread.run_sync(self._seal, pending)
        except OSError as error:
            self.trouble, self._is_writing = str(error), False
            return
        await anyio.to_thread.run_sync(self._remove, small)
        stretches[:] = [*(each for each in stretches if each not in small), stretch]
        self._forget_pending()

    def _seal(self, records: Sequence[Record]) -> _Stretch:
        assert self._directory is not None
        index = StretchIndex()
        for record in records:
            _note(index, record)
        last = records[-1]
        latest_ms = max(record.time_ns for record in records) // 1_000_000
        stretch = _Stretch(records[0].seq, last.seq, latest_ms)
        frames = [
            zlib.compress(msgspec.msgpack.encode(records[at : at + FRAME_RECORDS]), _LEVEL)
            for at in range(0, len(records), FRAME_RECORDS)
        ]
        for name, content in ((stretch.records_name, frames), (stretch.index_name, index)):
            payload = msgspec.msgpack.encode(content)
            seal(self._directory / name, self._identity, last.seq, payload, digest_of(last))
        return stretch

    # Indexes

    async def _indexes(self, keys: Collection[str], last_seq: int) -> list[StretchIndex]:
        """The indexes of all stretches that have any of these keys, and of the records after them
        up to a sequence that the log has.
        """
        sought = [key.encode() for key in keys]
        while True:
            found = []
            for stretch in list(await self._open()):
                packed = await self._index(stretch)
                if packed is None:
                    await self._drop(stretch)
                    break
                if any(key in packed for key in sought):
                    found.append(self._decoded(stretch, packed))
            if self._end + len(self._pending) >= last_seq:
                break
            async with aclosing(self.read(self._end + len(self._pending) + 1, last_seq)) as rest:
                async for _ in rest:
                    pass
        for record in self._pending[self._indexed :]:
            _note(self._tail, record)
        self._indexed = len(self._pending)
        return [*found, self._tail]

    async def _index(self, stretch: _Stretch) -> bytes | None:
        index = self._open_indexes.get(stretch)
        if index is None:
            sealed = await self._unseal(stretch, stretch.index_name)
            if sealed is None:
                return None
            index = self._open_indexes[stretch] = sealed[0]
            if len(self._open_indexes) > _INDEXES_OPEN:
                self._open_indexes.popitem(last=False)
        return index

    def _decoded(self, stretch: _Stretch, packed: bytes) -> StretchIndex:
        index = self._recent.pop(stretch, None)
        if index is None:
            index = msgspec.msgpack.decode(packed, type=StretchIndex)
        self._recent[stretch] = index  # the one that was asked last comes last
        if len(self._recent) > _INDEXES_DECODED:
            self._recent.popitem(last=False)
        return index


def _note(index: StretchIndex, record: Record) -> None:
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return
    for event in events:
        index.note(event, record.seq)
