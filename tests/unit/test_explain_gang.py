"""Groups and queues explained: what is said agrees with what the next round does."""

from typing import Any

import pytest

from allotment.core.explain.gang import advise, explain_gang
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.schema import GangExplanation, QueueExplanation
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.units import resource_text
from allotment_cli.read.explain_gang import gang_lines
from allotment_cli.read.explain_queue import queue_lines
from allotment_proto.events import (
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.rounds_world import World, group

NOW_MS = 1_000_000


def gang(world: World, name: str) -> GangExplanation:
    return explain_gang(world.state, f"default/{name}", NOW_MS)


def queue(world: World, name: str = "default") -> QueueExplanation:
    return explain_queue(world.state, name, NOW_MS)


def states(found: GangExplanation) -> list[tuple[str, str]]:
    return [(member.state, member.node) for member in found.members]


def text(found: GangExplanation) -> str:
    return "\n".join(gang_lines(found))


def test_asking_changes_nothing_and_agrees_with_the_next_round() -> None:
    world = World(build.node("n1", 2), build.node("n2", 2))
    uids = world.gang("a", 4, members=3)
    before = world.round(uids)
    found = gang(world, "a")
    assert world.round(uids) == before
    assert found.status.together == 4
    decided = world.decide()
    placed = {placement.name: placement.node for placement in decided.placements}
    assert {m.name: m.node for m in found.members} == placed
    after = gang(world, "a")
    assert (after.status.phase, after.counts) == ("Placed", {"Binding": 4})
    assert {m.name: m.node for m in after.members} == placed


def test_the_pod_without_which_a_group_cannot_start_is_named() -> None:
    world = World(build.node("n1", 4))
    world.tell(group("a", 3))
    world.pods("a", 2)
    huge = build.request(build.wants(99_000, 0))
    world.tell(build.pod("huge", huge, name="huge", group="default/a", role="w"))
    found = advise(world.state, "default/a")
    assert found.member == "huge"
    assert found.changes == gang(world, "a").counterfactuals
    assert all(each.members_fit is None for each in found.changes)


TIERS = (
    (PluginUse("priority"), PluginUse("gang")),
    (PluginUse("predicates"), PluginUse("capacity")),
)


def limited(cpu_milli: int, *nodes: Any) -> World:
    """A world in which queue `small` may have so much CPU."""
    world = World(*nodes, policy=Policy(tiers=TIERS))
    capability = (("cpu", cpu_milli),)
    world.tell(QueueObserved(uid="s", name="small", rv=1, capability=capability))
    return world


def test_what_nobody_limits_has_no_most() -> None:
    """The cluster lists no such resource and no queue names it: the gate does not ask for it."""
    world = limited(4_000, build.node("n1", 4))
    least = (("volcano.sh/vgpu-memory-percentage", 400_000), ("volcano.sh/vgpu-number", 4_000))
    world.tell(group("a", 4, queue="small", phase="Pending", min_resources=least))
    most = {limit.resource: limit.most for limit in queue(world, "small").limits}
    assert most["volcano.sh/vgpu-memory-percentage"] is None
    assert most["cpu"] == 4_000
    assert queue(world, "small").waiting[0].reason is None


def test_a_queue_without_groups_and_one_by_weight() -> None:
    world = World(build.node("n1", 4))
    world.gang("a", 2)
    world.decide()
    shown = queue(world)
    assert (shown.plugin, shown.groups, shown.waiting) == ("proportion", {"Inqueue": 1}, ())
    cpu = next(limit for limit in shown.limits if limit.resource == "cpu")
    assert (cpu.allocated, cpu.deserved, cpu.most) == (200, 200, 8_000)
    assert "proportion" in "\n".join(queue_lines(shown))


def test_without_queues_and_without_a_group_object() -> None:
    state = ClusterState()
    apply(state, build.node("n1", 1), 1)
    apply(state, build.pod("x", group="default/a"), 2)
    unseen = explain_gang(state, "default/a", NOW_MS)
    assert (unseen.status.phase, states(unseen)) == ("Unseen", [("Pending", "")])
    assert "PodGroup that does not exist" in text(unseen)
    apply(state, group("a", 1), 3)
    found = explain_gang(state, "default/a", NOW_MS)
    assert found.status.phase == "NotInUse"
    assert "placed one by one" in text(found)


def test_groups_and_pods_that_wait_alike_are_one_row() -> None:
    world = World(build.node("n1", 1))
    world.tell(QueueObserved(uid="d", name="default", rv=1))
    asked = build.request(build.wants(99_000, 0))
    for n in range(200):
        name = f"p-{n:03}"
        world.tell(group(f"podgroup-{name}", 1))
        world.tell(build.pod(name, asked, name=name, group=f"default/podgroup-{name}", role="w"))
    lines = [str(line) for line in queue_lines(queue(world))]
    (row,) = [line for line in lines if "p-000" in line]
    assert row.split()[:3] == ["1-200", "200", "×"]
    assert not any("p-001" in line or "more: --all" in line for line in lines)
    every = [str(line) for line in queue_lines(queue(world), everything=True)]
    assert sum("p-1" in line for line in every) == 100


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("cpu", 1_500, "1500m"),
        ("cpu", 2_000, "2"),
        ("memory", 1 << 30, "1.0 GiB"),
        ("pods", 7, "7"),
        ("nvidia.com/gpu", 2_000, "2"),
        ("NVIDIA-A100", 1_250, "1.25"),
    ],
)
def test_amounts(resource: str, amount: int, shown: str) -> None:
    assert resource_text(resource, amount) == shown


def test_amounts_of_card_memory_have_their_unit() -> None:
    assert resource_text("volcano.sh/vgpu-memory", 6_000_000, 1 << 20) == "5.9 GiB"
