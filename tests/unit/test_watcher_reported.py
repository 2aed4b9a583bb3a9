"""Only news is reported, and what is not there any more is reported as gone."""

from typing import Any

import pytest

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    Ending,
    Envelope,
    GroupGone,
    GroupObserved,
    NodeGone,
    PodGone,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_proto.registry import subject_of_facts
from allotment_watcher.reported import (
    Fact,
    Reported,
    ReportedCache,
    classes_of,
    groups_of,
    key_of,
    queues_of,
)
from tests.build import decided, node, pod, policy, state_of


def test_the_same_content_is_reported_once() -> None:
    reported = Reported(ClusterState())
    first = pod("a", rv=1)
    assert reported.pods.seen(first) == [first]
    assert reported.pods.seen(first) == []
    assert reported.pods.seen(pod("a", rv=2)) == []
    changed = pod("a", rv=3, phase="Running")
    assert reported.pods.seen(changed) == [changed]
    assert reported.nodes.seen(node("n", rv=1)) == [node("n", rv=1)]
    assert reported.nodes.seen(node("n", rv=2)) == []
    cordoned = node("n", rv=3, unschedulable=True)
    assert reported.nodes.seen(cordoned) == [cordoned]


def test_words_about_a_pods_end_are_no_news_by_themselves() -> None:
    reported = Reported(ClusterState())
    leaving = pod("a", rv=1, deleting=True)
    reported.pods.seen(leaving)
    words = Ending(disruption="PreemptionByScheduler")
    assert reported.pods.seen(pod("a", rv=2, deleting=True, ending=words)) == []
    failed = pod("a", rv=3, deleting=True, phase="Failed", ending=words)
    assert reported.pods.seen(failed) == [failed]


def test_an_older_observation_that_comes_late_is_not_reported() -> None:
    reported = Reported(ClusterState())
    newer = pod("a", rv=5, phase="Running")
    reported.pods.seen(newer)
    assert reported.pods.seen(pod("a", rv=4)) == []
    reported.nodes.seen(node("n", rv=5))
    assert reported.nodes.seen(node("n", rv=4, unschedulable=True)) == []


def test_an_observation_without_a_version_is_judged_by_its_content() -> None:
    reported = Reported(ClusterState())
    reported.pods.seen(pod("a", rv=5))
    changed = pod("a", rv=0, phase="Running")
    assert reported.pods.seen(changed) == [changed]
    assert reported.pods.seen(changed) == []


def test_gone_is_reported_once_and_only_of_what_was_known() -> None:
    reported = Reported(ClusterState())
    assert reported.pods.gone("a", "a") == []
    reported.pods.seen(pod("a", rv=3))
    assert reported.pods.gone("a", "a") == [
        PodGone(uid="a", namespace="default", name="pod-a", rv=3)
    ]
    assert reported.pods.gone("a", "a") == []
    again = pod("a", rv=9)
    assert reported.pods.seen(again) == [again]


def test_a_node_made_anew_under_its_name_ends_the_old_one_first() -> None:
    reported = Reported(ClusterState())
    reported.nodes.seen(node("n", uid="old", rv=9))
    reborn = node("n", uid="new", rv=10)
    assert reported.nodes.seen(reborn) == [NodeGone(name="n", uid="old", rv=9), reborn]
    assert reported.nodes.gone("n", "old") == []
    assert reported.nodes.gone("n", "new") == [NodeGone(name="n", uid="new", rv=10)]


def test_after_a_full_list_the_others_are_gone_in_a_stable_order() -> None:
    reported = Reported(ClusterState())
    for uid in ("c", "a", "b"):
        reported.pods.seen(pod(uid))
        reported.nodes.seen(node(uid))
    assert [gone.uid for gone in reported.pods.only(["b"]) if isinstance(gone, PodGone)] == [
        "a",
        "c",
    ]
    assert [f.name for f in reported.nodes.only(["a"]) if isinstance(f, NodeGone)] == ["b", "c"]
    assert reported.pods.only(["b"]) == []


def test_a_new_watcher_begins_with_what_the_log_believes() -> None:
    state = state_of(policy(), node("n1"), node("n2"), pod("a"), pod("b"))
    reported = Reported(state)
    assert reported.pods.seen(pod("a", rv=8)) == []
    assert reported.pods.only(["a"]) == [PodGone(uid="b", namespace="default", name="pod-b", rv=1)]
    assert reported.nodes.only(["n2"]) == [NodeGone(name="n1", uid="uid-n1", rv=1)]


def test_a_node_the_log_only_knows_by_its_pods_is_reported_when_it_is_seen() -> None:
    """Pods may hold something on a node that is gone: there is no fact to compare with."""
    running = pod("a", node="n1")
    state = state_of(node("n1"), running, NodeGone(name="n1", uid="uid-n1", rv=1))
    reported = Reported(state)
    assert reported.nodes.only([]) == []
    back = node("n1", uid="uid-again")
    assert reported.nodes.seen(back) == [back]


def test_a_late_fact_of_an_earlier_watcher_is_taken_back() -> None:
    """It landed after its object's end: nothing about the object would ever come again."""
    state = state_of(policy(), node("n1"), node("n2"), pod("a"))
    reported = Reported(state)
    assert reported.corrections(state) == []
    apply(state, pod("ghost", node="n1", rv=7), 5)
    apply(state, node("ghost-node", rv=8), 6)
    reborn = node("n2", uid="uid-again", rv=9)
    assert reported.nodes.seen(reborn)[1] == reborn
    apply(state, reborn, 7)
    apply(state, node("n2", rv=1), 8)  # the old one's fact, late
    found = reported.corrections(state)
    assert found == [
        PodGone(uid="ghost", namespace="default", name="pod-ghost", rv=7),
        reborn,
        NodeGone(name="ghost-node", uid="uid-ghost-node", rv=8),
    ]
    for seq, fact in enumerate(found, 9):
        apply(state, fact, seq)
    assert reported.corrections(state) == []
    assert set(state.nodes) == {"n1", "n2"}
    assert check(state) == []


def test_a_node_that_only_its_pods_remember_needs_no_correction() -> None:
    state = state_of(node("n1"), pod("a", node="n1"), NodeGone(name="n1", uid="uid-n1", rv=1))
    reported = Reported(state)
    assert reported.corrections(state) == []


def test_subjects() -> None:
    assert subject_of_facts((pod("a"),)) == subjects.pod("a")
    assert subject_of_facts((node("n.1"),)) == subjects.node("n.1")
    assert subject_of_facts((policy(),)) == subjects.CONFIG
    assert subject_of_facts((pod("a"), pod("b"))) == subjects.FACTS
    gone = PodGone(uid="a", namespace="x", name="y", rv=1)
    assert subject_of_facts((gone,)) == subjects.pod("a")
    with pytest.raises(TypeError, match="does not append Decided"):
        subject_of_facts((decided(),))


def test_a_fact_that_came_back_from_the_log_is_held_once() -> None:
    """The cache then holds the very object that the state does."""
    reported, told = Reported(ClusterState()), pod("a")
    reported.pods.seen(told)
    payload = encode(Envelope(v=1, at_ms=0, by="watcher", events=(told, pod("b"))))
    record = Record(1, subjects.FACTS, payload, 0, "1")
    envelope = decode_envelope(payload)
    reported.took_effect(record, envelope)
    assert reported.corrections(state_of())[0] is envelope.events[0]
    newer = pod("a", rv=2, phase="Running")
    reported.pods.seen(newer)
    reported.took_effect(record, envelope)
    assert reported.corrections(state_of()) == [newer]


def group(rv: int = 1, uid: str = "u", name: str = "g", **fields: Any) -> GroupObserved:
    return GroupObserved(uid=uid, namespace="ns", name=name, rv=rv, **fields)


def queue(name: str, rv: int = 1, **fields: Any) -> QueueObserved:
    return QueueObserved(uid=f"uid-{name}", name=name, rv=rv, **fields)


def reported(*facts: GroupObserved | QueueObserved) -> ReportedCache[Any]:
    return ReportedCache({key_of(fact): fact for fact in facts})


def test_the_same_content_of_a_group_is_reported_once() -> None:
    cache = reported()
    assert cache.seen(group(1)) == [group(1)]
    assert cache.seen(group(2)) == []
    changed = group(3, min_member=4)
    assert cache.seen(changed) == [changed]
    assert cache.seen(group(2)) == [], "an older version that comes late"


def test_a_group_made_anew_under_its_name() -> None:
    cache = reported(group(9, uid="old"))
    reborn = group(2, uid="new")
    assert cache.seen(reborn) == [reborn]
    assert cache.gone("ns/g", "old") == []
    assert cache.gone("ns/g", "new") == [GroupGone(uid="new", namespace="ns", name="g", rv=2)]
    assert cache.gone("ns/g", "new") == []


def test_a_queue_that_a_list_lacks_is_gone() -> None:
    cache = reported(queue("a"), queue("b", 7), queue("c"))
    assert cache.only(["a", "c", "d"]) == [QueueGone(uid="uid-b", name="b", rv=7)]
    assert cache.only(["a", "c"]) == []


def folded(*facts: Fact) -> ClusterState:
    state = ClusterState()
    for seq, fact in enumerate(facts, start=1):
        apply(state, fact, seq)
    return state


def test_each_kind_begins_with_what_the_log_believes_and_ends_that() -> None:
    high = PriorityClassObserved(uid="p", name="high", rv=3, value=9)
    state = folded(group(), queue("a"), high)
    apply(state, pod("x", group="ns/unseen"), 4)
    assert groups_of(state) == {"ns/g": group()}
    assert ReportedCache(groups_of(state)).seen(group(5)) == []
    assert ReportedCache(queues_of(state)).only([]) == [QueueGone(uid="uid-a", name="a", rv=1)]
    assert ReportedCache(classes_of(state)).only([]) == [
        PriorityClassGone(uid="p", name="high", rv=3)
    ]


def test_a_queue_that_landed_late_is_set_right() -> None:
    cache = reported(queue("a"), queue("b"))
    again = QueueObserved(uid="other", name="b", rv=9)
    believed = queues_of(folded(again, queue("late", 5)))
    assert cache.corrections(believed) == [
        queue("a"),
        queue("b"),
        QueueGone(uid="uid-late", name="late", rv=5),
    ]
    assert cache.corrections(queues_of(folded(queue("a"), queue("b", 8)))) == []
