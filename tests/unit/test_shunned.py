"""A pod whose owner's last one could not start on a card goes elsewhere, if it can."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.snapshot import decode, encode
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck, run_cycle
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment.core.placement.least_busy import careful
from allotment_board.board import Board
from allotment_proto.events import Placement, PodObserved, Refusal
from allotment_proto.facts import Holding, Inventory, Selection
from tests.build import card, holding, node, pod, policy, request, state_of, wants
from tests.recording import Recorder, vgpu
from tests.replaying import verify
from tests.unit.both_rankers import chosen
from tests.unit.device_books import World, adopted, instance, share_node


def failed(uid: str, on: str, card: str, owner: str = "rs") -> Any:
    """A pod of this owner that its device plugin would not start."""
    return pod(
        uid,
        rv=2,
        owner=owner,
        node=on,
        holdings=(holding(card),),
        bind_phase="failed",
        phase="Pending",
    )


def avoiding(*cards: tuple[str, str], nodes: int = 1) -> ClusterState:
    """Nodes of two cards, and an owner `rs` whose pods could not start on these."""
    state = state_of(policy(), *(node(f"n{n}", rv=1) for n in range(1, nodes + 1)))
    for number, (on, failing) in enumerate(cards):
        bound = failed(f"x{number}", on, failing)
        apply(state, msgspec.structs.replace(bound, rv=1, bind_phase="allocating"), state.seq + 1)
        apply(state, bound, state.seq + 1)
        ended = msgspec.structs.replace(bound, rv=3, phase="Failed")
        apply(state, ended, state.seq + 1)
    return state


def card_of(answer: Placement | Refusal) -> str:
    assert isinstance(answer, Placement), answer
    return answer.holdings[0].card


def test_the_owners_next_pod_avoids_the_card_and_nobody_else_does() -> None:
    state = avoiding(("n1", "GPU-0"))
    assert card_of(chosen(state, pod("b", owner="rs"))) == "GPU-1"
    assert card_of(chosen(state, pod("c", owner="other"))) == "GPU-0"
    assert card_of(chosen(state, pod("d"))) == "GPU-0"


def numbered(name: str, family: str) -> Any:
    """A node with one card of a family, known by its number."""
    only = card(0, id="0", slots=8, cores_pct=8, mode="")
    return node(name, inventories=(Inventory(family, "", (only,)),))


def test_a_card_of_the_same_id_on_another_node_is_not_avoided() -> None:
    """Chips and shared cards are known by their numbers, and every node has a card 0."""
    for family in ("vgpu", "gpushare", "mindcluster"):
        state = state_of(policy(), *(numbered(f"n{n}", family) for n in (1, 2)))
        wanted = request(wants(family=family, memory_mib=0, cores_pct=8))
        bound = pod(
            "x", wanted, owner="rs", node="n1", holdings=(Holding(family, 0, "0", 0, 8),), rv=1
        )
        apply(state, bound, state.seq + 1)
        failing = msgspec.structs.replace(bound, rv=2, bind_phase="failed", phase="Pending")
        apply(state, failing, state.seq + 1)
        apply(state, msgspec.structs.replace(failing, rv=3, phase="Failed"), state.seq + 1)
        answer = chosen(state, pod("b", wanted, owner="rs"))
        assert isinstance(answer, Placement), (family, answer)
        assert (answer.node, card_of(answer)) == ("n2", "0")
        assert decode(encode(state)).avoided == state.avoided


def test_if_nothing_else_fits_the_card_will_do() -> None:
    state = avoiding(("n1", "GPU-0"), ("n1", "GPU-1"))
    assert isinstance(chosen(state, pod("b", owner="rs")), Placement)
    two = request(wants(count=2))
    state = avoiding(("n1", "GPU-0"))
    answer = chosen(state, pod("b", two, owner="rs"))
    assert isinstance(answer, Placement)
    assert {h.card for h in answer.holdings} == {"GPU-0", "GPU-1"}


def test_a_refusal_counts_the_nodes_as_if_nothing_were_shunned() -> None:
    state = avoiding(("n1", "GPU-0"))
    answer = chosen(state, pod("b", request(wants(memory_mib=99_999)), owner="rs"))
    assert isinstance(answer, Refusal)
    assert answer.reasons == (("InsufficientGPUMemory", 1),)


def test_a_pod_that_starts_there_clears_the_card() -> None:
    state = avoiding(("n1", "GPU-0"))
    good = pod("g", node="n1", holdings=(holding("GPU-0"),), bind_phase="allocating")
    apply(state, good, state.seq + 1)
    apply(state, msgspec.structs.replace(good, rv=2, bind_phase="success"), state.seq + 1)
    assert careful(pod("b", owner="rs"), state).selection == Selection()


def started(uid: str, rv: int, phase: str = "success") -> PodObserved:
    return msgspec.structs.replace(adopted(uid, instance("", 1_000), rv=rv), bind_phase=phase)


def test_a_pod_that_runs_for_long_says_nothing_of_its_card() -> None:
    world = World(share_node(), started("old", 1, ""), started("old", 2))
    failing = msgspec.structs.replace(started("x", 3, ""), owner="rs", phase="Pending")
    world.tell(failing, msgspec.structs.replace(failing, rv=4, bind_phase="failed"))
    avoided = {"rs": {("n1", "vgpu", "GPU-0"): 5}}
    assert world.state.avoided == avoided
    world.tell(started("old", 5))
    assert world.state.avoided == avoided, "it started before"
    world.tell(started("new", 6, ""), started("new", 7))
    assert world.state.avoided == {}
    world.tell(msgspec.structs.replace(failing, rv=8, bind_phase="failed"))
    assert world.state.avoided == {}, "it failed before"
    assert careful(pod("b", owner="rs"), world.state).selection.avoided == ()


def test_a_pod_that_kubelet_refuses_did_not_start_whatever_the_plugin_says() -> None:
    served = msgspec.structs.replace(started("x", 2), owner="rs", phase="Pending")
    world = World(share_node(), started("x", 1, ""), served)
    refused = {"reason": "UnexpectedAdmissionError", "phase": "Failed"}
    world.tell(msgspec.structs.replace(served, rv=3, **refused))
    assert world.state.avoided == {"rs": {("n1", "vgpu", "GPU-0"): 4}}


def test_what_the_pod_itself_excludes_stays_excluded() -> None:
    state = avoiding(("n1", "GPU-0"))
    mine = request(wants(), selection=Selection(nouse_ids=("GPU-7",)))
    found = careful(pod("b", mine, owner="rs"), state)
    assert found.selection.nouse_ids == ("GPU-7",)
    assert found.selection.avoided == (("n1", "vgpu", "GPU-0"),)
    plain = pod("b", request(), owner="rs")
    assert careful(plain, state) is plain.request


CARDS = st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["GPU-0", "GPU-1"]))


@given(st.lists(CARDS, max_size=3), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_both_rankers_agree_and_the_binder_upholds_what_they_propose(
    cards: list[tuple[str, str]], counts: list[int]
) -> None:
    state = avoiding(*cards, nodes=2)
    for number, count in enumerate(counts):
        wanted = request(wants(memory_mib=6_000, count=count))
        apply(state, pod(f"p{number}", wanted, owner="rs"), state.seq + 1)
    batch = tuple(state.pending)
    plain = run_cycle(state, batch, Evaluator(state))
    assert run_cycle(state, batch, Board(state)) == plain
    trial = Trial(state)
    assert [recheck(state, trial, p) for p in plain.placements] == [None] * len(plain.placements)


def test_a_decision_that_avoided_a_card_is_made_again_from_the_log() -> None:
    log = Recorder()
    log.append("allot.log.config", "watcher", policy(families=("vgpu", "gpushare")))
    log.node("n1", cards=2)
    first = log.pod("first", vgpu(1, 3_000, 20))
    log.decide(first)
    held = log.state.pods[first].allocation
    assert held is not None
    fact = log.state.pods[first].fact
    bad = msgspec.structs.replace(
        fact,
        rv=fact.rv + 1_000,
        owner="rs",
        node=held.node,
        holdings=held.holdings,
        bind_phase="failed",
    )
    log.append("allot.log.facts", "watcher", bad)
    ended = msgspec.structs.replace(bad, rv=bad.rv + 1, phase="Failed")
    log.append("allot.log.facts", "watcher", ended)
    second = log.pod("second", vgpu(1, 3_000, 20))
    again = msgspec.structs.replace(log.state.pods[second].fact, owner="rs")
    log.append("allot.log.facts", "watcher", again)
    log.decide(second)
    taken = log.state.pods[second].allocation
    assert taken is not None
    assert taken.holdings[0].card != held.holdings[0].card
    report = verify(log.records)
    assert (report.decisions, report.identical) == (2, 2), report
