"""Which groups get a cycle, and when one that was refused gets the next."""

import msgspec

from allotment_proto.events import PodGone, QueueObserved
from allotment_proto.facts import Constraints
from tests import build
from tests.unit.filtered import Filtered
from tests.unit.rounds_world import group


def test_a_refused_group_waits_for_news() -> None:
    world = Filtered(build.node("n1", 1))
    uids = world.gang("a", 2)
    assert world.cycle() == uids
    assert world.cycle() is None
    world.tell(build.node("n2", 1))
    assert world.cycle() == uids
    assert world.placed() == set(uids)
    assert world.cycle() is None


def test_what_happens_to_placed_pods_opens_no_session() -> None:
    world = Filtered(build.node("n1", 4))
    uids = world.gang("a", 2)
    assert world.cycle() == uids
    assert world.cycle() is None
    for uid in uids:
        pod = world.state.pods[uid]
        assert pod.allocation is not None
        fact = msgspec.structs.replace(
            pod.fact, rv=9, node="n1", phase="Running", holdings=pod.allocation.holdings
        )
        world.tell(fact)
        assert not world.opens_a_session()
    world.tell(group("b", 1, phase="Pending"))
    assert world.opens_a_session(), "it has to pass the gate"
    world.tell(group("c", 1, queue="nobody's"))
    assert world.opens_a_session(), "it has to be told"


def test_a_release_wakes_all_that_wait() -> None:
    world = Filtered(build.node("n1", 2))
    first, second = world.gang("a", 2), world.gang("b", 2)
    assert world.cycle() == [*first, *second]
    world.tell(PodGone(uid=first[0], namespace="default", name=first[0], rv=9))
    assert world.cycle() == second
    world.tell(PodGone(uid=first[1], namespace="default", name=first[1], rv=9))
    assert world.cycle() == second
    assert set(second) <= world.placed()


def test_groups_come_whole_and_queues_take_turns() -> None:
    world = Filtered(build.node("n1", 2))
    world.tell(QueueObserved(uid="t", name="train", rv=1))
    for name, queue in (("a", "default"), ("b", "default"), ("c", "train")):
        world.tell(group(name, 2, queue=queue))
        world.pods(name, 2)
    found = world.next(most=4)
    assert found is not None
    assert [uid[0] for uid in found] == ["a", "a", "c", "c"]
    large = world.next(most=1)
    assert large is not None
    assert len(large) == 2, "a group larger than a batch comes alone"


def test_a_held_back_pod_keeps_its_group_out_for_a_while() -> None:
    world = Filtered(build.node("n1", 2))
    uids = world.gang("a", 2)
    assert world.next(uids[1]) is None
    assert world.next() == uids


def test_pods_without_a_group() -> None:
    world = Filtered(build.node("n1", 1))
    world.tell(build.pod("solo", build.request(build.wants(16_000, 0))))
    world.tell(build.pod("late", build.request(build.wants(16_000, 0)), created_ms=9_000))
    assert world.cycle() == ["solo", "late"]
    assert world.placed() == {"solo"}
    assert world.cycle() is None
    world.tell(PodGone(uid="solo", namespace="default", name="solo", rv=9))
    assert world.cycle() == ["late"]


def test_a_lone_pod_that_no_room_helps_waits_for_another_node() -> None:
    world = Filtered(build.node("n1", 1))
    labels = (("zone", "nowhere"),)
    lone = build.pod("lone", build.request(constraints=Constraints(node_selector=labels)))
    world.tell(lone)
    world.tell(build.pod("x", node="n1"))
    assert world.cycle() == ["lone"]
    world.tell(PodGone(uid="x", namespace="default", name="pod-x", rv=9))
    assert world.cycle() is None
    world.tell(build.node("n2", 1, labels=labels))
    assert world.cycle() == ["lone"]
    assert world.placed() == {"lone"}


def test_who_was_in_a_cycle_that_comes_to_nothing_is_offered_again() -> None:
    world = Filtered(build.node("n1", 4))
    world.tell(build.pod("a", queue="default"))
    world.open()
    found = world.groups.next_batch(())
    assert found is not None
    assert world.groups.next_batch(()) == found, "nothing has happened meanwhile"
