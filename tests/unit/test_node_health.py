"""A node or card that turns away strangers one after the other is held back, then tried again."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.explain.doctor import findings
from allotment.core.explain.node import explain_node
from allotment.core.ledger import health
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.snapshot import decode, encode
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck_all, run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.deadlines import has_passed
from allotment_binder.bindings import obstacle_to
from allotment_board.board import Board
from allotment_proto.events import (
    Bound,
    Ending,
    Event,
    NodeGone,
    Placement,
    PodGone,
    PodObserved,
    Refusal,
    TimePassed,
)
from allotment_proto.facts import PodRequest
from allotment_proto.observed import Death, Standing
from allotment_watcher.__main__ import held_back as held_back_metric
from allotment_watcher.timekeeper import UNSERVED_AFTER_S, Turns
from tests.build import decided, holding, node, placement, pod, policy, request, state_of, wants
from tests.recording import Recorder, vgpu
from tests.replaying import verify
from tests.unit.both_rankers import chosen

START_MS = 1_000_000
WHOLE = request(wants(memory_mib=0, cores_pct=100))
COUNTED = PodRequest(cpu_milli=100, extended=(("nvidia.com/gpu", 1),))
REFUSED = "UnexpectedAdmissionError"


class Cluster:
    """Equal nodes, on which pods are placed as a cycle would, and end as a test says."""

    def __init__(self, *names: str, cards: int = 4, **changes: Any) -> None:
        facts = [
            node(name, cards=cards, extended=(("nvidia.com/gpu", 4),), **changes) for name in names
        ]
        self.state = state_of(policy(device_policy="binpack"), *facts)
        self.told_ms = START_MS

    def tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)

    def wait(self, ms: int) -> None:
        """What the watcher's clock tells meanwhile."""
        end_ms = self.told_ms + ms
        while self.told_ms < end_ms:
            self.told_ms = min(self.told_ms + 5_000, end_ms)
            if has_passed(self.state, self.told_ms):
                self.tell(TimePassed(at_ms=self.told_ms))

    def make(self, uid: str, wanted: PodRequest = WHOLE, **changes: Any) -> Placement | Refusal:
        """A new pod, placed if it can be."""
        self.tell(pod(uid, wanted, **changes))
        return self.place(uid)

    def place(self, uid: str) -> Placement | Refusal:
        answer = chosen(self.state, self.state.pods[uid].fact)
        if isinstance(answer, Placement):
            assert recheck_all(self.state, [answer], []).dropped == ()
            self.tell(decided(answer))
        return answer

    def seen(self, uid: str, **changes: Any) -> PodObserved:
        fact, held = self.state.pods[uid].fact, self.state.pods[uid].allocation
        assert held is not None
        values = {"rv": fact.rv + 1, "node": held.node, "holdings": held.holdings, **changes}
        return msgspec.structs.replace(fact, **values)

    def refuse(self, uid: str, **changes: Any) -> None:
        self.tell(self.seen(uid, bind_phase="allocating"))
        self.tell(self.seen(uid, **{"phase": "Failed", "reason": REFUSED, **changes}))

    def run(self, uid: str) -> None:
        self.tell(self.seen(uid, phase="Running", bind_phase="success"))

    def crash(self, uid: str) -> None:
        """It starts, and its container ends with an error within seconds."""
        self.run(uid)
        died = Death("main", "Error", 1)
        self.tell(self.seen(uid, phase="Failed", bind_phase="success", died=died))

    def lose(self, uid: str, wanted: PodRequest = WHOLE, **changes: Any) -> str:
        """A new pod that its node turns away; gives the node."""
        answer = self.make(uid, wanted, **changes)
        assert isinstance(answer, Placement), answer
        self.refuse(uid)
        return answer.node

    def node_of(self, uid: str, wanted: PodRequest = WHOLE, **changes: Any) -> str:
        answer = self.make(uid, wanted, **changes)
        return answer.node if isinstance(answer, Placement) else ""

    def burn(self, uid: str, wanted: PodRequest = COUNTED, **changes: Any) -> str:
        """A new pod that dies as it starts; gives the node."""
        answer = self.make(uid, wanted, **changes)
        assert isinstance(answer, Placement), answer
        self.crash(uid)
        return answer.node

    def held(self) -> set[str]:
        return {place[0] for place, h in self.state.health.items() if h.since and not place[1]}


def fail_everything(
    cluster: Cluster, number: int, bad: str = "a", wanted: PodRequest = WHOLE
) -> int:
    """So many pods come one after the other, and `bad` turns away all of its own: how many died."""
    died = 0
    for count in range(number):
        answer = cluster.make(f"p{count}", wanted)
        if not isinstance(answer, Placement):
            continue
        if answer.node == bad:
            cluster.refuse(f"p{count}")
            died += 1
        else:
            cluster.run(f"p{count}")
    return died


def test_a_node_that_turns_everybody_away_costs_three_pods() -> None:
    """review/peers.md A1: 30 of 30 died on gpu-a while two equal nodes stood empty."""
    cluster = Cluster("a", "b", "c")
    assert fail_everything(cluster, 11) == 3
    assert cluster.held() == {"a"}


def test_so_does_one_whose_cards_are_only_counted() -> None:
    cluster = Cluster("a", "b", "c", cards=0)
    assert fail_everything(cluster, 10, wanted=COUNTED) == 2
    assert cluster.held() == {"a"}


def test_who_finds_no_other_place_waits_and_is_told_so() -> None:
    cluster = Cluster("a", cards=2)
    cluster.lose("x")
    cluster.lose("y")
    cluster.lose("z")
    answer = cluster.make("w")
    assert isinstance(answer, Refusal)
    assert answer.reasons == ((reasons.NODE_FAILING, 1),)
    assert answer.notes == (
        "node a is held back because pods did not start there: allot doctor has the records",
    )
    cpu = cluster.make("cpu", PodRequest(cpu_milli=100))
    assert isinstance(cpu, Placement), "it needs no device plugin"


def test_a_card_that_fails_is_lost_alone() -> None:
    cluster = Cluster("a")
    died = []
    for count in range(8):
        answer = cluster.make(f"p{count}", request(wants(memory_mib=8_000)))
        assert isinstance(answer, Placement)
        if answer.holdings[0].card == "GPU-0":
            cluster.refuse(f"p{count}")
            died.append(count)
        else:
            cluster.run(f"p{count}")
    assert len(died) == 2
    assert cluster.held() == set()
    assert cluster.state.health["a", "vgpu", "GPU-0"].since
    full = cluster.make("big", request(wants(memory_mib=16_000)))
    assert isinstance(full, Refusal)
    assert dict(full.reasons) in ({reasons.CARD_FAILING: 1}, {reasons.INSUFFICIENT_GPU_MEMORY: 1})


def test_a_success_clears_all() -> None:
    cluster = Cluster("a")
    cluster.lose("x")
    cluster.make("good")
    cluster.run("good")
    assert cluster.state.health == {} or not cluster.held()
    cluster.lose("y", request(wants(count=3)))
    assert not cluster.held()


def test_a_pod_that_was_admitted_before_the_trouble_proves_nothing() -> None:
    cluster = Cluster("a", "b", cards=0)
    assert cluster.node_of("early", COUNTED) == "a"
    cluster.lose("x", COUNTED)
    cluster.run("early")
    cluster.lose("y", COUNTED)
    assert cluster.held() == {"a"}


def held_back() -> Cluster:
    cluster = Cluster("a", "b", cards=0)
    cluster.lose("x", COUNTED)
    cluster.lose("y", COUNTED)
    assert cluster.held() == {"a"}
    return cluster


def fill(cluster: Cluster, prefix: str = "f") -> None:
    """Leave no room but that of the node that is held back."""
    for count in range(4):
        assert cluster.node_of(f"{prefix}{count}", COUNTED) == "b"
        cluster.run(f"{prefix}{count}")


def test_after_a_while_one_volunteer_at_a_time_is_let_in_and_a_success_opens_the_node() -> None:
    cluster = held_back()
    fill(cluster)
    assert isinstance(cluster.make("v1", COUNTED), Refusal)
    cluster.wait(20_000)
    cluster.tell(pod("v2", COUNTED))
    cycle = run_cycle(cluster.state, ["v1", "v2"], Board(cluster.state))
    assert cycle == run_cycle(cluster.state, ["v1", "v2"], Evaluator(cluster.state))
    assert [p.uid for p in cycle.placements] == ["v1"], "one of a batch"
    assert [(r.uid, r.reasons[0][0]) for r in cycle.refusals] == [
        ("v2", reasons.NODE_FAILING),
    ]
    twice = [cycle.placements[0], msgspec.structs.replace(cycle.placements[0], uid="v2")]
    twice[1] = msgspec.structs.replace(twice[1], name="pod-v2")
    assert [d.code for d in recheck_all(cluster.state, twice, []).dropped] == [reasons.NODE_FAILING]
    assert isinstance(cluster.place("v1"), Placement)
    assert isinstance(cluster.place("v2"), Refusal)
    room = cluster.state.room_seq
    cluster.run("v1")
    assert cluster.state.room_seq > room, "those who wait are tried again"
    assert cluster.state.health == {}
    assert isinstance(cluster.place("v2"), Placement)


def test_a_volunteer_goes_there_only_if_nothing_else_takes_it() -> None:
    cluster = Cluster("a", "b", cards=0)
    cluster.lose("x", COUNTED)
    cluster.lose("y", COUNTED)
    cluster.wait(20_000)
    assert cluster.node_of("v", COUNTED) == "b"


def test_a_volunteer_that_fails_doubles_the_time() -> None:
    cluster = held_back()
    fill(cluster)
    waited = []
    for count in range(9):
        ms = 0
        while cluster.node_of(f"v{count}-{ms}", COUNTED) != "a":
            cluster.wait(5_000)
            ms += 5_000
        cluster.refuse(f"v{count}-{ms}")
        waited.append(ms)
    assert waited[:4] == [15_000, 25_000, 45_000, 85_000]
    assert waited[-1] == health.HELD_MOST_MS + 5_000
    assert all(b >= a for a, b in pairwise(waited))


def test_where_nobody_volunteers_the_node_opens_by_itself_and_the_next_failure_closes_it() -> None:
    """A gang of two pods on one node can never be a volunteer."""
    cluster = held_back()
    fill(cluster)
    cluster.wait(20_000)
    assert cluster.held() == {"a"}
    cluster.wait(health.TRIAL_LEAST_MS + 5_000)
    assert cluster.held() == set()
    cluster.lose("z", COUNTED)
    assert cluster.held() == {"a"}


def test_one_owner_is_one_stranger() -> None:
    cluster = Cluster("a", cards=0)
    for count in range(4):
        cluster.lose(f"x{count}", COUNTED, owner="job")
    assert cluster.held() == set()


def test_an_owner_goes_to_another_node_at_once() -> None:
    """A lone Job with `maxRetry: 3` lost a life for each card of the node."""
    for wanted in (COUNTED, WHOLE):
        cluster = Cluster("a", "b")
        assert cluster.lose("x1", wanted, owner="job") == "a"
        assert cluster.node_of("x2", wanted, owner="job") == "b"
        assert cluster.node_of("y", wanted, owner="other") in ("a", "b")


def test_one_namespace_holds_a_node_back_for_itself_only() -> None:
    """A tenant that can make a plugin fail costs others nothing."""
    cluster = Cluster("a", "b", cards=0)
    cluster.lose("x", COUNTED, namespace="red")
    cluster.lose("y", COUNTED, namespace="red")
    red = chosen(cluster.state, pod("z", COUNTED, namespace="red"))
    assert isinstance(red, Placement)
    assert red.node == "b"
    assert cluster.lose("blue", COUNTED, namespace="blue") == "a"
    assert cluster.node_of("green", COUNTED, namespace="green") == "b", "two namespaces prove it"


def test_what_its_owner_may_have_caused_does_not_count() -> None:
    made: list[dict[str, Any]] = [
        {"phase": "Failed", "reason": "", "bind_phase": "failed"},
        {"phase": "Failed", "reason": "Evicted"},
        {"deleting": True},
        {"holdings": ()},
        {"bind_phase": "success"},
        {"standing": Standing(node="elsewhere", family="vgpu", devices=1)},
    ]
    for changes in made:
        cluster = Cluster("a")
        for count in range(6):
            cluster.make(f"x{count}")
            cluster.refuse(f"x{count}", **changes)
        assert cluster.state.health == {}, changes


def test_a_record_that_was_wrong_before_it_failed_does_not_count() -> None:
    cluster = Cluster("a")
    for count in range(6):
        cluster.make(f"x{count}")
        held = cluster.state.pods[f"x{count}"].allocation
        assert held is not None
        cluster.tell(cluster.seen(f"x{count}", annotated=(held.holdings[0],) * 2))
        cluster.tell(cluster.seen(f"x{count}", phase="Failed", reason=REFUSED, annotated=()))
    assert cluster.state.health == {}


def test_nobody_is_a_witness_where_a_pod_forges_device_records() -> None:
    cluster = Cluster("a", cards=0)
    forger = pod("forger", COUNTED, node="a")
    cluster.tell(forger)
    standing = Standing(node="a", family="vgpu", devices=1)
    cluster.tell(msgspec.structs.replace(forger, rv=2, standing=standing))
    for count in range(4):
        cluster.lose(f"x{count}", PodRequest(extended=(("nvidia.com/gpu", 1),)))
    assert cluster.state.health == {}


def test_nor_of_pods_that_were_sent_there_before_the_forger_was_seen_or_had_left() -> None:
    """He may be seen late, and delete his pod at once: those whose plugin he made fail are his
    victims, and no evidence. Pods that come later are."""
    cluster = Cluster("a", cards=0)
    cluster.lose("early", COUNTED, namespace="red")
    for uid in ("x", "y"):
        cluster.make(uid, COUNTED, namespace=uid)
    standing = Standing(node="a", family="vgpu", devices=1)
    cluster.tell(pod("forger", PodRequest(), node="a", phase="Running", standing=standing))
    cluster.tell(PodGone(uid="forger", namespace="default", name="pod-forger", rv=9))
    cluster.refuse("x")
    cluster.refuse("y")
    assert cluster.state.health == {}
    assert decode(encode(cluster.state)).forged_at == cluster.state.forged_at != {}
    for uid in ("v", "w"):
        cluster.lose(uid, COUNTED, namespace=uid)
    assert cluster.held() == {"a"}


def test_what_another_scheduler_is_about_to_bind_forges_nothing() -> None:
    cluster = Cluster("a", cards=0)
    standing = Standing(node="a", family="vgpu", devices=1)
    cluster.lose("x", COUNTED, namespace="x")
    theirs = pod("t", PodRequest(), scheduler="volcano", card_resources=("volcano.sh/vgpu-number",))
    theirs = msgspec.structs.replace(theirs, standing=standing)
    cluster.tell(theirs)
    bound = msgspec.structs.replace(theirs, rv=3, node="a", card_resources=(), standing=None)
    cluster.tell(bound)
    cluster.lose("y", COUNTED, namespace="y")
    assert cluster.held() == {"a"}


def test_pods_that_others_bound_do_not_count() -> None:
    cluster = Cluster("a", cards=0)
    for count in range(4):
        fact = pod(f"x{count}", COUNTED, node="a")
        cluster.tell(fact)
        cluster.tell(msgspec.structs.replace(fact, rv=2, phase="Failed", reason=REFUSED))
    assert cluster.state.health == {}


def test_uncordoning_clears_a_node_and_so_does_its_end() -> None:
    cluster = held_back()
    fact = cluster.state.nodes["a"].fact
    assert fact is not None
    cordoned = msgspec.structs.replace(fact, rv=2, unschedulable=True)
    cluster.tell(cordoned)
    assert cluster.held() == {"a"}
    cluster.tell(msgspec.structs.replace(fact, rv=3))
    assert cluster.state.health == {}
    cluster = held_back()
    cluster.tell(NodeGone(name="a", uid=fact.uid, rv=9))
    assert cluster.state.health == {}


def test_a_snapshot_holds_it_and_time_is_told_only_while_somebody_is_held_back() -> None:
    cluster = held_back()
    again = decode(encode(cluster.state))
    assert again.health == cluster.state.health
    assert encode(again) == encode(cluster.state)
    assert has_passed(again, START_MS)
    apply(again, TimePassed(at_ms=START_MS), again.seq + 1)
    assert not has_passed(again, START_MS + health.HELD_FIRST_MS - 1)
    assert has_passed(again, START_MS + health.HELD_FIRST_MS)
    assert not has_passed(ClusterState(), START_MS)


def found(cluster: Cluster) -> dict[str, str]:
    return {each.subject: each.message for each in findings(cluster.state, 0)}


def test_doctor_names_the_node_its_records_and_when_it_is_tried_again() -> None:
    cluster = Cluster("a", "b", cards=0)
    cluster.make("x", COUNTED)
    cluster.refuse("x", ending=Ending(message="Allocate failed due to no pending pod"))
    assert cluster.state.health["a", "", ""].strikes[0].seq == 7
    cluster.lose("y", COUNTED)
    assert found(cluster)["node a"] == (
        "its device plugin: turned away 2 pods in a row (default/pod-x at seq "
        "7, default/pod-y at seq 11); held back since seq 11 for such pods of namespace default; "
        "until the next TimePassed record"
    )
    (one,) = findings(cluster.state, 0)
    assert (one.severity, one.code, one.seq) == ("error", reasons.NODE_FAILING, 11)
    assert held_back_metric(cluster.state) == {("a", "node"): 1}
    cluster.wait(5_000)
    assert found(cluster)["node a"].endswith("next attempt after 1970-01-01T00:16:55.000Z")
    cluster.wait(15_000)
    assert found(cluster)["node a"].endswith(
        "on trial since seq 13: it takes one pod at a time until one starts"
    )


def test_doctor_says_what_failing_nodes_have_in_common() -> None:
    new = (("driver", "570"), ("zone", "z1"))
    cluster = Cluster("a", "b", cards=0, labels=new)
    cluster.tell(node("c", cards=0, extended=(("nvidia.com/gpu", 4),), labels=(("zone", "z1"),)))
    lost = [cluster.lose(f"x{count}", COUNTED) for count in range(4)]
    assert lost == ["a", "a", "b", "b"]
    assert found(cluster)["nodes a, b"] == (
        "are held back, and no other node with devices has driver=570"
    )


def test_explain_asks_the_node_as_the_decision_did() -> None:
    cluster = Cluster("a", cards=0)
    cluster.lose("x", COUNTED)
    cluster.lose("y", COUNTED)
    cluster.make("w", COUNTED)
    seen = explain_node(cluster.state, "a", 0)
    assert [problem.code for problem in seen.node.problems] == [reasons.NODE_FAILING]
    (answer,) = seen.answers
    assert (answer.verdict, answer.step) == (reasons.NODE_FAILING, "nodeHealth")
    assert "node a is held back" in answer.detail


def test_decisions_that_went_around_a_node_are_made_again_from_the_log() -> None:
    log = Recorder()
    log.append("allot.log.config", "watcher", policy(families=("vgpu", "gpushare")))
    for name in ("n1", "n2"):
        log.node(name, cards=2)
    for number in range(4):
        uid = log.pod(f"p{number}", vgpu(1, 3_000, 20))
        log.decide(uid)
        fact, held = log.state.pods[uid].fact, log.state.pods[uid].allocation
        assert held is not None
        if held.node == "n1":
            bad = msgspec.structs.replace(
                fact,
                rv=fact.rv + 1_000,
                node=held.node,
                holdings=held.holdings,
                phase="Failed",
                reason=REFUSED,
            )
            log.append("allot.log.facts", "watcher", bad)
    places = [log.state.pods[uid].allocation for uid in log.state.pods]
    assert [held.node for held in places if held is not None] == ["n2"]
    report = verify(log.records)
    assert (report.decisions, report.identical) == (4, 4), report


def crash_on(cluster: Cluster, bad: str, pods: list[dict[str, Any]], wanted: PodRequest) -> int:
    """Pods come one after the other, and those on `bad` die as they start: how many died."""
    died = 0
    for count, changes in enumerate(pods):
        answer = cluster.make(f"p{count}", wanted, **changes)
        if isinstance(answer, Placement) and answer.node == bad:
            cluster.crash(f"p{count}")
            died += 1
        elif isinstance(answer, Placement):
            cluster.run(f"p{count}")
            cluster.wait(15_000)
    return died


STRANGERS: list[dict[str, Any]] = [
    {"image": f"i{count}", "namespace": f"ns{count}"} for count in range(8)
]


@pytest.mark.parametrize(
    ("pods", "lost"),
    [
        (STRANGERS, 3),
        ([{"image": f"i{count}"} for count in range(8)], 3),
        ([{"image": "i"} for _ in range(8)], 1),
        ([{"image": "i", "namespace": f"ns{count}"} for count in range(8)], 2),
    ],
    ids=["strangers", "one namespace", "one image", "one image of many"],
)
def test_a_node_on_which_pods_die_at_once_costs_three_of_them(
    pods: list[dict[str, Any]], lost: int
) -> None:
    assert crash_on(Cluster("a", "b", "c", cards=0), "a", pods, COUNTED) == lost
    for wanted in (request(wants()), WHOLE):
        assert crash_on(Cluster("a", "b", "c"), "a", pods, wanted) == lost


def test_where_strangers_die_nobody_is_sent_and_a_volunteer_has_to_live() -> None:
    cluster = Cluster("a", "b", cards=0)
    assert [cluster.burn(f"p{n}", **STRANGERS[n]) for n in range(3)] == ["a"] * 3
    assert cluster.held() == {"a"}
    assert found(cluster)["node a"] == (
        "its devices: lost within seconds of their start 3 pods in a row "
        '(ns0/pod-p0 at seq 7, ns1/pod-p1 at seq 11, ns2/pod-p2 at seq 15): "container main: '
        'Error, exit code 1"; held back since seq 15 for all pods that ask for devices; until the '
        "next TimePassed record"
    )
    fill(cluster)
    assert isinstance(cluster.make("v", COUNTED), Refusal)
    cluster.wait(20_000)
    assert isinstance(cluster.place("v"), Placement)
    assert isinstance(cluster.make("w", COUNTED), Refusal), "one at a time"
    cluster.crash("v")
    assert isinstance(cluster.make("x", COUNTED), Refusal)
    cluster.wait(30_000)
    assert isinstance(cluster.place("x"), Placement)
    cluster.run("x")
    assert cluster.held() == {"a"}, "it has only started"
    again = decode(encode(cluster.state))
    assert again.health == cluster.state.health
    cluster.wait(20_000)
    assert cluster.state.health == {}, "it has lived"
    assert isinstance(cluster.place("w"), Placement)


def test_a_pod_that_ends_well_clears_all() -> None:
    cluster = Cluster("a", cards=0)
    for count in range(6):
        cluster.burn(f"p{count}", **STRANGERS[count % 2])
        cluster.make(f"good{count}", COUNTED)
        cluster.run(f"good{count}")
        cluster.tell(cluster.seen(f"good{count}", phase="Succeeded", bind_phase="success"))
    assert cluster.state.health == {}


def test_a_pod_that_lives_between_shows_that_the_node_is_well() -> None:
    cluster = Cluster("a", cards=0)
    cluster.burn("p0", **STRANGERS[0])
    cluster.make("good", COUNTED)
    cluster.run("good")
    assert has_passed(cluster.state, START_MS), "the log is to be told when it has lived"
    cluster.wait(15_000)
    assert cluster.state.health == {}
    assert not has_passed(cluster.state, START_MS + 3_600_000)


def test_a_card_on_which_pods_die_is_lost_alone() -> None:
    cluster = Cluster("a")
    died = 0
    for count in range(8):
        answer = cluster.make(f"p{count}", request(wants(memory_mib=8_000)), **STRANGERS[count])
        assert isinstance(answer, Placement)
        if answer.holdings[0].card == "GPU-0":
            cluster.crash(f"p{count}")
            died += 1
        else:
            cluster.run(f"p{count}")
    assert died == 2
    assert cluster.held() == set()
    assert cluster.state.health["a", "vgpu", "GPU-0"].since


def test_a_bad_image_blames_no_node() -> None:
    """It dies wherever it comes, whoever brings it: also where it holds all of a node's places."""
    cluster = Cluster("a", "b", cards=0)
    nodes = [cluster.burn(f"p{n}", image="bad", namespace=f"ns{n % 3}") for n in range(12)]
    assert set(nodes) == {"a", "b"}
    assert cluster.held() == set()
    assert found(cluster).keys() & {"node a", "node b"} == set()
    alone = Cluster("a", cards=0)
    for count in range(12):
        alone.burn(f"p{count}", image="bad", namespace=f"ns{count % 3}")
    assert alone.held() == set()


def test_a_node_that_was_held_back_for_bad_images_is_free_when_they_die_elsewhere() -> None:
    cluster = Cluster("a", "b", cards=0)
    for count in range(3):
        cluster.burn(f"p{count}", **STRANGERS[count])
    assert cluster.held() == {"a"}
    room = cluster.state.room_seq
    assert cluster.burn("again", **STRANGERS[0]) == "b"
    assert cluster.held() == set()
    assert cluster.state.room_seq > room


def test_an_image_that_runs_elsewhere_is_not_to_blame() -> None:
    cluster = Cluster("a", "b", cards=0)
    for count in range(4):
        cluster.tell(pod(f"well{count}", COUNTED, image="i", node="b", phase="Running"))
    pinned = [cluster.burn(f"p{n}", image="i", namespace=f"ns{n}") for n in range(3)]
    assert pinned == ["a"] * 3
    assert cluster.held() == {"a"}


@pytest.mark.parametrize("namespaces", [1, 2])
def test_a_tenant_whose_pods_crash_costs_others_nothing(namespaces: int) -> None:
    """30 pods of different images and owners, in one namespace or two. Of three namespaces they are
    strangers."""
    cluster = Cluster("a", "b", cards=0)
    for count in range(30):
        answer = cluster.make(
            f"p{count}", COUNTED, image=f"i{count}", namespace=f"red{count % namespaces}"
        )
        if isinstance(answer, Placement):
            cluster.crash(f"p{count}")
        assert cluster.node_of(f"o{count}", COUNTED, namespace="blue") == "a"
        cluster.tell(PodGone(uid=f"o{count}", namespace="blue", name=f"pod-o{count}", rv=99))
        cluster.wait(5_000)


@pytest.mark.parametrize(
    "changes",
    [{"deleting": True}, {"holdings": ()}, {"standing": Standing("x", "vgpu", 1)}],
    ids=["deleted", "edited", "forged"],
)
def test_of_pods_that_die_those_say_nothing_whose_record_was_changed(
    changes: dict[str, Any],
) -> None:
    cluster = Cluster("a")
    for count in range(6):
        cluster.make(f"p{count}", **STRANGERS[count])
        cluster.run(f"p{count}")
        died = {"phase": "Failed", "died": Death("main", "Error", 1), **changes}
        cluster.tell(cluster.seen(f"p{count}", **died))
    assert cluster.state.health == {}


def test_a_container_that_is_started_again_tells_it_once_and_a_start_error_counts() -> None:
    cluster = Cluster("a", cards=0)
    died = Death("main", "RunContainerError", 0, "nvidia-container-cli: initialization error")
    for count in range(3):
        cluster.make(f"p{count}", COUNTED, **STRANGERS[count])
        for _ in range(2):
            cluster.tell(cluster.seen(f"p{count}", phase="Pending", died=died))
        cluster.tell(cluster.seen(f"p{count}", phase="Running", died=died))
    health_of_a = cluster.state.health["a", "", ""]
    assert [strike.pod for strike in health_of_a.strikes] == [f"ns{n}/pod-p{n}" for n in range(3)]
    assert health_of_a.since


def test_decisions_that_went_around_a_node_on_which_pods_die_are_made_again_from_the_log() -> None:
    log = Recorder()
    log.append("allot.log.config", "watcher", policy(families=("vgpu", "gpushare")))
    for name in ("n1", "n2"):
        log.node(name, cards=2)
    for number in range(5):
        uid = log.pod(f"p{number}", vgpu(1, 3_000, 20))
        log.append(
            "allot.log.facts",
            "watcher",
            msgspec.structs.replace(log.state.pods[uid].fact, image=f"i{number}", rv=10_000),
        )
        log.decide(uid)
        fact, held = log.state.pods[uid].fact, log.state.pods[uid].allocation
        assert held is not None
        if held.node == "n1":
            bad = msgspec.structs.replace(
                fact,
                rv=fact.rv + 1_000,
                node=held.node,
                holdings=held.holdings,
                phase="Failed",
                bind_phase="success",
                died=Death("main", "Error", 1),
            )
            log.append("allot.log.facts", "watcher", bad)
    places = [log.state.pods[uid].allocation for uid in log.state.pods]
    assert [held.node for held in places if held is not None] == ["n2", "n2"]
    report = verify(log.records)
    assert (report.decisions, report.identical) == (5, 5), report


def test_a_tenant_whose_pods_crash_everywhere_is_remembered_to_a_bound() -> None:
    cluster = Cluster(*(f"n{number}" for number in range(150)))
    for number in range(300):
        cluster.tell(pod(f"p{number}", image=f"i{number}"))
        cluster.tell(decided(placement(f"p{number}", f"n{number // 2}")))
        cluster.crash(f"p{number}")
    assert len(cluster.state.health) == health.PLACES_MAX
    assert cluster.state.health["n149", "", ""].strikes[0].pod == "default/pod-p298"


def test_who_lets_the_images_of_others_crash_elsewhere_excuses_no_sick_node() -> None:
    """Images have well-known names: one tenant freed a sick node with pods that run `false`."""
    cluster = Cluster("a", "b", cards=0)
    assert [cluster.burn(f"p{n}", **STRANGERS[n]) for n in range(3)] == ["a"] * 3
    for count in range(3):
        cluster.burn(f"x{count}", image=f"i{count}", namespace="red")
    assert "a" in cluster.held()
    assert cluster.node_of("blue", COUNTED, namespace="blue") == "b"


def test_what_several_tenants_have_shown_is_not_pushed_out_by_the_crashes_of_one() -> None:
    """A sick node was free again as soon as one tenant had crashed pods on 128 nodes and cards."""
    cluster = Cluster(*(f"n{number}" for number in range(150)))
    for count, about in enumerate(STRANGERS[:3]):
        cluster.tell(pod(f"x{count}", **about))
        cluster.tell(decided(placement(f"x{count}", "n0", holding(f"GPU-{count}"))))
        cluster.crash(f"x{count}")
    assert cluster.held() == {"n0"}
    for number in range(1, 150):
        cluster.tell(pod(f"p{number}", image=f"r{number}", namespace=f"red{number % 2}"))
        cluster.tell(decided(placement(f"p{number}", f"n{number}")))
        cluster.crash(f"p{number}")
    assert len(cluster.state.health) == health.PLACES_MAX
    assert cluster.held() == {"n0"}


@pytest.mark.parametrize(
    ("why", "is_held"),
    [
        ("rpc error: code = Unknown desc = no device", True),
        ("requested number of devices unavailable for nvidia.com/gpu", True),
        ("not enough cpus available to satisfy request: requested=8, available=7", False),
        (
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough "
            "memory is available",
            False,
        ),
    ],
)
def test_two_tenants_whose_cpus_or_memory_cannot_be_pinned_hold_no_node_back(
    why: str, *, is_held: bool
) -> None:
    """kubelet gives the same reason for them: two tenants' large pods held a healthy node back."""
    cluster = Cluster("a", "b", cards=0)
    ending = Ending(f"Allocate failed due to {why}, which is unexpected")
    for count in range(2):
        cluster.make(
            f"x{count}", COUNTED, namespace=f"ns{count}", image=f"i{count}", owner=f"o{count}"
        )
        cluster.refuse(f"x{count}", ending=ending)
    assert cluster.held() == ({"a"} if is_held else set())
    assert cluster.node_of("blue", COUNTED, namespace="blue") == ("b" if is_held else "a")
    again = cluster.node_of("again", COUNTED, namespace="ns0", image="i0", owner="o0")
    assert again == "b", "it had better try another node"


def hung(*more: str) -> Cluster:
    """The plugin of a does not allocate: x is bound there, and y waits for it."""
    cluster = Cluster("a", *more)
    for uid in ("x", "y"):
        assert cluster.make(uid, WHOLE, namespace=uid).node == "a"  # type: ignore[union-attr]
    cluster.tell(cluster.seen("x", bind_phase="allocating"))
    return cluster


def test_a_plugin_that_serves_nobody_holds_its_node_back_at_once() -> None:
    cluster, turns = hung("b"), Turns()
    assert turns.late(cluster.state, 100.0) == ()
    assert turns.late(cluster.state, 100.0 + UNSERVED_AFTER_S - 1) == ()
    assert turns.late(cluster.state, 100.0 + UNSERVED_AFTER_S) == ("x",)
    assert turns.late(cluster.state, 101.0 + UNSERVED_AFTER_S) == (), "it is told already"
    reserved = cluster.state.pods["y"].allocation
    assert reserved is not None
    assert obstacle_to(cluster.state, reserved) is None
    cluster.tell(TimePassed(at_ms=START_MS, unserved=("x",)))
    assert cluster.held() == {"a"}
    assert obstacle_to(cluster.state, reserved) is not None, "what waited there goes elsewhere"
    assert cluster.node_of("z", WHOLE, namespace="z") == "b", "for whomever"
    assert found(cluster)["node a"].startswith(
        'its device plugin: has not served a pod (x/pod-x at seq 9): "its device plugin has not '
        'acknowledged it"; held back since seq 9'
    )
    assert decode(encode(cluster.state)).health == cluster.state.health
    cluster.tell(cluster.seen("x", bind_phase="success"))
    assert cluster.state.health == {}, "it serves again"
    assert obstacle_to(cluster.state, reserved) is None


def test_a_volunteer_behind_a_pod_that_is_never_served_is_given_back_too() -> None:
    """It is not bound, so nothing can be told of itself. Nor may others follow it one day."""
    cluster, turns = hung(), Turns()
    cluster.tell(TimePassed(at_ms=START_MS, unserved=("x",)))
    assert list(health.unserved(cluster.state)) == []
    cluster.wait(20_000)
    assert list(health.unserved(cluster.state)) == [], "it is on trial"
    assert cluster.node_of("v", WHOLE, namespace="v") == "a"
    assert turns.late(cluster.state, 0.0) == ()
    late = turns.late(cluster.state, UNSERVED_AFTER_S)
    assert late == ("x",)
    cluster.tell(TimePassed(at_ms=cluster.told_ms, unserved=late))
    volunteer = cluster.state.pods["v"].allocation
    assert volunteer is not None
    assert obstacle_to(cluster.state, volunteer) is not None
    assert cluster.state.health["a", "", ""].times == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"bind_phase": "success"},
        {"phase": "Running"},
        {"deleting": True},
        {"holdings": ()},
        {"standing": Standing("a", "vgpu", 1)},
    ],
)
def test_who_is_served_or_was_changed_is_not_waited_for(changes: dict[str, Any]) -> None:
    cluster = hung()
    cluster.tell(cluster.seen("x", **{"bind_phase": "allocating", **changes}))
    assert list(health.unserved(cluster.state)) == []
    cluster.tell(TimePassed(at_ms=START_MS, unserved=("x", "nobody")))
    assert cluster.state.health == {}


def test_a_slow_plugin_is_not_one_that_serves_nobody() -> None:
    """Whose turn it is counts, and not how long the line is."""
    cluster, turns = Cluster("a"), Turns()
    for uid in "wxyz":
        cluster.make(uid)
        cluster.tell(cluster.seen(uid, bind_phase="allocating"))
        cluster.tell(Bound(uid=uid, namespace="", name="", node="a", decision=0))
    now_s = 0.0
    for uid in "wxyz":
        for _ in range(2):
            assert turns.late(cluster.state, now_s) == ()
            now_s += UNSERVED_AFTER_S / 2
        cluster.run(uid)
    assert turns.late(cluster.state, now_s) == ()
