"""One active life of the binder: what is reserved is bound, and how it ended is recorded and told.

Besides the decisions (decider.py) a loop binds what the log shows as reserved and the pacer
releases, and evicts victims; one that keeps PodGroups in line with the log;
and one that now and then tells of pods that have been waiting for long.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from allotment.adapters.kube import client as kube
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World, refused_reporter
from allotment.core.explain.history.story import corrected_text
from allotment.core.explain.rows.acknowledgement import Place
from allotment.core.logport import Record
from allotment.core.reasons import cut, refusal_reason, refusal_text
from allotment_binder import notices
from allotment_binder.causes import Causes
from allotment_binder.decider import DECISION_FAILED, Decider
from allotment_binder.fence import Fence
from allotment_binder.gangs import Gangs
from allotment_binder.notices import Notices
from allotment_binder.pacer import Pacer
from allotment_binder.readers import Readers
from allotment_binder.records import Deleted, Unserved, erase, mend
from allotment_binder.sender import Sender
from allotment_binder.settings import BinderSettings
from allotment_binder.troubles import Troubles
from allotment_proto import subjects
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    GroupGone,
    GroupObserved,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    QueueGone,
    QueueObserved,
    Refusal,
    TimePassed,
)

OUTCOMES_GATHER_S = 0.02
"""No pod waits for an outcome, and every record is read by every service."""
WAITS_LOOKED_AT_EVERY_S = 5.0

Context = ServiceContext[BinderSettings]


class Binder:
    """The parts of a binder at work, and its lives, each from getting the lease to losing it."""

    def __init__(
        self, ctx: Context, world: World, client: kube.KubeClient, aside: kube.KubeClient
    ) -> None:
        """`aside` is a client for what must not take a Binding's place: groups and evictions."""
        self.ctx = ctx
        self.world = world
        self.client = client
        self.decider = Decider(ctx, world, self._landed, self._tell_failed)
        self.readers = Readers()
        self.notices = Notices(client, ctx.settings.instance, self.readers)
        rounds = self.decider.rounds
        self.causes = Causes(ctx, world.fold, self.notices, self.readers, rounds)
        self.gangs = Gangs(ctx, world.fold, aside, self.notices, self.readers, self.causes)
        self.troubles = Troubles(self.notices)
        self.unserved = Unserved()
        self.deleted = Deleted()
        self.misdelivered = 0
        self.sender = Sender(ctx, world, client, self.notices, self.troubles, self.deleted)
        self.locks = self.sender.locks
        self.pacer: Pacer | None = None
        """Of the current life; what it does not learn, its successor looks at."""
        world.fold.listeners += (self.readers.on_record, self._on_record)

    def unacknowledged(self) -> dict[tuple[str, ...], int]:
        """By node, the bound pods that its device plugin has not served yet."""
        return {} if self.pacer is None else _by_node(self.pacer.unacknowledged())

    def waiting(self) -> dict[tuple[str, ...], int]:
        """By node, the reserved pods that wait until its device plugin has served another."""
        return {} if self.pacer is None else _by_node(self.pacer.waiting())

    def held(self) -> dict[tuple[str, ...], int]:
        """By node, the questions with which no pod is bound now because of records of others."""
        places = () if self.pacer is None else self._held(self.pacer)
        return _by_node(Counter(node for node, _ in places))

    def forgers(self) -> dict[tuple[str, ...], int]:
        """By node, the pods that write records there with which others are served."""
        nodes = self.world.fold.state.nodes.values()
        return {(node.name,): len(node.forgers) for node in nodes if node.forgers}

    def unacknowledged_s(self) -> dict[tuple[str, ...], int]:
        """By node, for how long its device plugin has not served a bound pod."""
        now_s = time.time_ns() // 1_000_000_000
        oldest = {} if self.pacer is None else self.pacer.oldest_s()
        return _by_node({node: max(now_s - since_s, 0) for node, since_s in oldest.items()})

    def mismatches(self) -> dict[tuple[str, ...], int]:
        """By node, the running pods that claim something else than what is booked for them."""
        return {} if self.pacer is None else _by_node(self.troubles.mismatches())

    def _on_record(self, record: Record, envelope: Envelope) -> None:
        if self.pacer is None:
            self._look_on(envelope)
            return
        for event in envelope.events:
            match event:
                case PodObserved() | PodGone():
                    self._look(self.pacer, event.uid, record.seq, envelope.at_ms)
                case NodeObserved() | NodeGone():
                    self.pacer.look_node(event.name)
                    self.troubles.look_at_cards(self.world.fold.state, event.name)
                case GroupObserved() | QueueObserved():
                    self.troubles.look_at_object(self.world.fold.state, event)
                case GroupGone() | QueueGone():
                    self.troubles.forget_object(event.uid)
                case TimePassed():
                    for uid in event.unserved:
                        pod = self.world.fold.state.pods.get(uid)
                        if pod is not None and pod.allocation is not None:
                            self.pacer.look_node(pod.allocation.node)
                case Bound() | BindFailed() | Corrected():
                    self.pacer.look(event.uid)
                    self.troubles.look_at_claim(self.world.fold.state, event.uid)
                case Decided():
                    for placement in event.placements:
                        self.pacer.look(placement.uid)
                    self.gangs.applied(event, record.seq)
                case _:
                    pass

    def _look_on(self, envelope: Envelope) -> None:
        """Note what the log will no longer show when this binder's turn comes."""
        gone = {event.uid for event in envelope.events if isinstance(event, PodGone)}
        ago_s = max(time.time() - envelope.at_ms / 1000, 0.0)
        self.deleted.follow(self.world.fold.state, gone, ago_s)

    def _look(self, pacer: Pacer, uid: str, seq: int, at_ms: int) -> None:
        state = self.world.fold.state
        self.troubles.look(state, uid, is_erased=self.unserved.is_marked(uid))
        decided = pacer.place_of(uid)
        self.unserved.look(state, uid, pacer.served(uid))
        if decided is not None and uid not in state.pods:
            self.deleted.hold(decided, pacer.served_before(uid))
        self.locks.look(state, uid)
        pacer.look(uid)
        pod = state.pods.get(uid)
        is_done = pod is not None and pod.allocation is not None and pod.allocation.acknowledged
        if decided is not None and is_done and pacer.turn_of(decided):
            self.sender.times.acknowledged(decided, seq, at_ms)

    async def run(self, fence: Fence) -> None:
        """Work until cancelled; settle first what an earlier life left reserved."""
        state = self.world.fold.state
        inherited = set(state.reserved)
        self.readers.begin(state)
        self.unserved.begin(state)
        self.troubles.begin(state)
        self.locks.begin(state)
        pacer = self.pacer = Pacer(state, swap_equal=self.ctx.settings.swap_equal)
        outcomes = Recorder(
            fence,
            f"binder/{self.ctx.settings.instance}",
            lambda _: subjects.OUTCOME,
            self.decider.full,
            refused_reporter(self.ctx),
            gather_s=OUTCOMES_GATHER_S,
        )
        for uid in state.pending:
            refusal = state.pods[uid].refusal
            if refusal is not None:
                self._tell_refused(refusal, is_news=False)
        self.gangs.begin()
        self.decider.proposals.clear()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(outcomes.run)
                group.start_soon(self.notices.run)
                group.start_soon(self.causes.run)
                group.start_soon(self.decider.run)
                group.start_soon(self._bind_loop, group, outcomes, pacer, inherited)
                group.start_soon(self.gangs.statuses.run, self.world.fold)
                group.start_soon(self.gangs.queues.run, self.world.fold)
                group.start_soon(self._watch_waits, pacer)
        finally:
            self.pacer = None

    def _landed(self, decided: Decided, upheld: Sequence[Placement]) -> None:
        for placement in upheld:
            self.causes.withdraw(placement.uid)
        for refusal in decided.refusals:
            self._tell_refused(refusal, is_news=True)
        self.gangs.landed(decided)

    def _tell_failed(self, pod: PodObserved, cause: str) -> None:
        """Say on the pod that the fault is not its owner's."""
        text = cut(
            f"{DECISION_FAILED}: deciding about this pod raised an error: {cause}. "
            "The pod is retried with growing pauses; other pods are not delayed. This is a bug "
            "in Allotment: report it with the log of the binder or scorer"
        )
        self.notices.put(
            notices.Refused(
                pod.uid, pod.namespace, pod.name, text, is_news=True, reason=DECISION_FAILED
            )
        )

    def _tell_refused(self, refusal: Refusal, *, is_news: bool) -> None:
        """Say on the pod why it waits."""
        text = refusal_text(refusal)
        self.causes.put(
            notices.Refused(
                refusal.uid,
                refusal.namespace,
                refusal.name,
                text,
                is_news,
                refusal_reason(refusal),
            )
        )

    async def _bind_loop(
        self, group: TaskGroup, outcomes: Recorder, pacer: Pacer, inherited: set[str]
    ) -> None:
        """Bind what is reserved, as far as pacing allows, and evict, every time the log moved."""
        state = self.world.fold.state
        erasing: set[str] = set()
        sweep = anyio.Lock()
        sending = self.sender.life(group, outcomes, pacer, inherited)
        while True:
            # A record that says that this life is over may have come with what woke this.
            await anyio.lowlevel.checkpoint_if_cancelled()
            for told in self.unserved.corrections(state):
                self._correct(group, outcomes, told)
            for fact in self.unserved.due(state, swap_equal=self.ctx.settings.swap_equal):
                if fact.uid not in erasing:
                    erasing.add(fact.uid)
                    group.start_soon(self._clean, fact, erasing)
            if self.unserved.given_up and not sweep.statistics().locked:
                group.start_soon(self._sweep, sweep)
            self.gangs.start_evictions(group, outcomes)
            for held, wait_s in self.locks.due():
                group.start_soon(self.locks.release, held, wait_s)
            sending.put(pacer.ready(self._held(pacer)))
            with anyio.move_on_after(self.deleted.left_s()):
                await self.world.fold.changed()

    def _correct(self, group: TaskGroup, outcomes: Recorder, told: Corrected) -> None:
        """Say what a pod holds that was served with another one's record."""
        if not told.served and self.ctx.settings.swap_equal:
            return  # pods that may be swapped hold the same
        self.misdelivered += 1
        text = corrected_text(told)
        name = {"namespace": told.namespace, "pod": told.name}
        self.ctx.log.warning("misdelivered", **name, node=told.node, reason=text)
        outcomes.put([told])
        shown = corrected_text(told, is_named=False)
        self.notices.put(
            notices.Warned(told.uid, told.namespace, told.name, told.code, "Allocating", shown)
        )

        def say(why: str) -> None:
            self.ctx.log.warning("what a pod holds cannot be written on it", **name, reason=why)

        if told.holdings != told.was:
            group.start_soon(mend, self.client, told, say)

    def _held(self, pacer: Pacer) -> frozenset[Place]:
        """Where no pod is bound now, as a device plugin would not find the right record."""
        reserved = self.world.fold.state.reserved
        before = self.deleted.places(lambda uid: uid in reserved or pacer.place_of(uid) is not None)
        return self.unserved.places(self.world.fold.state) | before

    async def _clean(self, fact: PodObserved, erasing: set[str]) -> None:
        """Erase a record for which others wait."""
        await self._erase(fact)
        erasing.discard(fact.uid)

    async def _watch_waits(self, pacer: Pacer) -> None:
        while True:
            await anyio.sleep(WAITS_LOOKED_AT_EVERY_S)
            self.troubles.look_at_waits(self.world.fold.state, pacer, time.monotonic())

    async def _sweep(self, sweep: anyio.Lock) -> None:
        """Erase, one after the other, the records that plugins left of pods they gave up."""
        state = self.world.fold.state
        async with sweep:
            while self.unserved.given_up:
                uid = next(iter(self.unserved.given_up))
                await self._erase(state.pods[uid].fact)

    async def _erase(self, fact: PodObserved) -> None:
        def say(text: str) -> None:
            self.ctx.log.warning(
                "the device plugin may serve another pod with this one's record, which cannot be "
                "erased: trying again",
                namespace=fact.namespace,
                pod=fact.name,
                node=fact.node,
                reason=text,
            )

        erased = await erase(self.client, fact, say)
        self.unserved.erased(self.world.fold.state, fact.uid, erased)


def _by_node(values: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    return {(node,): value for node, value in values.items()}
