"""The processes of a world: watcher, filter, scorer. The binder has a file of its own.

Each holds a fold of its own and acts only in `step`, so that the world decides who is when. Losing
a process means losing everything in it except what the log says.
"""

from typing import TYPE_CHECKING

import msgspec

from allotment.core.ledger import claims
from allotment.core.logport import Record
from allotment.core.queues.order import due
from allotment.core.queues.round.rounds import Rounds
from allotment_proto import codec, subjects
from allotment_proto.events import Decided, Envelope, Event, NodeGone, PodGone, PolicyLoaded
from allotment_proto.messages import (
    MESSAGE_VERSION,
    ClassFeasible,
    Feasible,
    Proposal,
    Settled,
)
from tests.memory_log import Append
from tests.sim.api import UNREADABLE
from tests.sim.follower import Follower

if TYPE_CHECKING:
    from tests.sim.world import World

DEADLINE_MS = 80


class Actor:
    """One process. `crash` forgets all; a new fold starts from nothing or from a snapshot."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.follower = Follower()

    def crash(self) -> None:
        self.follower = Follower(self.world.some_snapshot())

    def follow(self) -> bool:
        return self.follower.follow(
            self.world.log.records, self.world.readable(self.follower), self.seen, self.read
        )

    def seen(self, seq: int, event: Event) -> None:
        """Told of every event that the fold took."""

    def read(self, record: Record, envelope: Envelope) -> None:
        """Told of every record that it took."""

    def receive(self, payload: bytes) -> None:
        """A pipeline message."""

    def step(self) -> bool:
        """One piece of work; False when there was none."""
        raise NotImplementedError

    def envelope(self, *events: Event) -> bytes:
        return codec.encode(Envelope(at_ms=self.world.now_ms, by=self.name, events=events))


class Watcher(Actor):
    """Appends a fact wherever its fold differs from the API server; one append at a time."""

    in_flight: Append | None = None

    def crash(self) -> None:
        super().crash()
        self.in_flight = None

    def step(self) -> bool:
        moved = self.follow()
        if self.in_flight is None:
            self.in_flight = self._difference()
        if self.in_flight is None:
            return moved
        if self.world.append(self.in_flight) is not None:
            self.in_flight = None
        return True

    def _difference(self) -> Append | None:
        api, state = self.world.api, self.follower.state
        found: list[tuple[str, str, Event]] = []
        if state.policy != self.world.policy:
            loaded = PolicyLoaded(policy=self.world.policy, source="sim", text_sha256="")
            found.append((f"policy/{state.seq}", subjects.CONFIG, loaded))
        for name, node in api.nodes.items():
            known = state.nodes.get(name)
            if known is None or known.fact is None or known.fact.rv < node.rv:
                found.append((f"node/{node.uid}/{node.rv}", subjects.node(name), node))
        for known in state.nodes.values():
            if known.fact is not None and known.name not in api.nodes:
                gone = NodeGone(name=known.name, uid=known.fact.uid, rv=api.rv)
                found.append(
                    (f"gone/{known.fact.uid}/{state.seq}", subjects.node(known.name), gone)
                )
        for uid, pod in api.pods.items():
            held = state.pods.get(uid)
            if held is None or held.fact.rv < pod.rv:
                counted = claims.within_limits(pod.holdings, pod.request.devices)
                beyond = () if claims.agrees(counted, pod.holdings) else pod.holdings
                is_asked = pod.broken is not None and pod.broken != UNREADABLE
                fact = msgspec.structs.replace(
                    pod,
                    holdings=counted,
                    annotated=beyond,
                    unplaced=pod.request.devices if is_asked else (),
                )
                found.append((f"pod/{uid}/{pod.rv}", subjects.pod(uid), fact))
        for uid, held in state.pods.items():
            if uid not in api.pods:
                last = held.fact
                ended = PodGone(uid=uid, namespace=last.namespace, name=last.name, rv=api.rv)
                found.append((f"gone/{uid}/{state.seq}", subjects.pod(uid), ended))
        if not found:
            return None
        if len(found) > 1 and self.world.dice.random() < 0.3:
            several = found[:4]
            ids = ",".join(msg_id for msg_id, _, _ in several)
            return Append(subjects.FACTS, self.envelope(*(e for _, _, e in several)), ids)
        msg_id, subject, event = self.world.dice.choice(found)
        return Append(subject, self.envelope(event), msg_id)


class Filter(Actor):
    """Opens a cycle for what is due, and now and then a second one before that is over; a cycle
    that does not come back is issued again.
    """

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._reset()

    def _reset(self) -> None:
        self.tried: dict[str, int] = {}
        self.open: dict[str, Feasible] = {}
        self.deadline_ms = 0

    def crash(self) -> None:
        super().crash()
        self._reset()

    def seen(self, seq: int, event: Event) -> None:
        if isinstance(event, Decided) and event.cycle in self.open:
            decided = {p.uid for p in event.placements} | {r.uid for r in event.refusals}
            decided |= {d.placement.uid for d in event.dropped}
            self._close(event.cycle, set(event.batch) - decided, event.basis)

    def receive(self, payload: bytes) -> None:
        settled = codec.decode_message(Settled, payload)
        opened = self.open.get(settled.cycle)
        if opened is None:
            return
        if settled.outcome == "nothing":
            self._close(opened.cycle, set(opened.batch), opened.basis)
        elif settled.outcome == "conflict":
            self._close(opened.cycle, set(), 0)

    def _close(self, cycle: str, unchanged: set[str], basis: int) -> None:
        """A cycle is over; the pods that were refused as before need not be tried again."""
        self.tried.update(dict.fromkeys(unchanged, basis))
        del self.open[cycle]

    def step(self) -> bool:
        moved = self.follow()
        state, world = self.follower.state, self.world
        if self.open and world.now_ms >= self.deadline_ms:
            self.open.clear()
        if self.open:
            return moved
        pods = list(due(state, self.tried))
        if not pods:
            return moved
        first = world.dice.choice((0, 0, world.dice.randrange(len(pods))))
        pods = pods[first:][: world.dice.choice((1, 2, 8))]
        classes: dict[bytes, ClassFeasible] = {}
        for position, pod in enumerate(pods):
            verdicts = self.follower.evaluator.verdicts(pod.fact.request)
            places = sum(not isinstance(v, str) for v in verdicts.values())
            shape = msgspec.msgpack.encode(pod.fact.request)
            classes.setdefault(shape, ClassFeasible(position, places, len(verdicts), ()))
        opened = Feasible(
            v=MESSAGE_VERSION,
            cycle=f"{self.name}/{world.next_id()}",
            basis=state.seq,
            batch=tuple(pod.fact.uid for pod in pods),
            classes=tuple(classes.values()),
        )
        self.open[opened.cycle] = opened
        self.deadline_ms = world.now_ms + DEADLINE_MS
        world.say(f"{self.name}: opens {opened.cycle} at @{state.seq} for {opened.batch}")
        world.send(codec.encode(opened), world.scorers)
        return True


class Scorer(Actor):
    """Places the batch on its own state, which may be newer than the filter's."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._reset()

    def _reset(self) -> None:
        self.inbox: list[Feasible] = []

    def crash(self) -> None:
        super().crash()
        self._reset()

    def receive(self, payload: bytes) -> None:
        self.inbox.append(codec.decode_message(Feasible, payload))

    def step(self) -> bool:
        moved = self.follow()
        state = self.follower.state
        if not self.inbox or self.inbox[0].basis > state.seq:
            return moved  # on an older state than the filter's, a new pod would not even be seen
        asked = self.inbox.pop(0)
        outcome = Rounds(state).run(asked.batch, self.follower.evaluator)
        proposal = Proposal(
            v=MESSAGE_VERSION,
            cycle=asked.cycle,
            basis=state.seq,
            policy=state.policy_seq,
            batch=asked.batch,
            placements=outcome.placements,
            refusals=outcome.refusals,
        )
        self.world.send(codec.encode(proposal), self.world.binders)
        return True
