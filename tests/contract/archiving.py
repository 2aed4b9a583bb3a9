"""A real server with a recorded log, and an archiver for it."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.segmenting import Segmented

from allotment.adapters.archive.store import Store
from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.logport import Landed
from allotment_archiver.archiving import Archiver
from allotment_archiver.settings import Keeps


@asynccontextmanager
async def filled(
    server: NatsServer, grown: Segmented, max_bytes: int = -1
) -> AsyncIterator[JetStreamLog]:
    """A stream with the records of a log, and one more on each subject of the binder's, as it
    writes them after a segment is closed."""
    async with connect(server.url, "test") as connection:
        log = await JetStreamLog.open(connection, max_bytes=max_bytes)
        for record in grown.records:
            landed = await log.append(
                record.subject, record.payload, msg_id=record.msg_id or f"r/{record.seq}"
            )
            assert landed == Landed(record.seq)
        yield log


def archiver(log: JetStreamLog, url: Path | str, keeps: Keeps | None = None) -> Archiver:
    logger = Logger(LogSink("test", "test", "json", "info", io.StringIO()))
    store = Store(str(url), makes=True)
    return Archiver(log, store, keeps or Keeps(), "archiver/test", logger)
