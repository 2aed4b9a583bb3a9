"""Preemptors wait for pods that end soon, and for no pod that may stay for long."""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger import snapshot
from allotment.core.ledger.evictions import GRACE_MOST_S, NEAR_S
from allotment.core.queues.round.deadlines import has_passed
from allotment_binder.evictions import shorter_grace_s
from allotment_proto.events import PodGone, TimePassed
from tests import build
from tests.unit.contest import Contest

NOW_S = 1_000_000
DAY_S = 86_400
NEAR_MS = NEAR_S * 1000


def at(world: Contest, now_s: int) -> None:
    world.tell(TimePassed(at_ms=now_s * 1000))


def seen(world: Contest, uid: str, **changes: Any) -> None:
    fact = world.state.pods[uid].fact
    world.tell(msgspec.structs.replace(fact, rv=fact.rv + 1, **changes))


def deleted(world: Contest, uid: str, grace_s: int, now_s: int = NOW_S) -> None:
    """Its owner deletes a pod, which may take so long."""
    grace = {"grace_s": grace_s if grace_s > NEAR_S else 0, "deadline_ms": (now_s + grace_s) * 1000}
    seen(world, uid, deleting=True, **grace)


def full(nodes: int = 2) -> tuple[Contest, list[str]]:
    """A pod of a low priority on each node, which are full."""
    world = Contest(*(build.node(f"n{n}", 1) for n in range(nodes)))
    low = world.job("low", nodes, members=0)
    world.decide()
    world.run(low)
    at(world, NOW_S)
    return world, low


def told_in_time(world: Contest, until_s: int) -> None:
    """The watcher tells the log the time whenever a deadline passes, until then."""
    now_ms = world.state.time_ms
    while now_ms < until_s * 1000:
        now_ms += 1_000
        if has_passed(world.state, now_ms):
            world.tell(TimePassed(at_ms=now_ms))


def victims(world: Contest) -> list[str]:
    return [each.uid for each in world.decide().evictions]


@pytest.mark.parametrize("grace_s", [0, 30, NEAR_S])
def test_a_pod_that_ends_soon_is_waited_for(grace_s: int) -> None:
    world, low = full()
    deleted(world, low[0], grace_s)
    world.job("top", 1, priority="high")
    assert victims(world) == []


@pytest.mark.parametrize("grace_s", [NEAR_S + 1, 3 * DAY_S])
def test_a_pod_that_is_deleted_slowly_keeps_nobody_waiting(grace_s: int) -> None:
    world, low = full()
    deleted(world, low[0], grace_s)
    world.job("top", 1, priority="high")
    assert len(victims(world)) == 1


def test_a_pod_that_is_deleted_slowly_can_be_evicted() -> None:
    """Else whoever deletes his own pods so is safe from preemption for as long as he likes."""
    world, low = full(1)
    deleted(world, low[0], 3 * DAY_S)
    world.job("top", 1, priority="high")
    assert victims(world) == low


@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_equals_those_go_that_end_soon(number: int) -> None:
    world, low = full(3)
    slow = [uid for at, uid in enumerate(low) if at != number]
    deleted(world, slow[0], 3 * DAY_S)
    seen(world, slow[1], grace_s=61)
    world.job("top", 1, priority="high")
    assert victims(world) == [low[number]]


def test_near_its_deadline_it_is_waited_for() -> None:
    world, low = full()
    deleted(world, low[0], DAY_S)
    (peer,) = world.job("peer", 1)
    assert victims(world) == [], "the peer may evict nobody"
    told_in_time(world, NOW_S + DAY_S - NEAR_S)
    assert world.state.time_ms == (NOW_S + DAY_S) * 1000 - NEAR_MS
    world.job("top", 1, priority="high")
    assert victims(world) == []
    world.tell(PodGone(uid=low[0], namespace="default", name=low[0], rv=99))
    world.decide()
    assert len(world.placed()) == 2, peer


def test_a_victim_that_stays_beyond_its_deadline_is_given_up_and_another_one_goes() -> None:
    world, low = full()
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    deleted(world, victim, 30)
    told_in_time(world, NOW_S + 30 + NEAR_S - 1)
    assert victims(world) == [], "it may still end"
    told_in_time(world, NOW_S + 30 + NEAR_S)
    assert victim not in world.state.evicting
    (other,) = [uid for uid in low if uid != victim]
    assert [*victims(world), *victims(world)] == [other]
    world.tell(PodGone(uid=other, namespace="default", name=other, rv=99))
    world.decide()
    assert top in world.placed()


def test_a_pod_that_its_owner_deleted_and_that_stays_is_not_waited_for() -> None:
    world, low = full()
    deleted(world, low[0], 30)
    told_in_time(world, NOW_S + 30 + NEAR_S)
    at(world, NOW_S + 30 + NEAR_S)
    world.job("top", 1, priority="high")
    assert victims(world) == [low[1]]


def test_a_victim_seen_long_after_its_deadline_is_given_up_at_once() -> None:
    world, _ = full()
    world.job("top", 1, priority="high")
    (victim,) = victims(world)
    at(world, NOW_S + DAY_S)
    deleted(world, victim, 30)
    assert victim not in world.state.evicting


def test_a_deletion_of_which_the_deadline_is_not_known_is_waited_for() -> None:
    """In logs of before."""
    world, low = full()
    seen(world, low[0], deleting=True)
    at(world, NOW_S + 99 * DAY_S)
    world.job("top", 1, priority="high")
    assert victims(world) == []


def test_a_snapshot_knows_who_is_being_deleted() -> None:
    world, low = full()
    deleted(world, low[0], DAY_S)
    again = snapshot.decode(snapshot.encode(world.state))
    assert again.deleting == world.state.deleting == {low[0]: None}
    world.job("top", 1)
    again = snapshot.decode(snapshot.encode(world.state))
    assert has_passed(again, (NOW_S + DAY_S) * 1000)
    assert not has_passed(again, (NOW_S + DAY_S) * 1000 - NEAR_MS - 1)


class TestGraceOfVictims:
    """An eviction names a grace period only where the pod's own is longer than ten minutes."""

    def test_its_own_is_respected(self) -> None:
        assert shorter_grace_s(build.pod("a", grace_s=0), NOW_S) is None
        assert shorter_grace_s(build.pod("a", grace_s=GRACE_MOST_S), NOW_S) is None

    def test_days_are_not(self) -> None:
        assert shorter_grace_s(build.pod("a", grace_s=DAY_S), NOW_S) == GRACE_MOST_S

    def test_a_pod_that_is_being_deleted_gets_as_much_from_now_on(self) -> None:
        """The API server counts the grace period from the deletion."""
        slow = build.pod("a", deleting=True, grace_s=DAY_S, deadline_ms=(NOW_S + DAY_S) * 1000)
        assert shorter_grace_s(slow, NOW_S + 5_000) == 5_000 + GRACE_MOST_S
        assert shorter_grace_s(slow, NOW_S + DAY_S - GRACE_MOST_S) is None
