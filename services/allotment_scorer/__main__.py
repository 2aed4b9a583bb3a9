"""The scorer: places a batch in order on its own state and proposes the result to the binder."""

import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import anyio
import anyio.lowlevel

from allotment.adapters.log.bus import BUS, Message
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.world import Abandoned, Ahead, World, open_world
from allotment.adapters.telemetry.kept_gauges import lines_of
from allotment.adapters.telemetry.log import one_line
from allotment.adapters.telemetry.refusals import CAUSE_CHARS_MAX
from allotment.core.explain.causes.why import ASKED_OFTEN, Whys
from allotment.core.explain.history.attempts import Waiting, waiting
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.metrics.cards import Gauge, Rows, node_gauge
from allotment.core.metrics.kept_cards import KeptCards
from allotment.core.metrics.queues import Preemptions, job_gauges, queue_gauges
from allotment.core.metrics.schedule import RoundTimings, Schedules
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import Verdicts
from allotment.core.queues.session import Session
from allotment_board import NodeRanker, is_compiled
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_message, encode
from allotment_proto.events import Decided, Envelope, Evicted, StageTime
from allotment_proto.messages import (
    MESSAGE_VERSION,
    UNDER_WAY_EVERY_S,
    Feasible,
    Proposal,
)
from allotment_scorer.settings import ScorerSettings

CARD_NANO = 10**9
NS_PER_MS = 1_000_000

GAUGES_WAIT_S = 1.0
"""A round that takes longer is not waited for: the page shows queues as they were before."""

Context = ServiceContext[ScorerSettings]


class _Asked(NamedTuple):
    """A cycle that is waiting or being scored."""

    opened: Feasible
    scope: anyio.CancelScope


class Scorer:
    """One proposal per opened cycle. It keeps nothing that the log does not hold.

    Rounds are run off the event loop, one after the other. A cycle that a newer one supersedes is
    dropped, also in the middle of its round; so are all when the lease is lost.
    """

    def __init__(self, ctx: Context, world: World) -> None:
        self.ctx = ctx
        self.world = world
        self.proposals = 0
        self.superseded = 0
        self._asked: list[_Asked] = []
        """In order of arrival; only the first is being scored."""
        self._turn = anyio.Lock()
        self._scored: _Asked | None = None
        """Whose round was begun last."""
        self._ranker: NodeRanker | None = None
        self._rounds: Rounds | None = None
        self._waiting: Mapping[tuple[str, str], Waiting] = {}
        self._preemptions = Preemptions()
        self.schedules = Schedules()
        self.fragmentation: Mapping[tuple[str, ...], float] = {}
        """Idle cards, and those that the mix cannot use; nothing while no mix is known."""
        self.queue_gauges: list[Gauge] = []
        """What queues and groups have and lack; names only while there are no queues."""
        self._timings = RoundTimings(lambda: time.perf_counter_ns() // 1000)
        ctx.metrics.expose_histograms([*self.schedules.histograms(), *self._timings.histograms()])
        world.fold.restored.append(lambda seq, image: self.schedules.pass_by(world.fold.state.pods))
        world.fold.listeners.append(self._on_record)

    def _on_record(self, record: Record, envelope: Envelope) -> None:
        fold = self.world.fold
        is_ours = self.world.lease.is_held and fold.caught_up.is_set()
        seq, time_ms = record.seq, record.time_ns // NS_PER_MS
        self.schedules.take(seq, time_ms, envelope, fold.state, is_ours=is_ours)
        for event in envelope.events:
            if isinstance(event, Decided | Evicted):
                self._preemptions.take(event, is_ours=is_ours)

    async def on_feasible(self, message: Message) -> None:
        """Score a cycle when those before it are over. Others may arrive meanwhile."""
        received_us = _now_us()
        if not self.world.lease.is_held or not self.world.fold.caught_up.is_set():
            return
        try:
            opened = decode_message(Feasible, message.payload)
        except UndecodableError as error:
            self.ctx.refusals.refuse(BUS, "Feasible", error.reason)
            return
        for other in self._asked:
            if other.opened.cycle == opened.cycle:
                return  # the message came twice
            other.scope.cancel()  # the filter opened this one instead
        with anyio.CancelScope() as scope:
            asked = _Asked(opened, scope)
            self._asked.append(asked)
            try:
                async with self._turn:
                    await self._score(asked, message.headers, received_us)
            finally:
                self._asked.remove(asked)
        if scope.cancel_called:
            self.superseded += 1

    async def _score(self, asked: _Asked, headers: dict[str, str], received_us: int) -> None:
        opened = asked.opened
        if not await self.world.fold.reach(opened.basis):
            text = f"cycle {opened.cycle}: its basis {opened.basis} is not in the log"
            self.ctx.refusals.refuse(BUS, "Feasible", text)
            return
        sent: dict[str, str] = {}
        with self.ctx.tracer.batch_span(
            "score",
            headers,
            {"allot.batch.pods": len(opened.batch), "allot.batch.classes": len(opened.classes)},
        ) as span:
            try:
                work = partial(self._propose, asked, received_us)
                proposal = await self.world.fold.off_loop(work)
                await anyio.lowlevel.checkpoint_if_cancelled()  # superseded, as it was ready
            except Abandoned:
                self._forget()
                return
            except Exception as error:  # whatever it is: of this cycle, and not of the next
                self._forget()  # they may have been updated in part only
                self.ctx.refusals.refuse(BUS, "Feasible", error, name=opened.cycle)
                proposal = self._failed(opened, one_line(error))
            span.update(
                {
                    "allot.ledger.seq": proposal.basis,
                    "allot.placed": len(proposal.placements),
                    "allot.refused": len(proposal.refusals),
                }
            )
            span.inject(sent)
            await self.world.bus.publish(subjects.PROPOSAL, encode(proposal), sent)
        self.proposals += 1
        self.ctx.metrics.observe_stage("score", (_now_us() - received_us) / 1e6, span.trace_id)

    async def tell_under_way(self) -> None:
        """Say, for ever, which cycles are being worked on: the filter waits for these."""
        while True:
            await anyio.sleep(UNDER_WAY_EVERY_S)
            for asked in list(self._asked) if self.world.lease.is_held else []:
                proposal = self._nothing(asked.opened, under_way=True)
                await self.world.bus.publish(subjects.PROPOSAL, encode(proposal))

    def _checkpoint(self) -> None:
        """Called in the middle of a round."""
        scored = self._scored
        is_superseded = scored is not None and scored.scope.cancel_called
        if is_superseded or not self.world.lease.is_held or self.ctx.stop.is_set():
            raise Abandoned

    def _propose(self, asked: _Asked, received_us: int) -> Proposal:
        opened, self._scored = asked.opened, asked
        state = self.world.fold.state
        board, rounds = self._ready_ranker(), self._ready_rounds()
        self._timings.begin()
        on_step = self._timings.step_ended
        outcome = rounds.run(opened.batch, board, on_step=on_step)
        stage = StageTime("scorer", self.ctx.settings.instance, received_us, _now_us())
        return Proposal(
            v=MESSAGE_VERSION,
            cycle=opened.cycle,
            basis=state.seq,
            policy=state.policy_seq,
            batch=opened.batch,
            placements=outcome.placements,
            refusals=outcome.refusals,
            wholes=outcome.wholes,
            shorts=outcome.shorts,
            admissions=outcome.admissions,
            holds=outcome.holds,
            evictions=outcome.evictions,
            nominations=outcome.nominations,
            stages=(*opened.stages, stage),
        )

    def _failed(self, opened: Feasible, why: str) -> Proposal:
        """No proposal: the binder says so to the filter and to the pod that it is about."""
        return self._nothing(opened, failed=why[:CAUSE_CHARS_MAX])

    def _nothing(self, opened: Feasible, failed: str = "", *, under_way: bool = False) -> Proposal:
        return Proposal(
            v=MESSAGE_VERSION,
            cycle=opened.cycle,
            basis=opened.basis,
            policy=self.world.fold.state.policy_seq,
            batch=() if under_way else opened.batch,
            placements=(),
            refusals=(),
            failed=failed,
            under_way=under_way,
        )

    async def keep_up(self) -> None:
        """Let the board follow the log as it moves, and the round what nodes offer, so that the
        next cycle need not wait for it.
        """
        fold = self.world.fold
        ahead = Ahead(fold, self.ctx.log, self._forget)
        await fold.caught_up.wait()
        while True:
            at = fold.state.nodes_seq, fold.state.decision_seq
            await ahead.try_to(self._prepare, at)
            if (fold.state.nodes_seq, fold.state.decision_seq) == at:
                await fold.changed()

    def _prepare(self) -> None:
        self._ready_ranker().open_ahead()
        rounds = self._ready_rounds()
        rounds.open_ahead()
        rounds.follow_ahead()

    def _forget(self) -> None:
        self._ranker = self._rounds = None

    def waiting_gauges(self) -> list[Gauge]:
        """The pods that wait, by reason, and for how long the oldest of each is there."""
        found = self._waiting
        now_ms = time.time_ns() // NS_PER_MS
        return _waiting_gauges(
            {key: each.pods for key, each in found.items()},
            {key: max(now_ms - each.oldest_ms, 0) for key, each in found.items()},
        )

    async def read_gauges(self) -> None:
        """Read what needs the ranker or a session, for the page of metrics that comes next."""
        with anyio.move_on_after(GAUGES_WAIT_S):
            await self.world.fold.off_loop(self._read_gauges)

    def _read_gauges(self) -> None:
        state = self.world.fold.state
        verdicts = Verdicts(state, self._ready_rounds())
        self._waiting = waiting(state, Whys(state, ASKED_OFTEN, verdicts))
        found = self._ready_ranker().fragmentation()
        self.fragmentation = (
            {}
            if found is None
            else {
                ("idle",): found.idle_nano / CARD_NANO,
                ("stranded",): found.stranded_nano / CARD_NANO,
            }
        )

        def gauges_of(session: Session | None) -> list[Gauge]:
            return [*queue_gauges(session), *job_gauges(state, session)]

        of_session = self._ready_rounds().ask(gauges_of) if state.is_batched else gauges_of(None)
        self.queue_gauges = [
            *of_session,
            *self._preemptions.gauges(),
            *self.schedules.gauges(state),
        ]

    def _on_broken_compiler(self, reason: str) -> None:
        self.ctx.log.warning("nodes are scored without compiled loops", reason=reason)

    def _ready_rounds(self) -> Rounds:
        state = self.world.fold.state
        if self._rounds is None or self._rounds.state is not state:
            self._rounds = Rounds(state, checkpoint=self._checkpoint)
        return self._rounds

    def _ready_ranker(self) -> NodeRanker:
        state = self.world.fold.state
        if self._ranker is None or self._ranker.state is not state:
            self._ranker = NodeRanker(state, self._on_broken_compiler)
        return self._ranker


async def run(ctx: Context) -> None:
    async with open_world(ctx) as world:
        work = Scorer(ctx, world)
        ctx.metrics.expose(
            "allot_proposals_total", "cycles scored", lambda: work.proposals, kind="counter"
        )
        ctx.metrics.expose(
            "allot_compiled_loops",
            "1 while nodes are scored by compiled loops",
            is_compiled,
        )
        ctx.metrics.expose(
            "allot_gpu_fragmentation_cards",
            "idle parts of cards, and what of them typical pods are not expected to use",
            lambda: work.fragmentation,
            ("part",),
        )
        ctx.metrics.expose_gauges(
            lambda: work.queue_gauges,
            [
                *queue_gauges(None),
                *job_gauges(ClusterState(), None),
                *Preemptions().gauges(),
                *Schedules().gauges(ClusterState()),
            ],
        )
        ctx.metrics.expose_gauges(work.waiting_gauges, _waiting_gauges({}, {}))
        ctx.metrics.expose_gauges(
            lambda: [node_gauge(world.fold.state)], [node_gauge(ClusterState())]
        )
        ctx.metrics.expose(
            "allot_attempts_total",
            "pods that a decision was made about, by what came of it",
            lambda: {(outcome,): count for outcome, count in work.schedules.outcomes.items()},
            ("outcome",),
            "counter",
        )
        ctx.metrics.expose(
            "allot_rejections_total",
            "attempts that gave a pod no place, by the main reason",
            lambda: {(reason,): count for reason, count in work.schedules.rejections.items()},
            ("reason",),
            "counter",
        )
        if ctx.settings.card_metrics:
            fold = world.fold
            ctx.metrics.expose_kept(KeptCards(lambda: fold.state, lines_of))
        ctx.metrics.expose(
            "allot_cycles_superseded_total",
            "cycles that were dropped because the filter had opened another one instead",
            lambda: work.superseded,
            kind="counter",
        )
        ctx.metrics.before_page["allot_gpu_fragmentation_cards"] = work.read_gauges
        async with anyio.create_task_group() as scoring:

            async def on_feasible(message: Message) -> None:
                scoring.start_soon(work.on_feasible, message)

            await world.bus.subscribe(subjects.FEASIBLE, on_feasible)
            scoring.start_soon(work.tell_under_way)
            with ctx.until_stop():
                await work.keep_up()
            scoring.cancel_scope.cancel()


def _waiting_gauges(pods: Rows, oldest_ms: Rows) -> list[Gauge]:
    labels = ("reason", "cured_by")
    return [
        Gauge("allot_pending_pods", "pods that wait for a place, by the reason", labels, pods),
        Gauge(
            "allot_pending_oldest_seconds",
            "how long ago the oldest pod was created that waits for the reason",
            labels,
            oldest_ms,
            divisor=1000,
        ),
    ]


def _now_us() -> int:
    return time.time_ns() // 1000


def main() -> None:
    sys.exit(
        start_service(
            "allotment-scorer", ScorerSettings, run, "Chooses nodes and cards for a batch."
        )
    )


if __name__ == "__main__":
    main()
