"""What a service stands on that only reads: connection, log and live state; no lease, no bus.

    async with open_reading(ctx, "inspector", attach) as reading:
        …

It never makes the stream: its user on NATS may not. Until a service that writes has made it, it
waits and says so. Any number of replicas read side by side.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread

from allotment.adapters.archive.whole import WholeLog
from allotment.adapters.log.checkpoints import Checkpoint
from allotment.adapters.log.connection import Connection
from allotment.adapters.log.exported import ExportedLog, read_file
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.jetstream import ApiError, JetStream
from allotment.adapters.log.lease import active_holders
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.adapters.service.heap import uncollected
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.settings import CommonSettings, SettingsError
from allotment.adapters.service.world import (
    Lag,
    connected,
    end_when_lost,
    expose_following,
    keep_nats_ready,
    silent_since_ms,
    watch_readiness,
)
from allotment.core.errors import AllotError
from allotment.core.explain.doctor import SCHEDULER, SCHEDULING, as_run
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import LogUnavailable, Record
from allotment_proto.subjects import STREAM

STREAM_PAUSE_S = 0.5
LEASES_PAUSE_S = 3.0

S = TypeVar("S", bound=CommonSettings)


class ReadableLog(Protocol):
    """As much of a log as looking at its past takes; `identity` as in `JetStreamLog`."""

    @property
    def identity(self) -> str: ...

    async def first_seq(self) -> int:
        """The first record that can be read. Raises AllotError, as all these methods do, for an
        archive that cannot be read, with what to do.
        """
        ...

    async def near_seq(self) -> int:
        """The first record that is in NATS."""
        ...

    async def last_seq(self) -> int: ...

    async def checkpoint(self, before_seq: int, before_ns: int | None = None) -> Checkpoint | None:
        """The newest checkpoint before a sequence, None where there is none."""
        ...

    async def indexed_seq(self) -> int:
        """Up to here the archive says whom records concern, 0 if it does not."""
        ...

    async def index_of(self, keys: Collection[str], last_seq: int) -> StretchIndex:
        """What it says under some keys, of the segments that begin up to a record."""
        ...

    async def seq_before(self, until_ns: int) -> int:
        """The last record before the first one that was written at a time or later."""
        ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    async def record(self, seq: int) -> Record | None: ...


class Reading(NamedTuple):
    """The log, its live state, and what is said when it brings nothing new: "" while it does."""

    log: ReadableLog
    fold: Fold
    trouble: Callable[[], str]
    silent_since_ms: Callable[[], int | None]
    """When the last news came, if that is too long ago."""
    active: Callable[[], Mapping[str, str]]
    """The active replica of each scheduling service, "" for none; empty where that is not known."""


@asynccontextmanager
async def open_reading(
    ctx: ServiceContext[S],
    user: str,
    attach: Callable[[Fold, ReadableLog], Awaitable[None]],
    archive: str | None = None,
) -> AsyncIterator[Reading]:
    """Open the log for one service that reads it as `user`; `/readyz` says yes once it is folded.

    `attach` is given fold and log before the first record takes effect. What has left NATS is read
    from `archive`, or from where the log says.
    """
    settings = ctx.settings
    async with connected(ctx, user) as connection:
        log = await _existing(ctx, connection)
        snapshots = (
            SnapshotDirectory(settings.snapshot_dir / user, log_identity=log.identity)
            if settings.snapshot_dir
            else None
        )
        fold = Fold(log, ctx.log, snapshots, log.checkpoint)
        whole = WholeLog(log, archive)
        await attach(fold, whole)
        lag = Lag()
        expose_following(ctx, fold, log, connection, lag)

        active: dict[str, str] = {}

        def trouble() -> str:
            reasons = ctx.readiness.reasons()
            return reasons.get("nats", "") or reasons.get("log", "")

        async with anyio.create_task_group() as group:
            with uncollected():  # until it has caught up: see `watch_readiness`
                group.start_soon(fold.run)
                group.start_soon(watch_readiness, ctx, fold, log, lag)
                group.start_soon(keep_nats_ready, ctx, connection)
                group.start_soon(end_when_lost, connection)
                group.start_soon(_watch_leases, JetStream(connection), active)
                yield Reading(
                    whole, fold, trouble, lambda: silent_since_ms(log.end_seen_s), lambda: active
                )
                group.cancel_scope.cancel()
        await fold.save_snapshot()


@asynccontextmanager
async def open_file(
    ctx: ServiceContext[S], path: Path, attach: Callable[[Fold, ReadableLog], Awaitable[None]]
) -> AsyncIterator[Reading]:
    """The same over an exported log. Raises SettingsError for a file that is none."""
    ctx.ready("log", False, "not folded yet")
    try:
        records = await anyio.to_thread.run_sync(lambda: list(read_file(path)))
    except AllotError as error:
        raise SettingsError([str(error)]) from error
    log = ExportedLog(records)
    fold, whole = Fold(log, ctx.log), WholeLog(log)
    await attach(fold, whole)
    async with anyio.create_task_group() as group:
        with uncollected():
            group.start_soon(fold.run)
            await fold.caught_up.wait()
        ctx.ready("log", True, f"folded to {fold.state.seq}")
        yield Reading(whole, fold, lambda: "", lambda: None, dict)
        group.cancel_scope.cancel()


async def _watch_leases(jetstream: JetStream, active: dict[str, str]) -> None:
    """Keep `active` true; what is not told is not known."""
    while True:
        try:
            found = as_run(await active_holders(jetstream, (*SCHEDULING, SCHEDULER)))
        except (ApiError, LogUnavailable):
            found = {}
        active.clear()
        active.update(found)
        await anyio.sleep(LEASES_PAUSE_S)


async def _existing(ctx: ServiceContext[S], connection: Connection) -> JetStreamLog:
    """The log, once it exists."""
    jetstream = JetStream(connection)
    while True:
        try:
            log = await JetStreamLog.to_read(jetstream)
        except LogUnavailable as error:
            ctx.ready("log", False, str(error))
            await anyio.sleep(STREAM_PAUSE_S)
            continue
        if log is not None:
            log.refusals = ctx.refusals
            return log
        ctx.ready("log", False, f"there is no stream {STREAM} yet: no service has made it")
        await anyio.sleep(STREAM_PAUSE_S)
