"""Which nodes a queue's pods may use, and what is kept for others: in places, words and codes.

Every round is played on both roads (`World.round`).
"""

import pytest

from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.reasons import refusal_text
from allotment_proto.events import Decided, PodGone, QueueObserved, Refusal
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.contest import Contest
from tests.unit.node_groups import LABEL, explained, in_group, job, tell_queue
from tests.unit.rounds_world import World, group


def policy(*, strict: bool = True, off: tuple[str, ...] = (), on: tuple[str, ...] = ()) -> Policy:
    nodegroup = PluginUse("nodegroup", off=off, on=on, arguments=(("strict", strict),))
    return Policy(tiers=((PluginUse("priority"), PluginUse("gang"), nodegroup),))


def nodes_of(decided: Decided) -> dict[str, str]:
    return {placement.uid: placement.node for placement in decided.placements}


def refusal_of(world: World, uid: str) -> Refusal:
    found = world.state.pods[uid].refusal
    assert found is not None
    return found


def test_a_required_group_decides_where_pods_go_and_what_they_are_told() -> None:
    world = World(
        in_group("n1", "a", 4), in_group("n2", "b", 1), in_group("n3", "", 4), policy=policy()
    )
    tell_queue(world, "team", ("b",))
    first, second = job(world, "x", 2, "team")
    assert nodes_of(world.decide()) == {first: "n2"}
    refusal = refusal_of(world, second)
    assert refusal.reasons == (("NodeGroupMismatch", 2), ("InsufficientGPUMemory", 1))
    assert refusal_text(refusal).endswith("Queue team may use only node group b.")
    found = explained(world, second)
    step = next(step for step in found.funnel if step.step == "queueNodes")
    assert (step.lost, step.reasons) == (2, {"NodeGroupMismatch": 2})
    assert found.status.notes == ("queue team may use only node group b",)
    assert found.status.fits_empty_cluster is True
    assert found.node_steps is not None
    assert found.node_steps.verdict == "NodeGroupMismatch"


def test_a_gang_is_bound_to_its_groups_as_a_whole() -> None:
    """Three nodes have room for the gang, the two of its group have not."""
    world = World(
        in_group("n1", "a", 2), in_group("n2", "a", 1), in_group("n3", "b", 8), policy=policy()
    )
    tell_queue(world, "team", ("a",))
    world.tell(group("g", 4, queue="team"))
    world.pods("g", 4)
    decided = world.decide()
    assert decided.placements == ()
    (short,) = decided.shorts
    assert short.together == 3


@pytest.mark.parametrize(("preferred", "node"), [("a", "n1"), ("b", "n2")])
def test_preferred_groups_come_first_and_required_ones_are_worth_more(
    preferred: str, node: str
) -> None:
    world = World(in_group("n1", "a"), in_group("n2", "b"), in_group("n3", "c"), policy=policy())
    tell_queue(world, "team", ("c",), ("a", "b"))
    tell_queue(world, "other", (), (preferred,), (), ("a", "b"))
    job(world, "x", 1, "team")
    (placement,) = world.decide().placements
    assert (placement.node, dict(placement.terms)["nodegroup"]) == ("n3", 100_000_000)
    (uid,) = job(world, "y", 1, "other")
    # both are avoided: allowed as a last resort, and worth the same
    placement = next(p for p in world.decide().placements if p.uid == uid)
    assert dict(placement.terms)["nodegroup"] == 0
    tell_queue(world, "third", (), ("a", "b"), (), ("b" if preferred == "a" else "a",))
    (uid,) = job(world, "z", 1, "third")
    placement = next(p for p in world.decide().placements if p.uid == uid)
    assert placement.node == node
    assert dict(placement.terms)["nodegroup"] == 51_000_000, "an avoided group is worth −1"


def test_without_affinity_strict_refuses_and_lenient_takes_nodes_without_a_group() -> None:
    for strict, where in ((True, None), (False, "n2")):
        world = World(in_group("n1", "a"), in_group("n2"), policy=policy(strict=strict))
        (uid,) = job(world, "x", 1, "default")
        assert nodes_of(world.decide()).get(uid) == where
        if strict:
            assert refusal_of(world, uid).reasons == (("NodeGroupMismatch", 2),)
            said = explained(world, uid).status
            assert said.fits_empty_cluster is False
            assert said.notes == ("queue default has no affinity to any node group",)


def test_a_queue_inherits_from_the_nearest_above_only_where_hierarchy_is_on() -> None:
    for on, where in ((("enableHierarchy",), "n2"), ((), None)):
        world = World(in_group("n1", "a"), in_group("n2", "b"), policy=policy(on=on))
        tell_queue(world, "top", ("b",))
        tell_queue(world, "team", parent="top")
        (uid,) = job(world, "x", 1, "team")
        assert nodes_of(world.decide()).get(uid) == where


def test_switches_of_the_plugin_turn_rule_and_points_off() -> None:
    world = World(in_group("n1", "a"), policy=policy(off=("enablePredicate",)))
    tell_queue(world, "team", ("b",))
    (uid,) = job(world, "x", 1, "team")
    assert nodes_of(world.decide()) == {uid: "n1"}
    world = World(in_group("n1", "a"), policy=policy(off=("enableNodeOrder",)))
    tell_queue(world, "team", ("a",))
    job(world, "x", 1, "team")
    (placement,) = world.decide().placements
    assert "nodegroup" not in dict(placement.terms)


def test_a_changed_label_or_queue_is_heeded() -> None:
    world = World(in_group("n1", "a"), policy=policy())
    tell_queue(world, "team", ("b",))
    (first,) = job(world, "x", 1, "team")
    assert world.decide().placements == ()
    world.tell(build.node("n1", 2, rv=7, labels=((LABEL, "b"),)))
    assert nodes_of(world.decide()) == {first: "n1"}
    (second,) = job(world, "y", 1, "team")
    world.tell(QueueObserved(uid="uid-team", name="team", rv=10, node_groups=(("c",), (), (), ())))
    assert nodes_of(world.decide()) == {}
    assert refusal_of(world, second).notes == ("queue team may use only node group c",)


def test_rules_of_a_queue_hold_whatever_predicates_are_off() -> None:
    """They are not the pod's node affinity."""
    off = PluginUse("predicates", arguments=(("predicate.NodeAffinityEnable", False),))
    tiers = (*policy().tiers, (off,))
    world = World(in_group("n1", "a"), in_group("n2", "b"), policy=Policy(tiers=tiers))
    tell_queue(world, "team", ("b",))
    first, second = job(world, "x", 2, "team")
    assert nodes_of(world.decide()) == {first: "n2", second: "n2"}


def _passed_by(cards: int = 4) -> tuple[World, list[str]]:
    """A gang that needs a whole node, and so many pods before it that a node is held for it."""
    world = World(build.node("n1", cards), build.node("n2", cards))
    world.gang("s0", 2 * cards, members=1)
    world.decide()
    big = world.gang("big", cards)
    world.decide()
    number = 0
    while not world.state.holds:
        number += 1
        assert number < 200
        oldest = next(uid for uid in world.state.pods if uid in world.placed())
        world.tell(PodGone(uid=oldest, namespace="default", name=oldest, rv=9))
        world.gang(f"s{number}", 1)
        world.decide()
    return world, big


def test_nodes_held_for_a_gang_say_so_and_for_whom() -> None:
    world, _ = _passed_by()
    (held,) = world.state.holds
    (node,) = held.nodes
    on_it = [uid for uid in world.placed() if _node(world, uid) == node]
    for uid in on_it[:2]:
        world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=9))
    (late,) = world.gang("late", 1)
    world.decide()
    refusal = refusal_of(world, late)
    assert dict(refusal.reasons)["HeldForGang"] == 1, "the node would do"
    assert sum(count for _, count in refusal.reasons) == refusal.nodes == 2
    text = refusal_text(refusal)
    assert "Held for default/big, which waits since decision" in text
    assert pod_status(world.state, world.state.pods[late]) == ("Pending", "HeldForGang")
    found = explained(world, late)
    step = next(step for step in found.funnel if step.step == "keptForOthers")
    assert (step.lost, step.left) == (1, 0)
    assert found.status.fits_now == 0
    (note,) = found.status.notes
    assert note.startswith("held for default/big")
    assert found.waiting_for is not None
    assert (found.waiting_for.kind, found.waiting_for.nodes) == ("HoldEnd", 1)


def test_a_held_node_that_would_not_do_anyway_counts_for_what_it_lacks() -> None:
    world, _ = _passed_by()
    (late,) = world.gang("late", 1, memory_mib=20_000)
    world.decide()
    refusal = refusal_of(world, late)
    assert (refusal.reasons, refusal.notes) == ((("InsufficientGPUMemory", 2),), ())


def _node(world: World, uid: str) -> str:
    held = world.state.pods[uid].allocation
    assert held is not None
    return held.node


def test_nodes_kept_for_a_preemptor_say_so_and_for_whom() -> None:
    world = Contest(build.node("n1", 4))
    low = world.job("one", 2) + world.job("two", 2)
    world.decide()
    world.run(low)
    world.job("top", 2, priority="high", members=2)
    first, second = [eviction.uid for eviction in world.decide().evictions]
    world.tell(PodGone(uid=first, namespace="default", name=first, rv=9))
    (late,) = world.job("late", 1)
    world.decide([late])
    refusal = refusal_of(world, late)
    assert refusal.reasons == (("KeptForPreemptor", 1),)
    assert refusal.notes == ("kept for default/top until the pods that it evicts are gone",)
    found = explained(world, late)
    assert found.status.cause == "KeptForPreemptor"
    assert found.node_steps is not None
    assert found.node_steps.host[-1].verdict == "KeptForPreemptor"
    world.tell(PodGone(uid=second, namespace="default", name=second, rv=9))
    assert {f"top-w-{n}" for n in range(2)} <= nodes_of(world.decide()).keys()


def test_a_hold_keeps_to_the_groups_of_the_gangs_queue() -> None:
    world = World(
        in_group("n1", "a", 2), in_group("n2", "b", 2), in_group("n3", "b", 2), policy=policy()
    )
    tell_queue(world, "team", ("b",))
    tell_queue(world, "default", ("a", "b"))
    job(world, "s0", 6, "default")
    world.decide()
    world.tell(group("big", 2, queue="team"))
    world.pods("big", 2, memory_mib=16_000)
    world.decide()
    for number in range(1, 200):
        if world.state.holds:
            break
        gone = min(world.placed())
        world.tell(PodGone(uid=gone, namespace="default", name=gone, rv=9))
        job(world, f"s{number}", 1, "default")
        world.decide()
    (held,) = world.state.holds
    assert set(held.nodes) <= {"n2", "n3"}


PRODUCT = "nvidia.com/gpu.product"


def of_cards(weight: int | None, *more: PluginUse, off: tuple[str, ...] = ()) -> Policy:
    arguments = () if weight is None else (("nodeOrderWeight", weight),)
    cards = PluginUse("capacity-card", arguments=arguments, off=off)
    tiers = ((PluginUse("gang"), cards, *more),)
    return Policy(tiers=tiers, device_weight=0, fit_weight=0, host_weight=0)


def two_models(used: Policy) -> World:
    """A node with an H200 whose GPUs all are free, one with an A100 where all but two are taken."""
    gpus = (("nvidia.com/gpu", 8),)
    world = World(
        build.node("n1", 0, labels=((PRODUCT, "A100"),), extended=gpus),
        build.node("n2", 0, labels=((PRODUCT, "H200"),), extended=gpus),
        policy=used,
    )
    quota = (("A100", 8_000), ("H200", 8_000))
    capability = (("cpu", 100_000), ("memory", 1 << 40))
    world.tell(
        QueueObserved(uid="q", name="default", rv=2, card_quota=quota, capability=capability)
    )
    request = build.request(extended=(("nvidia.com/gpu", 6),))
    world.tell(build.pod("first", request, card_names=("A100",)))
    assert nodes_of(world.decide()) == {"first": "n1"}
    world.tell(
        build.pod(
            "x", build.request(extended=(("nvidia.com/gpu", 1),)), card_names=("H200", "A100")
        )
    )
    return world


PACKED = PluginUse("binpack", arguments=(("binpack.resources.nvidia.com/gpu", 1_000),))
"""One GPU more makes (6+1)/8 of n1's and 1/8 of n2's: 75 points between them."""


@pytest.mark.parametrize(
    ("weight", "off", "node"),
    [
        (None, (), "n2"),  # as in logs from before: strictly the first
        (1_000, (), "n1"),  # 100 and 50 points: 50 are less than binpack's 75
        (2_000, (), "n2"),  # 200 and 100
        (1_000, ("enableNodeOrder",), "n2"),
    ],
)
def test_the_order_of_cards_is_weighed_against_what_nodes_score(
    weight: int | None, off: tuple[str, ...], node: str
) -> None:
    world = two_models(of_cards(weight, PACKED, off=off))
    decided = world.decide()
    (placement,) = decided.placements
    assert placement.node == node
    points = None if weight is None or off else weight // 10 * (1 if node == "n2" else 1 / 2)
    said = dict(placement.terms).get("capacity-card")
    assert said == (None if points is None else points * 1_000_000)


def test_the_quota_of_the_card_that_was_weighed_best_is_taken() -> None:
    world = two_models(of_cards(1_000, PACKED))
    world.decide()
    for uid in ("y", "z"):
        request = build.request(extended=(("nvidia.com/gpu", 1),))
        world.tell(build.pod(uid, request, card_names=("A100",)))
    assert nodes_of(world.decide()) == {"y": "n1"}, "first has 6 of 8 A100, x one, y one"
    assert world.placed() == {"first", "x", "y"}
