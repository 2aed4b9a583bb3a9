"""An exported log: one record a line, as `allot log -o jsonl` writes it and `--file` reads it.

    {"seq":12,"subject":"allot.log.decision","time_ns":…,"msg_id":"…","record":{…}}

`record` holds the stored bytes as they are; a payload that is not JSON travels as `base64`.
"""

import base64
from collections.abc import AsyncGenerator, Collection, Iterator
from itertools import islice
from pathlib import Path

import anyio
import msgspec

from allotment.adapters.telemetry.log import file_trouble
from allotment.core.errors import AllotError
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import Record
from allotment_proto.codec import UNREADABLE

BATCH_RECORDS = 1024
_REMEDY = "write such files with: allot log -o jsonl"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an exported log: the bytes as `record`, or as `base64`. In an archive `head` is
    how the record's head in the chain begins.
    """

    seq: int
    subject: str
    time_ns: int = 0
    msg_id: str = ""
    record: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str | msgspec.UnsetType = msgspec.UNSET
    head: str | msgspec.UnsetType = msgspec.UNSET


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode(record: Record, head: str | msgspec.UnsetType = msgspec.UNSET) -> str:
    """One line, without its end."""
    plain = _is_plain(record.payload)
    line = Line(
        seq=record.seq,
        subject=record.subject,
        time_ns=record.time_ns,
        msg_id=record.msg_id,
        record=msgspec.Raw(record.payload) if plain else msgspec.UNSET,
        base64=msgspec.UNSET if plain else base64.b64encode(record.payload).decode(),
        head=head,
    )
    return _encoder.encode(line).decode()


def _is_plain(payload: bytes) -> bool:
    """Whether the bytes are a JSON object on one line, fit to stand in one as they are."""
    if not (payload.startswith(b"{") and payload.endswith(b"}")):
        return False
    if b"\r" in payload or b"\n" in payload:
        return False
    try:
        msgspec.json.decode(payload)
    except UNREADABLE:
        return False
    return True


def decode(text: str, place: str) -> Record:
    """Raises `AllotError` naming the place for a line that is not one of an exported log."""
    return decode_with_head(text, place)[0]


def decode_with_head(text: str | bytes, place: str) -> tuple[Record, str]:
    """The same with what the line says of the record's head, "" if nothing."""
    try:
        line = _decoder.decode(text)
        if isinstance(line.record, msgspec.Raw):
            payload = bytes(line.record)
        elif isinstance(line.base64, str):
            payload = base64.b64decode(line.base64, validate=True)
        else:
            raise ValueError("it has neither record nor base64")
    except (*UNREADABLE, ValueError) as error:
        raise AllotError(f"{place} is not a record: {error}", _REMEDY) from error
    record = Record(line.seq, line.subject, payload, line.time_ns, line.msg_id)
    return record, line.head if isinstance(line.head, str) else ""


def read_file(path: Path) -> Iterator[Record]:
    """The records of a file in order. Raises `AllotError` for a broken line or a gap."""
    expected = 1
    try:
        with path.open(encoding="utf-8") as lines:
            for number, text in enumerate(lines, 1):
                if text.isspace():
                    continue
                record = decode(text, f"{path}:{number}")
                if record.seq != expected:
                    raise AllotError(
                        f"{path}:{number} has sequence {record.seq}, but {expected} was expected",
                        "export the whole log: allot log -o jsonl",
                    )
                expected += 1
                yield record
    except (OSError, UnicodeDecodeError) as error:
        raise AllotError(f"{path} cannot be read: {file_trouble(error)}") from error


class ExportedLog:
    """The records of a file as a log that does not grow."""

    identity = ""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    async def first_seq(self) -> int:
        return 1

    async def near_seq(self) -> int:
        return 1

    async def indexed_seq(self) -> int:
        return 0

    async def index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        return StretchIndex()

    async def last_on(self, subject: str) -> int:
        return max((record.seq for record in self.records if record.subject == subject), default=0)

    async def first_on(self, subject: str, from_seq: int) -> Record | None:
        rest = islice(self.records, max(from_seq, 1) - 1, None)
        return next((record for record in rest if record.subject == subject), None)

    async def last_seq(self) -> int:
        return len(self.records)

    async def record(self, seq: int) -> Record | None:
        """The record at `seq`, None where there is none."""
        return self.records[seq - 1] if 1 <= seq <= len(self.records) else None

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records `first_seq` to `last_seq`, both included, in batches."""
        first, last = max(first_seq, 1) - 1, min(last_seq, len(self.records))
        for start in range(first, last, BATCH_RECORDS):
            yield self.records[start : min(start + BATCH_RECORDS, last)]

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        """Every record after `after_seq`, in batches; then nothing more comes."""
        async for batch in self.read(after_seq + 1, len(self.records)):
            yield batch
        await anyio.sleep_forever()
