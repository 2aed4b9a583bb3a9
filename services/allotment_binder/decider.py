"""Proposals become decisions: checked again on the newest state, appended by compare-and-append.

One decision append is in flight at a time. What is decided is sent to the filter, and to the
callbacks of the `Decider`; binding it is not done here. A proposal may lead to a round of the
binder's own, so it is decided off the event loop; and it is dropped if the filter opened another
cycle instead.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio
import anyio.lowlevel
from msgspec import UNSET

from allotment.adapters.log.bus import BUS, Message
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import Abandoned, Ahead, World, full_reporter
from allotment.adapters.telemetry.log import one_line
from allotment.core.logport import Landed, Refused
from allotment.core.queues.round.rounds import Rounds
from allotment_binder.deciding import PARTS, Answer, Deciding, accepted
from allotment_binder.decision_line import DecisionLines
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_message, encode
from allotment_proto.events import Decided, Envelope, Placement, PodObserved, StageTime
from allotment_proto.messages import (
    MESSAGE_VERSION,
    UNDER_WAY_EVERY_S,
    Outcome,
    Proposal,
    Settled,
)

PROPOSALS_WAITING_MAX = 16
DECISION_ATTEMPTS = 4
"""How often a decision is made that others overtake: once more on each newer state."""
FULL_WAIT_S = 1.0
DECISION_FAILED = "DecisionFailed"
FAILED_TOLD_MAX = 20
"""How many pods of a group get the notice that nothing can be decided about it."""
REFUSED_SAID_MAX = 20
"""How many refused parts of one proposal a log line names."""

Context = ServiceContext[BinderSettings]
OnLanded = Callable[[Decided, Sequence[Placement]], None]
"""Called with a landed decision, and which of its placements the fold upheld."""
OnFailed = Callable[[PodObserved, str], None]
"""Called with a pod about which nothing can be decided because of an error, and the error."""


class Decider:
    """The queue of proposals and the loop that decides them. `decided` counts decisions, `remade`
    those for which the binder ran the round itself.
    """

    def __init__(
        self,
        ctx: Context,
        world: World,
        on_landed: OnLanded,
        on_failed: OnFailed = lambda pod, cause: None,
    ) -> None:
        self.ctx = ctx
        self.world = world
        self.proposals: deque[tuple[Proposal, dict[str, str], int]] = deque(
            maxlen=PROPOSALS_WAITING_MAX
        )
        self.decided = 0
        self.remade = 0
        self.superseded = 0
        self._now: str = ""
        """The cycle that is being decided."""
        self._refused: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
        self._deciding: Deciding | None = None
        self._on_landed = on_landed
        self._on_failed = on_failed
        self._failing: dict[str, tuple[str, str, str]] = {}
        """Pods about which nothing can be decided: namespace, name and cause."""
        self._stirred = anyio.Event()
        self._lines = DecisionLines(time.monotonic)
        self._by = f"binder/{ctx.settings.instance}"
        self.full = full_reporter(ctx)
        """Hears why the log takes nothing more, and "" when it does again."""

    async def on_proposal(self, message: Message) -> None:
        if not self.world.lease.is_held:
            return
        try:
            proposal = decode_message(Proposal, message.payload)
        except UndecodableError as error:
            self.ctx.refusals.refuse(BUS, "Proposal", error.reason)
            return
        if proposal.under_way:
            await self._tell_under_way(proposal.cycle)
            return
        for waiting in [each for each in self.proposals if each[0].cycle != proposal.cycle]:
            self.proposals.remove(waiting)  # the filter opened this one instead
            self.superseded += 1
        self.proposals.append((proposal, message.headers, _now_us()))
        self._stirred.set()

    async def run(self) -> None:
        """Decide for ever, in order of arrival."""
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._keep_telling)
            try:
                await self._decide_all()
            finally:
                self._now = ""

    async def _decide_all(self) -> None:
        ahead = Ahead(self.world.fold, self.ctx.log, self._forget)
        while True:
            while not self.proposals:
                self._now = ""
                self._stirred = anyio.Event()
                await self._stirred.wait()
            proposal, headers, received_us = self.proposals.popleft()
            self._now = proposal.cycle
            if not await self.world.fold.reach(proposal.basis):
                text = f"cycle {proposal.cycle}: its basis {proposal.basis} is not in the log"
                self.ctx.refusals.refuse(BUS, "Proposal", text)
                continue
            with self.ctx.tracer.batch_span(
                "bind", headers, {"allot.batch.pods": len(proposal.batch)}
            ) as span:
                settled = await self._settle(proposal, received_us)
                span.update({"allot.outcome": settled.outcome, "allot.log.seq": settled.seq})
            await self.world.bus.publish(subjects.SETTLED, encode(settled))
            self.ctx.metrics.observe_stage(
                "bind", (_now_us() - received_us) / 1e6, span.trace_id, settled.seq or None
            )
            # While the filter looks for the next pods.
            await ahead.try_to(
                lambda: self._ready().follow_ahead(), self.world.fold.state.decision_seq
            )

    async def keep_up(self) -> None:
        """Let what decides follow the nodes, so that the next proposal need not wait for it."""
        fold = self.world.fold
        ahead = Ahead(fold, self.ctx.log, self._forget)
        await fold.caught_up.wait()
        while True:
            at = fold.state.nodes_seq
            await ahead.try_to(lambda: self._ready().open_ahead(), at)
            if fold.state.nodes_seq == at:
                await fold.changed()

    async def _keep_telling(self) -> None:
        """Say, for ever, which cycles are being worked on: the filter waits for these."""
        while True:
            await anyio.sleep(UNDER_WAY_EVERY_S)
            for cycle in filter(None, [self._now, *(each[0].cycle for each in self.proposals)]):
                await self._tell_under_way(cycle)

    async def _tell_under_way(self, cycle: str) -> None:
        settled = Settled(v=MESSAGE_VERSION, cycle=cycle, outcome="under_way")
        await self.world.bus.publish(subjects.SETTLED, encode(settled))

    def _forget(self) -> None:
        self._deciding = None

    async def _settle(self, proposal: Proposal, received_us: int) -> Settled:
        """Append the decision; checked again and retried when another one took its place."""
        fold = self.world.fold
        for attempt in range(DECISION_ATTEMPTS):
            stage = StageTime("binder", self.ctx.settings.instance, received_us, _now_us())
            at_ms = time.time_ns() // 1_000_000
            if proposal.failed:
                self._failed(proposal, f"the scorer says {proposal.failed}")
                return _settled(proposal, "failed")
            try:
                answer, previous_seq = await fold.off_loop(
                    partial(self._decide, proposal, at_ms // 1000, stage)
                )
            except Abandoned:  # what was begun is another binder's
                self._forget()
                return _settled(proposal, "conflict")
            except Exception as error:  # whatever it is: of this proposal, and not of the next
                self._forget()  # its board may be half told
                self._failed(proposal, error)
                return _settled(proposal, "failed")
            self._recovered(proposal)
            self._note(proposal, answer)
            decided = answer.decided
            if not isinstance(decided, Decided):
                return _settled(proposal, decided)
            appended = await self._append(decided, at_ms, attempt, previous_seq)
            if isinstance(appended, Landed):
                # What landed is not yet what holds: facts that came between the check and the
                # append can void placements. Nothing is bound before the fold says which.
                await fold.wait_for(appended.seq)
                self._landed(decided, appended.seq)
                return _settled(proposal, "decided", appended.seq)
            if appended.reason in ("full", "too_large"):
                self.full(appended.message)
                await anyio.sleep(FULL_WAIT_S)
                return _settled(proposal, "conflict")
            self.ctx.metrics.append_conflicts.inc()
            # On the same state the same append would be refused again: look once more when the
            # decision that was in the way is folded.
            await fold.wait_for(appended.last_subject_seq or 0)
        return _settled(proposal, "conflict")

    def _decide(self, proposal: Proposal, now_s: int, stage: StageTime) -> tuple[Answer, int]:
        """What to append, and the last decision on the state that this was checked on."""
        answer = self._ready().decide(proposal, now_s, stage)
        return answer, self.world.fold.state.decision_seq

    def _checkpoint(self) -> None:
        """Called in the middle of a round."""
        if not self.world.lease.is_held or self.ctx.stop.is_set():
            raise Abandoned

    def _failed(self, proposal: Proposal, error: Exception | str) -> None:
        """Count and log that nothing can be decided about a proposal. The filter looks for the pod
        or group that it is about by proposing fewer; that one is named, and its pods get a
        notice.
        """
        pods = self.world.fold.state.pods
        facts = [pods[uid].fact for uid in dict.fromkeys(proposal.batch) if uid in pods]
        if len({fact.group or fact.uid for fact in facts}) != 1:
            self.ctx.refusals.refuse(BUS, "Proposal", error, name=proposal.cycle)
            return
        cause = error if isinstance(error, str) else one_line(error)
        for uid in self._failing.keys() - pods.keys():
            self._accept(uid)
        for fact in facts[:FAILED_TOLD_MAX]:
            if self._failing.get(fact.uid, ("", "", ""))[2] == cause:
                continue
            self._failing[fact.uid] = (fact.namespace, fact.name, cause)
            who = {"namespace": fact.namespace, "name": fact.name}
            self.ctx.refusals.refuse(BUS, "Pod", error, **who, uid=fact.uid, stands=True)
            self._on_failed(fact, cause)

    def _recovered(self, proposal: Proposal) -> None:
        if self._failing:
            for uid in proposal.batch:
                self._accept(uid)

    def _accept(self, uid: str) -> None:
        if uid in self._failing:
            namespace, name, _ = self._failing.pop(uid)
            self.ctx.refusals.accept(BUS, "Pod", namespace, name)

    def refused(self) -> Mapping[tuple[str, ...], float]:
        """What was proposed and is not what the binder found itself, by part."""
        return {(part,): count for part, count in self._refused.items()}

    def rounds(self) -> Rounds:
        """Those that are kept on the fold's state."""
        return self._ready().rounds

    def _ready(self) -> Deciding:
        """Deciding on the fold's state, which is another one after the fold began again."""
        state = self.world.fold.state
        if self._deciding is None or self._deciding.state is not state:
            self._deciding = Deciding(state, self._checkpoint)
        return self._deciding

    def _note(self, proposal: Proposal, answer: Answer) -> None:
        """Count and say what of a proposal is not decided."""
        self.remade += bool(answer.objection)
        self._refused.update(each.part for each in answer.refused)
        if answer.refused:
            self.ctx.log.warning(
                "part of a proposal refused: the newest state does not lead to it",
                cycle=proposal.cycle,
                basis=proposal.basis,
                objection=answer.objection,
                refused=[
                    f"{each.part}: {each.about}" for each in answer.refused[:REFUSED_SAID_MAX]
                ],
                more=max(0, len(answer.refused) - REFUSED_SAID_MAX),
            )

    async def _append(
        self, decided: Decided, at_ms: int, attempt: int, previous_seq: int
    ) -> Landed | Refused:
        """One compare-and-append, after the decision `previous_seq`. `at_ms` is the one clock the
        stamps were made from, too.
        """
        head = self.world.fold.chain_at(decided.checked)
        envelope = Envelope(at_ms=at_ms, by=self._by, events=(decided,), chain=head or UNSET)
        # That this life is over may have been read with the state that was checked: then the next
        # decision is another binder's, although what it expects is right.
        await anyio.lowlevel.checkpoint_if_cancelled()
        # Each attempt is a message of its own: under one id the server would take the second for
        # the first sent twice. What it expects is the last decision on the state that was checked.
        return await self.world.log.compare_and_append(
            subjects.DECISION,
            encode(envelope),
            msg_id=f"decision/{self._by}/{decided.cycle}/{decided.checked}.{attempt}",
            expected_seq=previous_seq,
        )

    def _landed(self, decided: Decided, seq: int) -> None:
        self.full("")
        self.decided += 1
        upheld = accepted(self.world.fold.state, decided, seq)
        self._on_landed(decided, upheld)
        fields = self._lines.fields(self.world.fold.state, decided, upheld, seq)
        self.ctx.log.info("decided", **fields)


def _settled(proposal: Proposal, outcome: Outcome, seq: int = 0) -> Settled:
    return Settled(v=MESSAGE_VERSION, cycle=proposal.cycle, outcome=outcome, seq=seq)


def _now_us() -> int:
    return time.time_ns() // 1000
