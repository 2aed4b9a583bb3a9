"""What groups were let in for and do not hold keeps nobody out who could start, nor for long."""

from typing import Any

import pytest

from allotment.core.ledger import snapshot
from allotment.core.queues.round.deadlines import has_passed
from allotment.core.reasons import CLUSTER_INSUFFICIENT, PROMISED_BEFORE
from allotment_proto.events import GroupObserved, PriorityClassObserved, TimePassed
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.filtered import Filtered
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.rounds_world import World, group

FIRST = PluginUse("priority"), PluginUse("gang")
ACTIONS = "enqueue", "allocate"
POLICIES = {
    "capacity": Policy(tiers=(FIRST, (PluginUse("capacity"),)), actions=ACTIONS),
    "hierarchy": Policy(
        tiers=(FIRST, (PluginUse("capacity", arguments=(("hierarchy", True),)),)), actions=ACTIONS
    ),
    "proportion": Policy(tiers=(FIRST, (PluginUse("proportion"),)), actions=ACTIONS),
    "overcommit": Policy(
        tiers=(FIRST, (PluginUse("overcommit"), PluginUse("proportion"))), actions=ACTIONS
    ),
}
HERE = "here", "there"
"""Namespaces of two tenants."""


def node() -> Any:
    """One with 8 CPUs."""
    return build.node("n1", 0)


def asks(name: str, cpus: int, members: int = 2, **changes: Any) -> GroupObserved:
    """A group whose owner makes its pods once it is let in."""
    values = {"phase": "", "owner": f"u-{name}", "namespace": HERE[0], **changes}
    return group(name, members, min_resources=(("cpu", cpus * 1_000),), **values)


def pod(uid: str, cpus: float, namespace: str = HERE[0], **changes: Any) -> Any:
    request = build.request(cpu_milli=int(cpus * 1_000), memory_bytes=0)
    return build.pod(uid, request, namespace=namespace, queue="default", **changes)


def of_group(uid: str, name: str, cpus: float, namespace: str = HERE[0], **changes: Any) -> Any:
    return pod(uid, cpus, namespace, group=f"{namespace}/{name}", role="w", **changes)


def let_in(world: World) -> set[str]:
    return {key for key, found in world.state.groups.items() if found.admitted_seq}


def moments(world: World, count: int) -> None:
    for _ in range(count):
        world.tell(TimePassed(at_ms=world.state.time_ms + 900))


def settle(world: Filtered) -> None:
    """Cycles, until none is due."""
    for _ in range(40):
        if world.cycle() is None:
            return
    raise AssertionError("somebody is due for ever")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
class TestOthers:
    """Nobody waits because of what groups of another namespace were let in for."""

    def test_who_has_pods_starts_beside_groups_of_one_tiny_pod_each(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        for number in range(9):
            world.tell(asks(f"hog{number}", 4, owner=""))
            world.tell(of_group(f"tiny{number}", f"hog{number}", 0.01))
        settle(world)
        world.tell(pod("meek", 8, HERE[1]))
        settle(world)
        assert world.placed() == {"meek"}

    def test_who_has_no_pods_yet_is_let_in(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        world.tell(asks("hog", 8))
        settle(world)
        world.tell(asks("good", 8, namespace=HERE[1]))
        settle(world)
        assert let_in(world) == {"here/hog", "there/good"}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
class TestOneNamespace:
    """Its groups have their pods made one after the other, as far as the cluster goes."""

    def test_it_is_kept_until_the_pods_of_the_first_were_tried(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        world.tell(asks("typo", 8))
        settle(world)
        world.tell(asks("good", 8))
        settle(world)
        assert let_in(world) == {"here/typo"}
        assert world.state.groups["here/good"].gate.code == PROMISED_BEFORE  # type: ignore[union-attr]
        for uid in ("typo-0", "typo-1"):
            assert let_in(world) == {"here/typo"}, "not all of its pods are there"
            world.tell(of_group(uid, "typo", 9))
            settle(world)
        assert let_in(world) == {"here/typo", "here/good"}
        assert not world.placed()

    def test_it_is_kept_for_two_moments_at_most(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        world.tell(asks("first", 8))
        settle(world)
        world.tell(asks("next", 8))
        settle(world)
        for passed in (1, 2):
            assert let_in(world) == {"here/first"}
            assert has_passed(world.state, 0), "somebody has to tell the time"
            assert snapshot.encode(world.state) == snapshot.encode(
                snapshot.decode(snapshot.encode(world.state))
            )
            moments(world, 1)
            settle(world)
            assert len(let_in(world)) == passed
        moments(world, 2)
        assert not has_passed(world.state, 1 << 60), "nobody is promised anything any more"

    def test_a_pod_that_is_there_is_not_kept(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        world.tell(asks("first", 8))
        settle(world)
        world.tell(pod("p", 8))
        settle(world)
        assert world.placed() == {"p"}

    def test_what_has_places_is_promised_nothing_more(self, policy: Policy) -> None:
        """Whatever a group says that it needs."""
        world = Filtered(node(), policy=policy)
        world.tell(asks("much", 8, members=1))
        settle(world)
        world.tell(of_group("one", "much", 1))
        settle(world)
        world.tell(asks("next", 7))
        settle(world)
        assert let_in(world) == {"here/much", "here/next"}

    def test_one_that_is_gone_is_promised_nothing(self, policy: Policy) -> None:
        world = Filtered(node(), policy=policy)
        world.tell(asks("first", 8))
        settle(world)
        world.tell(asks("first", 8, uid="another"))
        world.tell(asks("next", 8, created_ms=-1))
        settle(world)
        assert let_in(world) == {"here/next"}
        assert set(world.state.promised) == {"here/next"}


def test_a_quota_of_the_queue_keeps_out_who_has_pods() -> None:
    small = queue("default", capability=(("cpu", 4_000),))
    world = Filtered(node(), small, policy=GATED)
    world.tell(pod("runs", 4))
    settle(world)
    world.tell(pod("waits", 1, HERE[1]))
    settle(world)
    assert world.placed() == {"runs"}
    refusal = world.state.pods["waits"].refusal
    assert refusal is not None
    assert refusal.problem is not None
    assert refusal.problem.code == "QueueQuotaInsufficient"


EVICTING = Policy(
    tiers=(
        (PluginUse("priority"), PluginUse("gang", off=("enablePreemptable",))),
        (PluginUse("capacity"),),
    ),
    actions=("enqueue", "allocate", "preempt"),
)


@pytest.mark.parametrize("priority_class", ["high", ""])
def test_in_a_full_cluster_who_outranks_others_is_let_in(priority_class: str) -> None:
    world = Filtered(node(), policy=EVICTING)
    world.tell(PriorityClassObserved(uid="c", name="high", rv=1, value=1_000))
    world.tell(pod("low", 8))
    settle(world)
    world.bind()
    world.tell(pod("other", 8, priority_class=priority_class))
    made = world.round(["other"])
    assert [eviction.uid for eviction in made.evictions] == ["low"] * bool(priority_class)
    problem = made.refusals[0].problem
    if priority_class:
        assert problem is None, "nodes say it better"
    else:
        assert problem is not None
        assert problem.code == CLUSTER_INSUFFICIENT
        assert "promised" not in problem.message


def test_lone_pods_hear_of_nodes_where_no_queue_limits_them() -> None:
    """Of more than the cluster has left, asked for at once, the rest is refused by its nodes."""
    world = Filtered(node(), policy=GATED)
    for uid in ("a", "b", "c"):
        world.tell(lone(uid, created_ms=ord(uid)))
    world.tell(pod("d", 8))
    settle(world)
    assert world.placed() == {"a", "b", "c"}
    refusal = world.state.pods["d"].refusal
    assert refusal is not None
    assert refusal.problem is None or refusal.problem.code == CLUSTER_INSUFFICIENT
