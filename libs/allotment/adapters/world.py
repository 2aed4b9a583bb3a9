"""What every scheduling service stands on: connection, log, live state, bus and its lease.

    async with open_world(ctx) as world:
        await world.active()          # caught up, and this replica's turn
        …

Leaving the block closes everything in order. Losing the connection for good, missing history and
broken books end the service with that error: it is started again and folds anew.
"""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from allotment.adapters.bus import Bus
from allotment.adapters.connection import Connection, connect
from allotment.adapters.fold import Fold
from allotment.adapters.heap import freeze_heap, uncollected
from allotment.adapters.lease import Lease
from allotment.adapters.log import JetStreamLog
from allotment.adapters.nats_client import Credentials
from allotment.adapters.service import ServiceContext
from allotment.adapters.settings import CommonSettings
from allotment.adapters.snapshots import SnapshotDirectory
from allotment_proto.events import Event

LAG_POLL_S = 1.0
PAYLOAD_BYTES_MIN = 4 << 20

S = TypeVar("S", bound=CommonSettings)


class World:
    """The parts, open for the length of the block. `state` is the live state."""

    def __init__(
        self, connection: Connection, log: JetStreamLog, fold: Fold, bus: Bus, lease: Lease
    ) -> None:
        self.connection = connection
        self.log = log
        self.fold = fold
        self.bus = bus
        self.lease = lease

    async def active(self) -> None:
        """Wait until this replica holds the lease and has seen all that came before."""
        await self.fold.caught_up.wait()
        await self.lease.acquired()
        await self.fold.wait_for(await self.log.last_seq())


@asynccontextmanager
async def open_world(ctx: ServiceContext[S]) -> AsyncIterator[World]:
    """Open everything for one service; `/readyz` says yes once the state is caught up."""
    settings = ctx.settings
    role = ctx.name.removeprefix("allotment-")
    ctx.ready("nats", False, f"connecting to {settings.nats_url}")
    ctx.ready("log", False, "not folded yet")
    credentials = Credentials(
        creds_file=str(settings.nats_creds) if settings.nats_creds else None,
        tls_ca_file=str(settings.nats_ca) if settings.nats_ca else None,
    )
    async with connect(
        settings.nats_url.split(","),
        settings.instance,
        credentials=credentials,
        inbox_prefix=f"_INBOX_{role}",
        connect_within_s=None,
    ) as connection:
        ctx.ready("nats", True)
        log = await JetStreamLog.open(
            connection,
            replicas=settings.log_replicas,
            monitor_url=settings.nats_monitor_url,
            allow_unsynced=settings.allow_unsynced,
        )
        for warning in log.warnings:
            ctx.log.warning(warning)
        if connection.max_payload_bytes < PAYLOAD_BYTES_MIN:
            ctx.log.warning(
                "the NATS server takes only small messages: a decision about many pods may be too"
                " large; set max_payload: 8MB",
                max_payload_bytes=connection.max_payload_bytes,
            )
        snapshots = (
            SnapshotDirectory(settings.snapshot_dir / role, log_identity=log.identity)
            if settings.snapshot_dir
            else None
        )
        fold = Fold(log, ctx.log, snapshots)
        bus = Bus(connection)
        _expose(ctx, fold, connection, bus)
        async with (
            Lease(
                connection,
                name=role,
                holder=settings.instance,
                replicas=settings.log_replicas,
            ) as lease,
            anyio.create_task_group() as group,
        ):
            with uncollected():  # until it has caught up: see `_watch_readiness`
                group.start_soon(fold.run)
                group.start_soon(_watch_readiness, ctx, connection, fold, log)
                group.start_soon(_end_when_lost, connection)
                yield World(connection, log, fold, bus, lease)
                group.cancel_scope.cancel()
        await fold.save_snapshot()


async def _watch_readiness(
    ctx: ServiceContext[S], connection: Connection, fold: Fold, log: JetStreamLog
) -> None:
    await fold.caught_up.wait()
    freeze_heap()
    gc.enable()
    ctx.ready("log", True, f"folded to {fold.state.seq}")
    ctx.log.info("caught up", seq=fold.state.seq, pods=len(fold.state.pods))
    while True:
        await anyio.sleep(LAG_POLL_S)
        connected = connection.connected
        ctx.ready("nats", connected, "" if connected else connection.last_error)
        ctx.ready("log", True, f"folded to {fold.state.seq}")


async def _end_when_lost(connection: Connection) -> None:
    raise await connection.wait_lost()


def _expose(ctx: ServiceContext[S], fold: Fold, connection: Connection, bus: Bus) -> None:
    ctx.metrics.expose_sequences(lambda: fold.head, lambda: fold.state.seq)
    ctx.metrics.expose(
        "allot_log_unreadable_records_total",
        "records of the log that were passed over because they could not be read",
        lambda: fold.unreadable_total,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_nats_reconnects_total",
        "times the connection to NATS was made anew",
        lambda: connection.reconnects,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_messages_dropped_total",
        "pipeline messages that could not be handed over, by reason",
        lambda: {(reason,): count for reason, count in sorted(bus.drops.items())},
        labels=("reason",),
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_pending_pods", "pods that wait for a place", lambda: len(fold.state.pending)
    )


def full_reporter(ctx: ServiceContext[S]) -> Callable[[str], None]:
    """Says once when the log takes nothing more, and once when it does again."""
    said = ""

    def report(message: str) -> None:
        nonlocal said
        if message != said:
            said = message
            ctx.ready("log space", not message, message)
            if message:
                ctx.log.error("the log takes nothing more", reason=message)

    return report


def too_large_reporter(ctx: ServiceContext[S]) -> Callable[[Event, str], None]:
    """Says which single event the log will never take; everything else goes on without it."""

    def report(event: Event, message: str) -> None:
        name = getattr(event, "name", "")
        ctx.log.error(
            "an event is too large for the log and was left out",
            event=type(event).__name__,
            name=name,
            reason=message,
        )

    return report
