"""The archived part of the log, read by sequence; what was read is kept in the user's cache."""

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import anyio.to_thread

from allotment.adapters.archive.file import Read, SegmentBroken, SegmentFile
from allotment.adapters.archive.index import SUFFIX, SegmentIndex
from allotment.adapters.archive.store import Store, Stored
from allotment.adapters.log.checkpoints import Checkpoint, image_of
from allotment.adapters.log.sealed import Ignored, seal, unseal
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import LogDamaged, Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import CheckpointPart, SegmentClosed

CACHE_BYTES_MAX = 1 << 30
_FRAMES_OPEN = 4
_PARTS_OPEN = 512


class Archive:
    """The segments that follow each other up to the newest one in the archive, `first_seq` to
    `last_seq` (1 and 0 of an empty one). Its methods may raise ArchiveUnreachable and
    SegmentBroken.
    """

    def __init__(self, store: Store, files: Sequence[Stored], cache: Path | None = None) -> None:
        self.store = store
        self.files = _unbroken(files)
        self.first_seq = self.files[0].first_seq if self.files else 1
        self.last_seq = self.files[-1].last_seq if self.files else 0
        self._cache = None if cache is None else _Cache(cache, store.url)
        self._open: dict[Stored, SegmentFile] = {}
        self._indexes: dict[Stored, SegmentIndex] = {}
        self._keys = 0
        """How many keys were asked of them."""
        self._continued: set[Stored] = set()
        """The files whose chain the next one continues."""
        self._frames: OrderedDict[tuple[Stored, int], list[Record]] = OrderedDict()

    @classmethod
    async def open(cls, url: str, cache: Path | None = None) -> Self:
        """Look what there is. Raises ArchiveUnreachable, ValueError for a URL that is none."""
        store = Store(url)
        return cls(store, await anyio.to_thread.run_sync(store.list), cache)

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records from one sequence to another, as far as they are here, in batches."""
        at, last = max(first_seq, self.first_seq), min(last_seq, self.last_seq)
        while at <= last:
            batch = await anyio.to_thread.run_sync(self._frame_with, at)
            batch = batch[at - batch[0].seq : last - batch[0].seq + 1]
            yield batch
            at += len(batch)

    async def record(self, seq: int) -> Record | None:
        """The record at a sequence, None where the archive has none."""
        if not self.first_seq <= seq <= self.last_seq:
            return None
        frame = await anyio.to_thread.run_sync(self._frame_with, seq)
        return frame[seq - frame[0].seq]

    async def checkpoint(self, before_seq: int, before_ns: int | None) -> Checkpoint | None:
        """The newest checkpoint of the archive that lies before a sequence, and before a time."""
        return await anyio.to_thread.run_sync(self._checkpoint, before_seq, before_ns)

    @property
    def indexed_seq(self) -> int:
        """Up to here each segment has an index, 0 if the first one has none."""
        found = 0
        for stored in self.files:
            if not stored.index_ms:
                break
            found = stored.last_seq
        return found

    async def index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        """What the indexes say under some keys, of the segments that begin up to a record."""
        return await anyio.to_thread.run_sync(self._index_of, keys, last_seq)

    async def seq_before(self, until_ns: int) -> int:
        """The last record before the first one that was written at a time or later."""
        return await anyio.to_thread.run_sync(self._seq_before, until_ns)

    def segment(self, stored: Stored) -> SegmentFile:
        """A file of the archive, opened once."""
        if stored not in self._open:
            read = self._reading(stored)
            self._open[stored] = SegmentFile(stored.name, stored.size_bytes, read)
        return self._open[stored]

    def _index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        found = StretchIndex()
        files = [stored for stored in self.files if stored.first_seq <= last_seq]
        self._keys += len(keys)
        are_many = self._keys * len(files) > _PARTS_OPEN
        for stored in files:
            found.add(self._index(stored).under(keys))
            if are_many:  # the next questions read them again
                self._indexes, self._keys = {}, 0
        return found

    def _index(self, stored: Stored) -> SegmentIndex:
        found = self._indexes.get(stored)
        if found is None:
            name, chain = stored.name + SUFFIX, self.segment(stored).header.chain
            file = stored._replace(name=name, written_ms=stored.index_ms)
            found = SegmentIndex(name, chain, self._reading(file))
            self._indexes[stored] = found
        return found

    def _reading(self, file: Stored) -> Read:
        """Reads a segment or its index."""
        store, cache = self.store, self._cache

        def read(offset: int, size: int) -> bytes:
            if cache is None:
                return store.read(file.name, offset, size)
            return cache.read(store, file, offset, size)

        return read

    def _frame_with(self, seq: int) -> list[Record]:
        at = bisect_left(self.files, seq, key=lambda each: each.last_seq)
        stored = self.files[at]
        file = self.segment(stored)
        if stored not in self._continued and at + 1 < len(self.files):
            self._check_continued(file, self.segment(self.files[at + 1]))
            self._continued.add(stored)
        index = file.frame_of(seq)
        frame = self._frames.pop((stored, index), None)
        if frame is None:
            frame = file.records(index, file.packed(index))
        self._frames[stored, index] = frame
        if len(self._frames) > _FRAMES_OPEN:
            self._frames.popitem(last=False)
        return frame

    def _check_continued(self, file: SegmentFile, following: SegmentFile) -> None:
        """Raises SegmentBroken if the following file continues another history."""
        chain = file.header.chain
        try:
            after = following.header.chain_before
        except SegmentBroken:  # that is said where it is read
            return
        if after != chain:
            raise SegmentBroken(
                file.name,
                f"its chain ends with {chain}, and {following.name} continues from {after}: one of"
                " them is altered, or another log's",
                file.header.first_seq,
            )

    def _checkpoint(self, before_seq: int, before_ns: int | None) -> Checkpoint | None:
        for at in reversed(range(len(self.files))):
            stored = self.files[at]
            if stored.first_seq == 1 or stored.first_seq - 1 >= before_seq:
                continue
            if before_ns is not None and at and self._latest_ns(self.files[at - 1]) >= before_ns:
                continue
            return self._checkpoint_of(stored)
        return None

    def _seq_before(self, until_ns: int) -> int:
        at = bisect_left(self.files, until_ns, key=self._latest_ns)
        if at == len(self.files):
            return self.last_seq
        frames = self.segment(self.files[at]).frames
        frame = frames[bisect_left(frames, until_ns, key=lambda each: each.latest_ns)]
        late = (each for each in self._frame_with(frame.first_seq) if each.time_ns >= until_ns)
        return next((each.seq - 1 for each in late), frame.first_seq)

    def _latest_ns(self, stored: Stored) -> int:
        return self.segment(stored).frames[-1].latest_ns

    def _checkpoint_of(self, stored: Stored) -> Checkpoint:
        """The one with which a segment begins."""
        file, parts = self.segment(stored), list[CheckpointPart]()
        seq, last_seq = stored.first_seq, file.header.checkpoint_seq
        while seq <= last_seq:
            for record in self._frame_with(seq):
                seq = record.seq + 1
                for event in _events(record):
                    if isinstance(event, CheckpointPart) and event.closing == stored.first_seq - 1:
                        parts.append(event)
                    elif isinstance(event, SegmentClosed) and record.seq == last_seq:
                        try:
                            return Checkpoint(record.seq, event, image_of(event, parts))
                        except LogDamaged as error:
                            raise SegmentBroken(
                                stored.name, str(error), stored.first_seq
                            ) from error
        raise SegmentBroken(stored.name, "its checkpoint is missing", stored.first_seq)


def _unbroken(files: Sequence[Stored]) -> list[Stored]:
    """The last of some files, as far back as each follows another."""
    found = list(files[-1:])
    for stored in reversed(files[:-1]):
        if stored.last_seq != found[0].first_seq - 1:
            break
        found.insert(0, stored)
    return found


def _events(record: Record) -> tuple[object, ...]:
    if record.subject not in (subjects.SEGMENT, subjects.CHECKPOINT):
        return ()
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()


class _Range(NamedTuple):
    path: Path
    identity: str


class _Cache:
    """Pieces of archived files on the disk; the oldest are removed."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self._bytes: int | None = None

    def read(self, store: Store, stored: Stored, offset: int, size: int) -> bytes:
        """What the file holds there, from here or from the archive."""
        kept = self._range(stored, offset, size)
        found = unseal(kept.path, kept.identity, size)
        if not isinstance(found, Ignored):
            return found.payload
        data = store.read(stored.name, offset, size)
        try:
            seal(kept.path, kept.identity, size, data)
        except OSError:  # a cache: the next command asks the archive again
            return data
        self._make_room(len(data))
        return data

    def _range(self, stored: Stored, offset: int, size: int) -> _Range:
        identity = f"{self._url}/{stored.name} {stored.size_bytes} {stored.written_ms} {offset}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        return _Range(self._directory / f"archive-{name}", identity)

    def _make_room(self, added: int) -> None:
        if self._bytes is None:
            self._bytes = sum(path.stat().st_size for path in self._directory.glob("archive-*"))
        else:
            self._bytes += added
        if self._bytes <= CACHE_BYTES_MAX:
            return
        paths = {path: path.stat() for path in self._directory.glob("archive-*")}
        for path in sorted(paths, key=lambda path: paths[path].st_mtime)[: len(paths) // 2]:
            path.unlink(missing_ok=True)
        self._bytes = None
