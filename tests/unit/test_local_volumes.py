"""Volumes that are there and wait for their first consumer: a pod of a batch each."""

import random
from itertools import product

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.ledger.volumes import taken
from allotment.core.placement.cycle import Outcome, recheck_all, run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules import selectors
from allotment.core.placement.rules.bounds import bounds_of
from allotment.core.placement.rules.local_volumes import choice, within
from allotment.core.placement.rules.predicates import fits
from allotment.core.queues.order import is_due
from allotment.core.queues.round.verdict import verdict
from allotment_board.board import Board
from allotment_proto.events import BindFailed, Event, NodeObserved, PodGone, PodObserved
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
    (asked,) = verdict(state, state.pods["b"].fact).tries
    codes = [fits(node, asked.request, state.policy) for node in state.nodes.values()]
    assert codes == [reasons.VOLUME_OUT_OF_REACH] * 2


def test_a_pod_without_a_volume_is_asked_again_when_one_is_given_back() -> None:
    """No fact about it changes then: the volume was never its claim's."""
    state = build.state_of(host("n1"), wants("a", D1), wants("b", D1))
    placed, refused = decide(state, "a").placements, decide(state, "a", "b").refusals
    tell(state, build.decided(*placed, refusals=refused))
    tried = state.seq
    assert not is_due(state, state.pods["b"], tried)
    tell(state, PodGone(uid="a", namespace="default", name="pod-a", rv=9))
    assert is_due(state, state.pods["b"], tried)


def test_a_pod_without_a_volume_is_asked_again_when_there_is_one_more() -> None:
    state = build.state_of(host("n1"), host("n2"), wants("a", D1), wants("b", D1))
    placed, refused = decide(state, "a").placements, decide(state, "a", "b").refusals
    tell(state, build.decided(*placed, refusals=refused))
    tried = state.seq
    more = (LocalClaim("b", (D1, D2)),)
    tell(state, build.pod("b", build.request(), local_claims=more, rv=2))
    assert is_due(state, state.pods["b"], tried)
    assert given(decide(state, "b")) == {"b": ("n2", (("b", "d2"),))}


def test_many_claims_that_compete_for_fewer_volumes_are_told_so_at_once() -> None:
    """All orders of eleven volumes are forty million."""
    disks = tuple(disk(f"d{number}", "n1") for number in range(11))
    claims = tuple(LocalClaim(f"c{number}", disks) for number in range(12))
    pod = build.pod("a", build.request(), local_claims=claims)
    state = build.state_of(host("n1"), pod)
    (refusal,) = decide(state, "a").refusals
    assert refusal.reasons == ((reasons.VOLUME_OUT_OF_REACH, 1),)


@pytest.mark.parametrize("seed", range(50))
def test_volumes_are_found_for_all_claims_wherever_there_are_enough(seed: int) -> None:
    dice = random.Random(seed)
    disks = [disk(f"d{number}", "n1") for number in range(dice.randint(1, 5))]
    claims = tuple(
        LocalClaim(f"c{number}", tuple(dice.sample(disks, dice.randint(1, len(disks)))))
        for number in range(dice.randint(1, 4))
    )
    pod = build.pod("a", build.request(), local_claims=claims)
    there = [[volume.name for volume in wanted.volumes] for wanted in claims]
    can_be = any(len(set(names)) == len(names) for names in product(*there))
    found = choice(pod, {"kubernetes.io/hostname": "n1"}, "n1", {})
    assert (found is not None) == can_be
    if found is not None:
        assert [claim for claim, _ in found] == [wanted.claim for wanted in claims]
        assert len({volume for _, volume in found}) == len(claims)
        assert all(volume in names for (_, volume), names in zip(found, there, strict=True))


def test_a_proposal_that_gives_one_volume_to_two_claims_does_not_stand() -> None:
    claims = tuple(LocalClaim(name, (D1, disk("d3", "n1"))) for name in "xy")
    state = build.state_of(host("n1"), build.pod("a", build.request(), local_claims=claims))
    (placement,) = decide(state, "a").placements
    forged = msgspec.structs.replace(placement, volumes=(("x", "d1"), ("y", "d1")))
    assert not recheck_all(state, (forged,), ()).kept


def test_a_volume_stays_given_while_the_pod_that_has_it_changes() -> None:
    state = build.state_of(host("n1"), wants("a", D1))
    tell(state, build.decided(*decide(state, "a").placements))
    tell(state, build.pod("a", build.request(cpu_milli=7), node="n1", rv=2))
    assert taken(state) == {"d1": "default/a"}


def reach(state: ClusterState, pod: PodObserved, given: dict[str, str]) -> tuple[str, ...]:
    """The nodes that the bound of a pod's volumes names."""
    (bound,) = bounds_of(within(pod.request, pod, state, given)).always
    return tuple(name for term in bound.terms for e in term.fields for name in e.values)


def test_looking_for_a_volume_costs_what_the_volumes_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 volumes on 8 of 1,000 nodes: each node is asked about its own terms, once."""
    asked: list[str] = []
    plain = selectors.term_matches

    def counting(term: NodeTerm, labels: dict[str, str], name: str) -> bool:
        asked.append(name)
        return plain(term, labels, name)

    monkeypatch.setattr(selectors, "term_matches", counting)
    disks = tuple(disk(f"d{number}", f"n{number % 8}") for number in range(256))
    pod = wants("a", *disks)
    state = build.state_of(*(host(f"n{number}") for number in range(1000)), pod)
    assert reach(state, pod, {}) == tuple(f"n{number}" for number in range(8))
    assert sorted(asked) == [f"n{number}" for number in range(8)]


@pytest.mark.parametrize("seed", range(60))
def test_the_nodes_within_reach_are_those_on_which_volumes_are_found(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [
        build.node(
            f"n{number}",
            0,
            labels=tuple((key, dice.choice("xyz")) for key in "ab" if dice.random() < 0.8),
        )
        for number in range(6)
    ]

    def expression() -> Expression:
        operator = dice.choice(("In", "In", "In", "NotIn", "Exists"))
        values = tuple(dice.sample("xyz", dice.randint(1, 2))) if operator != "Exists" else ()
        return Expression(dice.choice("ab"), operator, values)

    def term() -> NodeTerm:
        fields: tuple[Expression, ...] = ()
        if dice.random() < 0.2:
            fields = (Expression("metadata.name", "In", (f"n{dice.randrange(6)}",)),)
        return NodeTerm(tuple(expression() for _ in range(dice.randint(0, 2))), fields)

    disks = [
        LocalVolume(f"d{number}", tuple(term() for _ in range(dice.randint(0, 2))))
        for number in range(8)
    ]
    claims = tuple(
        LocalClaim(f"c{number}", tuple(dice.sample(disks, dice.randint(1, 5))))
        for number in range(dice.randint(1, 3))
    )
    given = {f"d{n}": dice.choice(("default/c0", "other/x")) for n in range(8) if n % 3 == seed % 3}
    pod = build.pod("a", build.request(), local_claims=claims)
    state = build.state_of(*nodes, pod)
    one_by_one = [n.name for n in nodes if choice(pod, dict(n.labels), n.name, given) is not None]
    assert list(reach(state, pod, given)) == one_by_one
