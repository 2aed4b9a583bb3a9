"""A whole cluster under virtual time, from one seed: safety at every append, then liveness.

First everything that the drawn faults allow happens to it, in an order that the seed decides. Then
the faults stop, and the world must come to rest with every promise kept: what fits is placed,
nothing stays reserved, and the API server runs exactly what the log says.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from functools import partial

from allotment.core.ledger import snapshot
from allotment.core.logport import AppendResult, Record
from allotment_proto.events import NodeObserved, Placement
from allotment_proto.facts import Holding
from tests import oracle
from tests.memory_log import Append, Fault, MemoryLogCore
from tests.sim import happenings
from tests.sim.actors import Actor, Filter, Scorer, Watcher
from tests.sim.api import Api, as_annotated
from tests.sim.auditor import Auditor, Broken, require
from tests.sim.binder import Binder
from tests.sim.faults import draw
from tests.sim.follower import Follower
from tests.sim.kubelets import Kubelets
from tests.sim.replay import verify

STEPS = 500
ROUNDS_MAX = 4000
QUIET_ROUNDS = 40


class HeedlessLog(MemoryLogCore):
    """A log that takes every append, whatever was expected: the worst bug a log can have."""

    def try_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int | None = None
    ) -> AppendResult:
        return super().try_append(subject, payload, msg_id=msg_id)


class World:
    def __init__(
        self,
        seed: int,
        bugs: frozenset[str] = frozenset(),
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.bugs = bugs
        self.closes = seed % 4 == 3
        """Whether binders close segments of the log."""
        self.now_ms = 1_000_000
        self.faults = draw(self.dice)
        self.policy = happenings.a_policy(self.dice)
        self.say: Callable[[str], None] = say or (lambda text: None)
        self.log = HeedlessLog() if self.has("log takes any append") else MemoryLogCore()
        self.api = Api(refuses_second_binding=not self.has("second Binding is accepted"))
        self.kubelets = Kubelets(self)
        self.auditor = Auditor(
            trusting=self.has("fold does not void"), heedless=self.has("log takes any append")
        )
        self.void_anyway: dict[str, Placement] = {}
        self.gone_nodes: list[NodeObserved] = []
        self._ids = 0
        self._post: list[tuple[int, int, Callable[[], object]]] = []
        names = ("filter-a", "filter-b")[: self.dice.choice((1, 2, 2))]
        self.filters: list[Actor] = [Filter(self, name) for name in names]
        self.scorers: list[Actor] = [Scorer(self, "scorer")]
        binders = ("binder-a", "binder-b")[: 1 if self.faults.forced else 2]
        self.binders: list[Actor] = [Binder(self, name) for name in binders]
        self.watcher = Watcher(self, "watcher")
        self.actors: list[Actor] = [self.watcher, *self.filters, *self.scorers, *self.binders]

    def has(self, bug: str) -> bool:
        return bug in self.bugs

    def run(self) -> None:
        """Raises `Broken` when the world broke a promise."""
        happenings.populate(self)
        for _ in range(STEPS):
            self._tick(self.dice.randint(1, 8))
            happenings.happen(self)
            actor = self.dice.choice(self.actors)
            if self.dice.random() < self.faults.crash:
                self.say(f"{actor.name}: crashes")
                actor.crash()
            actor.step()
        self._settle()
        self._judge()

    # what actors may ask of the world

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def some_snapshot(self) -> bytes | None:
        return self.dice.choice([None, *self.auditor.images])

    def readable(self, follower: Follower) -> int:
        """Up to where a follower gets to read now: its subscription may be behind."""
        last = self.log.last_seq
        if self.dice.random() < self.faults.follower_late:
            return self.dice.randint(min(follower.state.seq, last), last)
        return last

    def append(self, append: Append) -> AppendResult | None:
        """One send. None is "no answer": it may have landed, or may yet."""
        fault = Fault.NONE
        for kind, probability in (
            (Fault.LOST, self.faults.append_lost),
            (Fault.ANSWER_LOST, self.faults.append_answer_lost),
            (Fault.LATE, self.faults.append_late),
        ):
            if self.dice.random() < probability:
                fault = kind
        answer = self.log.send(append, fault)
        verb = "no answer" if answer is None else type(answer).__name__.lower()
        self.say(f"log: {append.subject} {append.msg_id} after @{append.expected_seq}: {verb}")
        self._audit()
        return answer

    def post_binding(
        self, uid: str, node: str, holdings: tuple[Holding, ...], decision: int, stamp_s: int
    ) -> str | None:
        """POST a Binding. None is "no answer"; a late one takes effect later."""
        take = partial(self._take, uid, node, holdings, decision, stamp_s)
        if self.dice.random() < self.faults.bind_denied:
            self.api.denied.add((uid, node))
        elif self.api.denied and self.dice.random() < 0.3:
            self.api.denied.discard(self.dice.choice(sorted(self.api.denied)))
        if self.dice.random() < self.faults.bind_lost:
            return None
        if self.dice.random() < self.faults.bind_late:
            self.later(self.dice.randint(20, self.dice.choice((100, 400, 1_500))), take)
            return None
        answer = take()
        return None if self.dice.random() < self.faults.bind_answer_lost else answer

    def send(self, payload: bytes, to: Sequence[Actor]) -> None:
        """A pipeline message: lost, doubled, late, or simply delivered."""
        for actor in to:
            copies = 1 + (self.dice.random() < self.faults.message_doubled)
            for _ in range(copies):
                if self.dice.random() < self.faults.message_lost:
                    continue
                late = self.dice.random() < self.faults.message_late
                delay_ms = self.dice.randint(50, 500) if late else 1
                self.later(delay_ms, partial(actor.receive, payload))

    # the world's own course

    def erase(self, uid: str) -> int | None:
        """Erase a pod's record; its version then. None is "no answer"."""
        if self.dice.random() < self.faults.bind_lost:
            return None
        version = self.api.erase(uid)
        self.say(f"api: the record of {uid} is erased")
        return version

    def _take(
        self, uid: str, node: str, holdings: tuple[Holding, ...], decision: int, stamp_s: int
    ) -> str:
        answer = self.api.bind(uid, node, holdings, stamp_s)
        if answer == "ok" and uid in self.api.records:
            self.kubelets.hear(uid, node)
        self.say(f"api: bind {uid} to {node} {[h.card for h in holdings]}: {answer}")
        doubled, oversold = self.api.doubled(), self.api.oversold()
        require(not doubled, f"{doubled} run on two nodes")
        require(not oversold, f"more runs on {oversold} than they have")
        if answer == "ok" and (uid, decision) in self.auditor.failed:
            raise Broken(f"{uid} is bound as @{decision} says, which the log says cannot be")
        return answer

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        heapq.heappush(self._post, (self.now_ms + delay_ms, self.next_id(), action))

    def _tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        while self._post and self._post[0][0] <= self.now_ms:
            heapq.heappop(self._post)[2]()
        if self.dice.random() < 0.1:
            self.log.deliver_late()
            self._audit()

    def _audit(self) -> None:
        self.auditor.audit(self.log.records)

    def _settle(self) -> None:
        """No more faults: run until nothing happens any more."""
        self.say("the faults stop")
        self.faults.heal()
        self.api.denied.clear()
        while self._post:
            heapq.heappop(self._post)[2]()
        self.log.deliver_late()
        self._audit()
        quiet = 0
        for _ in range(ROUNDS_MAX):
            before = (self.log.last_seq, self.api.rv, len(self._post))
            self._tick(10)
            worked = [actor.step() for actor in self.actors]
            still = before == (self.log.last_seq, self.api.rv, len(self._post))
            quiet = quiet + 1 if still and not self._post and not any(worked) else 0
            if quiet >= QUIET_ROUNDS:
                return
        raise Broken("the world does not come to rest")

    def _judge(self) -> None:
        """What must hold once everything is quiet."""
        state, model = self.auditor.follower.state, self.auditor.model
        image = snapshot.encode(state)
        for actor in self.actors:
            require(
                snapshot.encode(actor.follower.state) == image, f"{actor.name} sees another world"
            )
        require(_folded(self.log.records) == image, "a fold from zero sees another world")
        rows = [each.closed for each in state.segments.live]
        require([row.number for row in rows] == list(range(1, len(rows) + 1)), "segments skip one")
        require(not self.closes or bool(rows) or not self.binders, "no segment was ever closed")
        require(not state.reserved, f"reserved for ever: {sorted(state.reserved)}")
        left = sorted(self.api.records)
        require(not left, f"the records of {left} would be served to others for ever")
        for uid in state.pending:
            pod = model.pods[uid]
            answer = oracle.decide(model, state.policy, pod) if pod.problem is None else None
            require(not (answer and answer.node), f"{uid} would fit on {answer and answer.node}")
        running = self.api.running()
        booked = {uid: p.allocation for uid, p in state.pods.items() if p.allocation is not None}
        for uid in sorted(running.keys() | booked.keys()):
            runs, held = running.get(uid), booked.get(uid)
            holds = None if held is None else (held.node, as_annotated(held.holdings))
            if runs is not None and held is not None and runs[0] == held.node:
                if held.broken:
                    continue  # what it holds nobody can tell: its node takes nothing
                if held.seq and uid in self.api.strangers:
                    continue  # in doubt a pod on its node is taken for bound by us
            require(runs == holds, f"{uid} runs with {runs}, but the log books {holds}")
        if not self.bugs:
            verify(self.log.records)


def _folded(records: list[Record]) -> bytes:
    follower = Follower()
    follower.follow(records, len(records))
    return snapshot.encode(follower.state)
