"""The log filtered into one pod's, node's or card's story, and one pod's life collected."""

from typing import Any

import msgspec

from allotment.core.explain.history import attempts
from allotment.core.explain.history.concerned import (
    GROUP,
    POD,
    Everything,
    NodeSubject,
    PodSubject,
    Subject,
    concerned,
)
from allotment.core.explain.history.pod_story import PodLife, PodStory
from allotment.core.explain.history.story import line
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_proto.codec import decode_envelope
from allotment_proto.events import (
    Admission,
    Decided,
    Evicted,
    Eviction,
    Nomination,
    PodGone,
    Refusal,
    Short,
)
from tests import build
from tests.recording import Recorder, busy_cluster, vgpu


def told(log: Recorder, subject: Subject) -> list[tuple[int, str]]:
    return [
        (record.seq, line(event, subject.only))
        for record in log.records
        for event in decode_envelope(record.payload).events
        if subject.takes(event)
    ]


def follow(log: Recorder, namespace: str, name: str) -> PodLife:
    story, state = PodStory(namespace, name), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    assert story.latest is not None
    return story.latest


def test_a_pods_story_is_its_own_and_no_others() -> None:
    seqs = [seq for seq, _ in told(busy_cluster(), PodSubject("default", "half"))]
    assert seqs == [8, 11, 12, 13, 30, 31]


def test_a_decision_shows_only_the_parts_asked_for() -> None:
    lines = dict(told(busy_cluster(), PodSubject("default", "whole-more")))
    assert lines[21].startswith("decided c2 on 20: default/whole-more waits: 0/6 nodes")
    assert "a100-only" not in lines[21]
    assert lines[29] == "decided c3 on 28: all wait as before"


def test_a_nodes_story_holds_its_pods_while_they_are_there() -> None:
    lines = told(busy_cluster(), NodeSubject("gpu-02"))
    assert [seq for seq, _ in lines] == [3, 21, 24, 25]
    assert "research/a100-only" in lines[1][1]
    assert "whole-01" not in lines[1][1]


def test_a_cards_story_knows_its_holders_by_index_and_by_id() -> None:
    log = busy_cluster()
    by_index = told(log, NodeSubject("gpu-01", "2"))
    assert [seq for seq, _ in by_index] == [2, 11, 16, 17]
    card = log.state.nodes["gpu-01"].ledgers["vgpu"].cards[2].fact.id
    assert told(log, NodeSubject("gpu-01", card)) == by_index
    assert told(log, NodeSubject("gpu-01", "7")) == []


def test_without_a_filter_every_event_has_a_line() -> None:
    log = busy_cluster()
    lines = told(log, Everything())
    assert [seq for seq, _ in lines] == list(range(1, log.seq + 1))
    assert all(text for _, text in lines)


def evicting(preemptor: str, **changes: Any) -> Decided:
    evicted = Eviction("victim", "default", "victim", "n1", "preempt", preemptor)
    gains = Nomination("gains", "default", "gains", "n1", preemptor)
    return build.decided(evictions=(evicted,), nominations=(gains,), **changes)


def test_a_decision_concerns_also_those_outside_its_batch() -> None:
    event = evicting(
        "default/gang",
        admissions=(Admission("default/admitted"),),
        shorts=(Short("default/short", "", "", 1, 1, 0, True),),
        refusals=(Refusal("refused", "default", "refused", 0, ()),),
    )
    pods, groups = ("victim", "gains", "refused"), ("gang", "admitted", "short")
    wanted = {*((POD, uid) for uid in pods), *((GROUP, f"default/{name}") for name in groups)}
    assert set(concerned(event)) == wanted
    assert (POD, "single") in concerned(evicting("pod:single"))


def test_a_preemptors_log_has_the_eviction_of_its_victims() -> None:
    subject, victim = PodSubject("default", "pod-a"), {"uid": "victim", "namespace": "default"}
    evicted = Evicted(**victim, name="victim", node="n1", decision=2)
    gone = PodGone(**victim, name="victim", rv=2)
    events = (build.pod("a"), evicting("pod:a"), evicted, gone)
    assert [subject.takes(event) for event in events] == [True, True, True, False]


def test_attempts_have_outcomes() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    a, b = log.pod("a", vgpu(1, 30000, 60)), log.pod("b", vgpu(1, 30000, 60))
    basis = log.seq
    log.decide(a, basis=basis)
    small = log.pod("small", vgpu(1, 1000, 1))
    log.decide(b, small, basis=basis + 2)  # b is refused
    log.decide(b, log.pod("never", vgpu(1, 99999, 1)))  # and again, not said anew
    log.observe(a, phase="Succeeded")
    free = log.seq
    c = log.pod("c", vgpu(1, 30000, 60))
    log.decide(c)
    log.decide(b, log.pod("tiny", vgpu(1, 1000, 1)), basis=free)  # c was faster
    log.observe(c, phase="Succeeded")
    log.decide(b)
    log.bind(b)
    log.observe(b, phase="Succeeded")
    story = follow(log, "default", "b")
    assert [attempt.outcome for attempt in story.attempts] == [
        attempts.REFUSED,
        attempts.UNCHANGED,
        attempts.DROPPED,
        attempts.PLACED,
    ]
    assert story.attempts_total == 4
    assert story.attempts[2].code == "InsufficientGPUMemory"
    assert story.bound is not None
    assert story.placed is story.attempts[3]
    assert [m.text for m in story.moments] == ["pod seen", "bound to n1", "Running"]


def test_a_failed_binding_takes_the_place_away_again() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    a = log.pod("a")
    log.decide(a)
    log.bind_failed(a, "the pod was deleted")
    story = follow(log, "default", "a")
    assert story.placed is None
    assert story.moments[-1].text == "not bound to n1: BindConflict: the pod was deleted"


def test_a_placement_that_the_fold_did_not_uphold_is_void() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    a = log.pod("a")
    log.decide(a)
    decision = log.records.pop()
    log.node("n1", cards=0)  # the card goes between the decision's check and its record
    log.records.append(msgspec.structs.replace(decision, seq=log.seq + 1))
    story = follow(log, "default", "a")
    assert [attempt.outcome for attempt in story.attempts] == [attempts.VOID]
    assert story.placed is None


def test_a_new_pod_of_the_same_name_begins_a_new_story() -> None:
    log = Recorder()
    log.node("n1")
    a = log.pod("a")
    log.decide(a)
    log.gone(a)
    story = follow(log, "default", "a")
    assert story.gone
    assert story.uid == a
