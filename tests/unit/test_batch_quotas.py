"""Whose pods count against which quota, and that nobody takes it twice."""

import pytest

from allotment.core.ledger import snapshot
from allotment.core.queues.round.rounds import Rounds
from allotment_binder.deciding import Deciding
from allotment_board.board import Board
from allotment_proto.events import (
    Decided,
    GroupGone,
    QueueGone,
    QueueObserved,
    StageTime,
)
from allotment_proto.facts import PluginUse, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.batch_parts import CAPACITY, LIMITED, bound, gone, seen
from tests.unit.rounds_world import World, group


class TestQuotas:
    def world(self) -> World:
        world = World(build.node("n1", 8), policy=CAPACITY)
        world.tell(QueueObserved(uid="q", name="default", rv=2, capability=LIMITED))
        return world

    def test_pods_without_a_group_count_as_long_as_they_are_there(self) -> None:
        world = self.world()
        for n in range(6):
            world.tell(build.pod(f"p{n}"))
        for _ in range(3):
            world.decide()
        assert len(world.placed()) == 2
        bound(world, *world.placed())
        world.decide()
        assert len(world.placed()) == 2
        world.tell(gone(min(world.placed())))
        world.decide()
        assert len(world.placed()) == 2

    def test_two_proposals_on_one_state_do_not_take_the_same_quota(self) -> None:
        """The first was thought lost, and the next is made before it is decided."""
        world = self.world()
        for n in range(4):
            world.tell(build.pod(f"p{n}"))
        proposals = [self.proposal(world, f"p{n}", f"p{n + 1}") for n in (0, 2)]
        for proposal in proposals:
            found = (
                Deciding(world.state).decide(proposal, 1, StageTime("binder", "b", 1, 2)).decided
            )
            if isinstance(found, Decided):
                world.tell(found)
        assert world.placed() == {"p0", "p1"}

    def proposal(self, world: World, *uids: str) -> Proposal:
        found = world.round(list(uids))
        return Proposal(
            v=MESSAGE_VERSION,
            cycle=uids[0],
            basis=world.seq,
            policy=0,
            batch=uids,
            placements=found.placements,
            refusals=found.refusals,
            stages=(),
        )

    def test_pods_of_other_schedulers_do_not(self) -> None:
        world = self.world()
        for n in range(3):
            world.tell(build.pod(f"x{n}", scheduler="default-scheduler", node="n1"))
        world.tell(build.pod("ours"))
        world.decide()
        assert "ours" in world.placed()

    def test_a_group_that_comes_late_takes_its_pods_over(self) -> None:
        world = self.world()
        world.tell(build.pod("late"))
        world.decide()
        bound(world, "late")
        world.tell(group("a", 1))
        seen(world, "late", group="default/a")
        world.tell(build.pod("more"))
        world.tell(build.pod("most"))
        world.decide()
        assert len(world.placed()) == 2, "the pod counts once, and it does count"

    def test_pods_whose_group_is_gone_still_count(self) -> None:
        world = self.world()
        uids = world.gang("a", 2)
        world.decide()
        bound(world, *uids)
        world.tell(GroupGone(uid="uid-a", namespace="default", name="a", rv=9))
        world.gang("b", 1)
        world.decide()
        assert world.placed() == set(uids)
        again = snapshot.decode(snapshot.encode(world.state))
        found = Rounds(again).run(["b-w-0"], Board(again))
        assert found.placements == ()

    def test_without_a_queue_of_that_name_there_is_still_the_default(self) -> None:
        world = World(build.node("n1", 8))
        world.tell(QueueObserved(uid="t", name="train", rv=1))
        world.tell(QueueGone(uid="q", name="default", rv=2))
        world.tell(build.pod("solo"))
        world.decide()
        assert world.placed() == {"solo"}


@pytest.mark.parametrize(("on", "placed"), [(("enableHierarchy",), 2), ((), 4)])
def test_a_quota_above_counts_where_hierarchy_is_on(on: tuple[str, ...], placed: int) -> None:
    tiers = ((PluginUse("gang"),), (PluginUse("capacity", on=on),))
    world = World(build.node("n1", 8), policy=Policy(tiers=tiers))
    world.tell(QueueObserved(uid="org", name="org", rv=1, capability=LIMITED))
    for name in ("a", "b"):
        world.tell(QueueObserved(uid=name, name=name, rv=1, parent="org"))
        world.tell(group(name, 1, queue=name))
        world.pods(name, 2)
    world.decide()
    assert len(world.placed()) == placed
