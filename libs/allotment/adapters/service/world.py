"""What every scheduling service stands on: connection, log, live state, bus and its lease.

    async with open_world(ctx) as world:
        await world.active()          # caught up, and this replica's turn
        …

Leaving the block closes everything in order. Losing the connection for good, missing history and
broken books end the service with that error: it is started again and folds from scratch.
"""

import gc
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import anyio

from allotment.adapters.kube.kept_text import KeptText
from allotment.adapters.log.bus import Bus, InsideBus
from allotment.adapters.log.connection import Connection, Kind, connect
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_users import inbox_of
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.adapters.service.heap import freeze_heap, uncollected
from allotment.adapters.service.identity import open_log
from allotment.adapters.service.moments import silence_text
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.settings import CommonSettings, credentials_of
from allotment.adapters.telemetry.log import Logger, one_line
from allotment_proto import subjects
from allotment_proto.events import Event

LAG_POLL_S = 1.0
LAG_S_MAX = 5.0
"""A service that is behind the log's end for longer is not ready."""
END_UNSEEN_S_MAX = 5.0
"""The same when it cannot learn where the log ends."""
UNANSWERED_S_MAX = 3.0
"""The same when JetStream answers nothing, or takes no writes."""
LAG_MARKS_MAX = 100
LOG_SPACE, NATS_WRITES = "log space", "nats writes"
"""Readiness conditions: the log has room, and NATS takes writes."""
PAYLOAD_BYTES_MIN = 4 << 20

S = TypeVar("S", bound=CommonSettings)


class Abandoned(Exception):
    """Raised in the middle of a round that is no longer needed: its cycle was superseded, or
    this replica is not the active one any longer.
    """


class Lag:
    """How far a fold is behind the end of the log: in records, and since when."""

    def __init__(self) -> None:
        self.records = 0
        self._marks: deque[tuple[int, float]] = deque()
        """Ends of the log that are not reached yet, and when each was first known."""

    def look(self, end_seq: int, applied_seq: int, now_s: float) -> None:
        """Take note of where the log ends and how far the fold has come, at a monotonic time."""
        self.records = max(end_seq - applied_seq, 0)
        while self._marks and self._marks[0][0] <= applied_seq:
            self._marks.popleft()
        if end_seq > max(applied_seq, self._marks[-1][0] if self._marks else 0):
            if len(self._marks) == LAG_MARKS_MAX:
                self._marks.pop()
            self._marks.append((end_seq, now_s))

    def seconds(self, now_s: float) -> float:
        """For how long the log has held a record that is not applied."""
        return max(now_s - self._marks[0][1], 0.0) if self._marks else 0.0


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
async def connected(ctx: ServiceContext[S], user: str) -> AsyncIterator[Connection]:
    """A connection to NATS as `user`; waits for a server as long as it takes, and says so."""
    settings = ctx.settings
    ctx.ready("nats", False, f"connecting to {settings.nats_url}")
    ctx.ready("log", False, "not folded yet")
    async with connect(
        settings.nats_url.split(","),
        settings.instance,
        credentials=credentials_of(settings),
        inbox_prefix=inbox_of(user),
        connect_within_s=None,
    ) as connection:
        ctx.ready("nats", True)
        yield connection


class _Needs(NamedTuple):
    """What a service asks for when it opens its world; see `open_world`."""

    kept: KeptText | None
    makes_log: bool
    log_bytes_max: int


@asynccontextmanager
async def open_world(
    ctx: ServiceContext[S],
    kept: KeptText | None = None,
    *,
    makes_log: bool = False,
    log_bytes_max: int = -1,
) -> AsyncIterator[World]:
    """Open everything for one service; `/readyz` says yes once the state is caught up.

    `kept` is the identity of the log, for services that reach the API server; one service makes
    the log, which may take `log_bytes_max` (-1: no limit).
    """
    needs = _Needs(kept, makes_log, log_bytes_max)
    joined = ctx.together.join(needs) if isinstance(ctx, Part) else _opened(ctx, needs)
    async with joined as world:
        yield world


@asynccontextmanager
async def _opened(
    ctx: ServiceContext[S], needs: _Needs, together: "Together | None" = None
) -> AsyncIterator[World]:
    """A world of one process: of one service, or of several together."""
    kept, makes_log, log_bytes_max = needs
    settings = ctx.settings
    role = ctx.name.removeprefix("allotment-")
    async with connected(ctx, role) as connection:
        log = await open_log(ctx, connection, kept, makes=makes_log, max_bytes=log_bytes_max)
        log.refusals = ctx.refusals
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
        fold = Fold(log, ctx.log, snapshots, log.checkpoint)
        lag = Lag()
        expose_following(ctx, fold, log, connection, lag)
        async with (
            Lease(
                connection,
                name=role,
                holder=settings.instance,
                replicas=settings.log_replicas,
                refusals=ctx.refusals,
            ) as lease,
            anyio.create_task_group() as group,
        ):
            bus = Bus(connection, ctx.refusals)
            if together is not None:
                bus = InsideBus(connection, ctx.refusals, subjects.PIPELINE, group)
            _expose_bus(ctx, bus)

            async def follow() -> None:
                if together is not None:
                    await together.entered.wait()  # each part hears the first record
                await fold.run()

            with uncollected():  # until it has caught up: see `watch_readiness`
                group.start_soon(follow)
                group.start_soon(watch_readiness, ctx, fold, log, lag)
                group.start_soon(keep_nats_ready, ctx, connection)
                group.start_soon(end_when_lost, connection)
                group.start_soon(show_active, ctx, lease)
                yield World(connection, log, fold, bus, lease)
                group.cancel_scope.cancel()
        await fold.save_snapshot()


class Together:
    """Services that run as parts of one process, in one world: with one connection, lease and fold,
    and a bus in memory. It is opened once all have asked for it, and closed once all have left it.
    """

    def __init__(self, ctx: ServiceContext[Any], parts: Sequence[str]) -> None:
        """`ctx` is the process', `parts` are the names of the services."""
        self.entered = _Count(len(parts))
        """How many have yet to enter the world."""
        self._ctx = ctx
        self._asked, self._left = _Count(len(parts)), _Count(len(parts))
        self._needs: list[_Needs] = []
        self._opened = anyio.Event()
        ctx.metrics.parts = parts

    async def run(self) -> None:
        """Hold the world open for all."""
        self._ctx.ready("log", False, "not folded yet")
        await self._asked.wait()
        needs = _Needs(
            next((each.kept for each in self._needs if each.kept is not None), None),
            any(each.makes_log for each in self._needs),
            max(each.log_bytes_max for each in self._needs),
        )
        async with _opened(self._ctx, needs, self) as self._world:
            self._opened.set()
            await self._left.wait()

    @asynccontextmanager
    async def join(self, needs: _Needs) -> AsyncIterator[World]:
        """The world, for one part."""
        self._needs.append(needs)
        self._asked.happened()
        await self._opened.wait()
        self.entered.happened()  # its listeners are added before anything else happens
        try:
            yield self._world
        finally:
            self._left.happened()


class Part(ServiceContext[S]):
    """The context of a service that is a part of a process: with its own name and settings, it
    shares all else.
    """

    def __init__(self, together: Together, whole: ServiceContext[Any], name: str, own: S) -> None:
        self.__dict__.update(whole.__dict__)
        self.together = together
        self.name = name
        self.settings = own
        self.log = whole.log.bind(part=name.removeprefix("allotment-"))


class _Count:
    """Waits until something has happened `missing` times."""

    def __init__(self, missing: int) -> None:
        self._missing = missing
        self._done = anyio.Event()

    def happened(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


async def watch_readiness(ctx: ServiceContext[S], fold: Fold, log: JetStreamLog, lag: Lag) -> None:
    """Say, for ever, in readiness and figures how far the fold has come."""
    await fold.caught_up.wait()
    freeze_heap()
    gc.enable()
    ctx.ready("log", True, f"folded to {fold.state.seq}")
    ctx.log.info("caught up", seq=fold.state.seq, pods=len(fold.state.pods))
    while True:
        now_s = time.monotonic()
        lag.look(log.end_seq, fold.state.seq, now_s)
        since_ms = silent_since_ms(log.end_seen_s)
        ctx.readiness.figures["log"] = {
            "seq": fold.state.seq,
            "recordsBehind": lag.records,
            "secondsBehind": round(lag.seconds(now_s), 1),
            **({} if since_ms is None else {"silentSinceMs": since_ms}),
        }
        ctx.ready("log", *_log_condition(fold.state.seq, lag, now_s, since_ms))
        await anyio.sleep(LAG_POLL_S)


async def keep_nats_ready(ctx: ServiceContext[S], connection: Connection) -> None:
    """Say, for ever, in readiness and log whether NATS does its work and takes writes."""
    takes_writes = True
    while True:
        unanswered_s = connection.unanswered.seconds()
        ctx.ready("nats", *_nats_condition(connection, unanswered_s))
        trouble = _write_trouble(connection, unanswered_s)
        ctx.ready(NATS_WRITES, not trouble, trouble)
        if trouble and takes_writes:
            ctx.log.error("NATS takes no writes", reason=trouble)
        elif not trouble and not takes_writes:
            ctx.log.info("NATS takes writes again")
        takes_writes = not trouble
        await anyio.sleep(LAG_POLL_S)


async def show_active(ctx: ServiceContext[S], lease: Lease) -> None:
    """Say, for ever, in readiness, metrics and log whether this replica works or stands by."""
    ctx.metrics.expose(
        "allot_active",
        "1 while this replica does the work, 0 while it stands by",
        lambda: lease.is_held,
    )
    ctx.ready("lease", True, "standby: another replica is active, or none yet")
    while True:
        epoch = await lease.acquired()
        ctx.ready("lease", True, f"active, epoch {epoch}")
        ctx.log.info("active", epoch=epoch)
        await lease.lost()
        ctx.ready("lease", True, f"standby: {lease.lost_because}")
        ctx.log.warning("standby: the lease was lost", reason=lease.lost_because)


def silent_since_ms(end_seen_s: float) -> int | None:
    """When NATS last said where the log ends, in Unix time, if that is too long ago; else None.
    `end_seen_s` is by the monotonic clock.
    """
    silent_s = time.monotonic() - end_seen_s
    return None if silent_s <= END_UNSEEN_S_MAX else int((time.time() - silent_s) * 1000)


def _log_condition(seq: int, lag: Lag, now_s: float, since_ms: int | None) -> tuple[bool, str]:
    """Whether the fold keeps up with the log, and in words."""
    if since_ms is not None:
        return False, f"{silence_text(since_ms)}, folded to {seq}"
    behind_s = lag.seconds(now_s)
    if not lag.records:
        return True, f"folded to {seq}"
    text = f"folded to {seq}, {lag.records} records behind the log's end for {behind_s:.1f} s"
    return behind_s <= LAG_S_MAX, text


def _nats_condition(connection: Connection, unanswered_s: Mapping[Kind, float]) -> tuple[bool, str]:
    """Whether NATS does its work, and in words."""
    if not connection.connected:
        return False, connection.last_error
    if (silent_s := unanswered_s.get("read", 0.0)) > UNANSWERED_S_MAX:
        return False, (
            f"JetStream has not answered at {connection.server} for {silent_s:.0f} s: is that "
            "server cut off from its cluster, or the cluster without a leader?"
        )
    return True, ""


def _write_trouble(connection: Connection, unanswered_s: Mapping[Kind, float]) -> str:
    """What to say when NATS answers but takes no writes, as with a full disk; "" when it does."""
    silent_s = unanswered_s.get("write", 0.0)
    if not connection.connected or silent_s <= UNANSWERED_S_MAX or "read" in unanswered_s:
        return ""
    return (
        f"NATS at {connection.server} answers but has taken no writes for {silent_s:.0f} s, as with"
        ' a full disk: look for "no space left on device" in its log, make room, restart it'
    )


async def end_when_lost(connection: Connection) -> None:
    """Raise what ended the connection for good."""
    raise await connection.wait_lost()


def expose_following(
    ctx: ServiceContext[S], fold: Fold, log: JetStreamLog, connection: Connection, lag: Lag
) -> None:
    """The metrics of every service that follows the log."""
    ctx.metrics.expose_sequences(lambda: max(fold.head, log.end_seq), lambda: fold.state.seq)
    ctx.metrics.expose(
        "allot_log_lag_seconds",
        "for how long the log has held a record that is not applied here",
        lambda: lag.seconds(time.monotonic()),
    )
    ctx.metrics.expose(
        "allot_log_end_age_seconds",
        "how long ago the log's leader last said where the log ends",
        lambda: time.monotonic() - log.end_seen_s,
    )
    ctx.metrics.expose(
        "allot_log_bytes", "what the log takes on the disk of a server", lambda: log.bytes
    )
    ctx.metrics.expose(
        "allot_log_limit_bytes",
        "the most that the log may take; 0: as much as the server has",
        lambda: log.bytes_limit,
    )
    ctx.metrics.expose(
        "allot_log_copies_behind",
        "copies of the log on other NATS servers that are offline or not current",
        lambda: log.copies_behind,
    )
    ctx.metrics.expose(
        "allot_nats_unanswered_seconds",
        "for how long JetStream has answered no question, or taken no write",
        lambda: {
            (kind,): connection.unanswered.seconds().get(kind, 0.0) for kind in ("read", "write")
        },
        labels=("kind",),
    )
    ctx.metrics.expose(
        "allot_nats_certificate_end_seconds",
        "when the certificate of the NATS server expires, in Unix time; 0: no TLS",
        lambda: connection.certificate_ends_s,
    )
    ctx.metrics.expose(
        "allot_nats_servers_left_total",
        "NATS servers that were left for another because they did not do their work",
        lambda: connection.leaves,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_log_refollows_total",
        "times following the log was restarted, from the last record that was read",
        lambda: log.refollows,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_log_unreadable_records_total",
        "records of the log that were skipped because they could not be read",
        lambda: fold.unreadable_total,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_log_listener_failures_total",
        "records of the log that a part of the service failed on after they took effect",
        lambda: fold.listener_failures,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_nats_reconnects_total",
        "times the connection to NATS was made again",
        lambda: connection.reconnects,
        kind="counter",
    )


def _expose_bus(ctx: ServiceContext[S], bus: Bus) -> None:
    ctx.metrics.expose(
        "allot_messages_dropped_total",
        "pipeline messages that could not be handed over, by reason",
        lambda: {(reason,): count for reason, count in sorted(bus.drops.items())},
        labels=("reason",),
        kind="counter",
    )


class Ahead:
    """Does what a service can do before it is needed, and may leave undone.

    A failure is logged once, until the work succeeds again: it may fail with every record. A
    caller that needs the result fails the same way and reports it.
    """

    def __init__(self, fold: Fold, log: Logger, forget: Callable[[], None]) -> None:
        """After a failure `forget` throws away what was made, which may be half done."""
        self._fold = fold
        self._log = log
        self._forget = forget
        self._is_failing = False
        self._done_at: object = None

    async def try_to(self, prepare: Callable[[], None], at: object) -> None:
        """Do it, off the event loop. Where it was done for the same `at` last, nothing is to do."""
        if at == self._done_at:
            return
        try:
            await self._fold.off_loop(prepare)
        except Exception as error:  # whatever it is: cycles do without
            self._forget()
            self._done_at = None
            if not self._is_failing:
                self._log.warning(
                    "nothing can be prepared for the next cycle, so it takes longer",
                    seq=self._fold.state.seq,
                    error=one_line(error),
                )
            self._is_failing = True
        else:
            self._is_failing = False
            self._done_at = at


def full_reporter(ctx: ServiceContext[S]) -> Callable[[str], None]:
    """Says once when the log takes nothing more, and once when it does again (``""``), or when
    this replica no longer writes.
    """
    said = ""

    def report(message: str) -> None:
        nonlocal said
        if message != said:
            said = message
            ctx.ready(LOG_SPACE, not message, message)
            if message:
                ctx.log.error("the log takes nothing more", reason=message)

    return report


def refused_reporter(ctx: ServiceContext[S]) -> Callable[[Event, str], None]:
    """Says which single event no record can hold; everything else continues without it."""

    def report(event: Event, message: str) -> None:
        ctx.refusals.refuse(
            *("log", type(event).__name__, f"is left out of the log: {message}"),
            namespace=getattr(event, "namespace", ""),
            name=getattr(event, "name", ""),
            uid=getattr(event, "uid", ""),
        )

    return report
