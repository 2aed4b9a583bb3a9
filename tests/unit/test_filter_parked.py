"""Lone pods that would be told once more what they were told are skipped, class by class."""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import SINGLE
from allotment.core.placement.cycle import BATCH_MAX
from allotment.core.queues.model import Phase, SubGroupRule
from allotment_board.board import Board
from allotment_filter.groups import Groups
from allotment_filter.parked import CLASSES_MAX, MORE_TIMES, _Lone
from allotment_proto.events import (
    Held,
    PodGone,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import (
    Attachment,
    Company,
    Expression,
    HostPort,
    LocalClaim,
    LocalVolume,
    PluginUse,
    PodTerm,
    Policy,
    Problem,
    TaskTopology,
)
from tests import build
from tests.unit.filtered import Filtered
from tests.unit.queues_parts import job, session, statuses, tasks

WHOLE = build.request(build.wants(16_000, 0))
HALF = build.request(build.wants(8_000, 0))
PLAIN = Policy(tiers=((PluginUse("priority"),),), actions=("allocate", "backfill"))
QUOTA = Policy(tiers=((PluginUse("capacity"),),), actions=("allocate", "backfill"))

GATED = Policy(tiers=QUOTA.tiers, actions=("enqueue", "allocate", "backfill"))
ONE_POD = (("cpu", 1 << 40), ("memory", 1 << 50), ("pods", 1))


class Parking(Filtered):
    """A world whose filter parks pods. `loaded`: whether nodes can be asked."""

    def __init__(self, *events: Any, policy: Policy = PLAIN) -> None:
        super().__init__(*events, policy=policy)
        self.loaded = True
        self.groups = Groups(self.state, lambda: Board(self.state) if self.loaded else None)

    def lone(self, *uids: str, wanted: Any = WHOLE, **changes: Any) -> None:
        for uid in uids:
            at = self.seq + 1
            changes = {"queue": "default", "created_ms": at, "rv": at, **changes}
            self.tell(build.pod(uid, wanted, **changes))
            del changes["created_ms"], changes["rv"]

    def ends(self, uid: str) -> None:
        fact = self.state.pods[uid].fact
        self.tell(PodGone(uid=uid, namespace=fact.namespace, name=fact.name, rv=self.seq))

    def room_elsewhere(self) -> None:
        """Something ends that nobody waits for: room appeared, for none of them."""
        self.tell(build.pod("passer-by", build.request(), node="n1", scheduler="other"))
        self.ends("passer-by")

    @property
    def parked(self) -> set[str]:
        return {job.removeprefix(SINGLE) for job in self.groups.lines.parked}

    def cycles(self) -> list[list[str]]:
        """Decide until nothing is due."""
        found = []
        while (batch := self.cycle()) is not None:
            found.append(batch)
            assert len(found) < 50
        return found


def full(*waiting: str, policy: Policy = PLAIN, **changes: Any) -> Parking:
    """A node with one card, which is taken; others wait for it and were told so."""
    world = Parking(build.node("n1", 1), policy=policy)
    world.lone("first")
    assert world.cycles() == [["first"]]
    world.lone(*waiting, **changes)
    assert world.cycles() == [list(waiting)]
    return world


def test_room_for_nobody_costs_no_cycle() -> None:
    world = full("a", "b", "c")
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"a", "b", "c"}
    asked = world.groups.parked.asked if world.groups.parked else 0
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.groups.parked is not None
    assert world.groups.parked.asked == asked + 1, "once for all three"


def test_the_first_of_a_class_has_the_room_and_the_others_stay() -> None:
    world = full("a", "b", "c")
    for gone, next_ in (("first", "a"), ("a", "b"), ("b", "c")):
        world.room_elsewhere()
        assert world.cycles() == []
        world.ends(gone)
        assert world.next() == [next_]
        assert world.parked == {"a", "b", "c"} & world.state.pending.keys() - {next_}
        assert world.cycles() == [[next_]]
        assert next_ in world.placed()
        assert world.parked == {"a", "b", "c"} & world.state.pending.keys()


def test_as_many_are_tried_as_there_is_room_for() -> None:
    world = full("a", "b", "c", "d", wanted=HALF)
    world.room_elsewhere()
    world.cycles()
    world.ends("first")
    assert world.cycles() == [["a"], ["b"]], "two halves"
    world.tell(build.node("n2", 2))
    assert world.cycles() == [["c", "d"]]
    assert world.placed() == {"a", "b", "c", "d"}
    assert world.parked == set()


def test_where_room_is_left_all_that_may_take_it_are_tried_though_others_end() -> None:
    world = Parking(build.node("n1", 2), build.node("n2", 0))
    world.lone("x", "y")
    world.cycles()
    world.lone("a", "b", "c", "d", wanted=HALF)
    world.cycles()
    something_ends_on_the_other(world)
    assert world.cycles() == []
    world.ends("x")
    world.ends("y")
    assert world.cycle() == ["a"]
    something_ends_on_the_other(world)
    assert world.cycle() == ["b", "c", "d"]
    assert world.placed() == {"a", "b", "c", "d"}


def test_a_larger_one_in_front_does_not_hold_up_a_smaller_one() -> None:
    world = Parking(build.node("n1", 1))
    world.lone("h1", "h2", wanted=HALF)
    world.cycles()
    world.lone("large")
    world.lone("small", wanted=HALF)
    world.cycles()
    world.ends("h1")
    assert world.cycles() == [["small"]], "the larger one would be told the same once more"
    assert world.parked == {"large"}
    world.ends("h2")
    world.ends("small")
    assert world.cycles() == [["large"]]


def test_who_is_refused_for_another_reason_is_told() -> None:
    world = full("a", "b")
    world.room_elsewhere()
    world.cycles()
    world.tell(build.node("n2", 1, unschedulable=True))
    assert world.cycles() == [["a", "b"]]
    for uid in ("a", "b"):
        refusal = world.state.pods[uid].refusal
        assert refusal is not None
        assert refusal.nodes == 2
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"a", "b"}


def test_a_pod_that_changes_is_looked_at_again() -> None:
    world = full("a", "b")
    world.room_elsewhere()
    world.cycles()
    fact = world.state.pods["b"].fact
    nothing = build.request()
    world.tell(msgspec.structs.replace(fact, rv=99, request=nothing))
    assert world.cycles() == [["b"]]
    assert "b" in world.placed()
    world.ends("a")
    assert world.parked == {"a"}, "until the next batch is chosen"
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == set()


@pytest.mark.parametrize(
    "changes",
    [
        {
            "wanted": msgspec.structs.replace(
                WHOLE, company=Company(ports=(HostPort("TCP", "", 80),))
            )
        },
        {"wanted": msgspec.structs.replace(WHOLE, attachments=(Attachment("d", "c"),))},
        {"local_claims": (LocalClaim("claim", (LocalVolume("anywhere"),)),)},
        {"problem": Problem("InvalidRequest", "annotation", "cannot be read")},
        {"group": "default/of-two"},
    ],
)
def test_others_are_tried_each_time(changes: Any) -> None:
    world = Parking(build.node("n1", 1))
    world.lone("first")
    world.cycles()
    world.lone("a", **changes)
    world.cycles()
    world.room_elsewhere()
    world.cycles()
    assert world.parked == set()


def taken_by_others(world: Parking, pods: int) -> None:
    """The node has no room for another pod, which makes it refuse for another reason."""
    for number in range(pods):
        world.tell(build.pod(f"other-{number}", build.request(), node="n1", scheduler="other"))


def with_few_pods(*waiting: str) -> Parking:
    """A full node, on which there may be two more pods; and one where something can end."""
    world = Parking(build.node("n1", 1, pods=3), build.node("n2", 0))
    world.lone("first")
    world.cycles()
    world.lone(*waiting)
    world.cycles()
    return world


def something_ends_on_the_other(world: Parking) -> None:
    world.tell(build.pod("passer-by", build.request(), node="n2", scheduler="other"))
    world.ends("passer-by")


def test_a_class_that_is_refused_for_other_reasons_is_told() -> None:
    world = with_few_pods("a", "b")
    something_ends_on_the_other(world)
    assert world.cycles() == []
    taken_by_others(world, 2)
    something_ends_on_the_other(world)
    assert world.cycles() == [["a", "b"]]


@pytest.mark.parametrize("created_ms", [1, 10_000])
def test_who_was_told_something_else_than_the_others_is_tried(created_ms: int) -> None:
    world = with_few_pods("old")
    taken_by_others(world, 2)
    world.lone("new", created_ms=created_ms)
    assert world.cycles() == [["new"]]
    something_ends_on_the_other(world)
    assert world.cycles() == [["old"]]
    assert world.parked == {"new"}
    something_ends_on_the_other(world)
    assert world.cycles() == []
    assert world.parked == {"old", "new"}


def test_a_parked_pod_that_cannot_be_read_any_more_is_told() -> None:
    world = full("a")
    world.room_elsewhere()
    assert world.cycles() == []
    problem = Problem("InvalidRequest", "annotation", "cannot be read")
    fact = world.state.pods["a"].fact
    world.tell(msgspec.structs.replace(fact, rv=99, problem=problem))
    assert world.cycles() == [["a"]]
    refusal = world.state.pods["a"].refusal
    assert refusal is not None
    assert refusal.problem == problem


def test_a_class_that_found_no_room_once_is_tried_by_the_room_again() -> None:
    world = Parking(build.node("n1", 1))
    world.lone("first")
    world.cycles()
    little_less = build.request(build.wants(15_999, 0))
    for uid in ("a1", "a2", "a3"):
        world.lone(uid)
    world.lone("b1", "b2", "b3", wanted=little_less)
    world.cycles()
    for gone, next_ in (("first", "a1"), ("a1", "a2")):
        world.room_elsewhere()
        world.cycles()
        world.ends(gone)
        assert world.cycles() == [[next_]], "the first in order, whoever got it the time before"
        assert next_ in world.placed()


def test_the_namespace_whose_turn_it_is_has_the_room() -> None:
    turns = msgspec.structs.replace(PLAIN, namespace_turns=True)
    world = full("a1", "a2", "a3", policy=turns, namespace="often")
    world.lone("b1", namespace="seldom")
    world.cycles()
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"a1", "a2", "a3", "b1"}
    for gone, next_ in (("first", "a1"), ("a1", "b1"), ("b1", "a2")):
        world.ends(gone)
        assert world.cycles() == [[next_]]
        assert next_ in world.placed()


GANGS = Policy(tiers=((PluginUse("priority"), PluginUse("gang")),), actions=PLAIN.actions)
CARD_NAMES = Policy(tiers=((PluginUse("capacity-card"),),), actions=PLAIN.actions)
NODE_GROUPS = Policy(tiers=((PluginUse("nodegroup"),),), actions=PLAIN.actions)


@pytest.mark.parametrize(
    ("policy", "names", "chooses"),
    [
        (CARD_NAMES, ("NVIDIA-A100",), True),
        (CARD_NAMES, (), False),
        (NODE_GROUPS, (), True),
        (QUOTA, (), False),
        (PLAIN, (), False),
    ],
)
def test_for_whom_plugins_choose_nodes(
    policy: Policy, names: tuple[str, ...], chooses: bool
) -> None:
    labels = (("nvidia.com/gpu.product", "NVIDIA-A100"),)
    node = build.node("n1", 0, labels=labels, extended=(("nvidia.com/gpu", 1),))
    world = Parking(node, policy=policy)
    wanted = build.request(extended=(("nvidia.com/gpu", 1),))
    world.lone("a", wanted=wanted, card_names=names)
    assert world.groups.rounds.session().chooses_nodes(f"{SINGLE}a") == chooses


def test_where_plugins_choose_nodes_pods_do_not_wait_for_the_same() -> None:
    in_group = {"labels": (("volcano.sh/nodegroup-name", "g"),)}
    nodes = build.node("n1", 1, **in_group), build.node("n2", 0, **in_group)
    world = Parking(*nodes, policy=NODE_GROUPS)
    world.tell(QueueObserved(uid="q", name="default", rv=2, node_groups=(("g",), (), (), ())))
    world.lone("first")
    world.cycles()
    world.lone("a", "b")
    world.cycles()
    for _ in range(3):
        something_ends_on_the_other(world)
        assert world.cycles() == [["a", "b"]]
        assert world.parked == set()


def test_one_group_of_nodes_does_not_hold_up_another() -> None:
    world = Parking(policy=NODE_GROUPS)
    for at, name in enumerate("cab"):
        groups = ((name,), (), (), ())
        at_ms = at + 1
        queue = QueueObserved(uid=name, name=name, rv=1, created_ms=at_ms, node_groups=groups)
        world.tell(queue)
        world.tell(build.node(f"n-{name}", 1, labels=(("volcano.sh/nodegroup-name", name),)))
        world.lone(f"{name}-run", queue=name)
    world.cycles()
    world.lone(*(f"c{number}" for number in range(8)), queue="c")
    world.lone(*(f"a{number}" for number in range(8)), queue="a")
    world.lone("b0", queue="b")
    world.cycles()
    world.ends("b-run")
    world.ends("c-run")
    world.cycle()
    assert {"b0", "c0"} < world.placed()


def test_queues_that_ask_the_same_have_room_each() -> None:
    world = Parking(build.node("n1", 1), build.node("n2", 0), policy=QUOTA)
    for name, at in (("a", 1), ("b", 2)):
        world.tell(QueueObserved(uid=name, name=name, rv=1, created_ms=at))
    world.lone("b-run", queue="b")
    world.cycles()
    world.lone("a0", "a1", queue="a")
    world.lone("b0", queue="b")
    world.cycles()
    something_ends_on_the_other(world)
    assert world.cycles() == []
    nothing = (("cpu", 0), ("memory", 0), ("pods", 0))
    world.tell(QueueObserved(uid="a", name="a", rv=2, created_ms=1, capability=nothing))
    world.ends("b-run")
    world.cycle()
    assert world.placed() == {"b0"}, "whatever is refused to the other queue"


def test_while_nodes_are_held_for_a_gang_pods_do_not_wait_for_the_same() -> None:
    world = full("a", "b")
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"a", "b"}
    world.state.holds = (Held("default/big", 1, ("n1",), ""),)
    world.room_elsewhere()
    assert world.next() == ["a", "b"]
    assert world.parked == set()


def test_which_groups_wait_as_a_whole() -> None:
    tiers = (("gang",),)
    rule, topology = SubGroupRule("w", 1, 1), TaskTopology()
    jobs = (
        job("waits", statuses("waits", Pending=3), min_member=2),
        job("runs", statuses("runs", Running=1, Pending=1), min_member=2),
        job("gated", tasks("gated", 2, gated=True)),
        job("at-gate", statuses("at-gate", Pending=1), phase=Phase.PENDING),
        job("in-parts", statuses("in-parts", Pending=1), sub_groups=(rule,)),
        job("laid-out", statuses("laid-out", Pending=1), topology=topology),
    )
    opened = session(*jobs, tiers=tiers)
    found = {uid: opened.all_waiting(uid) for uid in opened.jobs}
    names = ["waits-w-0", "waits-w-1", "waits-w-2"]
    assert found.pop("waits") == (2, names)
    assert set(found.values()) == {None}
    assert session(*jobs, tiers=(("priority",),)).all_waiting("waits") == (1, names)


def test_who_waits_for_the_next_room_is_not_looked_at_meanwhile() -> None:
    names = [f"w{number:02}" for number in range(40)]
    world = Parking(*(build.node(f"n{number}", 1) for number in range(8)))
    world.lone(*(f"r{number}" for number in range(8)))
    world.cycles()
    world.lone(*names)
    world.cycles()
    world.ends("r0")
    world.cycle()
    before = world.groups.lines.visited
    for number in range(1, 6):  # something ends before it comes to rest
        world.ends(f"r{number}")
        assert world.cycle() == [names[number]]
    assert world.groups.lines.visited - before < 5 * 5


def test_how_often_the_room_is_tried_has_a_bound() -> None:
    world = Parking(build.node("n1", 1), policy=QUOTA)
    world.lone("first")
    world.cycles()
    world.tell(limited(50, 3))
    world.ends("first")
    parked = world.groups.parked
    assert parked is not None
    under = _Lone("default", WHOLE, "")
    for number in range(30):
        world.lone(f"w{number}")
        parked._offered[under] = {f"{SINGLE}w{number}": f"w{number}"}
        parked.tried()
    assert parked._times[under] == BATCH_MAX


def gang_world(*names: str, pods: int = 2, **node: Any) -> Parking:
    """Groups that were let in wait for a card each of their pods."""
    world = Parking(build.node("n1", 2, **node), build.node("n2", 0), policy=GANGS)
    world.lone("one", "two")
    world.cycles()
    for name in names:
        world.gang(name, pods)
    world.cycles()
    return world


def test_groups_of_whom_nobody_fits_are_parked_together() -> None:
    world = gang_world("a", "b", "c")
    something_ends_on_the_other(world)
    assert world.cycles() == []
    assert set(world.groups.lines.parked) == {"default/a", "default/b", "default/c"}
    world.ends("one")
    world.ends("two")
    assert world.cycles() == [["a-w-0", "a-w-1"]], "there is room for one of them"
    assert world.placed() == {"a-w-0", "a-w-1"}
    assert set(world.groups.lines.parked) == {"default/b", "default/c"}


def test_groups_of_whom_some_fit_are_told_how_many() -> None:
    world = gang_world("a", "b")
    something_ends_on_the_other(world)
    assert world.cycles() == []
    world.ends("one")
    assert world.cycles() == [["a-w-0", "a-w-1", "b-w-0", "b-w-1"]]
    for name in ("a", "b"):
        short = world.state.groups[f"default/{name}"].short
        assert short is not None
        assert short.together == 1


def test_a_parked_group_that_gets_another_pod_is_tried() -> None:
    world = gang_world("a", "b")
    something_ends_on_the_other(world)
    assert world.cycles() == []
    world.pods("a", 1, start=2)
    assert world.cycles() == [["a-w-0", "a-w-1", "a-w-2"]]
    something_ends_on_the_other(world)
    assert world.cycles() == []
    assert set(world.groups.lines.parked) == {"default/a", "default/b"}


def test_groups_whose_pods_differ_are_tried() -> None:
    world = gang_world("a")
    world.pods("a", 1, memory_mib=8_000, start=2)
    world.cycles()
    something_ends_on_the_other(world)
    assert world.cycles() == [["a-w-0", "a-w-1", "a-w-2"]]


def test_a_group_of_which_somebody_runs_is_tried() -> None:
    world = Parking(build.node("n1", 1), build.node("n2", 0), policy=GANGS)
    world.gang("a", 1)
    world.pods("a", 1, start=1)
    world.cycles()
    assert len(world.placed()) == 1
    something_ends_on_the_other(world)
    assert world.cycles() == [["a-w-1"]]


@pytest.mark.parametrize(("app", "are_parked"), [("x", False), ("other", True)])
def test_only_rules_that_are_about_a_pod_keep_it_from_being_parked(
    app: str, are_parked: bool
) -> None:
    labels = (("app", "x"),)
    world = full("a", "b", labels=labels)
    world.room_elsewhere()
    world.cycles()
    assert world.parked == {"a", "b"}
    away = Company(away=(PodTerm("zone", ("default",), (Expression("app", "In", (app,)),)),))
    world.lone("rule", wanted=build.request(company=away))
    world.room_elsewhere()
    world.cycles()
    assert world.parked == ({"a", "b"} if are_parked else set())


def test_pods_for_whom_others_may_have_to_go_are_tried_and_all_others_parked() -> None:
    evicts = Policy(tiers=((PluginUse("priority"),),), actions=("allocate", "backfill", "preempt"))
    world = full("a", "b", policy=evicts)
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"a", "b"}, "nobody has a lower priority than they"
    world.tell(PriorityClassObserved(uid="high", name="high", rv=1, value=100))
    first = world.state.pods["first"]
    assert first.allocation is not None
    here = {"node": "n1", "phase": "Running", "holdings": first.allocation.holdings}
    world.tell(msgspec.structs.replace(first.fact, rv=world.seq, **here))
    world.lone("top", priority_class="high")
    assert world.cycles() == [["top"]]
    assert "first" in world.state.evicting
    world.room_elsewhere()
    assert world.cycles() == [["top"]]
    assert world.parked == {"a", "b"}


def test_while_nodes_cannot_be_asked_everybody_is_tried() -> None:
    world = full("a", "b")
    world.loaded = False
    world.room_elsewhere()
    assert world.cycles() == [["a", "b"]]
    assert not (world.groups.parked and world.groups.parked.asks_nodes)
    world.loaded = True
    world.room_elsewhere()
    assert world.cycles() == []


def test_more_classes_than_are_worth_asking_are_tried() -> None:
    names = [f"w{number:03}" for number in range(CLASSES_MAX + 3)]
    world = Parking(build.node("n1", 1))
    world.lone("first")
    world.cycles()
    for number, name in enumerate(names):
        wanted = msgspec.structs.replace(WHOLE, memory_bytes=number)
        world.lone(name, wanted=wanted)
    world.cycles()
    world.room_elsewhere()
    assert world.cycles() == [names[CLASSES_MAX:]]
    assert world.parked == set(names[:CLASSES_MAX])


def limited(cpu_milli: int, rv: int) -> QueueObserved:
    limit = (("cpu", cpu_milli), ("memory", 1 << 50), ("pods", 1 << 20))
    return QueueObserved(uid="q", name="default", rv=rv, capability=limit)


def test_who_waits_for_quota_waits_until_his_queue_has_some() -> None:
    world = Parking(build.node("n1", 4), policy=QUOTA)
    world.tell(limited(250, 2))
    world.lone("a", "b", wanted=HALF)
    world.cycles()
    world.lone("c", "d", wanted=HALF)
    assert world.cycles() == [["c", "d"]]
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"c", "d"}
    world.ends("a")
    assert world.cycles() == [["c", "d"]], "how many quota covers is not known before"
    assert world.placed() == {"b", "c"}
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"d"}
    world.tell(limited(10_000, 3))
    assert world.cycles() == [["d"]]
    assert world.placed() == {"b", "c", "d"}


def test_pods_that_ask_for_nothing_need_no_quota() -> None:
    world = Parking(build.node("n1", 1, pods=2), policy=QUOTA)
    world.tell(limited(100, 2))
    world.lone("a", wanted=HALF)
    world.lone("b", wanted=HALF)
    nothing = build.request(cpu_milli=0, memory_bytes=0)
    world.lone("first", "second", wanted=nothing)
    world.cycles()
    assert world.placed() == {"a", "first"}
    world.room_elsewhere()
    assert world.cycles() == [["b"]], "it is told that there is no pod left either"
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"b", "second"}
    world.ends("first")
    world.cycles()
    assert world.placed() == {"a", "second"}


def test_who_was_refused_at_a_gate_that_is_gone_is_tried() -> None:
    world = Parking(build.node("n1", 2), policy=GATED)
    world.tell(QueueObserved(uid="q", name="default", rv=2, capability=ONE_POD))
    world.lone("a", wanted=HALF)
    world.cycles()
    world.lone("nothing", wanted=build.request(cpu_milli=0, memory_bytes=0))
    assert world.cycles() == [["nothing"]]
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == {"nothing"}, "the gate is for all"
    world.tell(PolicyLoaded(policy=QUOTA, source="", text_sha256=""))
    assert world.cycles() == [["nothing"]]
    assert world.placed() == {"a", "nothing"}


def test_who_is_refused_at_the_gate_of_the_cluster_waits_there() -> None:
    tiers = ((PluginUse("overcommit"),),)
    world = Parking(build.node("n1", 1, pods=1), policy=msgspec.structs.replace(GATED, tiers=tiers))
    world.lone("first")
    world.cycles()
    world.lone("a", "b")
    world.cycles()
    told = {uid: world.state.pods[uid].refusal for uid in ("a", "b")}
    assert all(refusal is not None and refusal.problem is not None for refusal in told.values())
    world.tell(build.node("n2", 0, pods=0))
    world.cycles()
    something_ends_on_the_other(world)
    assert world.cycles() == []
    assert world.parked == {"a", "b"}


def test_where_nodes_have_room_and_a_queue_has_none_more_are_tried_each_time() -> None:
    names = [f"w{number:02}" for number in range(20)]
    world = Parking(build.node("n1", 1), policy=QUOTA)
    world.lone("first")
    world.cycles()
    world.lone(*names)
    world.cycles()
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == set(names)
    world.tell(limited(50, 3))
    world.ends("first")
    tried = world.cycles()
    assert [len(batch) for batch in tried] == [1, MORE_TIMES, 20 - 1 - MORE_TIMES]
    assert [uid for batch in tried for uid in batch] == names
    world.room_elsewhere()
    assert world.cycles() == []
    assert world.parked == set(names)
