"""The binder: the one writer of decisions. Checks again, appends, binds, and records how it ended.

Three loops beside each other: proposals become decisions by compare-and-append, reserved pods
become bound ones through the API server, outcomes and notices are written as they come. A stuck API
server stops the second loop only.
"""

import sys
import time
from collections import deque

import anyio
from anyio.abc import TaskGroup

from allotment.adapters import kube
from allotment.adapters.bus import Message
from allotment.adapters.recorder import Recorder
from allotment.adapters.service import ServiceContext, start_service
from allotment.adapters.world import World, full_reporter, open_world, too_large_reporter
from allotment.core import reasons
from allotment.core.logport import Landed, Record, Refused
from allotment.core.state import RESERVED, Allocation, ClusterState
from allotment.core.texts import refusal_text
from allotment_binder import notices
from allotment_binder.bindings import Target, bind
from allotment_binder.deciding import accepted, decide
from allotment_binder.notices import Notices
from allotment_binder.pacing import bindable
from allotment_binder.records import Unserved, erase
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_message, encode
from allotment_proto.events import (
    ENVELOPE_VERSION,
    BindFailed,
    Bound,
    Decided,
    Envelope,
    PodGone,
    PodObserved,
    StageTime,
)
from allotment_proto.messages import MESSAGE_VERSION, Proposal, Settled

CATCH_UP_S = 2.0
PROPOSALS_WAITING_MAX = 16
FULL_WAIT_S = 1.0

Context = ServiceContext[BinderSettings]


class Binder:
    """One active life of the binder, from getting the lease to losing it."""

    def __init__(self, ctx: Context, world: World, client: kube.KubeClient) -> None:
        self.ctx = ctx
        self.world = world
        self.client = client
        self.proposals: deque[tuple[Proposal, dict[str, str], int]] = deque(
            maxlen=PROPOSALS_WAITING_MAX
        )
        self.decided = 0
        self.bound = 0
        self.failed = 0
        self.notices = Notices(client, ctx.settings.instance)
        self.unserved = Unserved()
        world.fold.listeners.append(self._on_record)
        self._stirred = anyio.Event()
        self._by = f"binder/{ctx.settings.instance}"
        self._full = full_reporter(ctx)

    def _on_record(self, record: Record, envelope: Envelope) -> None:
        for event in envelope.events:
            if isinstance(event, PodObserved | PodGone):
                self.unserved.look(self.world.fold.state, event.uid)

    async def on_proposal(self, message: Message) -> None:
        if not self.world.lease.is_held:
            return
        try:
            proposal = decode_message(Proposal, message.payload)
        except UndecodableError as error:
            self.ctx.log.warning("message passed over", reason=error.reason)
            return
        self.proposals.append((proposal, message.headers, _now_us()))
        self._stirred.set()

    async def run(self) -> None:
        """Work while the lease is held; settle first what an earlier life left reserved."""
        state = self.world.fold.state
        inherited = set(state.reserved)
        self.unserved.begin(state)
        outcomes = Recorder(
            self.world.log,
            self._by,
            lambda _: subjects.OUTCOME,
            self._full,
            too_large_reporter(self.ctx),
        )
        for uid in state.pending:
            refusal = state.pods[uid].refusal
            if refusal is not None:
                text = refusal_text(refusal)
                self.notices.put(
                    notices.Refused(uid, refusal.namespace, refusal.name, text, is_news=False)
                )
        self.proposals.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(outcomes.run)
            group.start_soon(self.notices.run)
            group.start_soon(self._decide_loop)
            group.start_soon(self._bind_loop, group, outcomes, inherited)
            await self.world.lease.lost()
            self.ctx.log.warning("lease lost, another binder takes over")
            group.cancel_scope.cancel()

    async def _decide_loop(self) -> None:
        while True:
            while not self.proposals:
                self._stirred = anyio.Event()
                await self._stirred.wait()
            proposal, headers, received_us = self.proposals.popleft()
            with anyio.move_on_after(CATCH_UP_S):
                await self.world.fold.wait_for(proposal.basis)
            if self.world.fold.state.seq < proposal.basis:
                continue
            with self.ctx.tracer.batch_span(
                "bind", headers, {"allot.batch.pods": len(proposal.batch)}
            ) as span:
                settled = await self._settle(proposal, received_us)
                span.update({"allot.outcome": settled.outcome, "allot.log.seq": settled.seq})
            await self.world.bus.publish(subjects.SETTLED, encode(settled))
            self.ctx.metrics.observe_stage("bind", (_now_us() - received_us) / 1e6)

    async def _settle(self, proposal: Proposal, received_us: int) -> Settled:
        """Append the decision; checked again and retried when another one took its place."""
        fold = self.world.fold
        for attempt in range(self.ctx.settings.decision_retries + 1):
            stage = StageTime("binder", self.ctx.settings.instance, received_us, _now_us())
            at_ms = time.time_ns() // 1_000_000
            decided = decide(fold.state, proposal, at_ms // 1000, stage)
            if not isinstance(decided, Decided):
                return _settled(proposal, decided)
            answer = await self._append(decided, at_ms, attempt)
            if isinstance(answer, Landed):
                await fold.wait_for(answer.seq)
                self._landed(decided, answer.seq)
                return _settled(proposal, "decided", answer.seq)
            if answer.reason in ("full", "too_large"):
                self._full(answer.message)
                await anyio.sleep(FULL_WAIT_S)
                return _settled(proposal, "conflict")
            self.ctx.metrics.append_conflicts.inc()
            await fold.wait_for(answer.last_subject_seq or 0)
        return _settled(proposal, "conflict")

    async def _append(self, decided: Decided, at_ms: int, attempt: int) -> Landed | Refused:
        """One compare-and-append. `at_ms` is the one clock the stamps were made from, too."""
        envelope = Envelope(v=ENVELOPE_VERSION, at_ms=at_ms, by=self._by, events=(decided,))
        return await self.world.log.compare_and_append(
            subjects.DECISION,
            encode(envelope),
            msg_id=f"decision/{self._by}/{decided.cycle}/{decided.checked}.{attempt}",
            expected_seq=self.world.fold.state.decision_seq,
        )

    def _landed(self, decided: Decided, seq: int) -> None:
        self._full("")
        self.decided += 1
        upheld = accepted(self.world.fold.state, decided, seq)
        for placement in upheld:
            self.notices.withdraw(placement.uid)
        for refusal in decided.refusals:
            self.notices.put(
                notices.Refused(
                    refusal.uid, refusal.namespace, refusal.name, refusal_text(refusal), True
                )
            )
        self.ctx.log.info(
            "decided",
            log_seq=seq,
            cycle=decided.cycle,
            placed=len(upheld),
            void=len(decided.placements) - len(upheld),
            dropped=len(decided.dropped),
            refused=len(decided.refusals),
        )

    async def _bind_loop(self, group: TaskGroup, outcomes: Recorder, inherited: set[str]) -> None:
        """Bind what is reserved, as far as pacing allows, every time the log moved."""
        state = self.world.fold.state
        in_flight: dict[str, Allocation] = {}
        ended: set[str] = set()
        erasing: set[str] = set()
        while True:
            erasing &= self.unserved.pods.keys()
            for uid in self.unserved.pods.keys() - erasing:
                erasing.add(uid)
                group.start_soon(self._erase, state.pods[uid].fact)
            for uid in [uid for uid in ended if not _is_reserved(state, in_flight[uid])]:
                ended.discard(uid)
                del in_flight[uid]
            for allocation in bindable(state, in_flight, self.unserved.places()):
                uid = allocation.uid
                in_flight[uid] = allocation
                fact = state.pods[uid].fact
                target = Target(fact.namespace, fact.name, allocation)
                group.start_soon(self._bind, target, outcomes, ended, uid in inherited)
            await self.world.fold.changed()

    async def _bind(
        self, target: Target, outcomes: Recorder, ended: set[str], look_first: bool
    ) -> None:
        uid = target.allocation.uid
        bind_time_s = time.time_ns() // 1_000_000_000
        node = self.world.fold.state.nodes.get(target.allocation.node)
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
        ended.add(uid)
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
    async with (
        open_world(ctx) as world,
        kube.connect(
            settings.kubeconfig, settings.kube_context, concurrency=settings.kube_concurrency
        ) as client,
    ):
        work = Binder(ctx, world, client)
        _expose(ctx, work)
        await world.bus.subscribe(subjects.PROPOSAL, work.on_proposal)
        ctx.ready("proposals", True)
        with ctx.until_stop():
            while True:
                await world.active()
                await work.run()


def _expose(ctx: Context, work: Binder) -> None:
    counts = {
        "allot_decisions_total": ("decisions appended to the log", lambda: work.decided),
        "allot_bound_total": ("pods bound", lambda: work.bound),
        "allot_bind_failed_total": ("Bindings that failed for good", lambda: work.failed),
        "allot_notices_lost_total": (
            "conditions and Events that could not be written",
            lambda: work.notices.lost,
        ),
    }
    for name, (text, read) in counts.items():
        ctx.metrics.expose(name, text, read, kind="counter")


def _is_reserved(state: ClusterState, allocation: Allocation) -> bool:
    """Whether the log does not know yet how this allocation's Binding ended."""
    pod = state.pods.get(allocation.uid)
    return pod is not None and pod.allocation is allocation and allocation.phase == RESERVED


def _settled(proposal: Proposal, outcome: str, seq: int = 0) -> Settled:
    return Settled(v=MESSAGE_VERSION, cycle=proposal.cycle, outcome=outcome, seq=seq)


def _now_us() -> int:
    return time.time_ns() // 1000


def main() -> None:
    sys.exit(start_service("allotment-binder", BinderSettings, run, "Decides, binds and records."))


if __name__ == "__main__":
    main()
