"""A batch that is placed on top of another one, which is not decided yet, gets what it would get if
that had been decided.

Random histories as in `test_known_covered_agrees`: lone pods in queues whose limits they come near,
other pods and nodes that change. Wherever a second batch can be placed on top of a first one, the
board and the oracle place it alike, the decision about both keeps every quota, and both are made
again from the log.
"""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.placement.cycle import Outcome, in_order
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment.core.replay.again import check_again, place_again
from allotment_binder.deciding import Deciding, Standing
from allotment_board.board import Board
from allotment_proto.events import Decided, Placement, PolicyLoaded, QueueObserved, StageTime
from allotment_proto.facts import Policy
from allotment_proto.messages import digest_of
from tests import build
from tests.property.batch_cluster import QUEUES, REQUESTS
from tests.property.lone_world import EVICTING, UNGATED, USUAL, Lones

STAGE = StageTime("binder", "b", 1, 2)
FEW = 3
"""How many pods a batch has at most."""


class Pairs(Lones):
    """A world in which two batches are placed, one on top of the other, and then decided."""

    upon = 0
    is_believed = True
    """Whether the last decision followed its proposal."""

    def arrive(self, a: int, b: int, c: int) -> None:
        for _ in range(1 + b):
            self.pods_made += 1
            name, asked = f"l-{self.pods_made}", REQUESTS[(a + self.pods_made) % len(REQUESTS)]
            queue = QUEUES[1] if c == 5 else QUEUES[0]
            seq = self.seq
            self.tell(build.pod(name, asked, name=name, rv=seq, created_ms=seq, queue=queue))

    def two(self, a: int, b: int, c: int) -> None:
        state, waiting = self.state, list(self.state.pending)
        first, second = waiting[: 1 + a % FEW], waiting[1 + a % FEW :][:FEW]
        if not second:
            return
        made, first_basis = self.rounds.run(first, self.board), self.seq
        if c == 0:
            self.stranger(a, b, c)
        basis, policy = self.seq, state.policy_seq
        assumed = in_order(first, made.placements)
        found = self.rounds.run_upon(assumed, second, self.board)
        afresh = Rounds(state).run_upon(assumed, second, Evaluator(state))
        assert msgspec.json.encode(found) == msgspec.json.encode(afresh)
        restored = snapshot.decode(snapshot.encode(state))
        before = self.decision(first_basis, first, made, None, "c1")
        if found is None or before is None or not self.is_believed:
            return
        assert {p.uid for p in found.placements}.isdisjoint(first)
        standing = Standing("c1", made.placements, self.seq, 0)
        if c == 1:
            self.some_node(a, b, b)
        elif not before.dropped and c:
            plain = Rounds(state).run(second, Board(state))
            assert places(plain) == places(found)
        after = self.decision(basis, second, found, standing, "c2", policy)
        if after is None or not after.assumed:
            return
        self.upon += 1
        rounds = Rounds(restored)
        finding, again = place_again(self.seq, after, restored, Board(restored), rounds, before)
        assert finding is None
        assert again is not None

    def decision(
        self,
        basis: int,
        batch: list[str],
        made: Outcome,
        standing: Standing | None,
        cycle: str,
        policy: int = 0,
    ) -> Decided | None:
        """By the binder, which believes it or runs its own round; None if nothing is decided."""
        state = self.state
        proposal = msgspec.structs.replace(
            self.proposal(batch, made, made.placements),
            cycle=cycle,
            basis=basis,
            policy=policy or state.policy_seq,
            assumed=() if standing is None else (standing.cycle,),
            assumed_digest="" if standing is None else digest_of(standing.placements),
        )
        answer = Deciding(state).decide(proposal, 0, STAGE, standing)
        if standing is not None and state.seq == standing.seq:
            assert answer.objection == ""
        decided, self.is_believed = answer.decided, not answer.objection
        if not isinstance(decided, Decided):
            return None
        if decided.assumed:
            finding = check_again(self.seq + 1, decided, 0, state.decision_seq, state, made)
            assert finding is None
        self.tell(decided)
        assert check(state) == []
        return decided


def places(made: Outcome) -> list[tuple[str, str, object, int]]:
    """Who gets what, whatever else was said."""
    found = sorted(made.placements, key=uid_of)
    return [(p.uid, p.node, p.holdings, p.score_micro) for p in found]


def uid_of(placement: Placement) -> str:
    return placement.uid


OPS = (Pairs.two, Pairs.arrive, Pairs.two, Pairs.done, Pairs.two, Pairs.stranger, Pairs.some_node)
NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS), min_size=15, max_size=50
)
LIMITS = st.sampled_from(((), (("cpu", 9_000),), (("cpu", 14_000), ("pods", 7))))


@settings(max_examples=120)
@given(
    STEPS,
    st.sampled_from((*USUAL, *UNGATED, EVICTING)),
    st.lists(LIMITS, min_size=2, max_size=2),
)
def test_what_is_placed_on_top_is_placed_as_after_it(
    steps: list[tuple[int, int, int, int]],
    policy: Policy,
    limits: list[tuple[tuple[str, int], ...]],
) -> None:
    world = Pairs()
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    for name, capability in zip(QUEUES, limits, strict=False):
        world.tell(QueueObserved(uid=name, name=name, rv=9, capability=capability))
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)
