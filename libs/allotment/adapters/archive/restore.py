"""The log in NATS made again from an archive: the newest segments, each record at its sequence.

NATS gives each record the time at which it is stored. Older ones keep their times in the archive.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

from allotment.adapters.archive.archive import Archive
from allotment.adapters.archive.store import Stored
from allotment.adapters.log.connection import Connection
from allotment.adapters.log.jetstream import NAME_IN_USE, ApiError, JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.stream_rules import wanted_config
from allotment.core.errors import AllotError
from allotment.core.logport import Landed, LogUnavailable, Record
from allotment_proto.subjects import LOG_ALL, STREAM


class Restored(NamedTuple):
    """What NATS holds now, and the chain's head at the last record."""

    first_seq: int
    last_seq: int
    head: str


async def restore(
    connection: Connection,
    archive: Archive,
    *,
    segments: int,
    replicas: int,
    on_record: Callable[[int], None] = lambda _: None,
) -> Restored:
    """Make the stream with the newest segments of an archive; where an earlier run was interrupted,
    go on. Raises AllotError, ApiError, SegmentBroken, ArchiveUnreachable, LogUnavailable.
    """
    chosen = archive.files[-segments:]
    if not chosen:
        raise AllotError(f"the archive at {archive.store.url} is empty", "name another: --archive")
    first_seq = chosen[0].first_seq
    jetstream = JetStream(connection)
    wanted = wanted_config(STREAM, (LOG_ALL,), replicas=replicas, max_bytes=-1, first_seq=first_seq)
    try:
        await jetstream.request(f"STREAM.CREATE.{STREAM}", wanted)
    except ApiError as error:
        if error.failure.err_code != NAME_IN_USE:
            raise
    log = await JetStreamLog.to_read(jetstream)
    if log is None:
        raise LogUnavailable(f"stream {STREAM} is not there although it was made")
    begins, ends = await log.first_seq(), await log.last_seq()
    if begins != first_seq or ends > chosen[-1].last_seq:
        raise AllotError(
            f"NATS has a log already: records {begins} to {ends}",
            "restore into a NATS that has none",
        )
    head = ""
    for stored in chosen:
        head = await _copy(log, archive, stored, ends, on_record)
    return Restored(first_seq, chosen[-1].last_seq, head)


async def _copy(
    log: JetStreamLog,
    archive: Archive,
    stored: Stored,
    after_seq: int,
    on_record: Callable[[int], None],
) -> str:
    """Append the records of a segment after one; the chain's head at its end."""
    async with aclosing(archive.read(stored.first_seq, stored.last_seq)) as batches:
        async for batch in batches:
            for record in batch:
                if record.seq > after_seq:
                    await _append(log, record)
                    on_record(1)
    return archive.segment(stored).header.chain


async def _append(log: JetStreamLog, record: Record) -> None:
    """Append a record where it was. Ids that were reused long apart come close together here."""
    for msg_id in (record.msg_id or f"restored/{record.seq}", f"{record.msg_id}#{record.seq}"):
        answer = await log.append(record.subject, record.payload, msg_id=msg_id)
        if answer == Landed(record.seq):
            return
        if isinstance(answer, Landed) and not answer.duplicate:
            raise LogUnavailable(f"record {record.seq} came to be {answer.seq}: another one writes")
    raise LogUnavailable(f"record {record.seq} is not taken: {answer}")
