"""The binder: the one writer of decisions. Checks again, appends, binds, and records how it ended.

Concurrent loops: proposals become decisions by compare-and-append; reserved pods become
bound ones and evicted ones leave, through the API server; outcomes and notices are written as they
come; PodGroups are kept in line with the log. A stuck API server does not stop the decisions.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.log.bus import Message
from allotment.adapters.service.identity import kept_of
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.world import World, open_world
from allotment_binder.binder import Binder
from allotment_binder.closing import Closer
from allotment_binder.decider import Decider
from allotment_binder.fence import Fence, live_once
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects

ASIDE_CONCURRENCY = 8
"""Requests about groups and evictions in flight at once: whatever they wait for, Bindings do not.
They wait for nothing after a 429, because a budget answers so as well."""

WRITTEN = (subjects.OUTCOME, subjects.DECISION, subjects.SEGMENT)
"""What a binder that binds writes."""

Context = ServiceContext[BinderSettings]


async def run(ctx: Context) -> None:
    settings = ctx.settings
    ctx.ready("proposals", False, "not listening yet")
    if not settings.bind:
        async with open_world(ctx) as world:
            await _only_decide(ctx, world)
        return
    async with (
        kube.connect(
            settings.kubeconfig, settings.kube_context, concurrency=settings.kube_concurrency
        ) as client,
        kube.connect(
            settings.kubeconfig,
            settings.kube_context,
            concurrency=ASIDE_CONCURRENCY,
            throttle_wait_s_max=0.0,
        ) as aside,
        open_world(ctx, kept_of(client, settings.log_config_map)) as world,
    ):
        # Before the fold reads its first record: the binder learns from it who was deleted.
        work = Binder(ctx, world, client, aside)
        _expose(ctx, work)
        async with anyio.create_task_group() as beside:
            beside.start_soon(client.keep_open)  # a pod that was decided waits for its Binding
            await _live(ctx, world, work.decider, WRITTEN, work.run)
            beside.cancel_scope.cancel()


async def _only_decide(ctx: Context, world: World) -> None:
    """Decide as usual, and send no Bindings."""
    ctx.log.warning("binding is off: pods get their places in the log only")
    decider = Decider(ctx, world, lambda decided, upheld: None)
    _expose_decisions(ctx, decider)

    async def decide(fence: Fence) -> None:
        decider.proposals.clear()
        await decider.run()

    await _live(ctx, world, decider, (subjects.DECISION, subjects.SEGMENT), decide)


async def _live(
    ctx: Context,
    world: World,
    decider: Decider,
    written: Sequence[str],
    life: Callable[[Fence], Awaitable[None]],
) -> None:
    """One life after the other, each from getting the lease to losing it, on the subjects that it
    writes.
    """
    closer = Closer(world.log, world.fold, ctx.settings, ctx.log)
    await world.bus.subscribe(subjects.PROPOSAL, decider.on_proposal)
    for subject, ask in (
        (subjects.CLOSE, closer.ask_to_close),
        (subjects.RAISE, closer.ask_to_raise),
    ):
        await world.bus.subscribe(subject, partial(_hear, world, ask))
    ctx.ready("proposals", True)

    async def live_and_close(fence: Fence) -> None:
        async with anyio.create_task_group() as closing:
            closing.start_soon(closer.run, fence)
            await life(fence)
            closing.cancel_scope.cancel()

    async with anyio.create_task_group() as following:
        following.start_soon(decider.keep_up)
        with ctx.until_stop():
            while True:
                await world.active()
                await live_once(ctx, world, written, decider.full, live_and_close)
        following.cancel_scope.cancel()


async def _hear(world: World, ask: Callable[[], None], message: Message) -> None:
    """An administrator's wish is for the active binder: another one must not keep it."""
    if world.lease.is_held:
        ask()


def _expose(ctx: Context, work: Binder) -> None:
    _expose_decisions(ctx, work.decider)
    counts = {
        "allot_bound_total": ("pods bound", lambda: work.sender.bound),
        "allot_bind_failed_total": ("Bindings that failed for good", lambda: work.sender.failed),
        "allot_misdelivered_total": (
            "pods of ours that a device plugin served with another pod's record",
            lambda: work.misdelivered,
        ),
        "allot_notices_lost_total": (
            "conditions and Events that could not be written",
            lambda: work.notices.lost + work.gangs.statuses.lost,
        ),
        "allot_evicted_total": ("pods evicted", lambda: work.gangs.evictions.evicted),
        "allot_evictions_refused_total": (
            "evictions that did not come about",
            lambda: work.gangs.evictions.refused,
        ),
        "allot_group_statuses_total": (
            "statuses of PodGroups written",
            lambda: work.gangs.statuses.written,
        ),
        "allot_queue_statuses_total": (
            "statuses of Queues written",
            lambda: work.gangs.queues.written,
        ),
    }
    for name, (text, read) in counts.items():
        ctx.metrics.expose(name, text, read, kind="counter")
    ctx.metrics.expose_histograms(work.sender.times.histograms())
    by_node = {
        "allot_bind_unacknowledged": (
            "bound pods that the node's device plugin has not handled yet; others may wait",
            work.unacknowledged,
        ),
        "allot_bind_unacknowledged_seconds": (
            "how long the oldest bound pod has waited for the node's device plugin",
            work.unacknowledged_s,
        ),
        "allot_bind_waiting": (
            "reserved pods that wait until the node's device plugin has handled another",
            work.waiting,
        ),
        "allot_claim_mismatches": (
            "running pods whose annotations claim other cards than those that are booked",
            work.mismatches,
        ),
        "allot_record_forgers": (
            "pods that keep writing device records that would give devices of others away; "
            "nothing is placed on the node while they exist",
            work.forgers,
        ),
        "allot_bind_held": (
            "allocation requests of the node's device plugin that no pod is bound with until "
            "another pod's record is erased, or a deleted pod's turn has passed",
            work.held,
        ),
    }
    for name, (text, ask) in by_node.items():
        ctx.metrics.expose(name, text, ask, ("node",))


def _expose_decisions(ctx: Context, decider: Decider) -> None:
    ctx.metrics.expose(
        "allot_decisions_total",
        "decisions appended to the log",
        lambda: decider.decided,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_rounds_remade_total",
        "proposals that evict or did not hold on the binder's state: it ran the round itself",
        lambda: decider.remade,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_cycles_superseded_total",
        "cycles that were dropped because the filter had opened another one instead",
        lambda: decider.superseded,
        kind="counter",
    )
    ctx.metrics.expose(
        "allot_proposed_refused_total",
        "parts of proposals to which the binder's own round did not lead",
        decider.refused,
        ("part",),
        kind="counter",
    )


def main() -> None:
    sys.exit(
        start_service(
            *("allotment-binder", BinderSettings, run, "Decides, binds and records."),
            gives_way=False,  # a pod that was decided waits for its Binding
        )
    )


if __name__ == "__main__":
    main()
