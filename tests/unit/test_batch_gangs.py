"""Corners of gangs: what is whole, what comes with it, what its pods are told."""

import pytest

from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck_all
from allotment.core.replay.bulk import picture_of
from allotment_proto.events import (
    GroupGone,
)
from tests import build
from tests.unit.batch_parts import NOTHING_ASKED, bulk_of, gone, seen
from tests.unit.test_batch_rounds import World, group


class TestGangs:
    def test_a_gated_member_keeps_its_gang_waiting(self) -> None:
        world = World(build.node("n1", 4))
        uids = world.gang("a", 3)
        seen(world, uids[0], gated=True)
        decided = world.decide(uids)
        assert decided.placements == ()
        assert "gates" in decided.shorts[0].message
        seen(world, uids[0], gated=False)
        assert world.decide(uids).wholes == ((*uids,),)

    def test_a_gang_that_asks_for_nothing_is_whole_too(self) -> None:
        world = World(build.node("n1", 0, pods=2))
        world.tell(group("a", 3))
        for n in range(3):
            world.tell(build.pod(f"a{n}", NOTHING_ASKED, group="default/a"))
        assert world.decide().placements == ()
        world.tell(build.node("n2", 0, pods=1))
        assert len(world.decide().wholes[0]) == 3

    def test_only_the_batch_is_placed(self) -> None:
        """A pod whose Binding just failed is left out for a while, whatever it asks for."""
        world = World(build.node("n1", 2))
        world.tell(build.pod("easy", NOTHING_ASKED))
        world.tell(build.pod("other", build.request(build.wants())))
        assert [p.uid for p in world.decide(["other"]).placements] == ["other"]

    def test_what_brings_a_role_to_its_minimum_comes_as_a_whole(self) -> None:
        world = World(build.node("n1", 5))
        roles = (("ps", 2), ("w", 2))
        world.tell(group("a", 4, min_task_member=roles))
        workers = world.pods("a", 4)
        servers = [f"a-ps-{n}" for n in range(2)]
        request = build.request(build.wants(16_000, 0))
        for uid in servers:
            world.tell(build.pod(uid, request, name=uid, group="default/a", role="ps", gated=True))
        for uid in workers:  # bound by hand
            seen(world, uid, node="n1", phase="Running")
        for uid in servers:
            seen(world, uid, gated=False)
        assert world.decide().wholes == (tuple(servers),)

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
        books = bulk_of(world, build.decided(*kept, wholes=wholes))
        world.tell(build.decided(*kept, wholes=wholes))
        assert world.placed() == {"x"}
        assert books.picture() == picture_of(world.state)

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


class TestWords:
    def test_pods_are_not_told_every_count_of_a_gang_that_gathers(self) -> None:
        world = World(build.node("n1", 4))
        world.tell(group("a", 4))
        told = 0
        for n in range(3):
            world.pods("a", 1, start=n)
            told += len(world.decide().refusals)
        assert told == 3, "each pod once"


def test_events_of_groups_never_raise() -> None:
    """A decision about groups and pods that nobody knows."""
    world = World()
    world.tell(build.decided(build.placement("ghost"), wholes=(("ghost", "phantom"),)))
    apply(world.state, gone("ghost"), world.seq + 1)
    assert world.placed() == set()
