"""A claim of access mode ReadWriteOncePod serves one pod at a time, wherever it runs."""

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck_all, run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import PodGone, PodObserved
from allotment_proto.facts import Company
from tests import build
from tests.unit.contest import Contest
from tests.unit.rounds_world import group

CLAIM = "default/one"


def using(uid: str, *claims: str, memory_mib: int = 1_000, **about: str) -> PodObserved:
    company = Company(sole=claims or (CLAIM,))
    request = build.request(build.wants(memory_mib, 0), company=company)
    return build.pod(uid, request, name=uid, **about)


def placed(state: ClusterState, *batch: str) -> Outcome:
    """The same on both roads, and it stands when it is asked for again."""
    found = run_cycle(state, batch, Board(state))
    assert found == run_cycle(state, batch, Evaluator(state))
    assert recheck_all(state, found.placements, ()).kept == found.placements
    return found


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_second_waits_until_the_first_has_ended(is_one_batch: bool) -> None:
    state = build.state_of(build.node("n1", 2), build.node("n2", 2), using("a"), using("b"))
    if is_one_batch:
        found = placed(state, "a", "b")
    else:
        found = placed(state, "a")
        apply(state, build.decided(*found.placements), 9)
        found = placed(state, "b")
        note = f"claim {CLAIM} serves one pod at a time, and pod a has it"
        assert found.refusals[0].notes == (note,)
    assert [refusal.uid for refusal in found.refusals] == ["b"]
    assert found.refusals[0].reasons == ((reasons.CLAIM_IN_USE, 2),)
    if not is_one_batch:
        apply(state, PodGone(uid="a", namespace="default", name="a", rv=9), 10)
        assert [each.uid for each in placed(state, "b").placements] == ["b"]


def test_other_claims_are_no_obstacle() -> None:
    state = build.state_of(
        build.node("n1", 2), using("a"), using("b", "default/other"), build.pod("c")
    )
    assert [each.uid for each in placed(state, "a", "b", "c").placements] == ["a", "b", "c"]


def test_two_proposals_of_one_state_do_not_both_stand() -> None:
    state = build.state_of(build.node("n1", 2), using("a"), using("b"))
    both = *placed(state, "a").placements, *placed(state, "b").placements
    found = recheck_all(state, both, ())
    assert [each.uid for each in found.kept] == ["a"]
    assert [each.code for each in found.dropped] == [reasons.CLAIM_IN_USE]


def test_one_that_outranks_the_user_gets_the_claim_by_preemption() -> None:
    world = Contest(build.node("n1", 1), build.node("n2", 1))
    world.tell(group("low", 0, priority_class="low"))
    world.tell(using("user", group="default/low"))
    world.decide()
    world.run(["user"])
    world.tell(group("top", 1, priority_class="high"))
    world.tell(using("top", group="default/top", priority_class="high"))
    assert [each.uid for each in world.decide().evictions] == ["user"]
