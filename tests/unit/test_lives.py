"""Traces made while a log is followed: the same spans as those of the finished log, each once."""

from collections import Counter

import pytest

from allotment.core.explain.history.lives import Lives
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.history.spans import SpanView, spans_of
from allotment.core.explain.history.timeline import life_of
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.logport import Record
from allotment.core.trace_ids import root_id, trace_id
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided, Ending, Eviction, NodeGone, PodObserved
from allotment_proto.facts import Policy
from tests.recorded import A_FEW, read_log
from tests.recording import Recorder, busy_cluster, uid_of, vgpu
from tests.recording_batch import preempted


def everybody(uid: str) -> bool:
    return True


def nobody(uid: str) -> bool:
    return False


def exported(records: list[Record], lives: Lives, *, pods_a_turn: int = 1_000) -> list[SpanView]:
    """Everything that is given out while the records are followed."""
    state, out = ClusterState(), []
    for record in records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        time_ms = record.time_ns // 1_000_000
        lives.follow(record.seq, time_ms, envelope, state)
        for part in lives.parts(state, time_ms, pods_a_turn):
            assert {span.trace_id for span in part.spans} == {trace_id(part.uid)}
            out += part.spans
    return out


def on_demand(records: list[Record], seen: PodObserved) -> list[SpanView]:
    """The spans of one pod as `allot trace` makes them of the whole log."""
    story, state = PodStory(seen.namespace, seen.name, asks_nodes=False), ClusterState()
    for record in records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    last_ms = records[-1].time_ns // 1_000_000
    return spans_of(life_of(state, story.lives[seen.uid], last_ms))


def pods_of(records: list[Record]) -> list[PodObserved]:
    found: dict[str, PodObserved] = {}
    for record in records:
        for event in decode_envelope(record.payload).events:
            if isinstance(event, PodObserved):
                found.setdefault(event.uid, event)
    return list(found.values())


def is_enclosed(spans: dict[str, SpanView]) -> bool:
    """Whether parents begin no later than their children and end no earlier."""
    parents = ((spans.get(span.parent_id), span) for span in spans.values())
    return all(
        parent.start_us <= span.start_us <= span.end_us <= parent.end_us
        for parent, span in parents
        if parent is not None
    )


@pytest.mark.parametrize("name", [*A_FEW, "busy", "queues", "preempted"])
def test_what_is_exported_is_what_the_finished_log_gives(name: str) -> None:
    records = read_log(name)
    found = exported(records, Lives(everybody))
    ids = Counter((span.trace_id, span.span_id) for span in found)
    assert set(ids.values()) <= {1}, "each once"
    by_trace: dict[str, list[SpanView]] = {}
    for span in found:
        by_trace.setdefault(span.trace_id, []).append(span)
    for seen in pods_of(records):
        wanted = {span.span_id: span for span in on_demand(records, seen) if not span.is_open}
        assert is_enclosed(wanted)
        given = {span.span_id: span for span in by_trace.get(trace_id(seen.uid), [])}
        assert all(wanted[own] == span for own, span in given.items())
        if root_id(seen.uid) in wanted and seen.scheduler == "allotment":
            assert given == wanted, "whole, when it is over"


def life_log() -> tuple[Recorder, str]:
    """Two pods that run to their end, and one that waits meanwhile: its uid."""
    log = Recorder()
    log.node("n1")
    uids = [log.pod(name, vgpu()) for name in ("first", "second")]
    for uid in uids:
        log.decide(uid)
        log.bind(uid)
    waits = log.pod("waits", vgpu(8))
    log.decide(waits)
    for uid in uids:
        log.observe(uid, phase="Succeeded")
    return log, waits


def test_only_what_becomes_final_after_the_start_is_exported() -> None:
    log, _ = life_log()
    whole = exported(log.records, Lives(everybody))
    for start_seq in range(log.seq + 1):
        later = exported(log.records, Lives(everybody, start_seq))
        earlier = exported(log.records[:start_seq], Lives(everybody))
        ids = [span.span_id for span in earlier + later]
        assert len(ids) == len(set(ids)), "nothing twice"
        assert {span.span_id for span in later} <= {span.span_id for span in whole}
    assert not exported(log.records, Lives(everybody, log.seq))


def test_of_pods_outside_the_sample_only_the_remarkable_are_exported() -> None:
    log, waits = life_log()
    lives = Lives(nobody)
    assert exported(log.records, lives) == []
    assert len(lives) == 1, "who waits is followed"
    for _ in range(200):  # time passes, and its refusal is given out although it waits still
        log.node("another")
    found = exported(log.records, Lives(nobody))
    assert {span.trace_id for span in found} == {trace_id(waits)}
    assert "attempt" in {span.name for span in found}
    assert "pod" not in {span.name for span in found}, "it is not over"


def test_lives_are_bounded_and_those_beyond_counted() -> None:
    log = Recorder()
    for number in range(5):
        log.pod(f"p{number}", vgpu())
    lives = Lives(everybody, limit=3)
    exported(log.records, lives)
    assert (len(lives), lives.left_out) == (3, 2)


def test_who_was_left_out_is_counted_once_and_never_followed_from_the_middle() -> None:
    log = Recorder()
    log.node("n1", cards=8)
    uids = [log.pod(f"p{number}", vgpu()) for number in range(4)]
    for uid in uids:
        log.observe(uid, labels=(("seen", "again"),))
    for uid in uids[:2]:
        log.gone(uid)
    for uid in uids[2:]:  # now there is room
        log.observe(uid, labels=(("seen", "a third time"),))
        log.gone(uid)
    lives = Lives(everybody, limit=2)
    found = exported(log.records, lives)
    assert {span.trace_id for span in found} == set(map(trace_id, uids[:2]))
    assert (len(lives), lives.left_out, lives._passed_by) == (0, 2, set())


def test_who_answers_to_us_only_later_is_not_followed_from_the_middle() -> None:
    log = Recorder()
    uid = log.pod("late", vgpu(), scheduler="another")
    log.policy(Policy(scheduler_names=("allotment", "another")))
    log.observe(uid, labels=(("seen", "again"),))
    log.gone(uid)
    assert not exported(log.records, Lives(everybody))


def badly_ended(how: str) -> tuple[Recorder, str]:
    """A pod that is placed at once, runs for an hour, and ends so."""
    if how == "evicted":
        queues = preempted()
        return queues, next(e.uid for r in queues.records for e in evictions_of(r))
    log = Recorder()
    log.node("n1")
    uid = log.pod("p", vgpu())
    log.decide(uid)
    log.bind(uid)
    log.now_ms += 3_600_000
    if how == "failed":
        log.observe(uid, phase="Failed", reason="Error")
    if how == "drained":
        log.observe(uid, deleting=True, ending=Ending(disruption="EvictionByEvictionAPI"))
    if how == "node gone":
        log.append(subjects.node("n1"), "watcher/0", NodeGone(name="n1", uid=uid_of("n1"), rv=99))
    log.gone(uid)
    return log, uid


def evictions_of(record: Record) -> list[Eviction]:
    events = decode_envelope(record.payload).events
    return [e for event in events if isinstance(event, Decided) for e in event.evictions]


@pytest.mark.parametrize("how", ["evicted", "failed", "drained", "node gone"])
@pytest.mark.parametrize("since", ["the beginning", "while it ran"])
def test_a_pod_outside_the_sample_that_ends_badly_has_a_whole_trace(how: str, since: str) -> None:
    """Also of who starts while it runs: nobody had given out what was before."""
    log, uid = badly_ended(how)
    (seen,) = [each for each in pods_of(log.records) if each.uid == uid]
    ran_seq = next(
        record.seq
        for record in log.records
        for event in decode_envelope(record.payload).events
        if isinstance(event, PodObserved) and (event.uid, event.phase) == (uid, "Running")
    )
    lives = Lives(nobody, 0 if since == "the beginning" else ran_seq)
    found = [s for s in exported(log.records, lives) if s.trace_id == trace_id(uid)]
    assert {s.span_id: s for s in found} == {s.span_id: s for s in on_demand(log.records, seen)}
    assert {"pod", "attempt", "running"} <= {s.name for s in found}


def test_a_running_pod_outside_the_sample_keeps_nothing_of_others() -> None:
    log = busy_cluster()
    lives = Lives(nobody)
    exported(log.records, lives)
    outside = [lives._kept[uid].story for uid in lives._outside]
    assert outside
    for story in outside:
        assert not story.moments
        assert story.attempts
        assert not any(attempt.decided.placements for attempt in story.attempts)


def test_pods_outside_the_sample_make_room_for_new_ones() -> None:
    log = Recorder()
    log.node("n1", cards=8)
    uids = [log.pod(f"p{number}", vgpu()) for number in range(3)]
    for uid in uids:
        log.decide(uid)
        log.bind(uid)
    waits = log.pod("waits", vgpu(9))
    lives = Lives(nobody, limit=3)
    exported(log.records, lives)
    assert set(lives._kept) == {*uids[1:], waits}
    assert lives.left_out == 0, "perhaps it ends well"
    log.observe(uids[0], phase="Failed", reason="Error")
    log.observe(uids[0], phase="Failed", reason="Error", labels=(("seen", "again"),))
    log.observe(uids[1], phase="Failed", reason="Error")
    lives = Lives(nobody, limit=3)
    found = exported(log.records, lives)
    assert {span.trace_id for span in found} == {trace_id(uids[1])}
    assert lives.left_out == 1


def test_what_is_over_is_forgotten() -> None:
    log, waits = life_log()
    lives = Lives(everybody)
    exported(log.records, lives)
    assert len(lives) == 1
    log.gone(waits)
    lives = Lives(everybody)
    exported(log.records, lives)
    assert len(lives) == 0


def test_pods_of_a_snapshot_are_not_followed() -> None:
    log, _ = life_log()
    state, half = ClusterState(), 2
    for record in log.records[:half]:
        apply_all(state, decode_envelope(record.payload).events, record.seq)
    known = set(state.pods)
    lives = Lives(everybody)
    lives.pass_by(state.pods)
    given = set()
    for record in log.records[half:]:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        lives.follow(record.seq, record.time_ns // 1_000_000, envelope, state)
        given |= {part.uid for part in lives.parts(state, 0, 100)}
    assert known
    assert given
    assert not given & known


def test_a_part_at_a_turn_gives_the_same() -> None:
    log = busy_cluster()
    lives = Lives(everybody)
    few = exported(log.records, lives, pods_a_turn=1)
    state = log.state
    while lives.waiting:
        few += [s for part in lives.parts(state, log.now_ms, 1) for s in part.spans]
    at_once = exported(log.records, Lives(everybody))
    assert {s.span_id: s for s in few} == {s.span_id: s for s in at_once}


def test_nodes_that_went_leave_nothing_behind() -> None:
    log = Recorder()
    log.node("n1")
    uid = log.pod("p", vgpu())
    log.decide(uid)
    log.bind(uid)
    log.append(subjects.node("n1"), "watcher/0", NodeGone(name="n1", uid=uid_of("n1"), rv=99))
    log.gone(uid)
    lives = Lives(everybody)
    (root,) = [span for span in exported(log.records, lives) if not span.parent_id]
    assert root.attributes["allot.outcome"] == "NodeGone"
    assert not lives._concerning
