"""Virtual time over the production core: facts in, cycles, decisions, all through `apply`.

Every step is an event with a sequence of its own, as the services would have written it, so that a
run can be kept as a log: `allot replay --verify` then makes every decision again.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, run_cycle, stamped
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies.typical import Mix
from allotment.core.reasons import NO_NODES, STEP_NUMBER
from allotment_lab.measures import (
    Wanted,
    capacity_milli,
    fragmented_milli,
    idle_cards,
    node_milli,
)
from allotment_lab.workload import NAMESPACE, START_MS, Arrival
from allotment_proto.events import (
    Bound,
    Decided,
    Envelope,
    Event,
    Evicted,
    Eviction,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    Refusal,
)
from allotment_proto.facts import Policy
from allotment_proto.registry import subject_of

CURVE_POINTS = 400

Sink = Callable[[str, Envelope], None]
"""Called with the subject and the content of every record, in order."""


class Totals(NamedTuple):
    """A run in milli-cards, pods and seconds.

    `allocated_milli` is the state at the end, or the mean over time where pods come and go;
    `fragmented_milli` and `idle_cards` likewise. `curve` holds (arrived, allocated, second) along
    the way, `trace_sha256` is of every placement in order: pod, node, cards. `evicted` pods made
    room for others. `starts` has each pod's name and how many seconds it waited before it first
    had a place, None if it never had one; by uid.
    """

    capacity_milli: int
    arrived_milli: int
    allocated_milli: int
    peak_milli: int
    fragmented_milli: int
    idle_cards: int
    arrived: int
    placed: int
    refused: int
    refusals: dict[str, int]
    waits_s: list[int]
    decisions: int
    trace_sha256: str
    curve: list[tuple[int, int, int]]
    evicted: int = 0
    starts: Mapping[str, tuple[str, int | None]] = {}


class Simulation:
    """A cluster in virtual time. All that can happen: `tell` (a fact), `observe` (a pod appears),
    `decide` (a cycle for one pod), `record` (what another cycle found), `leave`.
    """

    def __init__(
        self,
        nodes: Sequence[NodeObserved],
        policy: Policy,
        make_ranker: Callable[[ClusterState], Ranker],
        *,
        prelude: Iterable[Event] = (),
        sink: Sink | None = None,
    ) -> None:
        """`prelude`: what the log says before the first node, after the policy.

        Device plugins serve every pod at once, so no pod waits for them.
        """
        policy = msgspec.structs.replace(policy, plugin_backlog=0)
        self.state = ClusterState()
        self.now_s = 0
        self.decisions = 0
        self.arrived_milli = 0
        self.allocated_milli = 0
        self.peak_milli = 0
        self.evicted = 0
        self.curve: list[tuple[int, int, int]] = []
        self._sink = sink
        self._trace = hashlib.sha256()
        self._by_node: dict[str, int] = {}
        self._waits_s: list[int] = []
        self._starts: dict[str, tuple[str, int | None]] = {}
        self._arrived = 0
        self._refused: dict[str, str] = {}
        self._points = 0
        self._curve_step = 1
        self._skipped: tuple[int, int, int] | None = None
        """The newest point, where the curve does not have it."""
        loaded = PolicyLoaded(policy=policy, source="simulation", text_sha256="")
        for event in (loaded, *prelude):
            self._emit(event)
        for node in nodes:
            self._emit(node)
        self.wanted = Wanted(nodes)
        self.capacity_milli = capacity_milli(nodes)
        self.ranker = make_ranker(self.state)

    def observe(self, arrival: Arrival) -> str:
        """A pod appears; its uid. One that others placed takes its room at once."""
        now_ms = START_MS + 1000 * self.now_s
        fact = msgspec.structs.replace(arrival.fact, created_ms=now_ms)
        self._emit(fact)
        if fact.node:
            self._weigh(fact.node)
        else:
            self._arrived += 1
            self.arrived_milli += self.wanted.milli(fact.request)
            self._starts[fact.uid] = _name_of(fact), None
        return fact.uid

    def tell(self, event: Event) -> None:
        """A fact about anything but a pod."""
        self._emit(event)

    def decide(self, uid: str) -> bool:
        """One cycle for one pod; whether it found a place."""
        return bool(self.record((uid,), run_cycle(self.state, (uid,), self.ranker)).placements)

    def record(self, batch: tuple[str, ...], outcome: Outcome) -> Decided:
        """What a cycle on the state as it is found is decided; who was placed is bound."""
        state = self.state
        self.decisions += 1
        basis = state.seq
        placements = tuple(stamped(state, outcome.placements, START_MS // 1000 + self.now_s))
        self._note(outcome)
        decided = Decided(
            cycle=f"lab-{self.decisions}",
            basis=basis,
            checked=basis,
            policy=state.policy_seq,
            batch=batch,
            placements=placements,
            refusals=outcome.refusals,
            wholes=outcome.wholes,
            shorts=outcome.shorts,
            admissions=outcome.admissions,
            evictions=outcome.evictions,
            holds=outcome.holds,
            nominations=outcome.nominations,
        )
        if outcome.says_anything:
            self._emit(decided)
        for refusal in outcome.refusals:
            self._refused[refusal.uid] = last_obstacle(refusal)
        decision = state.decision_seq
        for placement in placements:
            uid = placement.uid
            assert uid not in state.voided, "nothing happened since it was chosen"
            fact = state.pods[uid].fact
            bound = Bound(
                uid=uid,
                namespace=fact.namespace,
                name=fact.name,
                node=placement.node,
                decision=decision,
            )
            self._emit(bound)
            self._refused.pop(uid, None)
            wait_s = self.now_s - (fact.created_ms - START_MS) // 1000
            self._waits_s.append(wait_s)
            self._starts[uid] = _name_of(fact), wait_s
            self._weigh(placement.node)
        return decided

    def evict(self, eviction: Eviction) -> None:
        """A pod makes room, as the last decision has it; it ends at once."""
        self.evicted += 1
        evicted = Evicted(
            uid=eviction.uid,
            namespace=eviction.namespace,
            name=eviction.name,
            node=eviction.node,
            decision=self.state.decision_seq,
        )
        self._emit(evicted)
        self.leave(eviction.uid)

    def leave(self, uid: str) -> None:
        """A pod is deleted, wherever it was."""
        pod = self.state.pods[uid]
        fact, held = pod.fact, pod.allocation
        gone = PodGone(uid=uid, namespace=fact.namespace, name=fact.name, rv=fact.rv)
        self._emit(gone)
        if held is not None:
            self._weigh(held.node)

    def point(self, *, is_last: bool = False) -> None:
        """Note where the curve is now; every so often, so that it has a few hundred points, and
        always before nothing happens for a while.
        """
        self._points += 1
        new = self.arrived_milli, self.allocated_milli, self.now_s
        skipped, self._skipped = self._skipped, None
        if skipped is not None and self._is_long(self.now_s - skipped[2]):
            self.curve.append(skipped)
        if self._points % self._curve_step and not is_last:
            self._skipped = new
            return
        self.curve.append(new)
        if len(self.curve) > 2 * CURVE_POINTS:
            del self.curve[1::2]
            self._curve_step *= 2

    def _is_long(self, passed_s: int) -> bool:
        """Whether a picture of the curve shows so short a time."""
        return passed_s * CURVE_POINTS > self.now_s - self.curve[0][2]

    def totals(self, mix: Mix) -> Totals:
        """The run so far; the cluster as it is now."""
        self.point(is_last=True)
        return Totals(
            capacity_milli=self.capacity_milli,
            arrived_milli=self.arrived_milli,
            allocated_milli=self.allocated_milli,
            peak_milli=self.peak_milli,
            fragmented_milli=fragmented_milli(self.state, mix),
            idle_cards=idle_cards(self.state),
            arrived=self._arrived,
            placed=len(self._waits_s),
            refused=self._arrived - len(self._waits_s),
            refusals=dict(sorted(Counter(self._refused.values()).items())),
            waits_s=sorted(self._waits_s),
            decisions=self.decisions,
            trace_sha256=self._trace.hexdigest(),
            curve=self.curve,
            evicted=self.evicted,
            starts=self._starts,
        )

    def _emit(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)
        if self._sink is not None:
            at_ms = START_MS + 1000 * self.now_s
            record = Envelope(at_ms=at_ms, by="lab/0", events=(event,))
            self._sink(subject_of(event), record)

    def _weigh(self, name: str) -> None:
        """Take over what a node's cards now have taken of them."""
        node = self.state.nodes.get(name)
        now = 0 if node is None else node_milli(node)
        self.allocated_milli += now - self._by_node.get(name, 0)
        self._by_node[name] = now
        self.peak_milli = max(self.peak_milli, self.allocated_milli)

    def _note(self, outcome: Outcome) -> None:
        for placement in outcome.placements:
            cards = [holding.card for holding in placement.holdings]
            self._trace.update(msgspec.json.encode((placement.uid, placement.node, cards)))


def _name_of(fact: PodObserved) -> str:
    return fact.name if fact.namespace == NAMESPACE else f"{fact.namespace}/{fact.name}"


def last_obstacle(refusal: Refusal) -> str:
    """The check at which the node failed that came furthest: what a pod is refused for, in one."""
    if refusal.problem is not None:
        return refusal.problem.code
    by_step = ((STEP_NUMBER[code], count, code) for code, count in refusal.reasons)
    furthest = max(by_step, key=lambda found: found[:2], default=None)
    return NO_NODES if furthest is None else furthest[2]
