"""Records of pods that ended unserved: found, in the way, and erased."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.build import decided, holding, node, placement, pod, policy, state_of
from tests.contract.kube_server import client_of, refuse, reply, scripted
from tests.pacing import bindable

from allotment.core.explain.doctor import findings
from allotment.core.explain.rows.acknowledgement import LATE_AFTER_S, standing
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import FORGED_MOST, FORGED_NODES_MAX, Pod
from allotment.core.ledger.pods import adopted
from allotment.core.ledger.state import apply
from allotment_binder.bindings import obstacle_to
from allotment_binder.records import (
    OTHERS_BIND_WITHIN_S,
    PASSED_AFTER_S,
    Deleted,
    Erased,
    Unserved,
    erase,
)
from allotment_proto.events import NodeGone, PodGone, PodObserved
from allotment_proto.facts import Holding, PodRequest
from allotment_proto.observed import Standing

Json = dict[str, Any]


def rejected(**changes: Any) -> PodObserved:
    values = {
        "node": "n1",
        "phase": "Failed",
        "bind_phase": "allocating",
        "holdings": (holding("GPU-0"),),
        "rv": 2,
    }
    return pod("dead", **{**values, **changes})


def seen(**changes: Any) -> Pod:
    return Pod(rejected(**changes), 1)


PLACE = ("n1", ("vgpu", "devices", 1))


def test_only_a_pod_that_waits_no_more_and_left_its_record_is_in_the_way() -> None:
    assert standing(seen(phase="Running")) == PLACE
    assert standing(seen()) == ("n1", ("vgpu", "devices", 1))
    assert standing(seen(phase="Succeeded")) == ("n1", ("vgpu", "devices", 1))
    assert standing(seen(phase="Pending")) is None
    assert standing(seen(bind_phase="success")) is None
    assert standing(seen(bind_phase="failed")) is None
    assert standing(seen(node="")) is None
    assert standing(seen(holdings=())) == PLACE, "its owner may take away what it claims"
    assert standing(seen(holdings=(), request=PodRequest())) is None
    # The plugin for shared memory looks at the phase, and passes over ended pods by itself.
    assert standing(seen(holdings=(Holding("gpushare", 0, "0", 10, 0),))) is None


def test_until_it_is_erased_no_pod_that_could_be_mistaken_is_bound_there() -> None:
    state = state_of(policy(), node("n1"), node("n2"), rejected(), pod("a"), pod("b"), pod("two"))
    both = (holding("GPU-0"), holding("GPU-1"))
    apply(
        state,
        decided(
            placement("a", "n1", stamp_s=1),
            placement("b", "n2", stamp_s=1),
            placement("two", "n1", *both, stamp_s=2),
        ),
        8,
    )
    records = Unserved()
    records.begin(state)

    def free() -> list[str]:
        return [a.uid for a in bindable(state, (), records.places(state))]

    assert free() == ["b", "two"]
    apply(state, rejected(rv=3, bind_phase="failed"), 9)
    records.look(state, "dead")
    assert free() == ["a", "b", "two"]
    apply(state, rejected(rv=4), 10)
    records.look(state, "dead")
    assert free() == ["b", "two"]
    apply(state, PodGone(uid="dead", namespace="default", name="pod-dead", rv=4), 11)
    records.look(state, "dead")
    assert free() == ["a", "b", "two"]


def shown(left: str, phase: str = "allocating", version: str = "16") -> Json:
    annotations = {"volcano.sh/devices-to-allocate": left, "volcano.sh/bind-phase": phase}
    metadata = {"uid": "dead", "resourceVersion": version, "annotations": annotations}
    return {"metadata": metadata}


LEFT = "GPU-0,NVIDIA,1000,10:"


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking")
async def test_erasing_goes_on_until_it_is_done_or_the_pod_is_gone(tmp_path: Path) -> None:
    problems: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(
            refuse(403, "Forbidden", "may not get"),
            reply(shown(LEFT)),
            refuse(409, "Conflict", "changed"),
            reply(shown(LEFT, version="17")),
            reply(shown("", "failed", "18")),
        )
        assert await erase(client, rejected(), problems.append) == Erased(18)
        assert problems == ["may not get"]
        assert script.requests[4].path == "/api/v1/namespaces/default/pods/pod-dead/status"
        assert script.bodies[-1] == {
            "metadata": {
                "uid": "dead",
                "resourceVersion": "17",
                "annotations": {
                    "volcano.sh/devices-to-allocate": "",
                    "volcano.sh/bind-phase": "failed",
                },
            }
        }
        script.then(refuse(404, "Gone"))
        assert await erase(client, rejected(), problems.append) == Erased(0)
        another = shown(LEFT)
        another["metadata"]["uid"] = "another"
        script.then(reply(another))
        assert await erase(client, rejected(), problems.append) == Erased(0)
    assert len(problems) == 1


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking")
async def test_a_plugin_that_was_quicker_is_noticed(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        for left, phase, was_taken in (("", "success", True), ("", "failed", False)):
            script.then(reply(shown(left, phase)))
            assert await erase(client, rejected(), print) == Erased(16, was_taken)


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking")
async def test_a_pod_that_runs_is_not_said_to_have_failed(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply(shown(LEFT)), reply(shown("", "success")))
        assert await erase(client, rejected(phase="Running"), print) == Erased(16)
        annotations = script.bodies[-1]["metadata"]["annotations"]
        assert annotations["volcano.sh/bind-phase"] == "success"


def test_what_is_older_than_the_erasing_is_no_news() -> None:
    state = state_of(policy(), node("n1"), rejected(rv=5))
    records = Unserved()
    records.begin(state)
    assert records.places(state) == {PLACE}
    records.erased(state, "dead", Erased(7))
    assert records.places(state) == frozenset()
    apply(state, rejected(rv=6, labels=(("a", "b"),)), 9)
    records.look(state, "dead")
    assert not records.strays
    apply(state, rejected(rv=8), 10)
    records.look(state, "dead")
    assert records.places(state) == {PLACE}


def test_whoever_writes_records_anew_for_ever_has_his_node_left_alone() -> None:
    """Each is erased, and nobody is bound past one; nobody waits there for the last word either."""
    state = state_of(policy(), node("n1"), node("n2"), rejected(), pod("a"))
    apply(state, decided(placement("a", "n1", holding("GPU-1"))), 6)
    records = Unserved()
    records.begin(state)
    version = 2
    for _ in range(FORGED_MOST):
        assert records.places(state) == {PLACE}
        assert state.nodes["n1"].blocked is None
        records.erased(state, "dead", Erased(version + 1))
        apply(state, rejected(rv=version + 1, bind_phase="success"), state.seq + 1)
        apply(state, rejected(rv=version + 2), state.seq + 1)
        records.look(state, "dead")
        version += 2
    assert records.strays, "it is erased all the same"
    assert records.places(state) == frozenset()
    assert state.nodes["n1"].blocked == "RecordForged"
    reserved = state.pods["a"].allocation
    assert reserved is not None
    assert obstacle_to(state, reserved) is not None, "what waited there goes elsewhere"
    assert check(state) == []
    twin = snapshot.decode(snapshot.encode(state))
    assert twin.nodes["n1"].blocked == "RecordForged"
    assert snapshot.encode(twin) == snapshot.encode(state)
    (found,) = [f for f in findings(state, 0) if f.subject == "pod default/pod-dead"][:1]
    assert (found.severity, found.code) == ("error", "RecordForged")
    assert "nothing is placed on n1 until this pod is deleted" in found.message
    apply(state, PodGone(uid="dead", namespace="default", name="pod-dead", rv=99), state.seq + 1)
    assert state.nodes["n1"].blocked is None
    assert obstacle_to(state, reserved) is None


FORGED = Standing("n1", "vgpu", 1, (holding("GPU-1", 16_000, 100),))


def test_one_pod_has_one_node_left_alone_at_a_time() -> None:
    """A pod that named each of three nodes once closed all three, and made-up names were kept."""
    names = [f"n{number}" for number in range(1, 5)]
    state = state_of(policy(), *(node(name) for name in names))
    apply(state, pod("t", PodRequest(), node="n1", phase="Running"), 20)

    def forge(name: str) -> list[str]:
        there = msgspec.structs.replace(FORGED, node=name)
        fact = pod("t", PodRequest(), node="n1", phase="Running", rv=state.seq, standing=there)
        apply(state, fact, state.seq + 1)
        twin = snapshot.decode(snapshot.encode(state))
        assert snapshot.encode(twin) == snapshot.encode(state)
        closed = [found for found in names if state.nodes[found].blocked]
        assert closed == [found for found in names if twin.nodes[found].blocked]
        return closed

    assert [forge(name) for name in ("n1", "n2", "n3")] == [[], [], ["n3"]]
    assert forge("n1") == ["n1"], "it follows the record, also where it comes back to"
    for number in range(40):
        assert forge(f"made-up-{number}") == []
    assert len(state.pods["t"].forged or ()) == FORGED_NODES_MAX
    assert forge("n2") == ["n2"]
    apply(state, NodeGone(name="n2", uid="uid-n2", rv=9), state.seq + 1)
    apply(state, node("n2", rv=99), state.seq + 1)
    assert state.nodes["n2"].blocked == "RecordForged", "also when the node comes back"
    apply(state, PodGone(uid="t", namespace="default", name="pod-t", rv=99), state.seq + 1)
    assert [name for name in names if state.nodes[name].blocked] == []
    assert state.forging == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"scheduler": "other"},
        {"scheduler": "other", "node": "n2", "phase": "Running"},
        {"scheduler": "other", "node": "n1"},
        {"phase": "Running", "node": "n1", "bind_phase": "success"},
        {},
    ],
)
def test_a_record_that_nobody_gave_is_in_the_way_on_whatever_pod(changes: Json) -> None:
    thief = pod("t", PodRequest(), **changes)
    state = state_of(policy(), node("n1"), node("n2"), pod("v"))
    apply(state, decided(placement("v", "n1", holding("GPU-0"))), 3)
    records = Unserved()
    apply(state, msgspec.structs.replace(thief, rv=2, standing=FORGED), 4)
    records.look(state, "t")
    assert records.places(state) == {PLACE}
    assert [fact.uid for fact in records.due(state, swap_equal=False)] == ["t"]
    served: Json = {"node": "n1", "phase": "Running", "bind_phase": "allocating"}
    held = state.pods["v"].allocation
    apply(state, pod("v", rv=3, holdings=(holding("GPU-0"),), **served), 5)
    records.look(state, "v", held)
    records.erased(state, "t", Erased(9, was_taken=True))
    (told,) = records.corrections(state)
    assert told.served == "default/pod-t"
    assert told.holdings == (holding("GPU-0"), *FORGED.holdings), "what it got, not what he has"
    apply(state, told, 6)
    found = {(one.subject, one.code): one for one in findings(state, 0)}
    assert ("pod default/pod-t", "RecordForged") in found
    assert "did nothing wrong" in found["pod default/pod-v", "Misdelivered"].remedy


def test_a_record_that_was_written_anew_after_it_was_erased_may_be_served_too() -> None:
    world = Told()
    stood = {"node": "n1", "phase": "Running", "bind_phase": "success"}
    for rv in (101, 103):
        thief = pod("t", PodRequest(), rv=rv, node="n1", phase="Running", standing=FORGED)
        apply(world.state, thief, world.state.seq + 1)
        world.records.look(world.state, "t")
        if rv == 101:
            world.records.erased(world.state, "t", Erased(102))
    world.rv = 103
    world.see("b", "Running", "allocating")
    assert world.corrections() == [], "nobody knows yet whether it was taken"
    apply(world.state, pod("t", PodRequest(), rv=104, **stood), world.state.seq + 1)
    world.records.look(world.state, "t")
    assert world.corrections() == [("b", "Misdelivered", ("GPU-1", "GPU-1"))]


def test_another_scheduler_is_given_the_time_to_bind_what_it_wrote() -> None:
    now_s = 100.0
    theirs = pod("t", PodRequest(), scheduler="volcano", card_resources=("volcano.sh/vgpu-number",))
    theirs = msgspec.structs.replace(theirs, standing=FORGED)
    state = state_of(policy(), node("n1"), theirs)
    records = Unserved(lambda: now_s)
    records.look(state, "t")
    assert records.places(state) == {PLACE}
    assert records.due(state, swap_equal=False) == []
    now_s += OTHERS_BIND_WITHIN_S
    assert [fact.uid for fact in records.due(state, swap_equal=False)] == ["t"]
    bound = msgspec.structs.replace(theirs, rv=3, node="n1", card_resources=(), standing=None)
    apply(state, bound, 9)
    records.look(state, "t")
    assert not records.places(state)
    assert state.pods["t"].forged is None


@pytest.mark.parametrize("scheduler", ["other", "allotment"])
def test_who_is_served_with_a_record_of_his_own_making_is_booked_with_it(scheduler: str) -> None:
    """The plugin looks at nothing else; and he holds no more cards than kubelet asks for."""
    bound = pod("t", scheduler=scheduler, rv=2, node="n1", bind_phase="allocating")
    state = state_of(policy(), node("n1"), *([pod("t")] * (scheduler == "allotment")))
    if scheduler == "allotment":
        apply(state, decided(placement("t", "n1", holding("GPU-0"))), 3)
    apply(state, msgspec.structs.replace(bound, standing=FORGED, holdings=(holding(),)), 4)
    apply(state, msgspec.structs.replace(bound, rv=3, phase="Running", bind_phase="success"), 5)
    cards = {card.fact.id: card for card in state.nodes["n1"].ledgers["vgpu"].cards}
    assert cards["GPU-1"].free_memory_mib == 0
    assert (cards["GPU-0"].free_memory_mib == 16_000) is (scheduler == "other")
    assert check(state) == []
    two = Standing("n1", "vgpu", 2, (holding("GPU-0"), holding("GPU-1")))
    fact = msgspec.structs.replace(bound, uid="u", name="u", scheduler="other", standing=two)
    apply(state, fact, 6)
    assert state.pods["u"].allocation is not None
    assert state.pods["u"].allocation.holdings == (), "kubelet asks for one card"


def test_what_was_decided_is_in_the_way_too_whatever_the_annotations_say_now() -> None:
    other = ("n1", ("vgpu", "devices", 2))
    state = state_of(policy(), node("n1", 2), pod("dead"))
    both = (holding("GPU-0"), holding("GPU-1"))
    apply(state, decided(placement("dead", "n1", *both)), 4)
    held = state.pods["dead"].allocation
    apply(state, rejected(), 5)
    records = Unserved()
    records.look(state, "dead", held)
    assert records.places(state) == {PLACE, other}
    records.look(state, "dead")
    assert records.places(state) == {PLACE, other}


def test_the_place_of_a_deleted_pod_is_free_when_its_kubelet_is_past_it() -> None:
    now_s = 100.0
    served = {"a", "b"}
    deleted = Deleted(lambda: now_s)
    deleted.hold(PLACE, frozenset("ab"))
    assert deleted.places(served.__contains__) == {PLACE}
    now_s += PASSED_AFTER_S + 1
    served.discard("a")
    assert deleted.places(served.__contains__) == {PLACE}, "another is still before it"
    served.discard("b")
    assert deleted.places(served.__contains__) == {PLACE}, "its turn is now"
    assert deleted.left_s() == PASSED_AFTER_S
    now_s += PASSED_AFTER_S
    assert deleted.places(served.__contains__) == frozenset()
    assert deleted.left_s() == float("inf")


def test_nobody_waits_for_a_deleted_pod_for_ever() -> None:
    now_s = 100.0
    deleted = Deleted(lambda: now_s)
    deleted.hold(PLACE, frozenset("a"))
    assert LATE_AFTER_S > 120
    now_s += LATE_AFTER_S - 1
    assert deleted.places(lambda uid: True) == {PLACE}
    now_s += 1
    assert deleted.places(lambda uid: True) == frozenset()


def gone(uid: str) -> PodGone:
    return PodGone(uid=uid, namespace="default", name=uid, rv=99)


def after(ago_s: float, *ended: str) -> frozenset[tuple[str, tuple[str, str, int]]]:
    """Which places a binder holds that reads of pods that are gone, and so begins."""
    state = state_of(policy(), node("n1", 4), pod("two"), pod("served"), pod("deleted"))
    pair = (holding("GPU-0"), holding("GPU-1"))
    deleted = Deleted()
    apply(state, decided(placement("two", "n1", *pair)), 10)
    apply(state, decided(placement("served", "n1", holding("GPU-2"))), 11)
    served = pod("served", node="n1", phase="Running", bind_phase="success", rv=2)
    apply(state, served, 12)
    apply(state, decided(placement("deleted", "n1", holding("GPU-3"))), 13)
    deleted.follow(state, (), 0.0)
    for uid in ended:
        apply(state, gone(uid), 14)
    deleted.follow(state, ended, ago_s)
    return deleted.places(lambda uid: uid == "two")


def test_a_binder_that_begins_has_read_who_was_deleted_before_its_turn() -> None:
    assert after(1.0, "deleted") == {PLACE}
    assert after(1.0, "served") == frozenset(), "its plugin was through with it"
    assert after(1.0, "deleted", "two") == {PLACE, ("n1", ("vgpu", "devices", 2))}
    assert after(LATE_AFTER_S, "deleted") == frozenset(), "its kubelet is past it"


def test_what_it_read_of_lasts_until_those_before_are_served() -> None:
    now_s, waits = 100.0, {"two"}
    state = state_of(policy(), node("n1", 4), pod("two"), pod("same"), pod("deleted"))
    apply(state, decided(placement("two", "n1", holding("GPU-0"), holding("GPU-1"))), 10)
    apply(state, decided(placement("same", "n1", holding("GPU-2"))), 11)
    apply(state, decided(placement("deleted", "n1", holding("GPU-3"))), 12)
    apply(state, gone("deleted"), 13)
    deleted = Deleted(lambda: now_s)
    deleted.follow(state, {"deleted"}, 30.0)
    now_s += PASSED_AFTER_S + 1
    assert deleted.places(waits.__contains__) == {PLACE}
    waits.clear()
    waits.add("same")  # waits for this very place
    assert deleted.places(waits.__contains__) == {PLACE}
    now_s += PASSED_AFTER_S
    assert deleted.places(waits.__contains__) == frozenset()


CARDS = {uid: holding(f"GPU-{number}") for number, uid in enumerate("abcd")}


class Told:
    """Four pods on one node that their plugin has still to serve, and what is seen of them."""

    def __init__(self) -> None:
        self.state = state_of(policy(), node("n1", 4), *(pod(uid) for uid in CARDS))
        places = [placement(u, "n1", held, stamp_s=n) for n, (u, held) in enumerate(CARDS.items())]
        apply(self.state, decided(*places), 20)
        self.records = Unserved()
        self.rv = 1

    def see(self, uid: str, phase: str, bind_phase: str, *, waited: bool = True) -> None:
        """`waited`: the pod was not acknowledged before."""
        self.rv += 1
        held = self.state.pods[uid].allocation
        seen: Json = {
            "holdings": (CARDS[uid],),
            "phase": phase,
            "bind_phase": bind_phase,
        }
        apply(self.state, pod(uid, rv=self.rv, node="n1", **seen), self.state.seq + 1)
        self.records.look(self.state, uid, held if waited else None)

    def corrections(self) -> list[tuple[str, str, tuple[str, ...]]]:
        told = self.records.corrections(self.state)
        for event in told:
            apply(self.state, event, self.state.seq + 1)
            assert check(self.state) == []
        return [(c.uid, c.code, tuple(h.card for h in c.holdings)) for c in told]


def test_who_was_served_with_a_dead_pods_record_holds_its_cards_and_so_on() -> None:
    world = Told()
    world.see("a", "Failed", "allocating")
    world.see("b", "Running", "allocating")
    assert world.corrections() == [], "nobody knows yet whether the record of a was taken"
    world.see("a", "Failed", "success", waited=False)
    world.see("c", "Running", "allocating")
    assert world.corrections() == [("b", "Misdelivered", ("GPU-0",))], "c may have that of b"
    world.see("b", "Running", "success", waited=False)
    assert world.corrections() == [("c", "Misdelivered", ("GPU-1",))]
    world.records.erased(world.state, "c", Erased(99, was_taken=True))
    world.see("d", "Running", "allocating")
    assert world.corrections() == [("d", "Misdelivered", ("GPU-2",))]
    assert {u: p.allocation.holdings for u, p in world.state.pods.items() if p.allocation} == {
        "b": (CARDS["a"],),
        "c": (CARDS["b"],),
        "d": (CARDS["c"],),
    }
    assert world.corrections() == []


def test_an_erased_record_was_taken_by_nobody() -> None:
    world = Told()
    world.see("a", "Failed", "allocating")
    world.see("b", "Running", "allocating")
    world.records.erased(world.state, "a", Erased(50))
    world.rv = 60
    world.see("a", "Failed", "success", waited=False)
    assert world.corrections() == [("b", "DevicesUnknown", ("GPU-1",))]
    assert world.state.pods["b"].allocation.holdings == (CARDS["b"],)  # type: ignore[union-attr]


def test_a_sign_after_an_acknowledgement_is_not_believed() -> None:
    world = Told()
    world.see("a", "Failed", "allocating")
    world.see("a", "Failed", "success", waited=False)
    world.see("b", "Running", "success")
    world.see("b", "Running", "allocating", waited=False)
    assert world.corrections() == []
    assert world.records.places(world.state) == {PLACE}, "its record is erased all the same"


def test_a_record_that_an_owner_wrote_anew_frees_nothing_of_what_was_decided() -> None:
    """Both pods may be his: what he says must not make a card free that he uses."""
    world = Told()
    world.see("a", "Running", "success")
    world.see("a", "Running", "allocating", waited=False)
    world.see("b", "Running", "allocating")
    world.see("a", "Running", "success", waited=False)
    assert world.corrections() == [("b", "Misdelivered", ("GPU-1", "GPU-0"))]


def test_only_pods_of_ours_are_corrected_and_each_once() -> None:
    world = Told()
    foreign = adopted(pod("e", rv=1, node="n1", holdings=(holding("GPU-0"),)))
    apply(world.state, pod("e", node="n1", holdings=(holding("GPU-0"),)), 30)
    seen = pod("e", rv=3, node="n1", holdings=(holding("GPU-0"),), bind_phase="allocating")
    apply(world.state, msgspec.structs.replace(seen, phase="Running"), 31)
    world.records.look(world.state, "e", foreign)
    assert world.corrections() == []
    world.records.erased(world.state, "e", Erased(5))
    world.see("b", "Running", "allocating")
    assert [uid for uid, _, _ in world.corrections()] == ["b"]
    world.see("b", "Running", "allocating", waited=False)
    assert world.corrections() == []


def test_where_pods_may_be_swapped_a_record_waits_for_the_one_that_may_come() -> None:
    world = Told()
    world.see("a", "Pending", "success")
    world.see("b", "Running", "allocating")
    assert [fact.uid for fact in world.records.due(world.state, swap_equal=False)] == ["b"]
    assert world.records.due(world.state, swap_equal=True) == []
    world.see("a", "Running", "success", waited=False)
    assert [fact.uid for fact in world.records.due(world.state, swap_equal=True)] == ["b"]


def test_a_new_life_tells_of_whom_it_finds_with_the_sign_unless_it_was_told() -> None:
    world = Told()
    world.see("b", "Running", "allocating")
    world.records = Unserved()
    world.records.begin(world.state)
    assert world.corrections() == [("b", "DevicesUnknown", ("GPU-1",))]
    world.records.begin(world.state)
    assert world.corrections() == []
