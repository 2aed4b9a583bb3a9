"""The inspector over a log that a test recorded: no NATS, else as it runs."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread

from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import Record
from allotment_inspector.history import History, Moment
from allotment_inspector.pages import PAGES
from allotment_inspector.server import Pages, serve_pages
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope

HISTORY_BYTES = 64 << 20


class RecordedLog:
    """Records in memory, read as a log is."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)

    async def last_seq(self) -> int:
        return len(self.records)

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        yield self.records[max(first_seq, 1) - 1 : last_seq]

    async def record(self, seq: int) -> Record | None:
        return self.records[seq - 1] if 1 <= seq <= len(self.records) else None


class RecordedFold:
    """A fold that is fed by hand; `log` is where records are read again."""

    def __init__(self, log: RecordedLog) -> None:
        self.log = log
        self.state = ClusterState()
        self.listeners: list[Callable[[Record, Envelope], None]] = []
        self.passed_over: list[Callable[[Record], None]] = []

    def feed(self, record: Record) -> None:
        is_decision = record.subject == subjects.DECISION
        try:
            envelope = decode_envelope(record.payload, record.subject)
        except UndecodableError:
            pass_over(self.state, record.seq, is_decision=is_decision)
            for passed in self.passed_over:
                passed(record)
            return
        apply_record(self.state, envelope.events, record.seq, is_decision=is_decision)
        for listener in self.listeners:
            listener(record, envelope)


def history_of(records: Sequence[Record]) -> tuple[History, RecordedFold]:
    """A history that has followed these records; "now" is the time of the last one."""
    last_ms = records[-1].time_ns // 1_000_000 if records else 0
    history, fold = History(HISTORY_BYTES, lambda: last_ms), RecordedFold(RecordedLog(records))
    history.attach(fold, fold.log)  # type: ignore[arg-type]
    for record in records:
        fold.feed(record)
    return history, fold


async def view_of(
    history: History,
    name: str,
    match: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    seq: int | None = None,
) -> Any:
    """What the view of a page returns at a moment."""
    page = next(page for page in PAGES if page.name == name)

    def look(moment: Moment) -> Any:
        return page.view(moment, match or {}, query or {})

    async with history.moment(seq) as moment:
        return await anyio.to_thread.run_sync(look, moment)


@asynccontextmanager
async def served(history: History, **options: Any) -> AsyncIterator[str]:
    """The pages of a history over HTTP, on a free port; yields their address."""
    pages = Pages(history, Logger(LogSink("inspector", "0")), cluster="test", **options)
    async with serve_pages(pages, "127.0.0.1", 0) as address:
        yield address
