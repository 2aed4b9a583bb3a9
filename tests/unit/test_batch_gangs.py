"""Corners of gangs: what is whole, what comes with it, what its pods are told."""

import pytest

from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck_all
from allotment_proto.events import (
    GroupGone,
)
from tests import build
from tests.picture import picture_of
from tests.unit.batch_parts import NOTHING_ASKED, bound, gone, model_of, seen
from tests.unit.rounds_world import World, group
from tests.unit.sub_groups import halves, in_parts


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


class TestSubGroups:
    def test_a_sub_group_is_placed_whole_or_not_at_all(self) -> None:
        """Three cards: a minimum of two pods would fit twice as pods, but one partition is all."""
        world = World(build.node("n1", 3))
        world.tell(group("a", 2, sub_groups=halves(2, 1)))
        uids = in_parts(world, "xxyyzz")
        decided = world.decide()
        assert world.placed() == set(uids[:2])
        assert decided.wholes == (tuple(uids[:2]),)
        refusals = {r.uid: r.problem for r in decided.refusals}
        assert "sub group w y are placed together" in str(refusals[uids[2]])
        world.tell(build.node("n2", 1))
        decided = world.decide()
        assert world.placed() == set(uids[:4])
        assert decided.wholes == (tuple(uids[2:4]),)

    def test_the_minimum_needs_so_many_whole_sub_groups(self) -> None:
        world = World(build.node("n1", 3))
        world.tell(group("a", 1, sub_groups=halves(2, 2)))
        uids = in_parts(world, "xyxy")
        assert world.decide().placements == ()
        world.tell(build.node("n2", 1))
        decided = world.decide()
        assert world.placed() == set(uids)
        assert {frozenset(whole) for whole in decided.wholes} == {frozenset(uids)}

    def test_one_that_cannot_be_whole_does_not_keep_others_waiting(self) -> None:
        """The first partition has a pod that is gated."""
        world = World(build.node("n1", 4))
        world.tell(group("a", 2, sub_groups=halves(2, 1)))
        uids = in_parts(world, "xxyy")
        seen(world, uids[0], gated=True)
        world.decide()
        assert world.placed() == set(uids[2:])
        seen(world, uids[0], gated=False)
        world.decide()
        assert world.placed() == set(uids)

    def test_a_pod_made_anew_completes_its_sub_group_alone(self) -> None:
        world = World(build.node("n1", 2))
        world.tell(group("a", 2, sub_groups=halves(2, 1)))
        uids = in_parts(world, "xx")
        world.decide()
        bound(world, *uids)
        world.tell(gone(uids[0]))
        world.tell(
            build.pod(
                "anew",
                build.request(build.wants(16_000, 0)),
                name="a-w-0",
                group="default/a",
                labels=(("part", "x"), ("role", "w")),
            )
        )
        world.decide()
        assert world.placed() == {uids[1], "anew"}

    def test_too_few_pods_for_whole_sub_groups_are_said(self) -> None:
        world = World(build.node("n1", 8))
        world.tell(group("a", 1, sub_groups=halves(3, 2)))
        in_parts(world, "xxxyy")
        decided = world.decide()
        assert decided.placements == ()
        assert "Not enough valid subGroups of w for gang-scheduling: 1 with 3 pods, min: 2" in (
            decided.shorts[0].message
        )

    def test_pods_in_no_sub_group_come_one_by_one(self) -> None:
        world = World(build.node("n1", 3))
        world.tell(group("a", 1, sub_groups=halves(2, 0)))
        world.pods("a", 1, start=9)
        in_parts(world, "xx")
        world.decide()
        assert len(world.placed()) == 3

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
