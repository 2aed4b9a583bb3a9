"""Only news is told, and what is not there any more is told as gone."""

import pytest

from allotment.core.ledger.check import check
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Envelope, NodeGone, PodGone
from allotment_proto.registry import subject_of_facts
from allotment_watcher.diary import Diary
from tests.build import decided, node, pod, policy, state_of


def test_the_same_content_is_told_once() -> None:
    diary = Diary()
    first = pod("a", rv=1)
    assert diary.pod_seen(first) == [first]
    assert diary.pod_seen(first) == []
    assert diary.pod_seen(pod("a", rv=2)) == []
    changed = pod("a", rv=3, phase="Running")
    assert diary.pod_seen(changed) == [changed]
    assert diary.node_seen(node("n", rv=1)) == [node("n", rv=1)]
    assert diary.node_seen(node("n", rv=2)) == []
    cordoned = node("n", rv=3, unschedulable=True)
    assert diary.node_seen(cordoned) == [cordoned]


def test_an_older_observation_that_comes_late_is_not_told() -> None:
    diary = Diary()
    newer = pod("a", rv=5, phase="Running")
    diary.pod_seen(newer)
    assert diary.pod_seen(pod("a", rv=4)) == []
    diary.node_seen(node("n", rv=5))
    assert diary.node_seen(node("n", rv=4, unschedulable=True)) == []


def test_an_observation_without_a_version_is_judged_by_its_content() -> None:
    diary = Diary()
    diary.pod_seen(pod("a", rv=5))
    changed = pod("a", rv=0, phase="Running")
    assert diary.pod_seen(changed) == [changed]
    assert diary.pod_seen(changed) == []


def test_gone_is_told_once_and_only_of_what_was_known() -> None:
    diary = Diary()
    assert diary.pod_gone("a") == []
    diary.pod_seen(pod("a", rv=3))
    assert diary.pod_gone("a", 7) == [PodGone(uid="a", namespace="default", name="pod-a", rv=7)]
    assert diary.pod_gone("a") == []
    again = pod("a", rv=9)
    assert diary.pod_seen(again) == [again]


def test_a_node_made_anew_under_its_name_ends_the_old_one_first() -> None:
    diary = Diary()
    diary.node_seen(node("n", uid="old", rv=9))
    reborn = node("n", uid="new", rv=10)
    assert diary.node_seen(reborn) == [NodeGone(name="n", uid="old", rv=9), reborn]
    assert diary.node_gone("n", "old") == []
    assert diary.node_gone("n", "new") == [NodeGone(name="n", uid="new", rv=10)]


def test_after_a_full_list_the_others_are_gone_in_a_stable_order() -> None:
    diary = Diary()
    for uid in ("c", "a", "b"):
        diary.pod_seen(pod(uid))
        diary.node_seen(node(uid))
    assert [gone.uid for gone in diary.only_pods(["b"]) if isinstance(gone, PodGone)] == ["a", "c"]
    assert [f.name for f in diary.only_nodes(["a"]) if isinstance(f, NodeGone)] == ["b", "c"]
    assert diary.only_pods(["b"]) == []


def test_a_new_watcher_begins_with_what_the_log_believes() -> None:
    state = state_of(policy(), node("n1"), node("n2"), pod("a"), pod("b"))
    diary = Diary()
    diary.begin(state)
    assert diary.pod_seen(pod("a", rv=8)) == []
    assert diary.only_pods(["a"]) == [PodGone(uid="b", namespace="default", name="pod-b", rv=1)]
    assert diary.only_nodes(["n2"]) == [NodeGone(name="n1", uid="uid-n1", rv=1)]


def test_a_node_the_log_only_knows_by_its_pods_is_told_when_it_is_seen() -> None:
    """Pods may hold something on a node that is gone: there is no fact to compare with."""
    running = pod("a", node="n1")
    state = state_of(node("n1"), running, NodeGone(name="n1", uid="uid-n1", rv=1))
    diary = Diary()
    diary.begin(state)
    assert diary.only_nodes([]) == []
    back = node("n1", uid="uid-again")
    assert diary.node_seen(back) == [back]


def test_a_late_fact_of_an_earlier_watcher_is_taken_back() -> None:
    """It landed after its object's end: nothing about the object would ever come again."""
    state = state_of(policy(), node("n1"), node("n2"), pod("a"))
    diary = Diary()
    diary.begin(state)
    assert diary.corrections(state) == []
    apply(state, pod("ghost", node="n1", rv=7), 5)
    apply(state, node("ghost-node", rv=8), 6)
    reborn = node("n2", uid="uid-again", rv=9)
    assert diary.node_seen(reborn)[1] == reborn
    apply(state, reborn, 7)
    apply(state, node("n2", rv=1), 8)  # the old one's fact, late
    found = diary.corrections(state)
    assert found == [
        PodGone(uid="ghost", namespace="default", name="pod-ghost", rv=7),
        reborn,
        NodeGone(name="ghost-node", uid="uid-ghost-node", rv=8),
    ]
    for seq, fact in enumerate(found, 9):
        apply(state, fact, seq)
    assert diary.corrections(state) == []
    assert set(state.nodes) == {"n1", "n2"}
    assert check(state) == []


def test_a_node_that_only_its_pods_remember_needs_no_correction() -> None:
    state = state_of(node("n1"), pod("a", node="n1"), NodeGone(name="n1", uid="uid-n1", rv=1))
    diary = Diary()
    diary.begin(state)
    assert diary.corrections(state) == []


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
    """The diary then holds the very object that the state does."""
    diary, told = Diary(), pod("a")
    diary.pod_seen(told)
    payload = encode(Envelope(v=1, at_ms=0, by="watcher", events=(told, pod("b"))))
    record = Record(1, subjects.FACTS, payload, 0, "1")
    envelope = decode_envelope(payload)
    diary.took_effect(record, envelope)
    assert diary.corrections(state_of())[0] is envelope.events[0]
    newer = pod("a", rv=2, phase="Running")
    diary.pod_seen(newer)
    diary.took_effect(record, envelope)
    assert diary.corrections(state_of()) == [newer]
