"""Groups and queues explained: what is said agrees with what the next round does."""

from typing import Any

import msgspec
import pytest

from allotment.core.explain.doctor import findings
from allotment.core.explain.gang import advise, explain_gang
from allotment.core.explain.pod import explain
from allotment.core.explain.pod_story import PodStory
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.schema import GangExplanation, Member, QueueExplanation, Status
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.reasons import refusal_text
from allotment.core.units import resource_text
from allotment_cli.read.explain_gang import gang_lines
from allotment_cli.read.explain_queue import queue_lines
from allotment_cli.show.explain_text import explanation_lines
from allotment_proto.events import (
    Decided,
    Envelope,
    Eviction,
    Held,
    Nomination,
    PodGone,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.rounds_world import World, group
from tests.unit.sub_groups import halves, in_parts

NOW_MS = 1_000_000
GATED = ("enqueue", "allocate", "backfill")


def gang(world: World, name: str) -> GangExplanation:
    return explain_gang(world.state, f"default/{name}", NOW_MS)


def queue(world: World, name: str = "default") -> QueueExplanation:
    return explain_queue(world.state, name, NOW_MS)


def states(found: GangExplanation) -> list[tuple[str, str]]:
    return [(member.state, member.node) for member in found.members]


def text(found: GangExplanation) -> str:
    return "\n".join(gang_lines(found))


def too_big() -> World:
    """Four members with three whole cards each, on a node with eight."""
    world = World(build.node("n1", 8))
    world.tell(group("big", 4))
    asked = build.request(build.wants(16_000, 100, count=3))
    for n in range(4):
        world.tell(build.pod(f"big-{n}", asked, name=f"big-{n}", group="default/big", role="w"))
    world.decide()
    return world


def test_a_group_whose_minimum_no_empty_node_holds_can_never_start() -> None:
    world = too_big()
    found = gang(world, "big")
    assert found.status.fits_empty_cluster is False
    assert found.status.at_most_empty == 2
    assert "can never start (at most 2 of 4 even on empty nodes)" in text(found)
    (never,) = [each for each in findings(world.state, NOW_MS) if each.code == "NeverFits"]
    assert "group default/big can never start: at most 2 of 4 pods" in never.message
    assert never.never_start == 4


def test_a_group_that_others_keep_from_starting_is_not_said_never_to_start() -> None:
    world = World(build.node("n1", 4))
    world.gang("a", 4)
    world.decide()
    world.gang("b", 41)
    world.gang("c", 4)
    world.decide()
    assert gang(world, "c").status.fits_empty_cluster is True
    assert gang(world, "b").status.fits_empty_cluster is False
    assert gang(world, "a").status.at_most_empty is None


def test_a_group_that_fits_in_part_says_how_many_and_what_the_others_lack() -> None:
    world = World(build.node("n1", 3))
    world.gang("a", 4)
    world.decide()
    found = gang(world, "a")
    assert (found.status.phase, found.status.together, found.status.wanted) == ("Waiting", 3, 4)
    assert found.status.fits_empty_cluster is False
    assert states(found) == [("placeable", "n1")] * 3 + [("blocked", "")]
    (blocked,) = [member for member in found.members if member.state == "blocked"]
    assert blocked.reasons == {"InsufficientGPUMemory": 1}
    assert found.said is not None
    assert (found.said.together, found.said.waiting, found.said.code) == (
        3,
        4,
        "NotEnoughResources",
    )
    assert "3 of 4 can be placed together now, 1 short" in text(found)
    assert "Reported   NotEnoughResources: " in text(found)


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


def test_who_never_fits_is_told_so() -> None:
    world = World(build.node("n1", 1))
    world.gang("a", 2, memory_mib=99_000)
    assert gang(world, "a").status.fits_empty_cluster is False
    assert "Waiting 0s, can never fit on these nodes" in text(gang(world, "a"))


def test_a_pod_beyond_the_minimum_that_never_fits_keeps_no_group_from_its_advice() -> None:
    """The group needs two; the third one is too large for any node."""
    world = World(build.node("n1", 1))
    world.gang("a", 2, memory_mib=12_000)
    huge = build.request(build.wants(99_000, 0))
    world.tell(build.pod("huge", huge, name="huge", group="default/a", role="w"))
    found = gang(world, "a")
    assert found.status.fits_empty_cluster is False, "two do not fit on one card"
    assert [each.members for each in found.counterfactuals if each.members] != []
    assert "a minimum of 1 in place of 2" in [each.text for each in found.counterfactuals]
    assert advise(world.state, "default/a").member == ""


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


def test_pods_of_a_sub_group_are_tried_together_as_in_a_round() -> None:
    """Three cards, partitions of two pods: the third pod finds a card, and waits for its peer."""
    world = World(build.node("n1", 3))
    world.tell(group("a", 2, sub_groups=halves(2, 1)))
    uids = in_parts(world, "xxyyz")
    found = gang(world, "a")
    assert states(found) == [("placeable", "n1")] * 2 + [("blocked", "")] * 3
    reasons = {member.name: member.reason for member in found.members}
    lacking, beside, few = (reasons[uid] for uid in (uids[3], uids[2], uids[4]))
    assert lacking is not None
    assert lacking.code == "InsufficientGPUMemory"
    assert beside is not None
    assert "pods of sub group w y are placed together, and a-w-3 finds no place" in beside.message
    assert few is not None
    assert few.message == "sub group w z lacks 2 pods to be whole, and 1 wait"
    world.decide()
    assert world.placed() == set(uids[:2])


def test_who_is_ahead() -> None:
    world = World(build.node("n1", 1))
    world.tell(PriorityClassObserved(uid="h", name="high", rv=1, value=9))
    for name, klass in (("a", ""), ("b", "high"), ("c", "")):
        world.tell(group(name, 2, priority_class=klass))
        world.pods(name, 2)
    order = {name: gang(world, name).in_queue for name in "abc"}
    assert order["b"] is not None
    assert order["c"] is not None
    assert (order["b"].position, order["b"].ahead) == (1, ())
    assert (order["c"].position, order["c"].length) == (3, 3)
    assert order["c"].ahead == ("default/b", "default/a")
    assert gang(world, "b").priority == 9


def test_a_group_with_too_few_pods() -> None:
    world = World(build.node("n1", 4))
    world.tell(group("a", 3))
    world.pods("a", 2)
    found = gang(world, "a")
    assert found.status.phase == "Incomplete"
    assert found.status.cause is not None
    assert found.status.cause.code == "NotEnoughTasks"


def test_an_elastic_group_that_has_its_minimum_grows() -> None:
    world = World(build.node("n1", 3))
    world.gang("a", 4, members=2)
    world.decide()
    found = gang(world, "a")
    assert found.status.phase == "Growing"
    assert found.counts == {"Binding": 3, "Pending": 1}


def test_the_gate_and_a_queue_that_does_not_exist() -> None:
    world = World(build.node("n1", 3), policy=Policy(tiers=TIERS, actions=GATED))
    world.tell(QueueObserved(uid="c", name="closed", rv=1, state="Closed"))
    pending: dict[str, Any] = {"phase": "Pending", "min_resources": (("cpu", 100),)}
    world.tell(group("a", 1, queue="closed", **pending))
    world.tell(group("b", 1, queue="nowhere", **pending))
    world.tell(group("c", 1, **pending))
    closed, lost, open_ = gang(world, "a"), gang(world, "b"), gang(world, "c")
    assert closed.gate is not None
    assert (closed.status.phase, closed.gate.let_in) == ("AtGate", False)
    assert closed.status.cause is not None
    assert closed.status.cause.code == "QueueClosed"
    assert lost.status.phase == "NoQueue"
    assert lost.status.cause is not None
    assert lost.status.cause.code == "QueueUnknown"
    assert "nowhere (does not exist)" in text(lost)
    assert open_.gate is not None
    assert open_.gate.now is None
    assert "would be admitted now" in text(open_)


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


def test_a_quota_blocks_members_and_the_queue_shows_it() -> None:
    world = limited(200, build.node("n1", 4))
    world.tell(group("a", 3, queue="small"))
    world.pods("a", 3, memory_mib=1_000)  # a tenth of a CPU each
    found = gang(world, "a")
    assert [member.state for member in found.members] == ["placeable", "placeable", "blocked"]
    reason = found.members[2].reason
    assert reason is not None
    assert (reason.code, reason.queue) == ("QueueQuotaInsufficient", "small")
    assert world.decide().placements == ()

    shown = queue(world, "small")
    assert shown.plugin == "capacity"
    cpu = next(limit for limit in shown.limits if limit.resource == "cpu")
    assert (cpu.allocated, cpu.request, cpu.most, cpu.capability) == (0, 300, 200, 200)
    (waiting,) = shown.waiting
    assert (waiting.name, waiting.waiting, waiting.min_member) == ("a", 3, 3)
    assert waiting.reason is not None
    assert waiting.reason.code == "QueueQuotaInsufficient"
    assert "QueueQuotaInsufficient" in "\n".join(queue_lines(shown))


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


def test_pods_without_a_group_wait_in_the_default_queue() -> None:
    world = World(build.node("n1", 1))
    world.tell(build.pod("solo", build.request(build.wants(99_000, 0))))
    world.decide()
    (waiting,) = queue(world).waiting
    assert (waiting.is_pod, waiting.name) == (True, "pod-solo")
    assert waiting.reason is not None
    assert waiting.reason.code == "InsufficientGPUMemory"


def test_holds_and_victims_are_named() -> None:
    world = World(build.node("n1", 1), build.node("n2", 1))
    (uid,) = world.gang("a", 1)
    world.decide()
    world.gang("b", 2)
    eviction = Eviction(uid, "default", uid, "n1", "preempt", "default/b")
    hold = Held("default/b", 7, ("n2",), "")
    world.gang("c", 1)
    place = Nomination("b-w-0", "default", "b-w-0", "n1", "default/b")
    decided = build.decided(
        basis=world.seq, evictions=(eviction,), holds=(hold,), nominations=(place,)
    )
    assert isinstance(decided, Decided)
    world.tell(decided)
    found = gang(world, "b")
    assert [(pod.name, pod.action) for pod in found.leaving] == [(uid, "preempt")]
    assert [kept.nodes for kept in found.kept] == [("n1",)], "while its victims leave"
    other = gang(world, "c")
    assert [kept.group for kept in other.in_the_way] == ["default/b"]
    assert "n1 for default/b, while pods are evicted for it" in text(other)
    world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=9))
    assert gang(world, "b").leaving == ()


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


def test_members_that_are_blocked_alike_are_told_once() -> None:
    found = gang(_two_blocked(), "a")
    lines = text(found).splitlines()
    assert sum("2 × a-w-0 …" in line for line in lines) == 1
    each = [str(line) for line in gang_lines(found, everything=True)]
    assert sum("same as a-w-0" in line for line in each) == 1
    assert all(isinstance(member, Member) for member in found.members)


def test_members_that_say_the_same_are_one_row() -> None:
    world = World(build.node("n1", 1))
    world.gang("a", 200, memory_mib=99_000)
    lines = text(gang(world, "a")).splitlines()
    assert sum("a-w-" in line for line in lines) <= 2
    assert any("200 × a-w-0 …" in line for line in lines)
    assert not any("more: --all" in line for line in lines)


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


def _two_blocked() -> World:
    world = World(build.node("n1", 1))
    world.gang("a", 2, memory_mib=99_000)
    return world


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


def test_a_refusal_by_quota_says_queue_held_limit_and_wanted() -> None:
    """What pods are told (Event and condition) is this text."""
    capacity = Policy(tiers=((PluginUse("capacity"),),))
    listed = (("volcano.sh/vgpu-memory", 80_000), ("volcano.sh/vgpu-number", 20))
    world = World(build.node("n1", 2, extended=listed), policy=capacity)
    limits = (("volcano.sh/vgpu-memory", 16_000_000), ("volcano.sh/vgpu-number", 9_000))
    world.tell(QueueObserved(uid="s", name="small", rv=1, capability=limits))
    asked = msgspec.structs.replace(
        build.request(build.wants(10_000, 0)),
        extended=(("volcano.sh/vgpu-memory", 10_000), ("volcano.sh/vgpu-number", 1)),
    )
    for name in ("a", "b"):
        world.tell(build.pod(name, asked, name=name, queue="small"))
        decided = world.decide()
    (refused,) = decided.refusals
    assert refusal_text(refused) == (
        "QueueQuotaInsufficient: queue small: queue resource quota insufficient: insufficient "
        "volcano.sh/vgpu-memory (9.8 GiB of 15.6 GiB volcano.sh/vgpu-memory in use, "
        "9.8 GiB requested)"
    )
    assert not world.round(["b"]).refusals, "with the same reasons a pod is told once"


def test_what_the_whole_cluster_lacks_is_not_said_of_a_queue() -> None:
    world = World(
        build.node("n1", 1), policy=Policy(actions=GATED, tiers=((PluginUse("overcommit"),),))
    )
    asked = build.request(cpu_milli=99_000_000)
    world.tell(build.pod("a", asked, name="a", queue="default"))
    (refused,) = world.decide().refusals
    said = refusal_text(refused)
    assert said.startswith("ClusterOverused: the cluster: resource in cluster is overused"), said
    assert "99000 requested" in said
    assert "queue" not in said


def test_that_nobody_is_evicted_for_a_group_is_said() -> None:
    world = World(build.node("n1", 1), policy=Policy(actions=("allocate", "preempt")))
    _, second = world.gang("a", 2)
    assert not gang(world, "a").never_preempts
    never = msgspec.structs.replace(world.state.pods[second].fact, rv=2, preempts=False)
    world.tell(never)
    found = gang(world, "a")
    assert found.never_preempts
    assert "Evicts     no pods: a preemptionPolicy of its class or pods is Never" in gang_lines(
        found
    )
    story = PodStory("default", second)
    story.follow(world.seq, 0, Envelope(v=1, at_ms=0, by="", events=(never,)), world.state)
    asked = explain(world.state, story, NOW_MS)
    assert asked.status.never_preempts
    assert "Evicts     no pods: its preemptionPolicy is Never" in explanation_lines(asked)


def test_whom_a_pod_makes_room_for_is_named() -> None:
    world = World(build.node("n1", 1))
    first, second = build.pod("one", name="small"), build.pod("two", name="large")
    world.tell(first)
    world.decide()
    world.tell(second)
    eviction = Eviction("one", "default", "small", "n1", "preempt", "pod:two")
    place = Nomination("two", "default", "large", "n1", "pod:two")
    world.tell(build.decided(evictions=(eviction,), nominations=(place,)))
    assert _explained(world, first).evicted_for == "pod default/large"
    assert _explained(world, second).nominated == "n1"


def _explained(world: World, fact: PodObserved) -> Status:
    story = PodStory(fact.namespace, fact.name)
    story.follow(world.seq, 0, Envelope(v=1, at_ms=0, by="", events=(fact,)), world.state)
    return explain(world.state, story, NOW_MS).status


def test_a_pod_that_no_node_could_ever_take_hears_of_the_largest_node() -> None:
    """The gate lets in no more than the whole cluster has, but that is not what is in the way."""
    world = World(
        build.node("n1", 1), policy=Policy(actions=GATED, tiers=((PluginUse("overcommit"),),))
    )
    asked = build.request(cpu_milli=99_000_000)
    world.tell(build.pod("a", asked, name="a", queue="default"))
    world.decide()
    shown = "\n".join(explanation_lines(explained_pod(world, "a")))
    assert "Cause      InsufficientCPU   (0 of 1 nodes fit; fits an empty cluster: no" in shown
    assert "99000 CPUs requested; the largest node has 8" in shown
    assert "ClusterOverused" not in shown.partition("Timeline")[0]


def explained_pod(world: World, uid: str) -> Any:
    """The explanation of a pod whose story is its fact alone."""
    fact = world.state.pods[uid].fact
    story = PodStory(fact.namespace, fact.name)
    story.follow(
        world.seq, NOW_MS, Envelope(v=5, at_ms=NOW_MS, by="test", events=(fact,)), world.state
    )
    return explain(world.state, story, NOW_MS)


def test_a_group_at_its_gate_that_asks_for_more_than_its_queue_may_have_is_told_never() -> None:
    world = World(
        build.node("n1", 4),
        policy=Policy(actions=GATED, tiers=((PluginUse("gang"), PluginUse("capacity")),)),
    )
    world.tell(QueueObserved(uid="s", name="small", rv=1, capability=(("cpu", 200),)))
    least = (("cpu", 300),)
    world.tell(group("a", 3, queue="small", phase="Pending", min_resources=least))
    world.decide()
    said = text(gang(world, "a"))
    assert "can never start: it wants 300m cpu, and queue small may have 200m at most" in said


def test_a_group_at_its_gate_whose_minimum_no_empty_node_holds_is_told_never() -> None:
    world = World(build.node("n1", 8), policy=Policy(actions=GATED, tiers=TIERS))
    world.tell(QueueObserved(uid="s", name="shut", rv=1, state="Closed"))
    world.tell(group("big", 4, queue="shut", phase="Pending", min_resources=(("cpu", 400),)))
    asked = build.request(build.wants(16_000, 100, count=3))
    for n in range(4):
        world.tell(build.pod(f"big-{n}", asked, name=f"big-{n}", group="default/big", role="w"))
    world.decide()
    status = text(gang(world, "big")).splitlines()[1]
    assert "to be admitted by its queue, can never start (at most 2 of 4" in status


@pytest.mark.parametrize(
    ("names", "uid", "shown"),
    [
        (("web-7f9c6d-x2x9z", "web-7f9c6d-b4b5f"), "rs", "web-7f9c6d"),
        (("alone",), "alone", "alone"),
        (("one-x2x9z", "two-b4b5f"), "rs", "podgroup-rs"),
    ],
)
def test_a_group_that_was_made_for_pods_is_shown_by_whose_they_are(
    names: tuple[str, ...], uid: str, shown: str
) -> None:
    world = World(build.node("n1", 1))
    world.tell(QueueObserved(uid="d", name="default", rv=1))
    world.tell(group(f"podgroup-{uid}", len(names)))
    asked = build.request(build.wants(12_000, 0))
    for name in names:
        world.tell(build.pod(name, asked, name=name, group=f"default/podgroup-{uid}", role="w"))
    world.tell(group("zz", 1))
    world.tell(build.pod("zz", asked, name="zz", group="default/zz", role="w"))
    lines = queue_lines(queue(world), everything=True)
    (line,) = [line for line in lines if line.startswith("  1  ")]
    assert line.split()[1] == f"default/{shown}"
    place = gang(world, "zz").in_queue
    assert place is not None
    assert (place.position, place.ahead) == (2, (f"default/{shown}",))
