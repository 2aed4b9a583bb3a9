"""Pods without a PodGroup are judged as the one that is made for them, or wait for it."""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.queues.model import Phase
from allotment.core.queues.order import due
from allotment.core.queues.round.views import Views
from allotment_filter.orphans import orphans
from allotment_proto.events import (
    Event,
    GroupObserved,
    PodGone,
    PriorityClassObserved,
)
from tests import build
from tests.unit.batch_parts import bound
from tests.unit.filtered import Filtered
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.queues_parts import in_values
from tests.unit.rounds_world import World, group


def made(uid: str, **changes: Any) -> GroupObserved:
    """The PodGroup that the controller makes for a lone pod."""
    wanted = (("cpu", 2_000), ("pods", 1))
    return group(
        f"podgroup-{uid}", 1, **{"phase": "", "owner": uid, "min_resources": wanted, **changes}
    )


def told(world: World, uid: str) -> str:
    refusal = world.state.pods[uid].refusal
    return "" if refusal is None or refusal.problem is None else refusal.problem.code


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
