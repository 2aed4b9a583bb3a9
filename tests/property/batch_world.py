"""Filter, rounds and binder on the log of a cluster; each cycle is held against a fresh look."""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.plugins.gang import is_ready
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.views import Views
from allotment.core.queues.session import Session
from allotment_binder.deciding import Deciding, is_overtaken
from allotment_board.board import Board
from allotment_filter.groups import Groups
from allotment_proto.events import Decided, PodObserved, PolicyLoaded, StageTime
from allotment_proto.facts import PodRequest
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests.hunting import every_pod_asked
from tests.property.batch_cluster import POLICIES, Cluster

Op = tuple[int, int, int, int]


class World(Cluster):
    """One log, and all who read it."""

    def __init__(self) -> None:
        super().__init__()
        self.board, self.rounds = Board(self.state), Rounds(self.state)
        self.deciding = Deciding(self.state)
        self.views, self.groups = Views(self.state), Groups(self.state)
        self.tell(PolicyLoaded(policy=POLICIES[0], source="", text_sha256=""))
        self.queue(0, 0, 0)

    def cycle(self, a: int, b: int, c: int) -> None:
        """A cycle, sometimes with a fact between its stages."""
        found = self.groups.next_batch((), 4 + b)
        if found is None:
            return
        meanwhile = c if c < 2 else 0
        uids = found.batch.uids
        basis, made = self.seq, self.round(uids)
        if meanwhile:
            self.stranger(a, b, c)
        session = Rounds(self.state).session()
        decided = self.decide(basis, uids, made)
        if decided is not None:
            if not meanwhile:
                self.check_quotas(session, decided)
            self.check_gangs(decided)
        self.groups.tried(found)

    def round(self, uids: Iterable[str]) -> Outcome:
        """The same by all who could be asked."""
        batch = list(uids)
        found = self.rounds.run(batch, self.board)
        with every_pod_asked():
            afresh = Rounds(self.state).run(batch, Evaluator(self.state))
        assert msgspec.json.encode(found) == msgspec.json.encode(afresh)
        restored = snapshot.decode(snapshot.encode(self.state))
        again = Rounds(restored).run(batch, Board(restored))
        assert msgspec.json.encode(found) == msgspec.json.encode(again)
        assert not Rounds(self.state).leave_out(), "nobody fails"
        return found

    def decide(self, basis: int, batch: tuple[str, ...], found: Outcome) -> Decided | None:
        """By the binder. On the very state it was proposed on it believes all that can be believed
        without a round of its own, and its own round finds the same.
        """
        state, is_fresh = self.state, basis == self.seq
        proposal = Proposal(
            v=MESSAGE_VERSION,
            cycle="c",
            basis=basis,
            policy=state.policy_seq,
            batch=batch,
            placements=found.placements,
            refusals=found.refusals,
            stages=(),
            wholes=found.wholes,
            shorts=found.shorts,
            admissions=found.admissions,
            evictions=found.evictions,
            holds=found.holds,
            nominations=found.nominations,
        )
        assert not is_overtaken(state, proposal)
        answer = self.deciding.decide(proposal, 0, StageTime("binder", "b", 1, 2))
        if is_fresh:
            has_victims = bool(found.evictions or found.nominations)
            assert bool(answer.objection) == has_victims, answer.objection
            assert answer.refused == ()
        decided = answer.decided
        if not isinstance(decided, Decided):
            return None
        assert not is_fresh or not decided.dropped, "on the very state it was proposed on"
        self.tell(decided)
        assert check(self.state) == []
        return decided

    def check_gangs(self, decided: Decided) -> None:
        """Wholes are whole in the state, and who got something has its minimum."""
        state = self.state
        placed = {uid for uid, pod in state.pods.items() if pod.allocation is not None}
        for whole in decided.wholes:
            assert len(placed.intersection(whole)) in (0, len(whole))
        session = Rounds(state).session()
        for key in {state.pods[p.uid].fact.group for p in decided.placements if p.uid in placed}:
            if key:
                assert is_ready(session.jobs[key]), key

    def check_quotas(self, before: Session, decided: Decided) -> None:
        """What was placed is within the queues' limits as they were."""
        taken: dict[str, Counter[str]] = {}
        for pod in self.state.pods.values():
            fact, held = pod.fact, pod.allocation
            ours = bool(fact.group) or fact.scheduler in self.state.policy.scheduler_names
            if held is None or fact.deleting or fact.uid in before_evicting(decided, self.state):
                continue
            if ours and fact.request != PodRequest():  # what asks for nothing needs no quota
                sums = taken.setdefault(self.queue_of(fact), Counter())
                sums.update({"cpu": fact.request.cpu_milli, "pods": 1})
        for placement in decided.placements:
            fact = self.state.pods[placement.uid].fact
            asked = {"pods": 1, "cpu": fact.request.cpu_milli}
            name = self.queue_of(fact)
            if fact.request == PodRequest():
                continue
            assert before.queue(name).state == "Open" or before.plugin("capacity") is None
            for limits in limits_of(before, name):
                for word, amount in asked.items():
                    if amount and word in limits:
                        assert taken[name][word] <= limits[word], (name, word)

    def queue_of(self, fact: PodObserved) -> str:
        if fact.group:
            return self.state.groups[fact.group].queue
        return fact.queue or "default"


def before_evicting(decided: Decided, state: ClusterState) -> set[str]:
    """Pods that were told to go before this decision."""
    return state.evicting.keys() - {eviction.uid for eviction in decided.evictions}


def limits_of(session: Session, name: str) -> list[dict[str, int]]:
    """What the plugins of a session let a queue have, of CPU and pods."""
    found = []
    capacity, proportion = session.plugin("capacity"), session.plugin("proportion")
    if capacity is not None:
        found.append(dict(session.queue(name).capability.items()))
    if isinstance(proportion, Proportion):
        found.append(dict(proportion.deserved[name].items()))
    return [{k: int(v) for k, v in limits.items() if k in ("cpu", "pods")} for limits in found]


def _ops() -> tuple[Callable[[World, int, int, int], None], ...]:
    common = (World.cycle, World.pods, World.cycle, World.pod, World.cycle, World.group)
    return (
        *common,
        World.node,
        World.victims,
        World.queue,
        World.stranger,
        World.policy,
        World.priority_class,
    )


OPS = _ops()
NUMBERS = st.integers(0, 5)
STEP = st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS)
STEPS = st.lists(STEP, min_size=20, max_size=60)
