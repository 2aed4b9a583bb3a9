"""The controller: Job → PodGroup → pods, PodGroups for other pods, states of queues.

It speaks to Kubernetes only; NATS holds its lease, so that one replica works and others are warm.
While Volcano's own controllers run it stands aside and says so.
"""

import sys
from functools import partial

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.watch import tell_silence
from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.nats_users import inbox_of
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.settings import credentials_of
from allotment.adapters.service.world import keep_nats_ready, show_active
from allotment.core.jobs.groups import counted
from allotment_controller.controller import Controller
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.settings import ControllerSettings
from allotment_controller.volcano import Presence

STANDBY_AFTER_S = 3.0
"""Longer than taking a free lease: who still waits then has an active one before it."""
PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")

Context = ServiceContext[ControllerSettings]


class Counters:
    """What was done in all terms of this process; the controller of the present one adds to it."""

    def __init__(self) -> None:
        self.past = {"created": 0, "ended": 0, "groups": 0, "lost": 0, "defects": 0}
        self.present: Controller | None = None
        self.jobs = JobMetrics()

    def begin(self, controller: Controller) -> None:
        self.past = self.totals()
        self.present = controller

    def totals(self) -> dict[str, int]:
        now = self.present
        if now is None:
            return self.past
        lived = {
            "created": now.jobs.created,
            "ended": now.jobs.ended,
            "groups": now.groups.made,
            "lost": now.reporter.lost,
            "defects": now.work.defects,
        }
        return {name: self.past[name] + lived[name] for name in lived}


async def run(ctx: Context) -> None:
    settings = ctx.settings
    for condition in ("nats", "kubernetes", "objects"):
        ctx.ready(condition, False, "not connected yet")
    counters = Counters()
    _expose(ctx, counters)
    async with (
        connect(
            settings.nats_url.split(","),
            settings.instance,
            credentials=credentials_of(settings),
            inbox_prefix=inbox_of("controller"),
            connect_within_s=None,
        ) as connection,
        Lease(
            connection,
            name="controller",
            holder=settings.instance,
            replicas=settings.log_replicas,
            refusals=ctx.refusals,
        ) as lease,
        kube.connect(
            settings.kubeconfig, settings.kube_context, concurrency=settings.kube_concurrency
        ) as client,
        anyio.create_task_group() as beside,
    ):
        beside.start_soon(keep_nats_ready, ctx, connection)
        ctx.task_group.start_soon(tell_silence, client, partial(ctx.ready, "kubernetes"))
        beside.start_soon(_end_when_lost, connection)
        beside.start_soon(show_active, ctx, lease)
        presence = Presence(client, settings.volcano_namespace)
        if settings.step_aside:
            beside.start_soon(presence.keep_looking)
        with ctx.until_stop():
            while True:
                await _term(ctx, lease, client, presence, counters)
        beside.cancel_scope.cancel()


async def _term(
    ctx: Context,
    lease: Lease,
    client: kube.KubeClient,
    presence: Presence,
    counters: Counters,
) -> None:
    """One term: from getting the lease to losing it, or to stepping aside."""
    await _turn(ctx, lease)
    if ctx.settings.step_aside:
        await presence.look()
        if presence.why:
            ctx.log.warning("standing aside: Volcano's controllers run", reason=presence.why)
            ctx.ready("objects", True, f"standing aside: {presence.why}")
            await presence.absent()
            ctx.log.info("Volcano's controllers are gone, taking over")
            return
    ctx.ready("objects", False, "not listed yet")
    counters.jobs.begin()
    controller = Controller(ctx, client, counters.jobs)
    counters.begin(controller)
    async with anyio.create_task_group() as group:
        group.start_soon(controller.run)
        group.start_soon(_until_volcano, presence, group.cancel_scope)
        await lease.lost()
        group.cancel_scope.cancel()


async def _until_volcano(presence: Presence, scope: anyio.CancelScope) -> None:
    await presence.present()
    scope.cancel()


async def _turn(ctx: Context, lease: Lease) -> None:
    """Wait for this replica's turn; a standby is ready."""
    with anyio.move_on_after(STANDBY_AFTER_S) as waiting:
        await lease.acquired()
    if waiting.cancelled_caught:
        ctx.ready("objects", True, "standby: another controller works")
        await lease.acquired()


async def _end_when_lost(connection: Connection) -> None:
    raise await connection.wait_lost()


def _expose(ctx: Context, counters: Counters) -> None:
    texts = {
        "created": ("allot_controller_pods_created_total", "pods created for Jobs"),
        "ended": ("allot_controller_pods_ended_total", "pods of Jobs ended by the controller"),
        "groups": ("allot_controller_podgroups_total", "PodGroups made for pods without a Job"),
        "lost": ("allot_controller_events_lost_total", "Events that could not be written"),
        "defects": ("allot_controller_defects_total", "objects that the controller failed on"),
    }
    for key, (name, text) in texts.items():
        ctx.metrics.expose(name, text, partial(_total, counters, key), kind="counter")
    for phase in PHASES:
        ctx.metrics.expose(
            f"volcano_queue_pod_group_{phase.lower()}_count",
            f"PodGroups of a queue that are {phase}",
            partial(_by_queue, counters, phase),
            labels=("queue_name",),
        )
    ctx.metrics.expose_histograms([counters.jobs.creation])
    ctx.metrics.expose_gauges(counters.jobs.gauges, JobMetrics().gauges())


def _total(counters: Counters, key: str) -> int:
    return counters.totals()[key]


def _by_queue(counters: Counters, phase: str) -> dict[tuple[str, ...], int]:
    groups = counters.present.known.groups if counters.present else ()
    return {(queue,): found.get(phase, 0) for queue, found in counted(groups).items()}


def main() -> None:
    sys.exit(
        start_service(
            "allotment-controller",
            ControllerSettings,
            run,
            "Creates pods for Jobs and PodGroups for pods, and keeps the state of queues.",
        )
    )


if __name__ == "__main__":
    main()
