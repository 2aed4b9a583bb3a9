"""Whom the records of an archived segment concern: a second file of the segment. A question about a
pod reads some kilobytes of it, where it would read all records.

`NAME.index` is made from the segment NAME and from nothing else: it proves nothing, and where it is
missing the records are read instead.

    begin    the last head of the segment's chain, and where each part ends
    parts    the index, divided by a digest of the key; each is compressed and has a checksum
"""

import struct
import zlib
from collections.abc import Collection
from itertools import accumulate
from pathlib import Path

import msgspec
import zstandard

from allotment.adapters.archive.file import Read, SegmentBroken, SegmentFile
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import Record
from allotment_proto.codec import UNREADABLE, UndecodableError, decode_envelope

SUFFIX = ".index"
_PARTS = 256
_BEGIN = struct.Struct(f"<32s{_PARTS}I")
_LEVEL = 9
_FEW = 8
"""For more keys all parts are read at once: many small reads take longer."""
_PART_BYTES_MAX = 64 << 20
"""No file may ask for more memory."""


def write_index(path: Path) -> Path:
    """Make the index of a local file with a segment, next to it; its path. To be called in a
    process of its own: it holds the whole index. Raises SegmentBroken, OSError.
    """
    index = StretchIndex()
    with path.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        segment = SegmentFile(path.name, path.stat().st_size, read)
        for number in range(len(segment.frames)):
            for record in segment.records(number, segment.packed(number)):
                _note(index, record)
    made = path.with_name(path.name + SUFFIX)
    made.write_bytes(_packed(index, segment.header.chain))
    return made


def _note(index: StretchIndex, record: Record) -> None:
    """Note whom a record concerns; one that cannot be read concerns none."""
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return
    for event in events:
        index.note(event, record.seq)


def _packed(index: StretchIndex, chain: str) -> bytes:
    """The file of an index of all records of a segment, whose chain ends with a head (hex)."""
    parts = [StretchIndex() for _ in range(_PARTS)]
    for key, seqs in index.about.items():
        parts[_part(key)].about[key] = seqs
    for key, uids in index.uids.items():
        parts[_part(key)].uids[key] = uids
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    blocks = [packer.compress(msgspec.msgpack.encode(part)) for part in parts]
    ends = accumulate(map(len, blocks))
    return b"".join((_BEGIN.pack(bytes.fromhex(chain), *ends), *blocks))


class SegmentIndex:
    """The index of one segment, read in pieces. Its methods raise SegmentBroken for a file that is
    not as it was written, or another segment's.
    """

    def __init__(self, name: str, chain: str, read: Read) -> None:
        self._name = name
        self._chain = chain
        self._read = read
        self._ends: tuple[int, ...] = ()
        self._parts: dict[int, StretchIndex] = {}

    def under(self, keys: Collection[str]) -> StretchIndex:
        """What there is under some keys, part by part."""
        if not self._ends:
            self._ends = self._begun()
        blocks, found = b"", StretchIndex()
        if len(keys) > _FEW and self._ends[-1] <= _PART_BYTES_MAX:
            blocks = self._read(_BEGIN.size, self._ends[-1])
        for key in sorted(keys, key=_part):
            part = self._part_with(key, blocks)
            if key in part.about:
                found.about[key] = part.about[key]
            if key in part.uids:
                found.uids[key] = part.uids[key]
        return found

    def _part_with(self, key: str, blocks: bytes) -> StretchIndex:
        """The part of a key; `blocks` are those of all parts, or empty."""
        number = _part(key)
        if number not in self._parts:
            start, end = self._ends[number - 1] if number else 0, self._ends[number]
            block = blocks[start:end] or self._read(_BEGIN.size + start, end - start)
            try:
                if not 0 <= zstandard.frame_content_size(block) <= _PART_BYTES_MAX:
                    raise zstandard.ZstdError("a part of it says that it is too large")
                plain = zstandard.ZstdDecompressor().decompress(block)
                self._parts[number] = msgspec.msgpack.decode(plain, type=StretchIndex)
            except (zstandard.ZstdError, *UNREADABLE) as error:
                raise self._broken(str(error)) from error
        return self._parts[number]

    def _begun(self) -> tuple[int, ...]:
        data = self._read(0, _BEGIN.size)
        if len(data) < _BEGIN.size:
            raise self._broken("it is torn")
        chain, *ends = _BEGIN.unpack(data)
        if chain.hex() != self._chain or sorted(ends) != ends:
            raise self._broken("it is another segment's")
        return tuple(ends)

    def _broken(self, wrong: str) -> SegmentBroken:
        return SegmentBroken(self._name, f"{wrong}. Delete it: the records are read without it")


def _part(key: str) -> int:
    return zlib.crc32(key.encode()) % _PARTS
