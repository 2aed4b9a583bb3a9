"""Checkpoints: the state at the end of a segment, as the log holds it.

The image of the state is cut into slices, and each travels in a record of its own, compressed by
itself: so another binder can go on where one died, whatever its compressor makes of the same bytes.
"""

import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import NamedTuple, Protocol

import anyio.to_thread
import zstandard

from allotment.core.logport import LogDamaged, Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import CheckpointPart, Event, SegmentClosed

SLICE_BYTES = 512 * 1024
"""Even a slice that cannot be compressed fits into a record of a megabyte."""
IMAGE_BYTES_MAX = 1 << 30
"""No checkpoint may ask for more memory; it is the state of some million pods."""
_LEVEL = 3


class PartsLog(Protocol):
    """As much of a log as finding its newest checkpoint takes."""

    async def last_on(self, subject: str) -> int: ...

    async def record(self, seq: int) -> Record | None: ...

    async def first_on(self, subject: str, from_seq: int) -> Record | None: ...


class Checkpoint(NamedTuple):
    """The image of the state at `closed.last_seq`; `closed_seq` is the record that completes it."""

    closed_seq: int
    closed: SegmentClosed
    image: bytes


class CheckpointDamaged(LogDamaged):
    """Raised for a checkpoint that is not whole; `closed_seq` is the record that completes it. The
    state may be found from an older one.
    """

    def __init__(self, wrong: str, closed_seq: int) -> None:
        super().__init__(wrong)
        self.closed_seq = closed_seq


def parts_of(image: bytes, closing: int) -> Iterator[CheckpointPart]:
    """The parts of an image, in order; at least one."""
    for index, start in enumerate(range(0, max(len(image), 1), SLICE_BYTES)):
        packed = zstandard.compress(image[start : start + SLICE_BYTES], _LEVEL)
        yield CheckpointPart(closing=closing, index=index, data=packed)


def count_of(image: bytes) -> int:
    """How many parts an image has."""
    return max(-(-len(image) // SLICE_BYTES), 1)


def image_of(closed: SegmentClosed, parts: list[CheckpointPart]) -> bytes:
    """The image in these parts. Raises LogDamaged for what is not what `closed` names."""
    unpacker = zstandard.ZstdDecompressor()
    try:
        sizes = [zstandard.frame_content_size(part.data) for part in parts]
        if any(not 0 <= size <= SLICE_BYTES for size in sizes):
            raise zstandard.ZstdError(f"a part says that it holds more than {SLICE_BYTES} bytes")
        if sum(sizes) > IMAGE_BYTES_MAX:
            raise zstandard.ZstdError(f"it says that it holds more than {IMAGE_BYTES_MAX} bytes")
        slices = [unpacker.decompress(part.data) for part in parts]
    except zstandard.ZstdError as error:
        raise LogDamaged(f"checkpoint at {closed.last_seq}: {error}") from error
    image = b"".join(slices)
    if (len(parts), digest_of_image(image)) != (closed.parts, closed.digest):
        raise LogDamaged(
            f"checkpoint at {closed.last_seq}: its {len(parts)} parts are not the {closed.parts} "
            "that were written"
        )
    return image


def digest_of_image(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()


async def newest_checkpoint(log: PartsLog, before_seq: int = 0) -> Checkpoint | None:
    """The newest checkpoint in the log, or the newest that was complete before a record; None where
    there is none. Raises CheckpointDamaged, LogUnavailable when the log does not answer.
    """
    async with aclosing(completing(log)) as records:
        async for record, _ in records:
            if not before_seq or record.seq < before_seq:
                return await checkpoint_at(log, record)
    return None


async def completing(log: PartsLog) -> AsyncGenerator[tuple[Record, SegmentClosed | None]]:
    """The records that complete checkpoints, the newest first, with what each says (None: it cannot
    be read). Raises LogUnavailable.

    A server looks for the next record on a subject through all records between. So each is looked
    for where the segment after it begins: it is one of the first records there.
    """
    seq = await log.last_on(subjects.CHECKPOINT)
    record = await log.record(seq) if seq else None
    while record is not None:
        closed = next((e for e in _events(record) if isinstance(e, SegmentClosed)), None)
        yield record, closed
        if closed is not None and closed.first_seq == 1:
            return
        at, before = 1 if closed is None else closed.first_seq, None
        while (found := await log.first_on(subjects.CHECKPOINT, at)) and found.seq < record.seq:
            before, at = found, found.seq + 1
            if closed is not None:
                break
        record = before


async def checkpoint_at(log: PartsLog, completes: Record) -> Checkpoint:
    """The checkpoint that a record completes. Raises as above."""
    closed_seq = completes.seq
    closed = next((e for e in _events(completes) if isinstance(e, SegmentClosed)), None)
    if closed is None:
        raise CheckpointDamaged(f"the record {closed_seq} closes no segment", closed_seq)
    parts: list[CheckpointPart] = []
    at = closed.last_seq
    while len(parts) < closed.parts and at < closed_seq:
        record = await log.first_on(subjects.SEGMENT, at + 1)
        if record is None or record.seq > closed_seq:
            break
        at = record.seq
        parts += (
            event
            for event in _events(record)
            if isinstance(event, CheckpointPart)
            and (event.closing, event.index) == (closed.last_seq, len(parts))
        )
    try:  # in a thread: it takes as long as the image is
        image = await anyio.to_thread.run_sync(image_of, closed, parts)
    except LogDamaged as error:
        raise CheckpointDamaged(f"{error} (record {closed_seq} names them)", closed_seq) from error
    return Checkpoint(closed_seq, closed, image)


def _events(record: Record) -> tuple[Event, ...]:
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()
