"""The archiver: copies closed segments of the log to an archive, and lets them leave NATS.

It speaks to NATS and to the archive only. While it does not run, or the archive cannot be reached,
nothing leaves NATS, and everything else continues.
"""

import sys
import time
from functools import partial

import anyio

from allotment.adapters.archive.store import Store
from allotment.adapters.log.connection import connect
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_users import ARCHIVER, inbox_of
from allotment.adapters.service.identity import open_log
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.settings import credentials_of
from allotment.adapters.service.world import end_when_lost, keep_nats_ready, show_active
from allotment_archiver.archiving import TROUBLES, Archiver
from allotment_archiver.settings import ArchiverSettings

LOOK_EVERY_S = 5.0
"""How often the log is asked for closed segments, and the archive whether it is there."""

Context = ServiceContext[ArchiverSettings]


async def run(ctx: Context) -> None:
    settings = ctx.settings
    for condition in ("nats", "log", "archive"):
        ctx.ready(condition, False, "not connected yet")
    async with (
        connect(
            settings.nats_url.split(","),
            settings.instance,
            credentials=credentials_of(settings),
            inbox_prefix=inbox_of(ARCHIVER),
            connect_within_s=None,
        ) as connection,
        Lease(
            connection,
            name=ARCHIVER,
            holder=settings.instance,
            replicas=settings.log_replicas,
            refusals=ctx.refusals,
        ) as lease,
        anyio.create_task_group() as beside,
    ):
        beside.start_soon(keep_nats_ready, ctx, connection)
        beside.start_soon(end_when_lost, connection)
        beside.start_soon(show_active, ctx, lease)
        with ctx.until_stop():
            log = await open_log(ctx, connection, None, makes=False)
            ctx.ready("log", True)
            state = _State(ctx)
            while True:
                await _term(ctx, lease, log, state)
        beside.cancel_scope.cancel()


class _State:
    """What is shown of the archiver, in all its terms."""

    def __init__(self, ctx: Context) -> None:
        self.past = {"archived": 0, "dropped": 0}
        self.present: Archiver | None = None
        self.failures = 0
        self.failing_since_s = 0.0
        texts = {
            "archived": ("allot_archiver_archived_total", "segments of the log that were archived"),
            "dropped": ("allot_archiver_dropped_total", "archived segments that left NATS"),
        }
        for key, (name, text) in texts.items():
            ctx.metrics.expose(name, text, partial(self.total, key), kind="counter")
        ctx.metrics.expose(
            "allot_archiver_failures_total",
            "attempts to archive and drop segments that failed",
            lambda: self.failures,
            kind="counter",
        )
        ctx.metrics.expose(
            "allot_archiver_waiting_segments",
            "closed segments of the log that are not archived yet",
            lambda: self.present.waiting if self.present else 0,
        )
        ctx.metrics.expose(
            "allot_archiver_failing_seconds",
            "for how long every attempt has failed, as when the archive cannot be reached",
            self.failing_s,
        )
        ctx.metrics.expose(
            "allot_archiver_stored_bytes",
            "what the archive holds of this log",
            lambda: sum(each.size_bytes for each in self.present.stored) if self.present else 0,
        )

    def begin(self, archiver: Archiver) -> None:
        self.past = {key: self.total(key) for key in self.past}
        self.present = archiver

    def total(self, key: str) -> int:
        now = 0 if self.present is None else int(getattr(self.present, key))
        return self.past[key] + now

    def failing_s(self) -> float:
        return time.monotonic() - self.failing_since_s if self.failing_since_s else 0.0


async def _term(ctx: Context, lease: Lease, log: JetStreamLog, state: _State) -> None:
    """One term: from getting the lease to losing it."""
    ctx.ready("archive", True, "standby: another archiver works")
    await lease.acquired()
    settings = ctx.settings
    archiver = Archiver(
        log,
        Store(settings.archive, makes=True),
        settings.keeps,
        f"archiver/{settings.instance}",
        ctx.log,
        settings.work_dir,
    )
    state.begin(archiver)
    async with anyio.create_task_group() as group:
        group.start_soon(_passes, ctx, archiver, state)
        await lease.lost()
        group.cancel_scope.cancel()


async def _passes(ctx: Context, archiver: Archiver, state: _State) -> None:
    """Archive and drop what is due, for ever; a failure is reported at once, and retried."""
    said = ""
    while True:
        try:
            await archiver.run()
        except TROUBLES as error:
            trouble = str(error)
            state.failures += 1
            state.failing_since_s = state.failing_since_s or time.monotonic()
        else:
            trouble, state.failing_since_s = "", 0.0
        count = len(archiver.stored)
        ctx.ready("archive", not trouble, trouble or f"{count} segments archived")
        if trouble != said:
            if trouble:
                ctx.log.error("nothing leaves NATS: archiving failed", reason=trouble)
            else:
                ctx.log.info("archiving works again")
            said = trouble
        await anyio.sleep(LOOK_EVERY_S)


def main() -> None:
    sys.exit(
        start_service(
            "allotment-archiver",
            ArchiverSettings,
            run,
            "Copies closed segments of the log to an archive, and lets them leave NATS.",
        )
    )


if __name__ == "__main__":
    main()
