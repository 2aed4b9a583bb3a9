"""What was read of a log, kept in files for the next question: its records in stretches, and of
each stretch whom its records concern. A cache, never a truth.

Each stretch begins where the one before it ends, and the newest is held against the record that
the log has there: a log that lost its tail and grew again keeps the stretches before the cut. A
stretch is two files. Its outline is sealed: which keys it has, and where in the other file their
part of the index is, and each frame of records. So a question reads no more than it is about. A
file that is torn or altered is dropped with all that come after it, and those records are read from
the log again.
"""

import re
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio
import anyio.to_thread
import msgspec

from allotment.adapters.log.sealed import Ignored, age_s, seal, unseal
from allotment.adapters.log.snapshots import DigestAt, digests_of
from allotment.core.errors import AllotError
from allotment.core.explain.history.concerned import StretchIndex, Thing, key_of
from allotment.core.logport import Record, digest_of
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope

STRETCH_RECORDS = 16_384
STRETCH_BYTES = 32 << 20
FAR_RECORDS = STRETCH_RECORDS
"""Records that lie further ahead are read without those between."""
WORTH_RECORDS = 1_000
"""So many new records are worth writing."""
FRAME_RECORDS = 128
PARTS = 32
"""Into so many parts the index of a stretch is divided, by a digest of the key."""
_FRAMES_OPEN = 32
_PARTS_OPEN = 64
_LEVEL = 1
_OURS = ("outline-", "records-", "index-")
FORMAT = 2
"""To be raised with what `StretchIndex` says of a log: then its records are indexed again."""
_NAME = re.compile(rf"outline-{FORMAT}-(\d{{20}})-(\d{{20}})-(\d{{16}})")
_LEFT_S = 3600
"""After so long no other process is still writing a file."""


class ReadLog(Protocol):
    """As much of a log as keeping it takes."""

    async def first_seq(self) -> int:
        """The first record that can be read. Raises AllotError if that cannot be known now."""
        ...

    async def near_seq(self) -> int:
        """The first record that is in NATS; those before it may be in an archive."""
        ...

    async def last_seq(self) -> int: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    async def record(self, seq: int) -> Record | None: ...

    async def indexed_seq(self) -> int:
        """Up to here an archive says whom records concern, 0 if there is none. Raises AllotError if
        that cannot be known now.
        """
        ...

    async def index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        """What it says under some keys, of its segments that begin up to a record. Raises
        AllotError.
        """
        ...


class Notes(Protocol):
    """What else a reader wants to know of every record without reading it again."""

    def begin(self, base: int) -> None:
        """Forget all; the first record that is noted follows this one."""
        ...

    def take(self, record: Record, envelope: Envelope | None) -> None:
        """Note a record, each once and in order; None: it could not be read."""
        ...

    def part(self, first_seq: int, last_seq: int) -> bytes:
        """What was noted of some records up to the last one, to be kept with their stretch."""
        ...

    def add(self, part: bytes) -> None:
        """Note what a stretch says, which follows all that is noted."""
        ...


class _Unsound(Exception):
    """Raised for a stretch whose files are not what was written."""


class _Outline(msgspec.Struct, array_like=True):
    """A file: what is known of a stretch, without reading the other file."""

    keys: bytes
    """Digests of all keys of the index, sorted."""
    ends: list[int]
    """Where in the other file each block ends: the parts of the index, then the frames."""
    part: bytes
    """See `Notes`."""


class _Stretch(NamedTuple):
    """The records from one sequence to another, none of them written after a time."""

    first: int
    last: int
    latest_ms: int
    keys: "array[int]"
    ends: "array[int]"

    @property
    def outline_name(self) -> str:
        return f"outline-{FORMAT}-{self.first:020d}-{self.last:020d}-{self.latest_ms:016d}"

    @property
    def records_name(self) -> str:
        return f"records-{FORMAT}-{self.first:020d}-{self.last:020d}"


class KeptIndex:
    """Whom the records of a log concern. Give it each record in order, after `open`; what is
    written is in files of `directory`, the rest is held in memory. Not for two tasks at once.
    """

    def __init__(
        self, directory: Path | None = None, log_identity: str = "", notes: Notes | None = None
    ) -> None:
        self.reach = 0
        """The last record that is indexed."""
        self.trouble = ""
        """Why nothing can be written, "" while it can; then what is read is held in memory."""
        self.is_writing = directory is not None
        self._base = 0
        self._directory = directory
        self._identity = log_identity
        self._notes = notes
        self._noted = 0
        """Up to here `notes` has all records."""
        self._stretches: list[_Stretch] = []
        self._tail = StretchIndex()
        """Of the records after the last stretch."""
        self._latest_ms = 0
        """When the newest of them was written, 0 if there is none."""
        self._last: Record | None = None
        self._parts: OrderedDict[tuple[int, int, int], StretchIndex] = OrderedDict()
        self._before: array[int] | None = None
        """Digests of the keys that records up to `base` concern and later ones may as well."""

    async def open(self, digest_at: DigestAt, near_seq: int = 1) -> None:
        """Find the stretches that stand on the log's records: on those from `near_seq` on, which
        are the only ones that can be compared.
        """
        outlines = await anyio.to_thread.run_sync(self._listed)
        while outlines and outlines[-1][0].last >= near_seq:
            if await digest_at(outlines[-1][0].last) == outlines[-1][1]:
                break
            await anyio.to_thread.run_sync(self._remove, [outlines.pop()[0]])
        self._stretches = [stretch for stretch, *_ in outlines]
        self._begin(self._stretches[0].first - 1 if self._stretches else 0)
        self.reach = self._noted = self.end
        for *_, part in outlines if self._notes is not None else ():
            assert self._notes is not None
            self._notes.add(part)

    @property
    def end(self) -> int:
        """The last record of the last stretch."""
        return self._stretches[-1].last if self._stretches else self._base

    def begin_at(self, first_seq: int) -> bool:
        """Begin with a record, the first that can be read: forget all, unless it follows on what is
        indexed from there on or before. Whether all was forgotten.
        """
        if self._base < first_seq <= self.reach + 1:
            return False
        self._begin(first_seq - 1)
        self._stretches, self.reach, self._tail, self._latest_ms = [], self._base, StretchIndex(), 0
        return True

    async def forget(self, last_seq: int) -> None:
        """Forget the stretches that end at a record or before."""
        gone = [each for each in self._stretches[:-1] if each.last <= last_seq]
        if gone:
            del self._stretches[: len(gone)]
            self._base, self._before = gone[-1].last, None
            await anyio.to_thread.run_sync(self._remove, gone)

    @property
    def base(self) -> int:
        """Records up to here are left out."""
        return self._base

    def _begin(self, base: int) -> None:
        self._base = self._noted = base
        self._before = None
        if self._notes is not None:
            self._notes.begin(base)

    @property
    def knows_before(self) -> bool:
        """Whether `begin_among` was said of `base`."""
        return self._before is not None

    def begin_among(self, keys: Iterable[str]) -> None:
        """Note what existed at `base`: keys of things, and names as in `StretchIndex.uids`."""
        self._before = array("I", sorted({_digest(key) for key in keys}))

    def began_before(self, key: str) -> bool:
        """Whether records that are left out may concern what existed at `base`, or all of it while
        that is not known.
        """
        return self._before is None or _has(self._before, _digest(key))

    def precede(self, older: "KeptIndex") -> None:
        """Take in an index of the records before those here, up to `base`; it is used up."""
        assert older.reach == self._base, "they follow each other"
        if older.reach > older.end and self._stretches:  # what cannot be written stays in memory
            raise OSError(older.trouble)
        if older.reach > older.end:
            older._tail.add(self._tail)
            self._tail = older._tail
            self._latest_ms = max(self._latest_ms, older._latest_ms)
        self._stretches[:0] = older._stretches
        self._base, self._before = older._base, older._before

    def is_due(self, records: int) -> bool:
        """Whether so many records are in memory that could be written."""
        return self.is_writing and self.reach - self.end >= records

    def take(self, record: Record, envelope: Envelope | None) -> None:
        """Index the next record (None: it cannot be read); any other is ignored."""
        if record.seq != self.reach + 1:
            return
        self.reach, self._last = record.seq, record
        self._latest_ms = max(self._latest_ms, record.time_ns // 1_000_000)
        for event in envelope.events if envelope is not None else ():
            self._tail.note(event, record.seq)
        if self._notes is not None and record.seq > self._noted:
            self._notes.take(record, envelope)
            self._noted = record.seq

    async def about(self, things: Collection[Thing], last_seq: int) -> dict[Thing, list[int]]:
        """By each of these the sequences, in order and up to one, of the records that concern it,
        as far as they are indexed.
        """
        found = {}
        for thing in things:
            key = key_of(thing)
            seqs = (seq for part in await self._with(key) for seq in part.about.get(key, ()))
            found[thing] = [seq for seq in seqs if seq <= last_seq]
        return found

    async def uids_of(self, name: str) -> list[str]:
        """The pods of a name, or of a family (see `StretchIndex.uids`), the oldest first."""
        parts = await self._with(name)
        return list(dict.fromkeys(uid for part in parts for uid in part.uids.get(name, ())))

    async def newest(self, number: int) -> StretchIndex | None:
        """The index of the records in memory (0), or of the stretch so many before them, of which
        the caller changes nothing; None if there is none.
        """
        if not number:
            return self._tail
        try:
            return await self._whole(self._stretches[-number])
        except (IndexError, _Unsound):
            return None

    def seq_before(self, ms: int) -> int:
        """A sequence up to which every record was written before a time; more may follow."""
        late = next((each for each in self._stretches if each.latest_ms >= ms), None)
        return self.end if late is None else late.first - 1

    def has(self, seq: int) -> bool:
        """Whether a record up to `end` is not left out."""
        return seq > self._base

    def stretch_of(self, seq: int) -> _Stretch:
        """The stretch that has a record up to `end`."""
        return self._stretches[bisect_left(self._stretches, seq, key=lambda each: each.last)]

    @property
    def start(self) -> int:
        """Where the next stretch begins that is written: the last one becomes a part of it if both
        together are not too long.
        """
        last = self._stretches[-1] if self._stretches else None
        is_small = last is not None and self.reach - last.first < STRETCH_RECORDS
        return last.first if last is not None and is_small else self.end + 1

    async def write(self, records: Sequence[Record] = ()) -> None:
        """Make a stretch of what is in memory, from `start` on; with these, if records are kept."""
        first, whole = self.start, StretchIndex()
        before = [each for each in self._stretches if each.first >= first]
        for each in before:
            try:
                whole.add(await self._whole(each))
            except _Unsound:
                return
        with anyio.CancelScope(shield=True):  # else what is in memory may be lost
            tail, latest_ms, last = self._tail, self._latest_ms, self._last
            assert last is not None
            self._tail, self._latest_ms = StretchIndex(), 0  # records may come while we write
            whole.add(tail)
            part = b"" if self._notes is None else self._notes.part(first, last.seq)
            until_ms = max(latest_ms, *(each.latest_ms for each in before), 0)
            stretch = _Stretch(first, last.seq, until_ms, array("I"), array("I"))
            try:
                await anyio.to_thread.run_sync(self._seal, stretch, whole, records, part, last)
            except OSError as error:
                self.trouble, self.is_writing = str(error), False
                tail.add(self._tail)
                self._tail, self._latest_ms = tail, max(latest_ms, self._latest_ms)
                return
            self._stretches[len(self._stretches) - len(before) :] = [stretch]
            await anyio.to_thread.run_sync(self._remove, before)

    async def blocks(self, wanted: Sequence[tuple[_Stretch, int]]) -> list[bytes]:
        """These blocks of stretches. Raises _Unsound for one that is not what was written, when its
        stretch is forgotten and all after it; they are to be taken from the log again.
        """
        found = await anyio.to_thread.run_sync(self._load, wanted) if wanted else []
        if len(found) < len(wanted):
            unsound = wanted[len(found)][0]
            at = self._stretches.index(unsound) if unsound in self._stretches else 0
            dropped = self._stretches[at:]
            del self._stretches[at:]
            self.reach, self._tail, self._latest_ms = self.end, StretchIndex(), 0
            await anyio.to_thread.run_sync(self._remove, dropped)
            raise _Unsound
        return found

    def _load(self, wanted: Sequence[tuple[_Stretch, int]]) -> list[bytes]:
        """These blocks, up to the first that is not sound."""
        assert self._directory is not None
        found = []
        for stretch, number in wanted:
            begin = stretch.ends[number - 1] if number else 0
            try:
                with (self._directory / stretch.records_name).open("rb") as file:
                    file.seek(len(file.readline()) + begin)  # a line says of which log it is
                    found.append(zlib.decompress(file.read(stretch.ends[number] - begin)))
            except (OSError, zlib.error):  # each block has a checksum of its own
                break
        return found

    async def _with(self, key: str) -> list[StretchIndex]:
        """What may say something under a key, in order."""
        digest = _digest(key)
        while True:
            wanted = [(e, digest % PARTS) for e in self._stretches if _has(e.keys, digest)]
            try:
                return [*await self._index_parts(wanted), self._tail]
            except _Unsound:
                continue

    async def _index_parts(self, wanted: Sequence[tuple[_Stretch, int]]) -> list[StretchIndex]:
        lacking = [each for each in wanted if _place(each) not in self._parts]
        found = {_place(each): self._parts[_place(each)] for each in wanted if each not in lacking}
        for each, packed in zip(lacking, await self.blocks(lacking), strict=True):
            part = msgspec.msgpack.decode(packed, type=StretchIndex)
            found[_place(each)] = self._parts[_place(each)] = part
        while len(self._parts) > _PARTS_OPEN:
            self._parts.popitem(last=False)
        return [found[_place(each)] for each in wanted]

    async def _whole(self, stretch: _Stretch) -> StretchIndex:
        whole = StretchIndex()
        for packed in await self.blocks([(stretch, number) for number in range(PARTS)]):
            whole.add(msgspec.msgpack.decode(packed, type=StretchIndex))
        return whole

    def _seal(
        self,
        stretch: _Stretch,
        index: StretchIndex,
        records: Sequence[Record],
        part: bytes,
        last: Record,
    ) -> None:
        """Write the files of a stretch, and fill in where its blocks are."""
        assert self._directory is not None
        parts = [StretchIndex() for _ in range(PARTS)]
        for key, seqs in index.about.items():
            parts[_digest(key) % PARTS].about[key] = seqs
        for key, uids in index.uids.items():
            parts[_digest(key) % PARTS].uids[key] = uids
        starts = range(0, len(records), FRAME_RECORDS)
        frames = [records[start : start + FRAME_RECORDS] for start in starts]
        blocks = [zlib.compress(msgspec.msgpack.encode(each), _LEVEL) for each in (*parts, *frames)]
        stretch.keys.extend(sorted({_digest(key) for key in (*index.about, *index.uids)}))
        stretch.ends.extend(accumulate(map(len, blocks)))
        outline = _Outline(stretch.keys.tobytes(), list(stretch.ends), part)
        for name, payload in (
            (stretch.records_name, b"".join(blocks)),
            (stretch.outline_name, msgspec.msgpack.encode(outline)),
        ):
            seal(self._directory / name, self._identity, stretch.last, payload, digest_of(last))

    def _listed(self) -> list[tuple[_Stretch, str, bytes]]:
        """The stretches that follow each other, with the digest of their last record and what was
        noted of them.
        """
        if self._directory is None or not self._directory.is_dir():
            return []
        paths = {path.name: path for path in self._directory.iterdir()}
        names = [name.groups() for name in filter(None, map(_NAME.fullmatch, paths))]
        found: list[tuple[_Stretch, str, bytes]] = []
        for bounds in sorted(names, key=lambda each: (int(each[0]), -int(each[1]))):
            first, last, latest_ms = map(int, bounds)
            stretch = _Stretch(first, last, latest_ms, array("I"), array("I"))
            if found and stretch.first <= found[-1][0].last:
                continue
            sealed = unseal(self._directory / stretch.outline_name, self._identity, stretch.last)
            if not isinstance(sealed, Ignored):
                outline = msgspec.msgpack.decode(sealed.payload, type=_Outline)
                stretch.keys.frombytes(outline.keys)
                stretch.ends.extend(outline.ends)
                if found and stretch.first != found[-1][0].last + 1:
                    found = []  # those before have left the log, or are to be read again
                found.append((stretch, sealed.record, outline.part))
        used = {name for each, *_ in found for name in (each.outline_name, each.records_name)}
        for name, path in paths.items():
            if name.startswith(_OURS) and name not in used and age_s(path) > _LEFT_S:
                path.unlink(missing_ok=True)
        return found

    def _remove(self, stretches: Iterable[_Stretch]) -> None:
        assert self._directory is not None
        for each in stretches:
            for name in (each.outline_name, each.records_name):
                (self._directory / name).unlink(missing_ok=True)


class KeptLog:
    """A log, of which each record is read once: then it comes from `directory`. Without one, what
    was read is held in memory.
    """

    def __init__(self, log: ReadLog, directory: Path | None = None, log_identity: str = "") -> None:
        self.last_seq = log.last_seq
        self._log = log
        self._index = KeptIndex(directory, log_identity)
        self._is_open = False
        self._is_asked = False
        self._pending: list[Record] = []
        """The records after the last stretch, as far as they were read."""
        self._pending_bytes = 0
        self._frames: OrderedDict[tuple[int, int], list[Record]] = OrderedDict()
        self._archived_seq = 0
        """Up to here, where the index begins, the archive says whom records concern."""
        self.lacks = ""
        """Why the records before the first one in NATS are left out, "" if they are not."""

    @property
    def trouble(self) -> str:
        """Why nothing can be written, "" while it can."""
        return self._index.trouble

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records `first_seq` to `last_seq`, both included, in batches; ends at the tail."""
        await self._open()
        at = max(first_seq, 1)
        while at <= last_seq and (found := await self._kept_from(at)):
            yield found[: last_seq - at + 1]
            at += len(found)
        if at > last_seq:
            return
        # Those before are read as well: a question will need them. Unless only one is asked for, or
        # they are many, or no longer in NATS.
        if at < await self._log.near_seq():
            await self.ask_archive()  # then they need not be kept here as well
        due = self._reach + 1
        is_far = at > due and (at - due > FAR_RECORDS or due < await self._log.near_seq())
        start = at if at == last_seq or is_far else min(at, due)
        async with aclosing(self._log.read(start, last_seq)) as batches:
            async for batch in batches:
                await self._gather(batch)
                if batch[-1].seq >= at:
                    yield batch[max(at - batch[0].seq, 0) :]

    async def records(self, seqs: Iterable[int]) -> list[Record]:
        """The records at these sequences, as far as the log has them, in order."""
        await self._open()
        found: list[Record] = []
        for seq in sorted(set(seqs)):
            kept = await self._kept_from(seq)
            record = kept[0] if kept else await self._log.record(seq)
            if record is not None:
                found.append(record)
        return found

    async def ask_archive(self) -> None:
        """Leave the records to the archive whose index it has, and keep only those after them. To
        be asked before reading what `about` or `uids_of` need: else it is read twice.
        """
        await self._open()
        if self._is_asked:
            return
        self._is_asked = True
        try:
            indexed_seq = await self._log.indexed_seq()
        except AllotError:  # what that means is said where it matters
            return
        if indexed_seq > self._reach and self._index.begin_at(indexed_seq + 1):
            self._forget()
        self._archived_seq = min(indexed_seq, self._index.base)

    async def about(self, things: Collection[Thing], last_seq: int) -> dict[Thing, list[int]]:
        """By each of these the sequences, in order and up to one that the log has, of the records
        that concern it.
        """
        while True:
            await self._reach_to(last_seq)
            found = await self._index.about(things, last_seq)
            if self._index.reach >= last_seq:
                break
        last_seq = min(last_seq, self._archived_seq)
        if not last_seq:
            return found
        before = (await self._log.index_of([key_of(thing) for thing in found], last_seq)).about
        for thing, seqs in found.items():
            archived = before.get(key_of(thing), ())
            found[thing] = [seq for seq in archived if seq <= last_seq] + seqs
        return found

    async def uids_of(self, name: str, last_seq: int) -> list[str]:
        """The pods of a name, or of a family (see `StretchIndex.uids`), the oldest first; some may
        have been seen only after `last_seq`.
        """
        while True:
            await self._reach_to(last_seq)
            found = await self._index.uids_of(name)
            if self._index.reach >= last_seq:
                break
        if not self._archived_seq:
            return found
        before = await self._log.index_of([name], min(last_seq, self._archived_seq))
        return list(dict.fromkeys((*before.uids.get(name, ()), *found)))

    async def seq_before(self, ms: int) -> int:
        """A sequence up to which every record was written before a time; more may follow."""
        await self._open()
        return self._index.seq_before(ms)

    async def close(self) -> None:
        """Write what was read, if it is worth it."""
        if self._index.is_writing and len(self._pending) >= WORTH_RECORDS:
            await self._write()

    @property
    def _reach(self) -> int:
        """Up to here records are kept or in memory."""
        return self._index.end + len(self._pending)

    async def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            await self._index.open(digests_of(self._log), await self._log.near_seq())

    async def _kept_from(self, seq: int) -> list[Record]:
        """Some records from a sequence on, none where it is not kept."""
        if seq > self._index.end:
            at = seq - self._index.end - 1
            return self._pending[at : at + FRAME_RECORDS]
        if not self._index.has(seq):
            return []
        stretch = self._index.stretch_of(seq)
        number, at = divmod(seq - stretch.first, FRAME_RECORDS)
        frame = self._frames.get((stretch.first, number))
        if frame is None:
            try:
                [plain] = await self._index.blocks([(stretch, PARTS + number)])
            except _Unsound:
                self._forget()
                return []
            frame = msgspec.msgpack.decode(plain, type=list[Record])
            self._frames[stretch.first, number] = frame
            if len(self._frames) > _FRAMES_OPEN:
                self._frames.popitem(last=False)
        return frame[at:]

    def _forget(self) -> None:
        self._pending, self._pending_bytes = [], 0

    async def _gather(self, batch: Sequence[Record]) -> None:
        if batch[0].seq != self._reach + 1:
            return
        self._pending += batch
        self._pending_bytes += sum(len(record.payload) for record in batch)
        is_full = len(self._pending) >= STRETCH_RECORDS or self._pending_bytes >= STRETCH_BYTES
        if is_full and self._index.is_writing:
            await self._write()

    async def _write(self) -> None:
        """Make a stretch of what is pending; one before that is small becomes a part of it."""
        await anyio.to_thread.run_sync(self._take_pending)
        async with aclosing(self.read(self._index.start, self._reach)) as batches:
            records = [record async for batch in batches for record in batch]
        if records and records[-1].seq == self._index.reach:
            await self._index.write(records)
        if not self._index.trouble:
            self._forget()

    async def _reach_to(self, last_seq: int) -> None:
        """Read and index the log up to a record that it has."""
        await self.ask_archive()
        if self._pending and self._pending[0].seq != self._index.end + 1:
            self._forget()  # what was before them was not sound
        near_seq = await self._log.near_seq()
        if self._reach + 1 < near_seq or self._index.base > self._archived_seq:
            try:
                first_seq = await self._log.first_seq()
            except AllotError as error:  # better an answer from what is there
                self.lacks, first_seq = error.message, max(near_seq, self._index.base + 1)
            if not self._index.base < first_seq <= self._reach + 1:
                self._index.begin_at(first_seq)
                self._forget()
                self._archived_seq = 0
        if self._reach < last_seq:
            async with aclosing(self.read(self._reach + 1, last_seq)) as rest:
                async for _ in rest:
                    pass
        self._take_pending()

    def _take_pending(self) -> None:
        for record in self._pending[self._index.reach - self._index.end :]:
            self._index.take(record, envelope_of(record))


def envelope_of(record: Record) -> Envelope | None:
    """What a record says, None if it cannot be read."""
    try:
        return decode_envelope(record.payload, record.subject)
    except UndecodableError:
        return None


def _digest(key: str) -> int:
    return zlib.crc32(key.encode())


def _has(digests: "array[int]", digest: int) -> bool:
    at = bisect_left(digests, digest)
    return at < len(digests) and digests[at] == digest


def _place(each: tuple[_Stretch, int]) -> tuple[int, int, int]:
    return each[0].first, each[0].last, each[1]
