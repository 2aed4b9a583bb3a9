"""Groups whose queue does not exist, and pods whose PodGroup does not: told once, and no one else
is disturbed.
"""

import pytest

from allotment.core.explain.pod_views import pod_status
from allotment.core.queues.round.rounds import Rounds
from allotment.core.reasons import refusal_text
from allotment_binder.gang_notices import waits_because
from allotment_filter.groups import Groups
from allotment_filter.orphans import without_group
from allotment_proto.events import Admission, GroupGone, PodGone, QueueGone, QueueObserved
from allotment_proto.facts import Policy
from tests import build
from tests.unit.filtered import Filtered
from tests.unit.node_groups import explained, job
from tests.unit.rounds_world import TIERS, World, group


def told(world: Filtered, uid: str) -> str:
    refusal = world.state.pods[uid].refusal
    return "" if refusal is None else refusal_text(refusal)


def deleted_queue() -> tuple[Filtered, list[str], list[str]]:
    """A queue with a group that runs whole and one that waits; then it is deleted."""
    world = Filtered(build.node("n1", 2))
    world.tell(QueueObserved(uid="t", name="team", rv=1))
    runs = job(world, "runs", 2, "team")
    world.cycle()
    waits = job(world, "waits", 1, "team")
    world.cycle()
    assert world.placed() == set(runs)
    world.tell(QueueGone(uid="t", name="team", rv=2))
    return world, runs, waits


def test_a_deleted_queue_leaves_those_who_run_alone() -> None:
    world, runs, waits = deleted_queue()
    assert world.cycle() == waits
    running, waiting = (world.state.groups[f"default/{name}"] for name in ("runs", "waits"))
    assert (running.gate, running.short) == (None, None)
    assert [told(world, uid) for uid in runs] == ["", ""]
    assert waiting.gate is None, "it was let in"
    assert waiting.short is not None
    assert waiting.short.code == "QueueUnknown"
    assert told(world, waits[0]) == "QueueUnknown: queue team of default/waits does not exist"
    assert pod_status(world.state, world.state.pods[waits[0]]) == ("Pending", "QueueUnknown")
    assert explained(world, waits[0]).status.group == "queue team of default/waits does not exist"
    assert world.cycle() is None, "told once"


def test_what_waits_goes_on_when_the_queue_is_back() -> None:
    world, runs, waits = deleted_queue()
    world.cycle()
    world.tell(QueueObserved(uid="u", name="team", rv=3))
    assert world.cycle() == waits
    assert "InsufficientGPUMemory" in told(world, waits[0])
    assert waits_because(world.state.groups["default/waits"]).endswith("1 InsufficientGPUMemory.")
    world.tell(PodGone(uid=runs[0], namespace="default", name=runs[0], rv=9))
    world.cycle()
    assert waits[0] in world.placed()


def test_an_elastic_group_without_its_queue_keeps_what_it_has_and_gets_no_more() -> None:
    world = Filtered(build.node("n1", 1))
    world.tell(QueueObserved(uid="t", name="team", rv=1))
    first, second = job(world, "grows", 2, "team")
    world.cycle()
    world.tell(QueueGone(uid="t", name="team", rv=2))
    world.tell(build.node("n2", 1))
    world.cycle()
    assert world.placed() == {first}
    assert told(world, second).startswith("QueueUnknown: queue team")
    assert told(world, first) == ""


@pytest.mark.parametrize("actions", [("enqueue", "allocate"), ("allocate",)])
def test_at_the_gate_the_group_is_told_and_without_a_gate_its_pods(actions: tuple[str]) -> None:
    world = Filtered(build.node("n1", 2), policy=Policy(tiers=TIERS, actions=actions))
    (uid,) = job(world, "a", 1, "nowhere", phase="Pending")
    has_gate = "enqueue" in actions
    assert world.cycle() == ([] if has_gate else [uid])
    found = world.state.groups["default/a"]
    assert (found.gate is not None and found.gate.code == "QueueUnknown") == has_gate
    assert (found.short is not None and found.short.code == "QueueUnknown") != has_gate
    assert "queue nowhere of default/a does not exist" in waits_because(found)
    assert world.cycle() is None


def test_a_new_pod_of_a_group_without_its_queue_is_told_too() -> None:
    world, _, waits = deleted_queue()
    world.cycle()
    (late,) = world.pods("waits", 1, start=5)
    assert world.cycle() == [*waits, late]
    assert told(world, late).startswith("QueueUnknown: ")


def test_a_pod_without_its_podgroup_is_told_and_placed_when_it_comes() -> None:
    world = Filtered(build.node("n1", 2))
    (uid,) = world.pods("ghost", 1)
    assert list(without_group(world.state)) == [uid]
    assert world.next(uid) is None, "given time"
    assert world.cycle() == [uid]
    assert told(world, uid) == (
        "GroupMissing: PodGroup default/ghost does not exist; the pod waits for it, as its "
        "annotation scheduling.k8s.io/group-name says"
    )
    assert pod_status(world.state, world.state.pods[uid]) == ("Pending", "GroupMissing")
    found = explained(world, uid).status
    assert (found.cause, found.group) == (
        "GroupMissing",
        "PodGroup default/ghost does not exist",
    )
    assert list(without_group(world.state)) == []
    assert world.cycle() is None, "told once"
    (late,) = world.pods("ghost", 1, start=3)
    assert world.cycle() == [late]
    world.tell(group("ghost", 2))
    assert world.cycle() == [uid, late]
    assert world.placed() == {uid, late}


def test_pods_whose_podgroup_was_deleted_are_told_those_that_run_are_not() -> None:
    world = Filtered(build.node("n1", 1))
    runs, waits = world.gang("g", 2, members=1)
    world.cycle()
    assert "InsufficientGPUMemory" in told(world, waits)
    world.tell(GroupGone(uid="uid-g", namespace="default", name="g", rv=2))
    assert world.cycle() == [waits]
    assert told(world, waits).startswith("GroupMissing: PodGroup default/g does not exist")
    assert told(world, runs) == ""


def test_pods_whose_podgroup_was_deleted_after_its_queue_are_told_of_the_podgroup() -> None:
    """What others of the group hold counts in a queue that is not there."""
    world = Filtered(build.node("n1", 1))
    world.tell(QueueObserved(uid="t", name="team", rv=1))
    _, waits = job(world, "g", 2, "team")
    world.cycle()
    world.tell(QueueGone(uid="t", name="team", rv=2))
    world.cycle()
    assert told(world, waits).startswith("QueueUnknown: ")
    world.tell(GroupGone(uid="uid-g", namespace="default", name="g", rv=2))
    assert world.cycle() == [waits]
    assert told(world, waits).startswith("GroupMissing: PodGroup default/g does not exist")


def test_many_orphans_leave_room_for_others() -> None:
    world = Filtered(build.node("n1", 2))
    orphans = world.pods("ghost", 12)
    ready = world.gang("a", 2)
    first = world.next(most=8)
    assert first == [*orphans[:2], *ready]
    seen: set[str] = set()
    while (batch := world.cycle()) is not None:
        seen.update(batch)
    assert seen == {*orphans, *ready}
    assert all(told(world, uid) for uid in orphans)


def test_a_service_that_starts_anew_tells_nobody_twice() -> None:
    world, _, _ = deleted_queue()
    world.pods("ghost", 1)
    while world.cycle() is not None:
        pass
    again = Groups(world.state)
    found = again.next_batch(())
    assert found is None or not Rounds(world.state).run(found.batch.uids, world.board).refusals


def test_without_any_queue_nobody_is_astray() -> None:
    world, _, _ = deleted_queue()
    world.pods("ghost", 1)
    world.tell(QueueGone(uid="q", name="default", rv=9))
    assert not world.state.is_batched
    assert world.cycle() is None


WITHOUT_GATE = Policy(tiers=TIERS, actions=("allocate", "backfill"))


def test_without_the_action_enqueue_groups_are_let_in_by_themselves() -> None:
    """Whoever makes a group's pods waits for that; and it is said once."""
    world = World(build.node("n1", 2), policy=WITHOUT_GATE)
    world.tell(group("a", 2, phase="Pending", min_resources=(("nvidia.com/gpu", 900),)))
    groups = Groups(world.state)
    found = groups.next_batch(())
    assert found is not None
    assert found.batch.uids == ()
    assert world.decide([]).admissions == (Admission("default/a"),)
    groups.tried(found)
    assert world.state.groups["default/a"].admitted_seq == world.seq
    assert groups.next_batch(()) is None
    assert world.rounds.run([], world.board).admissions == ()


def test_without_the_action_enqueue_a_group_without_its_queue_is_told_once() -> None:
    world = World(build.node("n1", 2), policy=WITHOUT_GATE)
    world.tell(group("a", 2, phase="Pending", queue="nowhere"))
    groups = Groups(world.state)
    found = groups.next_batch(())
    assert found is not None
    (told,) = world.decide([]).admissions
    assert (told.group, told.code) == ("default/a", "QueueUnknown")
    groups.tried(found)
    assert groups.next_batch(()) is None
    world.tell(QueueObserved(uid="n", name="nowhere", rv=1))
    assert groups.next_batch(()) is not None
    assert world.decide([]).admissions == (Admission("default/a"),)
