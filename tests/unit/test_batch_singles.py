"""Pods without a PodGroup are judged as the one that is made for them, or wait for it."""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.queues.model import Phase
from allotment.core.queues.order import due
from allotment.core.queues.round.members import is_made_for_pods
from allotment.core.queues.round.views import Views
from allotment_filter.orphans import orphans
from allotment_proto.events import (
    Event,
    GroupObserved,
    PodGone,
    PriorityClassObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.batch_parts import bound, gone, seen
from tests.unit.filtered import Filtered
from tests.unit.lone_pods import CPU, GATED, lone, queue
from tests.unit.queues_parts import in_values
from tests.unit.rounds_world import World, group

EVICTING = Policy(
    tiers=((PluginUse("priority"), PluginUse("gang", off=("enablePreemptable",))),),
    actions=("allocate", "preempt"),
)


def made(uid: str, **changes: Any) -> GroupObserved:
    """The PodGroup that the controller makes for a lone pod."""
    wanted = (("cpu", 2_000), ("pods", 1))
    return group(
        f"podgroup-{uid}", 1, **{"phase": "", "owner": uid, "min_resources": wanted, **changes}
    )


def tied(world: World, uid: str) -> None:
    """The pod's annotation names its PodGroup."""
    seen(world, uid, group=f"default/podgroup-{uid}", queue="")


def told(world: World, uid: str) -> str:
    refusal = world.state.pods[uid].refusal
    return "" if refusal is None or refusal.problem is None else refusal.problem.code


def test_the_gate_binds_lone_pods() -> None:
    """Of four nodes' 32 CPUs 22 are guaranteed to another queue: five pods of 2 CPUs may be had."""
    nodes = [build.node(f"n{n}", 0) for n in range(4)]
    world = World(*nodes, queue("q1", guarantee=(("cpu", 22_000),)), policy=GATED)
    for n in range(8):
        world.tell(lone(f"p{n}", created_ms=n))
    decided = world.decide()
    assert world.placed() == {f"p{n}" for n in range(5)}
    assert decided.admissions == ()
    assert {r.uid: r.problem and r.problem.place for r in decided.refusals} == {
        f"p{n}": "queue default" for n in range(5, 8)
    }
    assert world.decide().placements == ()


def test_a_pod_waits_for_the_podgroup_that_is_made_for_it() -> None:
    world = World(build.node("n1", 0), queue("q1", capability=(("cpu", 2_000),)), policy=GATED)
    for uid in ("a", "b"):
        world.tell(build.pod(uid, CPU, group=f"default/podgroup-{uid}", queue="q1"))
    decided = world.decide(["a", "b"])
    assert world.placed() == set()
    assert [told(world, uid) for uid in ("a", "b")] == ["GroupMissing"] * 2
    assert decided.refusals[0].problem is not None
    assert "the controller makes it" in decided.refusals[0].problem.message
    for uid in ("a", "b"):
        world.tell(made(uid, queue="q1"))
    world.decide()
    assert world.placed() == {"a"}
    assert told(world, "b") == "QueueQuotaInsufficient"


def test_pods_of_an_owner_start_with_its_minimum() -> None:
    world = World(build.node("n1", 0), policy=GATED)
    least = (("cpu", 10_000), ("pods", 5))
    world.tell(group("podgroup-rs", 5, phase="", owner="rs", min_resources=least))
    for n in range(5):
        name = "default/podgroup-rs"
        world.tell(build.pod(f"p{n}", CPU, owner="rs", group=name, queue="default"))
    world.decide()
    assert world.placed() == set()
    world.tell(build.node("n2", 0))
    world.decide()
    assert len(world.placed()) == 5


def test_a_queue_that_is_closed_or_missing_lets_no_pod_in() -> None:
    """Where no PodGroups are made, a pod's own queue counts."""
    world = Filtered(build.node("n1", 0), queue("shut", state="Closed"), policy=GATED)
    world.tell(lone("late", queue="shut"))
    world.tell(lone("lost", queue="nowhere"))
    while world.cycle() is not None:
        pass
    assert world.placed() == set()
    assert told(world, "late") == "QueueClosed"
    assert told(world, "lost") == "QueueUnknown"
    world.tell(queue("nowhere"))
    while world.cycle() is not None:
        pass
    assert world.placed() == {"lost"}


@pytest.mark.parametrize("actions", [("allocate",), ("enqueue", "allocate")])
def test_a_missing_queue_is_said_with_and_without_a_gate(actions: tuple[str, ...]) -> None:
    policy = msgspec.structs.replace(GATED, actions=actions)
    world = World(build.node("n1", 0), policy=policy)
    world.tell(lone("lost", queue="nowhere"))
    decided = world.decide(["lost"])
    assert decided.shorts == ()
    assert told(world, "lost") == "QueueUnknown"
    session = world.rounds.session()
    assert list(orphans(world.state, session, {SINGLE + "lost": world.seq})) == []


def test_a_lone_pods_priority_is_that_of_its_class() -> None:
    """Not that of its annotation, which is for pods of one group."""
    world = World(build.node("n1", 0), policy=GATED)
    world.tell(PriorityClassObserved(uid="c", name="high", rv=1, value=1_000))
    for n in range(4):
        world.tell(lone(f"low{n}", created_ms=n))
    world.decide()
    bound(world, *(f"low{n}" for n in range(4)))
    world.tell(lone("pushy", priority=2_000_000_000, class_priority=0))
    world.tell(lone("real", priority=1_000, priority_class="high", created_ms=9_000))
    jobs = Views(world.state).view().jobs
    assert {job.uid: job.priority for job in jobs if job.phase is Phase.PENDING} == {
        "pod:pushy": 0,
        "pod:real": 1_000,
    }


def test_nobody_goes_for_a_pod_that_gives_itself_a_priority() -> None:
    world = World(build.node("n1", 0), policy=EVICTING)
    for n in range(4):
        world.tell(lone(f"low{n}", created_ms=n))
    world.decide()
    bound(world, *(f"low{n}" for n in range(4)))
    world.tell(lone("pushy", priority=2_000_000_000, class_priority=0))
    assert world.decide().evictions == ()


def test_what_was_freed_for_a_lone_pod_stays_its_own_with_its_podgroup() -> None:
    """Its PodGroup is made while its victim goes, and an older pod of a lower rank waits too."""
    world = World(build.node("n1", 0), policy=EVICTING)
    world.tell(PriorityClassObserved(uid="c", name="high", rv=1, value=1_000))
    for n in range(4):
        world.tell(lone(f"low{n}", created_ms=n))
    world.decide()
    bound(world, *(f"low{n}" for n in range(4)))
    world.tell(lone("older", created_ms=5))
    world.tell(lone("high", priority=1_000, priority_class="high", created_ms=9))
    (eviction,) = world.decide().evictions
    assert eviction.preemptor == "pod:high"
    world.tell(made("high", priority_class="high"))
    tied(world, "high")
    assert list(world.state.nominated) == ["default/podgroup-high"]
    assert world.state.evicting[eviction.uid].preemptor == "default/podgroup-high"
    world.tell(gone(eviction.uid))
    world.decide()
    assert "high" in world.placed()
    assert "older" not in world.placed()


def test_the_podgroup_of_a_lone_pod_that_has_a_place_passed_the_gate() -> None:
    """The queue is full with the pod itself, and its PodGroup is not refused for that."""
    world = World(build.node("n1", 0), queue("default", capability=(("cpu", 2_000),)), policy=GATED)
    world.tell(lone("p"))
    world.decide()
    world.tell(made("p"))
    assert "default/podgroup-p" not in {job.uid for job in Views(world.state).view().jobs}
    assert world.decide(["p"]).admissions == ()
    tied(world, "p")
    assert world.decide(["p"]).admissions == ()
    (job,) = Views(world.state).view().jobs
    assert (job.uid, job.phase) == ("default/podgroup-p", Phase.INQUEUE)


def test_only_its_own_podgroup_takes_over_what_a_lone_pod_was_let_in_for() -> None:
    world = World(build.node("n1", 0), policy=GATED)
    world.tell(lone("p"))
    world.decide()
    world.tell(group("big", 9, phase="", owner=""))
    seen(world, "p", group="default/big", queue="")
    assert not world.state.groups["default/big"].admitted_seq


def test_a_podgroup_that_outlived_its_pods_promises_nothing() -> None:
    world = World(build.node("n1", 0), queue("default", capability=(("cpu", 2_000),)), policy=GATED)
    world.tell(made("late", phase="Inqueue"))
    world.tell(lone("p"))
    world.decide()
    assert world.placed() == {"p"}
    fact = world.state.groups["default/podgroup-late"].fact
    assert fact is not None
    assert is_made_for_pods(fact)
    assert not is_made_for_pods(group("train", 1, owner="job"))


def test_views_are_the_same_whatever_was_followed() -> None:
    """A lone pod comes, gets its PodGroup, and goes before it is tied to it."""
    state = ClusterState()
    events: list[Event] = [
        queue("default"),
        lone("p"),
        made("p"),
        PodGone(uid="p", namespace="default", name="pod-p", rv=2),
    ]
    followed = Views(state)
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
        assert in_values(followed.view()) == in_values(Views(state).view())


def test_an_annotation_moves_no_pod_past_others_without_queues() -> None:
    state = ClusterState()
    apply(state, build.node("n1", 0), 1)
    apply(state, lone("older", created_ms=1), 2)
    apply(state, lone("pushy", created_ms=2, priority=2_000_000_000, class_priority=0), 3)
    assert [pod.fact.uid for pod in due(state, {})] == ["older", "pushy"]


def test_all_members_hear_the_present_reason() -> None:
    """Two were told that others are to come; when all are there, room is what is missing."""
    world = World(build.node("n1", 3), policy=GATED)
    world.tell(group("a", 4, owner=""))
    first = world.pods("a", 2)
    world.decide()
    assert {told(world, uid) for uid in first} == {"NotEnoughTasks"}
    world.pods("a", 2, start=2)
    world.decide()
    assert [told(world, uid) for uid in world.state.groups["default/a"].members] == [
        "NotEnoughResources"
    ] * 4
    assert world.decide().refusals == ()


def test_a_podgroup_that_nobody_owns_promises_nothing_before_it_has_pods() -> None:
    """Made by hand and forgotten: it does not keep a queue's quota from others."""
    least = (("cpu", 2_000),)
    world = World(build.node("n1", 0), queue("default", capability=least), policy=GATED)
    world.tell(group("forgotten", 1, phase="Inqueue", min_resources=least, owner=""))
    world.tell(group("empty", 1, phase="", min_resources=least, owner=""))
    world.tell(lone("p"))
    decided = world.decide()
    assert world.placed() == {"p"}
    assert [(a.group, a.code) for a in decided.admissions] == [("default/empty", "")]


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
def test_quota_is_named_only_where_there_is_one(plugin: str) -> None:
    policy = Policy(
        tiers=((PluginUse("gang"),), (PluginUse(plugin),)), actions=("enqueue", "allocate")
    )
    limited = queue("small", capability=(("cpu", 2_000),))
    world = World(build.node("n1", 0), limited, policy=policy)
    world.tell(lone("e", queue="small"))
    world.decide()
    for uid in ("a", "b", "c", "d"):
        world.tell(lone(uid))
    world.tell(group("big", 9, phase="", owner="", min_resources=(("cpu", 18_000),)))
    decided = world.decide()
    assert {a.group: a.code for a in decided.admissions} == {"default/big": "ClusterInsufficient"}
    world.tell(lone("f"))
    world.tell(lone("g", queue="small"))
    world.decide()
    # of what no queue limits nodes tell; by weight "default" deserves 6 of the 8 CPUs
    of_weight = {"capacity": "", "proportion": "QueueQuotaInsufficient"}[plugin]
    assert (told(world, "f"), told(world, "g")) == (of_weight, "QueueQuotaInsufficient")
