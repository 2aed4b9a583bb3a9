"""The binder: the one writer of decisions. Checks again, appends, binds, and records how it ended.

Three loops beside each other: proposals become decisions by compare-and-append, reserved pods
become bound ones through the API server, outcomes and notices are written as they come. A stuck API
server stops the second loop only.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from allotment.adapters import kube
from allotment.adapters.recorder import Recorder
from allotment.adapters.service import ServiceContext, start_service
from allotment.adapters.world import World, open_world, too_large_reporter
from allotment.core import reasons
from allotment.core.logport import Record
from allotment.core.texts import refusal_text
from allotment_binder import notices
from allotment_binder.bindings import Target, bind
from allotment_binder.decider import Decider
from allotment_binder.notices import Notices
from allotment_binder.pacing import Pacer
from allotment_binder.records import Unserved, erase
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    Placement,
    PodGone,
    PodObserved,
)

OUTCOMES_GATHER_S = 0.02
"""Nobody waits for an outcome, and every record is read by every service."""

Context = ServiceContext[BinderSettings]


class Binder:
    """One active life of the binder, from getting the lease to losing it."""

    def __init__(self, ctx: Context, world: World, client: kube.KubeClient) -> None:
        self.ctx = ctx
        self.world = world
        self.client = client
        self.decider = Decider(ctx, world, self._landed)
        self.bound = 0
        self.failed = 0
        self.notices = Notices(client, ctx.settings.instance)
        self.unserved = Unserved()
        self.pacer: Pacer | None = None
        """Of the life that is being lived; what it is not told of, its successor looks at."""
        world.fold.listeners.append(self._on_record)

    def _on_record(self, record: Record, envelope: Envelope) -> None:
        if self.pacer is None:
            return
        for event in envelope.events:
            match event:
                case PodObserved() | PodGone():
                    self.unserved.look(self.world.fold.state, event.uid)
                    self.pacer.look(event.uid)
                case Bound() | BindFailed():
                    self.pacer.look(event.uid)
                case Decided():
                    for placement in event.placements:
                        self.pacer.look(placement.uid)
                case _:
                    pass

    async def run(self) -> None:
        """Work while the lease is held; settle first what an earlier life left reserved."""
        state = self.world.fold.state
        inherited = set(state.reserved)
        self.unserved.begin(state)
        pacer = self.pacer = Pacer(state)
        outcomes = Recorder(
            self.world.log,
            f"binder/{self.ctx.settings.instance}",
            lambda _: subjects.OUTCOME,
            self.decider.full,
            too_large_reporter(self.ctx),
            gather_s=OUTCOMES_GATHER_S,
        )
        for uid in state.pending:
            refusal = state.pods[uid].refusal
            if refusal is not None:
                text = refusal_text(refusal)
                self.notices.put(
                    notices.Refused(uid, refusal.namespace, refusal.name, text, is_news=False)
                )
        self.decider.proposals.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(outcomes.run)
            group.start_soon(self.notices.run)
            group.start_soon(self.decider.run)
            group.start_soon(self._bind_loop, group, outcomes, pacer, inherited)
            await self.world.lease.lost()
            self.ctx.log.warning("lease lost, another binder takes over")
            group.cancel_scope.cancel()
        self.pacer = None

    def _landed(self, decided: Decided, upheld: Sequence[Placement]) -> None:
        for placement in upheld:
            self.notices.withdraw(placement.uid)
        for refusal in decided.refusals:
            self.notices.put(
                notices.Refused(
                    refusal.uid, refusal.namespace, refusal.name, refusal_text(refusal), True
                )
            )

    async def _bind_loop(
        self, group: TaskGroup, outcomes: Recorder, pacer: Pacer, inherited: set[str]
    ) -> None:
        """Bind what is reserved, as far as pacing allows, every time the log moved."""
        state = self.world.fold.state
        erasing: set[str] = set()
        while True:
            erasing &= self.unserved.pods.keys()
            for uid in self.unserved.pods.keys() - erasing:
                erasing.add(uid)
                group.start_soon(self._erase, state.pods[uid].fact)
            for allocation in pacer.ready(self.unserved.places()):
                uid = allocation.uid
                fact = state.pods[uid].fact
                target = Target(fact.namespace, fact.name, allocation)
                group.start_soon(self._bind, target, outcomes, pacer, uid in inherited)
            await self.world.fold.changed()

    async def _bind(
        self, target: Target, outcomes: Recorder, pacer: Pacer, look_first: bool
    ) -> None:
        uid = target.allocation.uid
        bind_time_s = time.time_ns() // 1_000_000_000
        node = self.world.fold.state.nodes.get(target.allocation.node)
        with self.notices.binding():
            ending = await bind(
                self.client,
                target,
                bind_time_s,
                look_first=look_first,
                is_node_there=node is not None and node.fact is not None,
                on_problem=lambda text: self.ctx.log.warning(
                    "whether the pod is bound cannot be read, asking again",
                    namespace=target.namespace,
                    pod=target.name,
                    reason=text,
                ),
            )
        outcomes.put([ending])
        pacer.ended(uid)
        if isinstance(ending, Bound):
            self.bound += 1
            self.notices.put(
                notices.Scheduled(uid, target.namespace, target.name, target.allocation.node)
            )
            return
        self.failed += 1
        if ending.code == reasons.API_ERROR:
            self._tell_failed(target, ending)
        self.ctx.log.warning(
            "pod not bound",
            namespace=target.namespace,
            pod=target.name,
            node=target.allocation.node,
            code=ending.code,
            reason=ending.message,
        )

    async def _erase(self, fact: PodObserved) -> None:
        def say(text: str) -> None:
            self.ctx.log.warning(
                "a failed pod still waits for the device plugin and cannot be taken back",
                namespace=fact.namespace,
                pod=fact.name,
                node=fact.node,
                reason=text,
            )

        await erase(self.client, fact.namespace, fact.name, fact.uid, say)

    def _tell_failed(self, target: Target, ending: BindFailed) -> None:
        """Only whoever runs the cluster can cure this, so the pod says what is wrong. Once."""
        uid = target.allocation.uid
        pod = self.world.fold.state.pods.get(uid)
        text = f"{ending.code}: chosen was {ending.node}, but the Binding failed: {ending.message}"
        is_news = pod is not None and pod.bind_failures == 0
        self.notices.put(notices.Refused(uid, target.namespace, target.name, text, is_news))


async def run(ctx: Context) -> None:
    settings = ctx.settings
    ctx.ready("proposals", False, "not listening yet")
    async with open_world(ctx) as world:
        if not settings.bind:
            await _only_decide(ctx, world)
            return
        async with kube.connect(
            settings.kubeconfig, settings.kube_context, concurrency=settings.kube_concurrency
        ) as client:
            work = Binder(ctx, world, client)
            _expose(ctx, work)
            await _live(ctx, world, work.decider, work.run)


async def _only_decide(ctx: Context, world: World) -> None:
    """Decide as ever, and leave what is reserved to another binder, or to nobody."""
    ctx.log.warning("binding is off: pods get their places in the log only")
    decider = Decider(ctx, world, lambda decided, upheld: None)
    _expose_decisions(ctx, decider)

    async def decide_while_active() -> None:
        decider.proposals.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(decider.run)
            await world.lease.lost()
            ctx.log.warning("lease lost, another binder takes over")
            group.cancel_scope.cancel()

    await _live(ctx, world, decider, decide_while_active)


async def _live(
    ctx: Context, world: World, decider: Decider, life: Callable[[], Awaitable[None]]
) -> None:
    """One life after the other, each from getting the lease to losing it."""
    await world.bus.subscribe(subjects.PROPOSAL, decider.on_proposal)
    ctx.ready("proposals", True)
    with ctx.until_stop():
        while True:
            await world.active()
            await life()


def _expose(ctx: Context, work: Binder) -> None:
    _expose_decisions(ctx, work.decider)
    counts = {
        "allot_bound_total": ("pods bound", lambda: work.bound),
        "allot_bind_failed_total": ("Bindings that failed for good", lambda: work.failed),
        "allot_notices_lost_total": (
            "conditions and Events that could not be written",
            lambda: work.notices.lost,
        ),
    }
    for name, (text, read) in counts.items():
        ctx.metrics.expose(name, text, read, kind="counter")


def _expose_decisions(ctx: Context, decider: Decider) -> None:
    ctx.metrics.expose(
        "allot_decisions_total",
        "decisions appended to the log",
        lambda: decider.decided,
        kind="counter",
    )


def main() -> None:
    sys.exit(start_service("allotment-binder", BinderSettings, run, "Decides, binds and records."))


if __name__ == "__main__":
    main()
