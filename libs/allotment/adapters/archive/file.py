"""The file of a segment: written once from its first record to its last, read in pieces."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
import zstandard

from allotment.adapters.log import exported
from allotment.core import chain
from allotment.core.errors import AllotError
from allotment.core.logport import Record
from allotment_proto.codec import UNREADABLE

FORMAT, VERSION = "allotment-segment", 1
FRAME_BYTES = 4 << 20
FRAME_BYTES_MAX = 32 << 20
"""What a frame with one of the largest records holds at most: no file may ask for more memory."""
TABLE_BYTES_MAX = 8 << 20
FOOTER_BYTES = 512
HEADER_BYTES_MAX = 64 * 1024
HEAD_DIGITS = 8
"""So many digits of a record's head are in its line: enough to name the first that is altered."""
_LEVEL = 9
_SKIPPED = (0x184D2A50).to_bytes(4, "little")
"""How a frame begins that zstd skips; its length follows, in four bytes."""
_PREFIX = 8

T = TypeVar("T")
Read = Callable[[int, int], bytes]
"""The bytes of a file from an offset on, so many. Raises ArchiveUnreachable."""


class SegmentBroken(Exception):
    """Raised for a file that is not as it was written. `first_seq` is the first record that cannot
    be trusted, 0 if that is unknown.
    """

    def __init__(self, name: str, wrong: str, first_seq: int = 0) -> None:
        super().__init__(name, wrong, first_seq)
        self.name = name
        self.wrong = wrong
        self.first_seq = first_seq

    def __str__(self) -> str:
        where = f" (first bad record: {self.first_seq})" if self.first_seq else ""
        return f"{self.name}: {self.wrong}{where}"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself, on its first line.

    `chain_before` and `chain` are the chain's heads before and after the segment, `digest` the
    SHA-256 of the state's image after it. The first records up to `checkpoint_seq` hold the state
    before it (0: there is none, the log begins here).
    """

    format: str = FORMAT
    version: int = VERSION
    log: str
    number: int
    first_seq: int
    last_seq: int
    first_time: str
    last_time: str
    chain_before: str
    chain: str
    digest: str
    checkpoint_seq: int
    written_by: str
    to_read: str = "zstd -dc FILE prints the records, as allot log -o jsonl does"

    @property
    def name(self) -> str:
        return f"segment-{self.number:08d}-{self.first_seq}-{self.last_seq}.allotment"


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A row of the seek table. `latest_ns` is the latest time of any record up to the frame's end,
    `head` the chain's head before its first record.
    """

    first_seq: int
    first_ns: int
    latest_ns: int
    offset: int
    size: int
    head: str


class Footer(msgspec.Struct, frozen=True):
    """The end of a file. `sha256` is of all bytes before it."""

    table_offset: int
    table_bytes: int
    records: int
    chain: str
    sha256: str


class Written(NamedTuple):
    """A file that is complete, and its own SHA-256."""

    name: str
    sha256: str
    size_bytes: int


class Line(NamedTuple):
    """A record as a frame holds it, with the first digits of its head."""

    record: Record
    head: str


class Writer:
    """Writes one segment. Holds one frame at a time."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._header = header
        self._digest = hashlib.sha256()
        self._offset = 0
        self._packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._frames: list[Frame] = []
        self._lines: list[bytes] = []
        self._bytes = 0
        self._first: tuple[int, int, str] = (0, 0, "")
        self._latest_ns = 0
        self._next_seq = header.first_seq
        self._head = bytes.fromhex(header.chain_before)
        self._put(_skipped(msgspec.json.encode(header) + b"\n"))

    def add(self, record: Record) -> None:
        """The next record. Raises SegmentBroken for another one."""
        if record.seq != self._next_seq:
            wrong = f"record {record.seq} came where {self._next_seq} was due"
            raise SegmentBroken(self._header.name, wrong, self._next_seq)
        before = self._head.hex()
        self._head = chain.linked(self._head, record)
        line = exported.encode(record, self._head.hex()[:HEAD_DIGITS]).encode() + b"\n"
        if self._bytes + len(line) > FRAME_BYTES:
            self._end_frame()
        if not self._lines:
            self._first = record.seq, record.time_ns, before
        self._lines.append(line)
        self._bytes += len(line)
        self._latest_ns = max(self._latest_ns, record.time_ns)
        self._next_seq += 1

    def close(self) -> Written:
        """Write what is left. Raises SegmentBroken if the records are not those of the segment."""
        self._end_frame()
        header = self._header
        if self._next_seq != header.last_seq + 1:
            wrong = f"the records end before {self._next_seq}"
            raise SegmentBroken(header.name, wrong, self._next_seq)
        if self._head.hex() != header.chain:
            raise SegmentBroken(
                header.name,
                f"the chain's head at {header.last_seq} is {self._head.hex()}, and the record that "
                f"closes the segment names {header.chain}",
            )
        table_offset, table = self._offset, _skipped(msgspec.json.encode(self._frames) + b"\n")
        self._put(table)
        records = header.last_seq - header.first_seq + 1
        found = Footer(table_offset, len(table), records, header.chain, self._digest.hexdigest())
        text = msgspec.json.encode(found)
        self._put(_skipped(text.ljust(FOOTER_BYTES - _PREFIX - 1) + b"\n"))
        return Written(header.name, self._digest.hexdigest(), self._offset)

    def _end_frame(self) -> None:
        if not self._lines:
            return
        packed = self._packer.compress(b"".join(self._lines))
        seq, time_ns, head = self._first
        frame = Frame(seq, time_ns, self._latest_ns, self._offset, len(packed), head)
        self._frames.append(frame)
        self._put(packed)
        self._lines, self._bytes = [], 0

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._offset += len(data)


class SegmentFile:
    """A file of `size` bytes, of which `read` brings what is asked for. All methods may raise
    SegmentBroken, and what `read` raises.
    """

    def __init__(self, name: str, size: int, read: Read) -> None:
        self.name = name
        self.size = size
        self.read = read
        self._header: tuple[Header, int] | None = None
        self._footer: Footer | None = None
        self._frames: list[Frame] | None = None

    @property
    def header(self) -> Header:
        return self._opened()[0]

    @property
    def header_bytes(self) -> int:
        return self._opened()[1]

    def _opened(self) -> tuple[Header, int]:
        if self._header is None:
            self._check_size()
            begin = self.read(0, min(HEADER_BYTES_MAX, self.size))
            text = self._unskipped(begin, "header")
            found = self._decoded(text, Header, "header")
            if (found.format, found.version) != (FORMAT, VERSION):
                wrong = f"format {found.format} {found.version}, known is {FORMAT} {VERSION}"
                raise SegmentBroken(self.name, wrong)
            if found.name != self.name:
                raise SegmentBroken(self.name, f"it holds {found.name}", found.first_seq)
            at = found.checkpoint_seq
            if at and not found.first_seq <= at < found.last_seq:
                wrong = f"its header names a checkpoint at {at}"
                raise SegmentBroken(self.name, wrong, found.first_seq)
            self._header = found, _PREFIX + len(text)
        return self._header

    def _check_size(self) -> None:
        if self.size < FOOTER_BYTES:
            raise SegmentBroken(self.name, f"it is torn: {self.size} bytes")

    @property
    def footer(self) -> Footer:
        if self._footer is None:
            self._check_size()
            end = self.read(self.size - FOOTER_BYTES, FOOTER_BYTES)
            self._footer = self._decoded(self._unskipped(end, "footer"), Footer, "footer")
        return self._footer

    @property
    def frames(self) -> list[Frame]:
        """The seek table."""
        if self._frames is None:
            at = self.footer
            if at.table_offset + at.table_bytes + FOOTER_BYTES != self.size:
                raise SegmentBroken(self.name, "its footer names another length than it has")
            if not 0 <= at.table_bytes <= TABLE_BYTES_MAX:
                raise SegmentBroken(self.name, f"its seek table takes {at.table_bytes} bytes")
            table = self._unskipped(self.read(at.table_offset, at.table_bytes), "seek table")
            self._frames = self._decoded(table, list[Frame], "seek table")
            self._check_places(self._frames)
        return self._frames

    def _check_places(self, frames: list[Frame]) -> None:
        header, due, after_seq = self.header, self.header_bytes, self.header.first_seq - 1
        for frame in frames:
            if frame.offset != due or not 0 < frame.size <= FRAME_BYTES_MAX:
                wrong = f"its seek table has a frame at {frame.offset}, {due} was due"
                raise SegmentBroken(self.name, wrong, frame.first_seq)
            if not after_seq < frame.first_seq <= header.last_seq:
                wrong = f"its seek table has record {frame.first_seq} after {after_seq}"
                raise SegmentBroken(self.name, wrong, frame.first_seq)
            due, after_seq = due + frame.size, frame.first_seq
        if due != self.footer.table_offset or not frames:
            raise SegmentBroken(self.name, f"its seek table ends at {due}")
        if (frames[0].first_seq, frames[0].head) != (header.first_seq, header.chain_before):
            raise SegmentBroken(self.name, "its seek table is altered", header.first_seq)

    def frame_of(self, seq: int) -> int:
        """The frame that holds a record."""
        return bisect_right(self.frames, seq, key=lambda frame: frame.first_seq) - 1

    def end_of(self, index: int) -> int:
        """The last sequence of a frame."""
        after = index + 1
        is_last = after == len(self.frames)
        return self.header.last_seq if is_last else self.frames[after].first_seq - 1

    def packed(self, index: int) -> bytes:
        """The bytes of a frame as they are in the file."""
        frame = self.frames[index]
        return self.read(frame.offset, frame.size)

    def records(self, index: int, packed: bytes) -> list[Record]:
        """The records of a frame, which lead from the chain's head before it to the next one."""
        found, first_seq = [], self.frames[index].first_seq
        is_last = index + 1 == len(self.frames)
        due = self.header.chain if is_last else self.frames[index + 1].head
        try:
            head = bytes.fromhex(self.frames[index].head)
        except ValueError as error:
            raise SegmentBroken(self.name, "its seek table is altered", first_seq) from error
        for line in self.lines(index, packed):
            head = chain.linked(head, line.record)
            if not head.hex().startswith(line.head):
                raise SegmentBroken(
                    self.name, f"record {line.record.seq} is altered", line.record.seq
                )
            found.append(line.record)
        if head.hex() != due:
            raise SegmentBroken(self.name, f"frame {index + 1} is altered", first_seq)
        return found

    def lines(self, index: int, packed: bytes) -> Iterator[Line]:
        """Each record of a frame with the head that its line names."""
        first_seq, last_seq = self.frames[index].first_seq, self.end_of(index)
        where = f"frame {index + 1} of {len(self.frames)}, records {first_seq} to {last_seq}"
        try:
            if not 0 <= zstandard.frame_content_size(packed) <= FRAME_BYTES_MAX:
                raise zstandard.ZstdError(
                    f"it says that it holds more than {FRAME_BYTES_MAX} bytes"
                )
            plain = zstandard.ZstdDecompressor().decompress(packed)
            if len(plain) > FRAME_BYTES and last_seq > first_seq:
                raise zstandard.ZstdError(f"it holds {len(plain)} bytes in several records")
        except zstandard.ZstdError as error:
            raise SegmentBroken(self.name, f"{where}, is damaged: {error}", first_seq) from error
        due = first_seq
        for text in plain.removesuffix(b"\n").split(b"\n"):
            try:
                record, head = exported.decode_with_head(text, where)
            except AllotError as error:
                raise SegmentBroken(self.name, error.message, due) from error
            if record.seq != due:
                wrong = f"{where}, holds record {record.seq} where {due} was due"
                if due == first_seq:
                    wrong += ": frames are swapped"
                raise SegmentBroken(self.name, wrong, due)
            yield Line(record, head)
            due += 1
        if due != last_seq + 1:
            raise SegmentBroken(self.name, f"{where}, ends before {due}", due)

    def _unskipped(self, data: bytes, part: str) -> bytes:
        """What a frame holds that zstd skips."""
        size = int.from_bytes(data[4:_PREFIX], "little")
        text = data[_PREFIX : _PREFIX + size]
        if data[:4] != _SKIPPED or len(text) != size:
            raise SegmentBroken(self.name, f"its {part} is damaged or torn")
        return text

    def _decoded(self, text: bytes, kind: type[T], part: str) -> T:
        try:
            return msgspec.json.decode(text, type=kind)
        except UNREADABLE as error:
            raise SegmentBroken(self.name, f"its {part} cannot be read: {error}") from error


def _skipped(text: bytes) -> bytes:
    return _SKIPPED + len(text).to_bytes(4, "little") + text
