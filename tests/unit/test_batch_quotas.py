"""Whose pods count against which quota, and that nobody takes it twice."""

from allotment_binder.deciding import Deciding
from allotment_proto.events import (
    Decided,
    QueueObserved,
    StageTime,
)
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.batch_parts import CAPACITY, LIMITED
from tests.unit.rounds_world import World


class TestQuotas:
    def world(self) -> World:
        world = World(build.node("n1", 8), policy=CAPACITY)
        world.tell(QueueObserved(uid="q", name="default", rv=2, capability=LIMITED))
        return world

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
