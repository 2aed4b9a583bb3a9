"""Who counts as passing a group that waits, and for which groups something is held."""

from typing import Any

import pytest

from allotment_proto.events import PodGone, PriorityClassObserved, QueueObserved, Short
from tests import build
from tests.unit.batch_parts import gone
from tests.unit.filtered import Filtered
from tests.unit.rounds_world import World, group


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


class TestWhatIsHeld:
    def waiting(self, **changes: Any) -> Filtered:
        """A group that 70 pods passed by, and room for nobody else."""
        world = Filtered(build.node("n1", 2), build.node("n2", 2))
        world.gang("run", 3, members=1)
        world.decide()
        world.decide()
        self.big = world.gang("big", 4)
        world.decide()
        big = world.state.groups["default/big"]
        assert big.short is not None
        big.passed = 70
        return world

    def small(self, world: World, uid: str) -> None:
        world.tell(build.pod(uid, build.request(build.wants(16_000, 0)), created_ms=9_000))

    def test_nothing_is_held_for_a_group_whose_pods_are_gone(self) -> None:
        world = self.waiting()
        self.small(world, "small")
        world.cycle()
        assert [held.group for held in world.state.holds] == ["default/big"]
        assert "small" not in world.placed()
        for uid in self.big:
            world.tell(gone(uid))
        while world.cycle() is not None:
            pass
        assert world.state.holds == ()
        assert "small" in world.placed()

    def test_nothing_is_held_for_a_group_that_is_not_complete(self) -> None:
        world = self.waiting()
        world.tell(gone(self.big[0]))
        self.small(world, "small")
        world.decide()
        assert world.state.holds == ()
        assert "small" in world.placed()

    def test_nothing_is_held_for_a_group_of_a_closed_queue(self) -> None:
        world = self.waiting()
        world.tell(QueueObserved(uid="t", name="train", rv=1, state="Closed"))
        world.tell(group("big", 4, rv=2, queue="train"))
        world.decide()
        world.state.groups["default/big"].passed = 70
        self.small(world, "small")
        world.decide()
        assert world.state.holds == ()
        assert "small" in world.placed()

    def test_the_end_of_a_hold_is_news(self) -> None:
        world = self.waiting()
        world.tell(build.node("n3", 1))
        self.small(world, "small")
        self.small(world, "other")
        world.cycle()
        world.tell(group("big", 2, rv=2))
        while world.cycle() is not None:
            pass
        assert world.state.holds == ()

    def test_a_hopeless_group_is_looked_at_once(self) -> None:
        world = self.waiting()
        world.tell(group("big", 4, rv=2))
        world.pods("big", 30, start=4)
        world.tell(group("big", 30, rv=3))
        world.decide()
        world.state.groups["default/big"].passed = 70
        self.small(world, "small")
        world.decide()
        assert world.state.holds == ()
        assert "small" in world.placed()
