"""What makes a group worth another try."""

import pytest

from allotment.core.placement.cycle import recheck_all
from allotment_proto.events import (
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.batch_parts import gone
from tests.unit.filtered import Filtered
from tests.unit.node_groups import LABEL, in_group, job, tell_queue
from tests.unit.rounds_world import group


class TestNews:
    """Whoever was refused is tried again when something happens that may help."""

    def test_a_group_whose_placement_was_void(self) -> None:
        world = Filtered(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
        uids = world.gang("a", 2)
        world.open()
        found = world.groups.next_batch(())
        assert found is not None
        made = world.round(uids)
        first = made.placements[0]
        world.tell(  # another scheduler was quicker
            build.pod("x", node=first.node, holdings=first.holdings, scheduler="else")
        )
        world.tell(build.decided(*made.placements, basis=world.seq - 1, wholes=made.wholes))
        world.groups.tried(found)
        assert world.placed() == {"x"}
        assert world.cycle() == uids
        assert set(uids) <= world.placed()

    def test_a_group_that_the_binder_dropped(self) -> None:
        world = Filtered(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
        uids = world.gang("a", 2)
        world.open()
        found = world.groups.next_batch(())
        assert found is not None
        made = world.round(uids)
        first = made.placements[0]
        world.tell(build.pod("x", node=first.node, holdings=first.holdings, scheduler="else"))
        kept, dropped, _ = recheck_all(world.state, made.placements, made.wholes)
        assert kept == ()
        world.tell(build.decided(basis=world.seq - 1, batch=tuple(uids), dropped=dropped))
        world.groups.tried(found)
        assert world.cycle() == uids

    def test_one_who_waited_for_quota_that_pending_pods_kept(self) -> None:
        """Under `proportion` what pods of others ask for is quota that one does not get."""
        world = Filtered(build.node("n1", 0, pods=4, cpu_milli=4_000))
        for name in ("a", "b"):
            world.tell(QueueObserved(uid=name, name=name, rv=1))
            world.tell(group(name, 3, queue=name))
        request = build.request(cpu_milli=1_000)
        for name in ("a", "b"):
            for n in range(3):
                world.tell(build.pod(f"{name}{n}", request, group=f"default/{name}"))
        world.cycle()
        assert world.placed() == set(), "each deserves two of four"
        assert world.cycle() is None
        for n in range(3):
            world.tell(gone(f"b{n}"))
        assert world.cycle() == ["a0", "a1", "a2"]
        assert world.placed() == {"a0", "a1", "a2"}

    def test_many_refused_in_front_do_not_hide_one_that_fits(self) -> None:
        """Something happens all the time: those in front are due again before all had a turn."""
        world = Filtered(build.node("n1", 4))
        for n in range(8):
            world.gang(f"big{n}", 5)
        world.tell(build.pod("small", created_ms=9_000))
        world.open()
        for number in range(12):
            found = world.groups.next_batch((), 10)
            assert found is not None
            world.decide(list(found.batch.uids))
            world.groups.tried(found)
            world.tell(build.node("n9", 0, rv=number + 2))
            if "small" in world.placed():
                return
        pytest.fail("it starves")

    def test_an_edit_of_a_group_is_news_and_its_first_sight_is_not(self) -> None:
        world = Filtered(build.node("n1", 1))
        world.gang("a", 2)
        world.cycle()
        assert world.cycle() is None
        world.tell(group("b", 1))
        assert world.cycle() is None
        world.tell(group("a", 1, rv=2))
        assert world.cycle() == ["a-w-0", "a-w-1"]


def test_another_node_group_is_news() -> None:
    """Of a node by its label, and of a queue by its affinity."""
    tiers = ((PluginUse("gang"), PluginUse("nodegroup")),)
    world = Filtered(in_group("n1", "a", 1), in_group("n2", "c", 1), policy=Policy(tiers=tiers))
    tell_queue(world, "team", ("b",))
    first, second = job(world, "x", 1, "team") + job(world, "y", 1, "team")
    assert world.cycle() == [first, second]
    assert world.cycle() is None
    world.tell(build.node("n1", 1, rv=7, labels=((LABEL, "b"),)))
    assert world.cycle() == [first, second]
    assert world.placed() == {first}
    assert world.cycle() is None
    tell_queue(world, "team", ("b", "c"))
    assert world.cycle() == [second]
    assert world.placed() == {first, second}
