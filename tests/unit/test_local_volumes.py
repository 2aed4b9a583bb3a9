"""Volumes that are there and wait for their first consumer: a pod of a batch each."""

import pytest

from allotment.core import reasons, snapshot
from allotment.core.board import Board
from allotment.core.cycle import Outcome, recheck_all, run_cycle
from allotment.core.evaluator import Evaluator
from allotment.core.explain_asked import asked_for
from allotment.core.local_volumes import taken
from allotment.core.predicates import fits
from allotment.core.state import ClusterState, apply
from allotment_proto.events import (
    BindFailed,
    Event,
    NodeObserved,
    PodGone,
    PodObserved,
    version_of,
)
from allotment_proto.facts import Expression, LocalClaim, LocalVolume, NodeTerm
from tests import build


def disk(name: str, *nodes: str) -> LocalVolume:
    here = Expression("kubernetes.io/hostname", "In", nodes)
    return LocalVolume(name, (NodeTerm((here,)),))


def host(name: str) -> NodeObserved:
    return build.node(name, 0, labels=(("kubernetes.io/hostname", name),))


def wants(uid: str, *volumes: LocalVolume, claim: str = "") -> PodObserved:
    return build.pod(uid, build.request(), local_claims=(LocalClaim(claim or uid, volumes),))


def decide(state: ClusterState, *batch: str) -> Outcome:
    """What both roads decide."""
    outcome = run_cycle(state, batch, Evaluator(state))
    assert run_cycle(state, batch, Board(state)) == outcome
    return outcome


def given(outcome: Outcome) -> dict[str, tuple[str, tuple[tuple[str, str], ...]]]:
    return {p.uid: (p.node, p.volumes) for p in outcome.placements}


D1, D2 = disk("d1", "n1"), disk("d2", "n2")


def test_pods_of_a_batch_get_a_volume_each_on_its_node() -> None:
    pods = [wants(uid, D1, D2) for uid in "abc"]
    state = build.state_of(host("n1"), host("n2"), host("n3"), *pods)
    outcome = decide(state, "a", "b", "c")
    assert given(outcome) == {"a": ("n1", (("a", "d1"),)), "b": ("n2", (("b", "d2"),))}
    (refusal,) = outcome.refusals
    assert refusal.reasons == ((reasons.VOLUME_OUT_OF_REACH, 3),)
    assert "claim c can be reached" in refusal.notes[0]
    assert recheck_all(state, outcome.placements, ()).kept == outcome.placements
    assert version_of((build.decided(*outcome.placements),)) == 5
    assert version_of((pods[0],)) == 5


def test_a_pod_with_two_claims_gets_two_volumes_of_one_node() -> None:
    on_n1 = disk("d1b", "n1")
    two = build.pod(
        "a",
        build.request(),
        local_claims=(LocalClaim("x", (D1, D2, on_n1)), LocalClaim("y", (D1,))),
    )
    state = build.state_of(host("n1"), host("n2"), two)
    assert given(decide(state, "a")) == {"a": ("n1", (("x", "d1b"), ("y", "d1")))}


def test_pods_that_share_a_claim_share_its_volume() -> None:
    state = build.state_of(
        host("n1"), host("n2"), wants("a", D1, D2, claim="c"), wants("b", D1, D2, claim="c")
    )
    found = given(decide(state, "a", "b"))
    assert found["a"] == found["b"]


def test_what_was_given_is_not_given_again_until_it_is_given_back() -> None:
    state = build.state_of(host("n1"), wants("a", D1), wants("b", D1))
    tell(state, build.decided(*decide(state, "a").placements))
    assert taken(state) == {"d1": "default/a"}
    assert not decide(state, "b").placements
    again = snapshot.decode(snapshot.encode(state))
    assert taken(again) == taken(state)
    assert snapshot.encode(again) == snapshot.encode(state)
    failed = BindFailed(
        uid="a",
        namespace="default",
        name="pod-a",
        node="n1",
        decision=state.decision_seq,
        code="APIError",
        message="",
    )
    tell(state, failed)
    assert given(decide(state, "b")) == {"b": ("n1", (("b", "d1"),))}


def test_of_two_decisions_that_give_the_same_volume_the_second_is_void() -> None:
    """The binder checks on its own state, and the fold is the last referee."""
    state = build.state_of(host("n1"), wants("a", D1), wants("b", D1))
    first, second = decide(state, "a").placements[0], decide(state, "b").placements[0]
    assert [d.code for d in recheck_all(state, (first, second), ()).dropped] == [
        reasons.STALE_LEDGER
    ]
    tell(state, build.decided(first))
    assert not recheck_all(state, (second,), ()).kept
    tell(state, build.decided(second))
    assert set(state.voided) == {"b"}
    assert taken(state) == {"d1": "default/a"}


@pytest.mark.parametrize(
    "now",
    [
        wants("a", D2),  # the other is somebody else's by now
        wants("a", disk("d1", "n2")),
        build.pod("a", build.request()),  # the claim is bound by now
    ],
)
def test_a_placement_does_not_stand_when_its_volume_cannot_be_had_any_more(
    now: PodObserved,
) -> None:
    state = build.state_of(host("n1"), host("n2"), wants("a", D1))
    placements = decide(state, "a").placements
    tell(state, build.pod("a", now.request, local_claims=now.local_claims, rv=2))
    assert not recheck_all(state, placements, ()).kept


def test_a_pod_that_is_gone_holds_no_volume() -> None:
    state = build.state_of(host("n1"), wants("a", D1))
    tell(state, build.decided(*decide(state, "a").placements))
    tell(state, PodGone(uid="a", namespace="default", name="pod-a", rv=9))
    assert taken(state) == {}


def tell(state: ClusterState, event: Event) -> None:
    apply(state, event, state.seq + 1)


def test_an_explanation_asks_for_the_volumes_as_well() -> None:
    state = build.state_of(host("n1"), host("n2"), wants("a", D1), wants("b", D1))
    tell(state, build.decided(*decide(state, "a").placements))
    (asked,) = asked_for(state, state.pods["b"].fact)
    codes = [fits(node, asked.request, state.policy) for node in state.nodes.values()]
    assert codes == [reasons.VOLUME_OUT_OF_REACH] * 2
