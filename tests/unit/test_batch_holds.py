"""Who counts as passing a group that waits, and for which groups something is held."""

from typing import Any

import pytest

from allotment_proto.events import PodGone, PriorityClassObserved, QueueObserved, Short
from tests import build
from tests.unit.test_batch_rounds import World, group


def full(cards: int = 2) -> World:
    """Two nodes without a free card."""
    world = World(build.node("n1", cards), build.node("n2", cards))
    for name, value in (("high", 9), ("low", 1)):
        world.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))
    world.tell(QueueObserved(uid="vip", name="vip", rv=1, priority=1))
    world.gang("s0", 2 * cards, members=1)
    world.decide()
    return world


def passes(world: World, name: str, **changes: Any) -> None:
    """A pod ends, and another one gets its place."""
    oldest = next(uid for uid in world.state.pods if uid in world.placed())
    world.tell(PodGone(uid=oldest, namespace="default", name=oldest, rv=9))
    world.tell(group(name, 1, **changes))
    (uid,) = world.pods(name, 1)
    world.decide([uid])
    assert uid in world.placed()


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"priority_class": "low"}, True),
        ({}, True),
        ({"priority_class": "high"}, False),
        ({"queue": "vip"}, False),
    ],
)
def test_who_outranks_a_group_does_not_pass_it(changes: dict[str, Any], *, counts: bool) -> None:
    world = full()
    world.tell(group("big", 2, priority_class="low"))
    world.pods("big", 2)
    world.decide()
    passes(world, "one", **changes)
    waiting = world.state.groups["default/big"]
    assert waiting.passed == counts


def test_a_pod_without_a_group_passes_by_its_own_priority() -> None:
    world = full()
    world.gang("big", 2)
    world.decide()
    for uid, priority, passed in (("equal", 0, 1), ("higher", 1, 1)):
        oldest = next(uid for uid in world.state.pods if uid in world.placed())
        world.tell(PodGone(uid=oldest, namespace="default", name=oldest, rv=9))
        wanted = build.request(build.wants(16_000, 0))
        world.tell(build.pod(uid, wanted, name=uid, priority=priority))
        world.decide()
        assert uid in world.placed()
        assert world.state.groups["default/big"].passed == passed


def test_a_group_short_of_quota_is_passed_in_its_queue_and_below() -> None:
    world = full(4)
    for name, parent in (("team", "root"), ("below", "team"), ("other", "root")):
        world.tell(QueueObserved(uid=name, name=name, rv=1, parent=parent))
    world.gang("big", 2)
    world.decide()
    short = Short("default/big", "QueueQuotaInsufficient", "", 2, 2, 0, tried=True, queue="team")
    world.tell(build.decided(basis=world.seq, shorts=(short,)))
    waiting = world.state.groups["default/big"]
    for name, queue, passed in (("a", "other", 0), ("b", "below", 1), ("c", "team", 2)):
        passes(world, name, queue=queue)
        assert waiting.passed == passed


@pytest.mark.parametrize(("members", "number", "held"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_only_what_is_big_gets_a_hold(members: int, number: int, *, held: bool) -> None:
    """Two pods at once, or one pod that wants two cards."""
    world = full()
    world.tell(group("big", members))
    request = build.request(build.wants(16_000, 0, number))
    for n in range(members):
        world.tell(build.pod(f"big-{n}", request, name=f"big-{n}", group="default/big", role="w"))
    world.decide()
    world.state.groups["default/big"].passed = 64
    world.gang("late", 1)
    world.decide()
    assert bool(world.state.holds) == held
