"""What becomes of a proposal on the newest state: kept, dropped, nothing, or a conflict."""

import msgspec

from allotment.core import reasons
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_binder.deciding import CONFLICT, NOTHING, Deciding, accepted
from allotment_proto.events import Decided, PodGone, StageTime
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests.build import card, decided, node, placement, pod, policy, request, state_of, wants

STAGE = StageTime("binder", "b", 1, 2)
NOW_S = 1_000
HUGE = request(wants(memory_mib=1_000_000))


def propose(state: ClusterState, *uids: str, cycle: str = "c1") -> Proposal:
    outcome = run_cycle(state, uids, Evaluator(state))
    return Proposal(
        v=MESSAGE_VERSION,
        cycle=cycle,
        basis=state.seq,
        policy=state.policy_seq,
        batch=uids,
        placements=outcome.placements,
        refusals=outcome.refusals,
        stages=(StageTime("scorer", "s", 0, 1),),
    )


def decide(state: ClusterState, proposal: Proposal, now_s: int = NOW_S) -> Decided | str:
    return Deciding(state).decide(proposal, now_s, STAGE).decided


def land(state: ClusterState, decision: Decided | str) -> int:
    assert isinstance(decision, Decided), decision
    apply(state, decision, state.seq + 1)
    assert check(state) == []
    return state.seq


def test_a_fresh_proposal_is_decided_with_all_that_it_stood_on() -> None:
    state = state_of(policy(), node(), pod("a"), pod("h", HUGE))
    proposal = propose(state, "a", "h")
    decision = decide(state, proposal)
    assert isinstance(decision, Decided)
    assert (decision.basis, decision.checked, decision.policy) == (4, 4, 1)
    assert decision.batch == ("a", "h")
    assert [p.stamp_s for p in decision.placements] == [NOW_S]
    assert [r.uid for r in decision.refusals] == ["h"]
    assert [stage.stage for stage in decision.stages] == ["scorer", "binder"]
    seq = land(state, decision)
    assert [p.uid for p in accepted(state, decision, seq)] == ["a"]


def test_stamps_grow_on_a_node_even_when_the_clock_stands_still() -> None:
    state = state_of(policy(), node(), pod("a"), pod("b"), pod("c"))
    first = decide(state, propose(state, "a", "b"))
    land(state, first)
    second = decide(state, propose(state, "c"), NOW_S - 50)
    land(state, second)
    assert isinstance(first, Decided)
    assert isinstance(second, Decided)
    stamps = [p.stamp_s for p in (*first.placements, *second.placements)]
    assert stamps == [NOW_S, NOW_S + 1, NOW_S + 2]


def test_the_second_of_two_proposals_for_one_place_loses() -> None:
    state = state_of(policy(), node(cards=[card(0, slots=1)]), pod("a"), pod("b"))
    one, other = propose(state, "a"), propose(state, "b", cycle="c2")
    land(state, decide(state, one))
    assert decide(state, other) == CONFLICT


def test_what_still_stands_of_a_proposal_is_decided_and_the_rest_is_dropped_with_its_reason() -> (
    None
):
    state = state_of(policy(), node("n1"), pod("a"), pod("b"), pod("c"))
    proposal = propose(state, "a", "b", "c")
    apply(state, PodGone(uid="a", namespace="default", name="pod-a", rv=1), 6)
    apply(state, pod("b", rv=2, node="elsewhere"), 7)
    decision = decide(state, proposal)
    assert isinstance(decision, Decided)
    assert [p.uid for p in decision.placements] == ["c"]
    codes = {d.placement.uid: d.code for d in decision.dropped}
    assert codes == {"a": reasons.POD_GONE, "b": reasons.STALE_LEDGER}
    land(state, decision)


def test_a_proposal_that_comes_twice_changes_nothing_the_second_time() -> None:
    """Messages may be doubled: no second reservation, no second refusal for the user to read."""
    state = state_of(policy(), node(), pod("a"), pod("h", HUGE))
    proposal = propose(state, "a", "h")
    land(state, decide(state, proposal))
    assert decide(state, proposal) == CONFLICT
    refusals_only = msgspec.structs.replace(proposal, placements=())
    assert decide(state, refusals_only) == NOTHING


def test_a_pod_twice_in_one_proposal_is_placed_once() -> None:
    state = state_of(policy(), node(), pod("a"))
    proposal = propose(state, "a")
    doubled = msgspec.structs.replace(proposal, placements=proposal.placements * 2)
    decision = decide(state, doubled)
    assert isinstance(decision, Decided)
    assert len(decision.placements) == 1
    assert [d.code for d in decision.dropped] == [reasons.STALE_LEDGER]
    land(state, decision)


def test_refusals_of_pods_that_no_longer_wait_are_not_told() -> None:
    state = state_of(policy(), node(), pod("h", HUGE))
    proposal = propose(state, "h")
    apply(state, pod("h", HUGE, rv=2, deleting=True), 4)
    assert decide(state, proposal) == NOTHING


def test_a_forged_placement_is_never_decided() -> None:
    """Whatever a broken scorer proposes: amounts, cards and nodes are asked for again."""
    state = state_of(policy(), node("n1"), node("n2", unschedulable=True), pod("a"))
    good = propose(state, "a").placements[0]
    forged = {
        "less memory than asked": msgspec.structs.replace(good, memory_bytes=1),
        "no cards": msgspec.structs.replace(good, holdings=()),
        "no such node": msgspec.structs.replace(good, node="n9"),
        "a cordoned node": msgspec.structs.replace(good, node="n2"),
        "no such card": placement("a", "n1", msgspec.structs.replace(good.holdings[0], card="X")),
        "a smaller share": placement(
            "a", "n1", msgspec.structs.replace(good.holdings[0], memory_mib=1)
        ),
        "no such pod": msgspec.structs.replace(good, uid="z"),
    }
    for name, wrong in forged.items():
        proposal = msgspec.structs.replace(propose(state, "a"), placements=(wrong,))
        assert decide(state, proposal) == CONFLICT, name


def test_a_void_placement_is_not_accepted() -> None:
    """A fact landed between the check and the decision: the fold says no, so must the binder."""
    state = state_of(policy(), node(), pod("a"))
    decision = decide(state, propose(state, "a"))
    apply(state, node(rv=2, cpu_milli=50), 4)
    seq = land(state, decision)
    assert isinstance(decision, Decided)
    assert accepted(state, decision, seq) == []
    assert "a" in state.pending


def test_accepted_looks_at_this_decision_only() -> None:
    state = state_of(policy(), node(), pod("a"), decided(placement("a")))
    assert [p.uid for p in accepted(state, decided(placement("a")), 4)] == ["a"]
    assert accepted(state, decided(placement("a")), 3) == []
