"""The inspector over a log in memory: one that grows while it is followed, or one that a test
recorded. No NATS, else as it runs.
"""

import io
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import anyio
import anyio.to_thread

from allotment.adapters.archive.whole import WholeLog
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.snapshots import SnapshotStore
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.logport import Record
from allotment_inspector.history import History, Moment
from allotment_inspector.pages import PAGES, Page
from allotment_inspector.said import path
from allotment_inspector.server import Pages, serve_pages
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Event,
    Evicted,
    PodObserved,
)
from tests.memory_log import MemoryLog
from tests.waiting import patience

NOW_MS = 1_795_000_000_000
"""What the clock of an inspector says that follows a log."""
MIB = 1 << 20


def logger() -> Logger:
    """One that nobody hears."""
    return Logger(LogSink("test", "test", "json", "error", stream=io.StringIO()))


async def append(log: MemoryLog, *events: Event) -> int:
    """Append one record with these events where they belong; its sequence."""
    is_outcome = isinstance(events[0], Bound | BindFailed | Evicted | Corrected)
    subject = subjects.OUTCOME if is_outcome else subjects.FACTS
    if isinstance(events[0], Decided):
        subject = subjects.DECISION
    payload = encode(Envelope(at_ms=1, by="test", events=events))
    number = await log.last_seq() + 1
    await log.append(subject, payload, msg_id=f"record-{number}")
    return number


@asynccontextmanager
async def following(
    log: MemoryLog | JetStreamLog,
    *,
    bytes_max: int = 64 * MIB,
    snapshots: SnapshotStore | None = None,
    clock_ms: Callable[[], int] = lambda: NOW_MS,
    directory: Path | None = None,
    is_filled: bool = True,
    archive: str | None = None,
) -> AsyncIterator[History]:
    """A history that follows the log and has caught up with it; it knows the past before a
    snapshot, or else (`is_filled`) goes on to read it. `archive`: where that of the log is, if not
    where it says.
    """
    history = History(bytes_max, clock_ms, logger(), directory)
    fold = Fold(log, logger(), snapshots, log.checkpoint)
    history.attach(fold, WholeLog(log, archive))
    await history.open()
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        group.start_soon(history.keep)
        group.start_soon(history.read_back)
        with patience():
            await fold.caught_up.wait()
            if is_filled:
                await history.fill()
        yield history
        group.cancel_scope.cancel()
    await history.close()


class FedFold(Fold):
    """A fold that is fed by hand, without a loop, and the log that its records come to stand in."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        super().__init__(self.log, logger())

    def feed(self, record: Record) -> None:
        """Let a record follow those that were given."""
        self.log.core.records.append(record)
        self._take(record)


def history_of(records: Sequence[Record]) -> tuple[History, FedFold]:
    """A history that has followed these records; "now" is the time of the last one."""
    last_ms = records[-1].time_ns // 1_000_000 if records else 0
    history, fold = History(64 * MIB, lambda: last_ms, logger()), FedFold()
    history.attach(fold, WholeLog(fold.log))
    for record in records:
        fold.feed(record)
    return history, fold


async def csv_of(history: History, name: str, query: Mapping[str, str]) -> str:
    """The CSV of a page at the end of the log."""
    page = next(page for page in PAGES if page.name == name)
    assert page.csv is not None
    async with history.moment(None) as moment:
        return await anyio.to_thread.run_sync(page.csv, moment, {}, query)


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


def names_of(records: Sequence[Record]) -> list[str]:
    """``<namespace>/<name>`` of every pod of a log, in order."""
    events = (event for r in records for event in decode_envelope(r.payload, r.subject).events)
    seen = (f"{e.namespace}/{e.name}" for e in events if isinstance(e, PodObserved))
    return list(dict.fromkeys(seen))


_THINGS = 6
"""Of each kind so many are asked for."""


def paths_of(records: Sequence[Record], names: Iterable[str], fold: FedFold) -> list[str]:
    """An address for each thing that the log tells of, and one for each list."""
    state = fold.state
    decisions = [record.seq for record in records if record.subject == subjects.DECISION]
    found = [
        "/",
        "/pods",
        "/pods?state=waiting",
        "/queues",
        "/log",
        "/compare",
        "/usage",
        "/search?q=e",
    ]
    found += [f"/search?q={quote(name)}" for name in list(names)[:2]]
    for name in list(names)[:_THINGS]:
        namespace, _, bare = name.partition("/")
        found += [path("pods", namespace, bare), path("pods", namespace, bare, "advice")]
        found.append(f"/log?pod={quote(name)}")
    for key in list(state.groups)[:_THINGS]:
        gang = path("gangs", *key.split("/", 1))
        found += [gang, f"{gang}/advice", f"/log?gang={quote(key)}"]
    found += [path("queues", name) for name in list(state.queues)[:_THINGS]]
    found += [path("nodes", name) for name in list(state.nodes)[:_THINGS]]
    found += [f"/log?node={quote(name)}" for name in list(state.nodes)[:2]]
    for seq in decisions[-3:]:
        found += [f"/decisions/{seq}", f"/decisions/{seq}/otherwise"]
    found += [f"/log/{record.seq}" for record in records[-3:]]
    return found


def page_of(address: str) -> tuple[Page, dict[str, str], dict[str, str]]:
    """The page at an address, with what its view is given."""
    steps, _, query = address.partition("?")
    for page in PAGES:
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", page.pattern), steps)
        if found:
            match = {name: unquote(value) for name, value in found.groupdict().items()}
            return page, match, dict(parse_qsl(query))
    raise ValueError(f"no page at {address}")


@asynccontextmanager
async def served(history: History, **options: Any) -> AsyncIterator[str]:
    """The pages of a history over HTTP, on a free port; yields their address."""
    pages = Pages(history, Logger(LogSink("inspector", "0")), cluster="test", **options)
    async with serve_pages(pages, "127.0.0.1", 0) as address:
        yield address
