"""Preemptors wait for pods that end soon, and for no pod that may stay for long."""

from typing import Any

import msgspec

from allotment.core.ledger import snapshot
from allotment.core.ledger.evictions import GRACE_MOST_S, NEAR_S
from allotment.core.queues.round.deadlines import has_passed
from allotment_binder.evictions import shorter_grace_s
from allotment_proto.events import TimePassed
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


def victims(world: Contest) -> list[str]:
    return [each.uid for each in world.decide().evictions]


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
