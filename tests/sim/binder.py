"""The binder of the simulation: propose → recheck → append → apply → bind → outcome.

A small stand-in for the service's own machine, with the same duties: at most one append in flight;
an unanswered append is sent again until there is an answer; a Binding is posted for what the fold
says is reserved, never for what was merely proposed; an unanswered Binding is posted again, and
until it is answered only a pod that is bound or gone is an ending. Of the pods that a device plugin
cannot tell apart one at a time is bound, and records that would be served to the next are erased
before; both by the service's own rules. Two of them take turns without a lease: one begins while
the other does not know yet that it is over.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from allotment.adapters.log.checkpoints import count_of, digest_of_image, parts_of
from allotment.core import reasons
from allotment.core.explain.rows.acknowledgement import Place, age, is_awaited, plugin_question
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import RESERVED, Allocation
from allotment.core.logport import Landed, Record, Refused
from allotment.core.placement.cycle import recheck, stamped
from allotment.core.placement.evaluator import Trial
from allotment_binder.bindings import obstacle_to
from allotment_binder.deciding import is_overtaken
from allotment_binder.records import Deleted, Erased, Unserved
from allotment_proto import codec, subjects
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Dropped,
    Envelope,
    Event,
    Placement,
    PodGone,
    PodObserved,
    SegmentClosed,
    SegmentClosing,
)
from allotment_proto.facts import Holding
from allotment_proto.messages import MESSAGE_VERSION, Outcome, Proposal, Settled
from tests.memory_log import Append
from tests.pacing import bindable
from tests.sim.actors import Actor
from tests.sim.api import as_annotated
from tests.sim.follower import Follower

if TYPE_CHECKING:
    from tests.sim.world import World


CLOSES = 0.05
"""How probably a segment is closed in a step."""
SEGMENTS_MAX = 6
"""So many are closed: then a world can come to rest."""
PATIENCE = 0.8
"""How probably an obstacle in doubt is waited out once more."""


class Binder(Actor):
    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._reset()

    def _reset(self) -> None:
        self._between()
        self.cut_off_until_ms = 0
        self.unserved = Unserved(lambda: self.world.now_ms / 1000)
        self.unserved.begin(self.follower.state)
        self.deleted = Deleted(lambda: self.world.now_ms / 1000)

    def _between(self) -> None:
        """What a life leaves behind: nothing."""
        self.life = ""
        """The id of the life that it lives, or begins."""
        self.is_active = False
        self.last: dict[str, int] = {}
        """By subject, the last record of this life, as far as it was answered."""
        self.begun: set[str] = set()
        """The subjects on which this life was read to have begun."""
        self.inbox: list[Proposal] = []
        self.in_flight: Append | None = None
        self.cycle = ""
        self.to_bind: dict[str, int] = {}
        """Pods whose Binding is mine to see through → the decision that placed them."""
        self.in_doubt: set[str] = set()
        """Those of them of which a Binding may be under way that nobody has an answer to."""
        self.sent: dict[str, Allocation] = {}
        """Pods whose Binding was sent, until the log says how it ended."""
        self.awaited: dict[str, Allocation] = {}
        """What bound pods hold that their plugin still has to serve, as far as was seen."""
        self.outcomes: list[Event] = []
        self.image: tuple[int, bytes] = (0, b"")
        """The state at the last closing of a segment that was read, with the record's sequence."""
        self.written_off: set[str] = set()
        """Appends that a planted bug took for refused: what they did is nobody's."""

    def crash(self) -> None:
        super().crash()
        if self.world.faults.forced:
            self.follower = Follower()  # a snapshot does not say who was deleted before it
        self._reset()

    def receive(self, payload: bytes) -> None:
        self.inbox.append(codec.decode_message(Proposal, payload))

    def seen(self, seq: int, event: Event) -> None:
        is_held = self.is_active and not self.world.has("forgets the deleted in the line")
        if isinstance(event, PodGone) and is_held:
            self._hold_for(event.uid)
        if isinstance(event, PodObserved | PodGone | Bound | BindFailed):
            self._look(event.uid)
        if not isinstance(event, Decided):
            return
        msg_id = self.world.log.records[seq - 1].msg_id
        is_mine = self.is_active and msg_id.startswith(self.life + "/")
        if not is_mine or msg_id in self.written_off:
            return
        for placement in event.placements:
            pod = self.follower.state.pods.get(placement.uid)
            held = pod.allocation if pod is not None else None
            if self.world.has("binds void placements"):
                self.to_bind[placement.uid] = seq
                self.world.void_anyway[placement.uid] = placement
            elif held is not None and held.seq == seq:
                self.to_bind[placement.uid] = seq

    def read(self, record: Record, envelope: Envelope) -> None:
        """Whether a life of another began after mine; and who was deleted while I live none."""
        if not self.is_active and not self.world.has("forgets the deleted of before"):
            gone = {event.uid for event in envelope.events if isinstance(event, PodGone)}
            ago_ms = self.world.now_ms - envelope.at_ms
            self.deleted.follow(self.follower.state, gone, ago_ms / 1000)
        if self.follower.state.segments.open.closing == record.seq:
            self.image = record.seq, snapshot.encode(self.follower.state)
        if envelope.events or record.subject not in self.last:
            return
        if record.msg_id.startswith(self.life + "/"):
            self.begun.add(record.subject)
        elif record.subject in self.begun and not self.world.has("goes on beside another life"):
            self.world.say(f"{self.name}: {record.msg_id} began after {self.life}")
            self._between()

    def _hold_for(self, uid: str) -> None:
        """Nobody takes the place of a pod that may be bound until its kubelet is past it."""
        served = {**self.awaited, **self.sent}
        mine = served.get(uid)
        question = None if mine is None else plugin_question(mine.holdings)
        if mine is None or question is None:
            return
        ahead = (
            o for o, held in served.items() if held.node == mine.node and age(held) < age(mine)
        )
        self.deleted.hold((mine.node, question), frozenset(ahead))

    def _look(self, uid: str) -> None:
        """Note whether the plugin of a pod's node still has to serve it, and records that stand."""
        state, held = self.follower.state, self.awaited.pop(uid, None)
        self.unserved.look(state, uid, held)
        pod = state.pods.get(uid)
        now = None if pod is None else pod.allocation
        if uid not in state.reserved:
            self.sent.pop(uid, None)
            if pod is not None and now is not None and is_awaited(pod, state.nodes[now.node]):
                self.awaited[uid] = now

    def _erase(self) -> bool:
        """Erase the records that would be served to the next pods; whether there were any."""
        state = self.follower.state
        due = self.unserved.due(state, swap_equal=False)
        for fact in due:
            version = self.world.erase(fact.uid)
            if version is not None:
                self.unserved.erased(state, fact.uid, Erased(version))
        return bool(due)

    def step(self) -> bool:
        moved = self._hears() and self.follow()
        if not self.life and not self._begins():
            return moved
        if self.in_flight is not None:
            self._send()
            return True
        if not self.is_active:
            return self._begin() or moved
        forgets = self.world.has("forgets to erase records")
        if self.world.dice.random() < 0.5 and not forgets and self._erase():
            return True
        held = self.deleted.places(self._may_be_served)
        blocked = held if forgets else held | self.unserved.places(self.follower.state)
        if self.world.has("binds before records are erased"):
            blocked = held
        ready = self._ready(blocked)
        if ready and self.world.dice.random() < 0.7:
            self._bind(ready)
        elif self.outcomes:
            unfenced = self.world.has("outcomes of a life that is over count")
            expected = None if unfenced else self.last[subjects.OUTCOME]
            self._start(subjects.OUTCOME, tuple(self.outcomes), expected)
            self.outcomes = []
            self._send()
        elif self.world.closes and self._close():
            pass
        elif self.inbox and self.inbox[0].basis <= self.follower.state.seq:
            self._decide(self.inbox.pop(0))
        else:
            return moved or bool(held)  # nothing comes to rest before a kubelet is past the deleted
        return True

    def _hears(self) -> bool:
        world = self.world
        if world.dice.random() < world.faults.cut_off:
            self.cut_off_until_ms = world.now_ms + world.dice.randint(100, 1000)
        return not world.faults.cut_off or world.now_ms >= self.cut_off_until_ms

    def _may_be_served(self, uid: str) -> bool:
        """Whether a pod's plugin still has to serve it, as far as is known."""
        return uid in self.awaited or uid in self.sent or uid in self.follower.state.reserved

    def _begins(self) -> bool:
        """Whether it begins a life: when nobody lives, or to the surprise of whoever does."""
        others = any(b is not self and isinstance(b, Binder) and b.life for b in self.world.binders)
        if others and self.world.dice.random() >= self.world.faults.taken_over:
            return False
        self.life = f"{self.name}/life-{self.world.next_id()}"
        return True

    def _begin(self) -> bool:
        """Append the next record of a life's beginning; once all are read, live."""
        written = [subjects.OUTCOME, subjects.DECISION]
        for subject in (*written, subjects.SEGMENT) if self.world.closes else written:
            if subject not in self.last:
                append = Append(subject, self.envelope(), f"{self.life}/{subject}")
                self.last[subject] = 0
                self.in_flight = append
                self._send()
                return True
        if self.follower.state.seq < max(self.last.values()):
            return False
        self.is_active = True
        state = self.follower.state
        for uid in state.reserved:
            held = state.pods[uid].allocation
            assert held is not None
            self.to_bind.setdefault(uid, held.seq)
            self.in_doubt.add(uid)
        return True

    def _close(self) -> bool:
        """Do the next step of closing a segment, now and then; whether there was one."""
        segments = self.follower.state.segments
        now, (seq, image) = segments.open, self.image
        if now.closing and now.closing == seq:
            if now.parts < count_of(image):
                parts = list(parts_of(image, seq))
                self._start(subjects.SEGMENT, (parts[now.parts],), self.last[subjects.SEGMENT])
            else:
                closed = SegmentClosed(
                    number=now.number,
                    at_ms=self.world.now_ms,
                    first_seq=now.first_seq,
                    last_seq=seq,
                    parts=now.parts,
                    image_bytes=len(image),
                    digest=digest_of_image(image),
                    chain="",
                )
                self._start(subjects.CHECKPOINT, (closed,), segments.checkpoint_seq)
        elif now.closing or (
            len(segments.live) < SEGMENTS_MAX and self.world.dice.random() < CLOSES
        ):
            event = SegmentClosing(number=now.number, cause="size")
            self._start(subjects.SEGMENT, (event,), self.last[subjects.SEGMENT])
        else:
            return False
        self._send()
        return True

    def _decide(self, proposal: Proposal) -> None:
        state = self.follower.state
        if is_overtaken(state, proposal):
            self._settled(proposal.cycle, "conflict", 0)
            return
        trial = Trial(state)
        good: list[Placement] = []
        dropped: list[Dropped] = []
        for placement in proposal.placements:
            code = recheck(state, trial, placement)
            if self.world.has("skips the recheck"):
                code = None if placement.node in state.nodes else reasons.STALE_LEDGER
            if code is None:
                good.append(placement)
            else:
                dropped.append(Dropped(placement, code))
        refusals = tuple(r for r in proposal.refusals if r.uid in state.pending)
        if not good and not dropped and not refusals:
            self._settled(proposal.cycle, "nothing", 0)
            return
        decided = Decided(
            cycle=proposal.cycle,
            basis=proposal.basis,
            checked=state.seq,
            policy=proposal.policy,
            batch=proposal.batch,
            placements=tuple(stamped(state, good, self.world.now_ms // 1000)),
            dropped=tuple(dropped),
            refusals=refusals,
        )
        self.cycle = proposal.cycle
        self._start(subjects.DECISION, (decided,), state.decision_seq)
        self._send()

    def _start(self, subject: str, events: tuple[Event, ...], expected: int | None) -> str:
        msg_id = f"{self.life}/{self.world.next_id()}"
        self.in_flight = Append(subject, self.envelope(*events), msg_id, expected)
        return msg_id

    def _send(self) -> None:
        append = self.in_flight
        assert append is not None
        answer = self.world.append(append)
        if answer is None:
            if self.world.has("takes unknown for refused"):
                self.written_off.add(append.msg_id)
                self.in_flight = None
            return
        self.in_flight = None
        answer = self.world.log.settle(append, answer)
        if append.subject == subjects.CHECKPOINT:
            return
        if append.subject in (subjects.OUTCOME, subjects.SEGMENT) or not self.is_active:
            if isinstance(answer, Refused):
                self.world.say(f"{self.name}: another wrote after {self.life}")
                self._between()
            else:
                self.last[append.subject] = answer.seq
            return
        match answer:
            case Landed(seq=seq):
                self._settled(self.cycle, "decided", seq)
            case Refused():
                self._settled(self.cycle, "conflict", 0)

    def _settled(self, cycle: str, outcome: Outcome, seq: int) -> None:
        message = Settled(v=MESSAGE_VERSION, cycle=cycle, outcome=outcome, seq=seq)
        self.world.send(codec.encode(message), self.world.filters)

    def _ready(self, blocked: Collection[Place]) -> list[str]:
        """The pods of `to_bind` whose Binding may be sent now: a plugin can tell them apart."""
        if not self.to_bind:
            return []
        if self.world.has("binds two of one question at once"):
            return list(self.to_bind)
        state = self.follower.state
        ready = {held.uid for held in bindable(state, self.sent, blocked)} | self.sent.keys()
        return [uid for uid in self.to_bind if uid in ready or uid not in state.reserved]

    def _bind(self, ready: list[str]) -> None:
        uid = self.world.dice.choice(ready)
        decision = self.to_bind[uid]
        held = self._reservation(uid, decision)
        if held is None:
            del self.to_bind[uid]
            self.in_doubt.discard(uid)
            return
        node, holdings, stamp_s = held
        answer = self._obstacle(uid, decision)
        if answer == "wait":
            return
        answer = answer or self._answer(uid, node, holdings, decision, stamp_s)
        if answer is None:
            return
        if answer == "gone" and uid in self.in_doubt:
            self._hold_for(uid)
        del self.to_bind[uid]
        self.in_doubt.discard(uid)
        fact = self.follower.state.pods[uid].fact
        if answer == "ok":
            self.outcomes.append(
                Bound(
                    uid=uid,
                    namespace=fact.namespace,
                    name=fact.name,
                    node=node,
                    decision=decision,
                )
            )
            return
        if self.world.has("forgets to release"):
            return
        code = reasons.POD_GONE if answer == "gone" else reasons.BIND_CONFLICT
        self.outcomes.append(
            BindFailed(
                uid=uid,
                namespace=fact.namespace,
                name=fact.name,
                node=node,
                decision=decision,
                code=code,
                message=answer,
                holdings=holdings,
            )
        )

    def _obstacle(self, uid: str, decision: int) -> str | None:
        """Something that makes a Binding pointless ends it, but not while one may be under way:
        then it is waited out for a while (``wait``) before the Binding is sent all the same.
        """
        held = self.follower.state.pods[uid].allocation
        if held is None or held.seq != decision or obstacle_to(self.follower.state, held) is None:
            return None
        if uid not in self.in_doubt or self.world.has("takes an obstacle for an ending in doubt"):
            return "obstacle"
        return "wait" if self.world.dice.random() < PATIENCE else None

    def _answer(
        self, uid: str, node: str, holdings: tuple[Holding, ...], decision: int, stamp_s: int
    ) -> str | None:
        """How a Binding ended, as far as that is known now; None: it is to be sent again."""
        is_sure = uid not in self.in_doubt
        allocation = self.follower.state.pods[uid].allocation
        if allocation is not None:
            self.sent[uid] = allocation
        answer = self.world.post_binding(uid, node, as_annotated(holdings), decision, stamp_s)
        if answer is None and self.world.has("takes an unanswered Binding for refused"):
            return "denied"
        if answer is None:
            self.in_doubt.add(uid)
        if answer == "denied" and not is_sure:
            return answer if self.world.has("takes a refusal for an ending in doubt") else None
        pod = self.world.api.pods.get(uid)
        if answer == "conflict" and pod is not None and pod.node == node:
            is_ours = self.world.api.given[uid] == as_annotated(holdings)
            return "conflict" if is_sure and not is_ours else "ok"
        return answer

    def _reservation(self, uid: str, decision: int) -> tuple[str, tuple[Holding, ...], int] | None:
        """Where to, if it still stands: the fold may have moved on since it was noted."""
        pod = self.follower.state.pods.get(uid)
        if pod is not None and uid in self.world.void_anyway:
            placement = self.world.void_anyway[uid]
            return placement.node, placement.holdings, placement.stamp_s
        held: Allocation | None = pod.allocation if pod is not None else None
        if held is None or held.seq != decision or held.phase != RESERVED:
            return None
        return held.node, held.holdings, held.stamp_s
