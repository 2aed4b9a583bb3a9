"""Preemption and reclaim: who goes, for whom, and that nobody goes in vain."""

import msgspec
import pytest

from allotment.core.explain.why import Whys
from allotment.core.ledger import snapshot
from allotment.core.queues.eligible import NEVER, is_never
from allotment.core.queues.round.rounds import Rounds
from allotment_binder.causes import told
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_board.board import Board
from allotment_proto.events import (
    Evicted,
    PodGone,
    PolicyLoaded,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.hunting import every_pod_asked
from tests.unit.batch_parts import CAPACITY, LIMITED, STARVING, bound, seen
from tests.unit.contest import TIERS, Contest
from tests.unit.rounds_world import group


def test_a_high_job_takes_from_a_low_one_of_its_queue() -> None:
    world = Contest(build.node("n1", 2))
    low = world.job("low", 2)
    world.decide()
    world.run(low)
    (high,) = world.job("top", 1, priority="high")
    decided = world.decide()
    (eviction,) = decided.evictions
    assert (eviction.action, eviction.preemptor, eviction.node) == ("preempt", "default/top", "n1")
    assert high not in world.placed(), "placed only when the cards are free"
    assert world.decide().evictions == (), "while its victim leaves it gets no other"
    world.tell(PodGone(uid=eviction.uid, namespace="default", name=eviction.uid, rv=9))
    world.decide()
    assert high in world.placed()
    assert world.state.evicting == {}


@pytest.mark.parametrize(
    ("of_pods", "going"), [("high high", 2), ("high none", 0), ("none none", 0), ("low low", 0)]
)
def test_a_class_that_its_pods_do_not_have_evicts_nobody(of_pods: str, going: int) -> None:
    """Anybody may write any class into a PodGroup."""
    world = Contest(build.node("n1", 2))
    low = world.job("low", 2, priority="low", members=0)
    world.decide()
    world.run(low)
    world.tell(group("top", 2, priority_class="high"))
    request = build.request(build.wants(16_000, 0))
    for number, name in enumerate(of_pods.split()):
        member = {"group": "default/top", "priority_class": name}
        world.tell(build.pod(f"top-{number}", request, name=f"top-{number}", **member))
    assert len(world.decide().evictions) == going


def test_equals_are_left_alone() -> None:
    world = Contest(build.node("n1", 1))
    world.run(world.job("a", 1) if world.decide() is None else _placed(world, "a"))
    world.job("b", 1)
    assert world.decide().evictions == ()


def _placed(world: Contest, name: str) -> list[str]:
    uids = world.job(name, 1)
    world.decide()
    return uids


def test_a_gang_gets_all_it_needs_or_nobody_goes() -> None:
    world = Contest(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
    low = world.job("low", 3)
    world.decide()
    world.run(low)
    world.job("three", 3, priority="high", members=3)
    assert world.decide().evictions == (), "the job keeps one: two cards are no use to three"
    world.job("two", 2, priority="high", members=2)
    assert len(world.decide().evictions) == 2


def test_no_more_go_than_needed() -> None:
    """One card is wanted; of four on the node, only one holder has to go: the youngest."""
    world = Contest(build.node("n1", 4))
    low = world.job("low", 4)
    world.decide()
    world.run(low)
    world.job("top", 1, priority="high")
    assert len(world.decide().evictions) == 1


def test_a_gang_keeps_its_minimum() -> None:
    world = Contest(build.node("n1", 2))
    low = world.job("low", 2, members=2)
    world.decide()
    world.run(low)
    world.job("top", 1, priority="high")
    assert world.decide().evictions == ()


@pytest.mark.parametrize("reclaimable", [True, False])
def test_reclaim_brings_a_borrowed_share_back(*, reclaimable: bool) -> None:
    world = Contest(build.node("n1", 4, extended=(("volcano.sh/vgpu-number", 4),)))
    for name in ("team-a", "team-b"):
        world.tell(QueueObserved(uid=name, name=name, rv=1, reclaimable=reclaimable))
    counted = build.request(build.wants(16_000, 0), extended=(("volcano.sh/vgpu-number", 1),))
    for name, pods, queue in (("a", 4, "team-a"), ("b", 1, "team-b")):
        world.tell(group(name, 1, queue=queue))
        for number in range(pods):
            uid = f"{name}-w-{number}"
            world.tell(build.pod(uid, counted, name=uid, group=f"default/{name}", role="w"))
        if name == "a":
            world.decide()
            world.run(sorted(world.placed()))
    found = world.decide().evictions
    assert [e.action for e in found] == (["reclaim"] if reclaimable else [])


def test_a_refused_eviction_is_no_longer_waited_for() -> None:
    world = Contest(build.node("n1", 2))
    low = world.job("low", 2)
    world.decide()
    world.run(low)
    world.job("top", 1, priority="high")
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
    assert world.state.evicting == {}
    assert set(low) <= world.placed()


def test_nodes_are_kept_until_the_last_victim_is_gone() -> None:
    world = Contest(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
    low = world.job("low", 3)
    world.decide()
    world.run(low)
    top = world.job("two", 2, priority="high", members=2)
    first, second = world.decide().evictions
    world.tell(PodGone(uid=first.uid, namespace="default", name=first.uid, rv=9))
    (small,) = world.job("small", 1)
    world.decide()
    assert small not in world.placed(), "its node is kept for the group that waits"
    world.tell(PodGone(uid=second.uid, namespace="default", name=second.uid, rv=9))
    world.decide()
    assert set(top) <= world.placed()
    assert world.state.nominated == {}


@pytest.mark.parametrize("by", ["class", "pod", "default class"])
@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_nobody_goes_for_one_who_never_preempts(by: str, action: str) -> None:
    world = Contest(build.node("n1", 2, extended=(("volcano.sh/vgpu-number", 2),)))
    world.tell(QueueObserved(uid="other", name="other", rv=1))
    counted = build.request(build.wants(16_000, 0), extended=(("volcano.sh/vgpu-number", 1),))
    world.tell(group("low", 0, priority_class="low"))
    low = ["low-0", "low-1"]
    for uid in low:
        world.tell(build.pod(uid, counted, name=uid, group="default/low"))
    world.decide()
    world.run(low)
    is_default = by == "default class"
    high = msgspec.structs.replace(world.state.classes["high"], is_default=is_default)
    name = "gone" if is_default else "high"
    world.tell(msgspec.structs.replace(high, rv=2, preempts=by == "pod"))
    queue = "default" if action == "preempt" else "other"
    world.tell(group("top", 1, priority_class=name, queue=queue))
    member = {"group": "default/top", "priority_class": name, "preempts": by != "pod"}
    top = build.pod("top-0", counted, name="top-0", **member)
    world.tell(top)
    assert world.decide().evictions == ()
    refused = Refused("top-0", "default", "top-0", "", True)
    assert NEVER in told(world.state, Whys(world.state), refused, Readers())
    world.tell(msgspec.structs.replace(high, rv=3))
    world.tell(msgspec.structs.replace(top, rv=3, preempts=True))
    assert [e.action for e in world.decide(["top-0"]).evictions] == [action]
    assert is_never(world.state, top) == (by == "pod")


def test_one_who_never_preempts_takes_what_room_there_is_with_those_who_do() -> None:
    """Of two members one may not have others evicted; it needs nobody to go."""
    world = Contest(build.node("n1", 1), build.node("n2", 1))
    low = world.job("low", 1, members=0)
    world.decide()
    world.run(low)
    first, second = world.job("two", 2, priority="high", members=2)
    world.tell(msgspec.structs.replace(world.state.pods[first].fact, rv=2, preempts=False))
    assert [e.uid for e in world.decide().evictions] == low
    assert set(world.state.nominated["default/two"].nodes) == {first, second}


def test_nobody_goes_for_a_gang_of_which_one_would_need_it_and_never_preempts() -> None:
    world = Contest(build.node("n1", 1), build.node("n2", 1))
    low = world.job("low", 2, members=0)
    world.decide()
    world.run(low)
    _, second = world.job("two", 2, priority="high", members=2)
    world.tell(msgspec.structs.replace(world.state.pods[second].fact, rv=2, preempts=False))
    assert world.decide().evictions == ()
    assert (world.state.nominated, world.state.evicting) == ({}, {})


def test_where_nobody_is_evicted_there_is_nothing_to_say() -> None:
    world = Contest(build.node("n1", 1))
    world.tell(PolicyLoaded(policy=Policy(tiers=TIERS), source="", text_sha256=""))
    never = build.pod("a", preempts=False)
    assert not is_never(world.state, never)


class TestCorners:
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

    @pytest.mark.parametrize(("cpu_milli", "going"), [(100, 1), (1_500, 0)])
    def test_nobody_goes_for_a_group_that_is_not_let_in(self, cpu_milli: int, going: int) -> None:
        world = Contest(build.node("n1", 2))
        policy = msgspec.structs.replace(CAPACITY, actions=("enqueue", "allocate", "preempt"))
        world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        world.tell(QueueObserved(uid="d", name="default", rv=2, capability=(("cpu", 1_000),)))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        least = (("cpu", cpu_milli),)
        world.tell(group("top", 1, priority_class="high", phase="Pending", min_resources=least))
        world.pods("top", 1)
        assert len(world.decide().evictions) == going

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


def test_a_round_may_be_abandoned_in_the_middle_and_leaves_nothing() -> None:
    """Each step that asks node by node, or pod by pod, says that it goes on."""
    nodes = [build.node(f"n{number:02}", 1) for number in range(20)]
    world = Contest(*nodes)
    low = world.job("low", 20)
    world.decide()
    world.run(low)
    world.job("top", 1, priority="high")
    before, batch = snapshot.encode(world.state), list(world.state.pending)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    expected = Rounds(world.state, checkpoint=count).run(batch, Board(world.state))
    assert expected.evictions
    assert calls > len(nodes)
    for last in range(1, calls, 7):
        left = last

        def abandon() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise InterruptedError

        board = Board(world.state)
        with pytest.raises(InterruptedError):
            Rounds(world.state, checkpoint=abandon).run(batch, board)
        assert snapshot.encode(world.state) == before
        assert Rounds(world.state).run(batch, board) == expected


@pytest.mark.parametrize("queue", ["default", "team-b"])
@pytest.mark.parametrize("runs", [4, 40])
def test_who_fits_nowhere_and_may_evict_nobody_asks_no_pod_that_runs(runs: int, queue: str) -> None:
    """Neither pods as high in its queue, nor those of others if its queue deserves nothing."""
    world = Contest(*(build.node(f"n{number}", 4) for number in range(runs // 4)))
    actions = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
    policy = msgspec.structs.replace(CAPACITY, actions=actions)
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    world.tell(QueueObserved(uid="team-b", name="team-b", rv=1))
    for number in range(runs):
        one = build.request(build.wants(16_000, 0))
        world.tell(build.pod(f"p{number:02}", one, queue="default"))
    world.decide()
    world.run(sorted(world.placed()))
    assert len(world.placed()) == runs
    rounds, made = Rounds(world.state), list[int]()
    for number in range(3):
        huge = build.request(build.wants(1_000_000, 0))
        world.tell(build.pod(f"huge{number}", huge, queue=queue))
        found = rounds.run([f"huge{number}"], Board(world.state))
        assert found.refusals
        with every_pod_asked():
            assert found == Rounds(world.state).run([f"huge{number}"], Board(world.state))
        assert rounds._world is not None
        made.append(rounds._world.opened)
    assert made[-1] < 8
