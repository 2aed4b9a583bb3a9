"""The inspector's history over a log in memory, and moments of it without a server."""

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from allotment.adapters.log.fold import Fold
from allotment.adapters.log.snapshots import SnapshotStore
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.testing.memory_log import MemoryLog
from allotment_inspector.history import History
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    ENVELOPE_VERSION,
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Event,
    Evicted,
)
from tests.waiting import patience

NOW_MS = 1_795_000_000_000
"""What the clock of a test's inspector says."""
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
    payload = encode(Envelope(v=ENVELOPE_VERSION, at_ms=1, by="test", events=events))
    number = await log.last_seq() + 1
    await log.append(subject, payload, msg_id=f"record-{number}")
    return number


@asynccontextmanager
async def following(
    log: MemoryLog,
    *,
    bytes_max: int = 64 * MIB,
    snapshots: SnapshotStore | None = None,
    clock_ms: Callable[[], int] = lambda: NOW_MS,
) -> AsyncIterator[History]:
    """A history that follows the log and has caught up with it."""
    history = History(bytes_max, clock_ms)
    fold = Fold(log, logger(), snapshots)
    history.attach(fold, log)
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        with patience():
            await fold.caught_up.wait()
            await history.fill()
        yield history
        group.cancel_scope.cancel()
