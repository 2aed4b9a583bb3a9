"""Corners of gangs: what is whole, what comes with it, what its pods are told."""

import pytest

from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck_all
from allotment_proto.events import (
    GroupGone,
)
from tests import build
from tests.picture import picture_of
from tests.unit.batch_parts import gone, model_of
from tests.unit.rounds_world import World, group
from tests.unit.sub_groups import halves, in_parts


class TestGangs:
    @pytest.mark.parametrize("where", ["binder", "fold"])
    def test_what_is_beyond_the_minimum_does_not_start_alone(self, where: str) -> None:
        """A fact takes the place of a member of the minimum; the rest would still fit."""
        world = World(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
        uids = world.gang("a", 3, members=2)
        made = world.round(uids)
        assert len(made.placements) == 3
        first = next(p for p in made.placements if p.uid in made.wholes[0])
        world.tell(build.pod("x", node=first.node, holdings=first.holdings, scheduler="else"))
        batch = (uids[2], *uids[:2])
        by_uid = {p.uid: p for p in made.placements}
        placements = tuple(by_uid[uid] for uid in batch)
        kept, wholes = placements, made.wholes
        if where == "binder":
            kept, dropped, wholes = recheck_all(world.state, placements, made.wholes)
            assert {d.placement.uid for d in dropped} == set(uids)
            assert (kept, wholes) == ((), ())
        model = model_of(world, build.decided(*kept, wholes=wholes))
        world.tell(build.decided(*kept, wholes=wholes))
        assert world.placed() == {"x"}
        assert model.picture() == picture_of(world.state)

    def test_a_recreated_group_passes_the_gate_again(self) -> None:
        """Its name is taken over while pods of the earlier one still end."""
        world = World(build.node("n1", 3))
        (uid,) = world.gang("a", 1)
        world.tell(group("a", 1, phase="Pending", rv=2))
        world.decide()
        assert world.state.groups["default/a"].admitted_seq
        world.tell(GroupGone(uid="uid-a", namespace="default", name="a", rv=3))
        assert uid in world.state.groups["default/a"].members
        world.tell(group("a", 1, phase="Pending", uid="uid-a2", rv=4))
        anew = world.state.groups["default/a"]
        assert (anew.admitted_seq, anew.gate, anew.passed) == (0, None, 0)


def test_events_of_groups_never_raise() -> None:
    """A decision about groups and pods that nobody knows."""
    world = World()
    world.tell(build.decided(build.placement("ghost"), wholes=(("ghost", "phantom"),)))
    apply(world.state, gone("ghost"), world.seq + 1)
    assert world.placed() == set()


class TestSubGroups:
    def test_the_binder_drops_a_sub_group_as_a_whole(self) -> None:
        """A fact takes the place of one of its pods after the minimum has started."""
        world = World(build.node("n1", 2), build.node("n2", 1))
        world.tell(group("a", 2, sub_groups=halves(2, 1)))
        uids = in_parts(world, "xx")
        made = world.round(uids)
        place = made.placements[0]
        world.tell(build.pod("other", node=place.node, holdings=place.holdings, scheduler="else"))
        found = recheck_all(world.state, made.placements, made.wholes)
        assert (found.kept, {d.placement.uid for d in found.dropped}) == ((), set(uids))
