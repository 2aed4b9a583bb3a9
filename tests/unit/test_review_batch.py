"""Corners of groups, queues and rounds that once went wrong."""

from typing import Any

import msgspec
import pytest

from allotment.core import snapshot
from allotment.core.batch.rounds import Rounds
from allotment.core.batch.views import Views
from allotment.core.board import Board
from allotment.core.bulk import Books, picture_of
from allotment.core.cycle import recheck_all
from allotment.core.state import apply
from allotment_binder.deciding import decide
from allotment_proto.codec import encode
from allotment_proto.events import (
    Bound,
    Decided,
    DevicesConfigured,
    Envelope,
    Event,
    Evicted,
    GroupGone,
    NodeGone,
    PodGone,
    PodObserved,
    PolicyLoaded,
    QueueGone,
    QueueObserved,
    StageTime,
    version_of,
)
from allotment_proto.facts import PluginUse, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.test_batch_rounds import TIERS, World, group
from tests.unit.test_batch_victims import Contest
from tests.unit.test_filter_groups import Filtered

CAPACITY = Policy(tiers=((PluginUse("priority"), PluginUse("gang")), (PluginUse("capacity"),)))
STARVING = PluginUse("gang", off=("enableReclaimable",))
NOTHING_ASKED = build.request(cpu_milli=0, memory_bytes=0)
LIMITED = (("pods", 2), ("cpu", 100_000), ("memory", 1 << 50))
"""A queue for two pods."""


def gone(uid: str) -> PodGone:
    return PodGone(uid=uid, namespace="default", name=uid, rv=99)


def seen(world: World, uid: str, **changes: Any) -> PodObserved:
    """The pod once more, as its API object looks after a change."""
    fact = world.state.pods[uid].fact
    changed = msgspec.structs.replace(fact, rv=fact.rv + 1, **changes)
    world.tell(changed)
    return changed


def bound(world: World, *uids: str) -> None:
    """The pods are seen running where they were put."""
    for uid in uids:
        held = world.state.pods[uid].allocation
        assert held is not None
        seen(world, uid, node=held.node, holdings=held.holdings, phase="Running")


def bulk_of(world: World, *events: Event) -> Books:
    """The bulk road's books of the nodes and pods as they are, and then of these events."""
    books = Books()
    nodes = [node.fact for node in world.state.nodes.values() if node.fact is not None]
    pods = [pod.fact for pod in world.state.pods.values()]
    for seq, event in enumerate((*nodes, *pods, *events), start=1):
        envelope = Envelope(v=version_of((event,)), at_ms=0, by="test", events=(event,))
        books.take(seq, encode(envelope))
    return books


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
            found = decide(world.state, proposal, 1, StageTime("binder", "b", 1, 2))
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


class TestKeptViews:
    """What is kept from round to round is what would be made afresh."""

    def agrees(self, world: World) -> None:
        kept = self.views.view()
        assert kept == Views(world.state).view()

    def test_after_all_that_a_view_depends_on(self) -> None:
        world = World(build.node("n1", 4), policy=CAPACITY)
        self.views = Views(world.state)
        uids = world.gang("a", 2)
        world.decide()
        self.agrees(world)
        labels = (("nvidia.com/gpu.memory", "16000"), ("nvidia.com/gpu.product", "T4"))
        world.tell(build.node("n1", 4, rv=2, labels=labels, extended=(("nvidia.com/gpu", 4),)))
        self.agrees(world)
        world.tell(gone(uids[0]))
        self.agrees(world)
        world.gang("b", 2)
        self.agrees(world)
        world.tell(
            PolicyLoaded(
                policy=Policy(tiers=TIERS, scheduler_names=("else",)), source="", text_sha256=""
            )
        )
        self.agrees(world)
        seen(world, "b-w-0", group="default/a")
        self.agrees(world)
        seen(world, "b-w-1", group="")
        self.agrees(world)
        nvidia = msgspec.structs.replace(world.state.devices.nvidia, memory_name="x/memory")
        devices = msgspec.structs.replace(world.state.devices, nvidia=nvidia)
        world.tell(DevicesConfigured(config=devices, source="", text_sha256=""))
        self.agrees(world)
        world.tell(NodeGone(uid="uid-n1", name="n1", rv=9))
        self.agrees(world)

    def test_of_pods_without_a_group(self) -> None:
        world = World(build.node("n1", 4))
        self.views = Views(world.state)
        world.tell(build.pod("solo"))
        self.agrees(world)
        decided = world.decide()
        self.agrees(world)
        world.tell(
            Bound(uid="solo", namespace="default", name="pod-solo", node="n1", decision=world.seq)
        )
        assert decided.placements
        self.agrees(world)
        bound(world, "solo")
        self.agrees(world)
        seen(world, "solo", deleting=True)
        self.agrees(world)
        world.tell(gone("solo"))
        self.agrees(world)


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


class TestHolds:
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


class TestVictims:
    def test_free_places_are_used_first(self) -> None:
        """Three are wanted, two have room: one goes."""
        world = Contest(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
        low = world.job("low", 1, members=0)
        world.decide()
        bound(world, *low)
        world.job("top", 3, priority="high", members=3)
        assert [e.uid for e in world.decide().evictions] == low

    def test_room_that_is_about_to_be_free_is_used_first(self) -> None:
        world = Contest(build.node("n1", 2))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        seen(world, low[0], deleting=True)
        world.job("top", 1, priority="high")
        assert world.decide().evictions == ()

    def test_a_gang_takes_the_quota_of_all_its_victims(self) -> None:
        world = Contest(build.node("n1", 4))
        policy = msgspec.structs.replace(
            CAPACITY, actions=("enqueue", "allocate", "preempt", "reclaim")
        )
        world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        world.tell(QueueObserved(uid="q", name="default", rv=2, capability=LIMITED))
        singles = [*world.job("l0", 1, members=0), *world.job("l1", 1, members=0)]
        world.decide()
        assert world.placed() == set(singles)
        bound(world, *singles)
        world.job("top", 2, priority="high", members=2)
        assert len(world.decide().evictions) == 2

    def test_nobody_goes_for_a_group_that_is_not_let_in(self) -> None:
        world = Contest(build.node("n1", 2))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        world.tell(
            group(
                "top", 1, priority_class="high", phase="Pending", min_resources=(("cpu", 99_000),)
            )
        )
        world.pods("top", 1)
        assert world.decide().evictions == ()

    def test_nobody_goes_for_a_closed_queue(self) -> None:
        world = Contest(build.node("n1", 2))
        policy = msgspec.structs.replace(CAPACITY, actions=("allocate", "reclaim"))
        world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        world.tell(
            QueueObserved(
                uid="t", name="train", rv=1, state="Closed", deserved=(("cpu", 9_000), ("pods", 9))
            )
        )
        low = world.job("low", 2)
        world.tell(group("low", 0, priority_class="low", rv=2))
        world.decide()
        world.decide()
        bound(world, *low)
        world.job("top", 1, queue="train")
        assert world.decide().evictions == ()

    def test_nobody_goes_where_the_group_may_not_be_placed(self) -> None:
        """The node is held for another group, which the preemptor does not outrank."""
        world = Contest(build.node("n1", 2))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        world.job("big", 2, priority="high", members=2)
        world.tell(group("low", 2, priority_class="low", rv=2))  # its pods may not go now
        world.decide()
        assert world.state.evicting == {}
        world.state.groups["default/big"].passed = 70
        world.decide()
        world.job("late", 1, priority="high")
        world.tell(group("low", 1, priority_class="low", rv=3))
        found = world.decide(["late-w-0"])
        assert [h.group for h in world.state.holds] == ["default/big"]
        assert found.evictions == ()

    def test_a_refused_victim_is_not_asked_for_again_at_once(self) -> None:
        world = Contest(build.node("n1", 2))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        (top,) = world.job("top", 1, priority="high")
        (eviction,) = world.decide().evictions
        world.tell(
            Evicted(
                uid=eviction.uid,
                namespace="default",
                name=eviction.name,
                node="n1",
                decision=world.seq,
                code="DisruptionBudget",
                message="needs 1 healthy pod",
            )
        )
        (second,) = world.decide([top]).evictions
        assert second.uid != eviction.uid

    def test_the_same_after_a_restart(self) -> None:
        """Which pods go does not depend on the order in which groups were first seen."""
        world = Contest(build.node("n1", 4))
        policy = msgspec.structs.replace(
            CAPACITY, actions=("allocate", "reclaim"), tiers=((STARVING,), (PluginUse("capacity"),))
        )
        world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        two = (("cpu", 200),)
        for name in ("own", "other"):
            world.tell(QueueObserved(uid=name, name=name, rv=1, deserved=two))
        for name in ("z", "y", "x", "a"):
            uids = world.job(name, 1, queue="other")
            world.decide()
            bound(world, *uids)
        (uid,) = world.job("mine", 1, queue="own")
        found = world.round([uid])
        again = snapshot.decode(snapshot.encode(world.state))
        assert Rounds(again).run([uid], Board(again)).evictions == found.evictions
        assert found.evictions


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
