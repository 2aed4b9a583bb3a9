"""A pod's story: its phases without a gap, its end with cause, and who came before and after."""

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from allotment.core.explain.causes.counterfactual import term_text
from allotment.core.explain.history.concerned import PodSubject
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.history.timeline import life_of, neighbours
from allotment.core.explain.pod import explain
from allotment.core.explain.rows import life
from allotment.core.explain.rows.life import End, Life, PodExplanation
from allotment.core.explain.rows.pod_views import generated_base
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_cli.show.explain_sections import timeline
from allotment_cli.show.output import Prose, wrapped
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Bound, Ending, Evicted, NodeGone
from allotment_proto.facts import Constraints, Expression, NodeTerm
from tests.recording import Recorder, busy_cluster, uid_of, vgpu
from tests.recording_batch import busy_queues, preempted

STORY_SCHEMA_FILE = Path(__file__).parents[1] / "golden" / "schemas" / "story.v1.json"
"""What programs that read `allot story -o json` rely on: fields are only ever added."""


def collected(log: Recorder, namespace: str, name: str) -> tuple[PodStory, ClusterState]:
    story, state = PodStory(namespace, name), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    return story, state


def explanation(log: Recorder, namespace: str, name: str) -> PodExplanation:
    story, state = collected(log, namespace, name)
    return explain(state, story, log.now_ms)


def told(log: Recorder, namespace: str, name: str, *, previous: bool = False) -> Life:
    story, state = collected(log, namespace, name)
    one = list(story.lives.values())[-2 if previous else -1]
    before, after = neighbours(state, story, one)
    return life_of(state, one, log.now_ms, predecessor=before, successor=after)


def end(found: Life) -> End:
    assert found.end is not None
    return found.end


def lines(found: Life) -> list[str]:
    return [line.text for line in found.timeline if not line.detail]


def running(log: Recorder, name: str = "a") -> str:
    uid = log.pod(name)
    log.decide(uid)
    log.bind(uid)
    return uid


def cluster() -> Recorder:
    log = Recorder()
    log.node("n1", cards=1)
    return log


def test_rules_about_labels_read_alike_in_what_is_asked_and_in_what_would_help() -> None:
    log = cluster()
    rules = Expression("gpu", "DoesNotExist", ()), Expression("zone", "Exists", ())
    uid = log.pod("a", constraints=Constraints(affinity=(NodeTerm(rules),)))
    log.decide(uid)
    found = told(log, "default", "a")
    assert found.ask.affinity == ("gpu does not exist and zone exists",)
    assert found.ask.affinity == (term_text(NodeTerm(rules)),)


def test_a_victim_is_told_for_whom_it_went_and_who_gained_also_when_it_is_gone() -> None:
    found = told(preempted(), "default", "background-worker-2")
    gone = end(found)
    assert gone.kind == life.EVICTED
    assert gone.text.startswith("preempted for default/urgent by decision 23 after it ran")
    assert gone.evicted is not None
    assert (gone.evicted.preemptor, gone.evicted.action) == ("default/urgent", "preempt")
    gained = [(gain.name, gain.node, gain.decision) for gain in gone.evicted.gained]
    assert gained == [("urgent-worker-0", "gpu-02", 30), ("urgent-worker-1", "gpu-01", 30)]
    assert (gone.seq, gone.gone_seq) == (25, 28)


def test_a_preemptor_is_told_whom_it_displaced() -> None:
    found = told(preempted(), "default", "urgent-worker-1")
    assert [(d.name, d.node, d.decision, d.ending) for d in found.displaced] == [
        ("background-worker-2", "gpu-02", 23, "gone"),
        ("background-worker-1", "gpu-01", 23, "gone"),
    ]
    waiting = [phase for phase in found.phases if phase.name == life.WAITING]
    assert "nominated for gpu-01, where pods are evicted for it" in waiting[-1].text


def test_a_pod_that_ended_before_its_eviction_was_not_evicted() -> None:
    log = preempted()
    cut = next(n for n, r in enumerate(log.records) if b'"Evicted"' in r.payload)
    log.records = log.records[:cut]
    log.state = collected(log, "default", "background-worker-2")[1]
    victim = uid_of("default/background-worker-2")
    log.observe(victim, phase="Succeeded")
    assert end(told(log, "default", "background-worker-2")).kind == life.SUCCEEDED
    ended = Evicted(
        uid=victim, namespace="default", name="x", node="gpu-02", decision=23, code="PodEnded"
    )
    log.append(subjects.OUTCOME, "binder/0", ended)
    log.gone(victim)
    found = end(told(log, "default", "background-worker-2"))
    assert (found.kind, found.evicted) == (life.SUCCEEDED, None)


def test_an_eviction_that_a_budget_forbids_is_no_end() -> None:
    log = preempted()
    cut = next(n for n, r in enumerate(log.records) if b'"Evicted"' in r.payload)
    log.records = log.records[:cut]
    victim = uid_of("default/background-worker-2")
    log.append(
        subjects.OUTCOME,
        "binder/0",
        Evicted(
            uid=victim,
            namespace="default",
            name="background-worker-2",
            node="gpu-02",
            decision=23,
            code="DisruptionBudget",
            message="no",
        ),
    )
    found = told(log, "default", "background-worker-2")
    assert found.end is None
    assert lines(found)[-1] == (
        "it stays: it could not be evicted for default/urgent: DisruptionBudget: no"
    )
    preemptor = told(log, "default", "urgent-worker-0")
    assert [d.ending for d in preemptor.displaced] == ["stays", "leaving"]


def test_a_pod_whose_node_is_gone_ends_with_it() -> None:
    log = cluster()
    uid = running(log)
    seq = log.append(subjects.node("n1"), "watcher/0", NodeGone(uid=uid_of("n1"), name="n1", rv=9))
    log.gone(uid)
    found = end(told(log, "default", "a"))
    assert (found.kind, found.node_gone_seq) == (life.NODE_GONE, seq)
    assert found.text == (f"ended with its node n1, which is gone (seq {seq}) after it ran 250 ms")


def test_a_node_that_comes_back_ends_nobody() -> None:
    log = cluster()
    uid = running(log)
    log.append(subjects.node("n1"), "watcher/0", NodeGone(uid=uid_of("n1"), name="n1", rv=9))
    log.node("n1", cards=1)
    assert told(log, "default", "a").end is None
    log.observe(uid, phase="Succeeded")
    assert end(told(log, "default", "a")).kind == life.SUCCEEDED


def test_a_refusal_at_the_node_has_the_plugins_own_sentence() -> None:
    log = cluster()
    uid = log.pod("a")
    log.decide(uid)
    sentence = "Pod was rejected: Allocate failed due to no such device GPU-7"
    log.observe(
        uid,
        phase="Failed",
        node="n1",
        reason="UnexpectedAdmissionError",
        ending=Ending(message=sentence),
    )
    found = end(told(log, "default", "a"))
    assert (found.kind, found.message) == (life.REFUSED_BY_NODE, sentence)
    assert found.text == f"refused by node n1: UnexpectedAdmissionError: {sentence}"


def test_a_failed_container_is_named_with_its_exit_code() -> None:
    log = cluster()
    uid = running(log)
    log.observe(
        uid,
        phase="Failed",
        ending=Ending(container="main", exit_code=137, exit_reason="OOMKilled"),
    )
    found = end(told(log, "default", "a"))
    assert (found.kind, found.exit_code, found.code) == (life.FAILED, 137, "OOMKilled")
    assert found.text == ("failed after it ran 250 ms: container main exited with 137 (OOMKilled)")


def test_a_pod_deleted_while_it_waits_says_what_it_waited_for() -> None:
    log = cluster()
    uid = log.pod("a", vgpu(1, 99_999, 10))
    log.decide(uid)
    log.gone(uid)
    found = end(told(log, "default", "a"))
    assert found.kind == life.DELETED_WAITING
    wanted = (
        "InsufficientGPUMemory: 97.7 GiB of one GPU requested; the largest GPU that the pod "
        "accepts has 40.0 GiB"
    )
    assert found.waited_for == wanted
    assert found.text == f"deleted after it waited 500 ms for {wanted}"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("EvictionByEvictionAPI", "evicted through the Eviction API, as kubectl drain does: why"),
        ("DeletionByTaintManager", "deleted because of a NoExecute taint of its node: why"),
        ("SomethingNew", "ended: SomethingNew: why"),
    ],
)
def test_who_ended_it_is_told_as_far_as_kubernetes_says(reason: str, words: str) -> None:
    log = cluster()
    uid = running(log)
    ending = Ending(disruption=reason, disruption_message="why")
    log.observe(uid, deleting=True, ending=ending)
    found = end(told(log, "default", "a"))
    assert (found.kind, found.code) == (life.DISRUPTED, reason)
    assert found.text == f"{words} after it ran 250 ms"


def test_a_deletion_that_nobody_explains_is_not_explained() -> None:
    log = cluster()
    uid = running(log)
    log.observe(uid, deleting=True)
    log.gone(uid)
    found = end(told(log, "default", "a"))
    assert found.kind == life.DELETED
    assert found.text == "deleted after it ran 500 ms; the log does not say by whom"


def test_bound_comes_before_running_also_where_the_binders_word_comes_late() -> None:
    log = cluster()
    uid = log.pod("a")
    decision = log.decide(uid)
    seen = log.observe(uid, phase="Running", node="n1")
    word = Bound(uid=uid, namespace="default", name="a", node="n1", decision=decision)
    log.append(subjects.OUTCOME, "binder/0", word)
    found = told(log, "default", "a")
    assert lines(found)[-2:] == ["bound to n1", "Running"]
    bound = next(phase for phase in found.phases if phase.name == life.BOUND)
    assert bound.start_seq == seen


def test_pods_of_one_name_know_each_other() -> None:
    log = cluster()
    first = running(log)
    log.observe(first, phase="Failed", ending=Ending(container="main", exit_code=1))
    log.gone(first)
    fact = log.records[1]
    pod = decode_envelope(fact.payload).events[0]
    second = uid_of("the second")
    log.append(subjects.pod(second), "watcher/0", msgspec.structs.replace(pod, uid=second, rv=99))
    found = told(log, "default", "a")
    assert found.predecessor is not None
    assert found.predecessor.uid == first
    assert found.predecessor.end is not None
    assert "exited with 1" in found.predecessor.end.text
    earlier = told(log, "default", "a", previous=True)
    assert earlier.successor is not None
    assert (earlier.successor.uid, earlier.successor.status) == (second, "Pending")


def test_pods_of_one_owner_know_each_other_if_their_names_are_generated() -> None:
    log = cluster()
    uids = []
    for name in ("web-7d4b9-x8z2k", "web-7d4b9-b6c4d"):
        uid = log.pod(name)
        log.observe(uid, owner="rs-1")  # the owner is known from its first record in real logs
        uids.append(uid)
    records = [r for r in log.records if b'"owner":"rs-1"' in r.payload or b"Node" in r.payload]
    log.records = [msgspec.structs.replace(r, seq=n) for n, r in enumerate(records, 1)]
    log.state = ClusterState()
    for record in log.records:
        apply_all(log.state, decode_envelope(record.payload).events, record.seq)
    assert told(log, "default", "web-7d4b9-b6c4d").predecessor is None  # both are there
    log.gone(uids[0])
    third = msgspec.structs.replace(
        decode_envelope(log.records[1].payload).events[0],
        uid="third",
        name="web-7d4b9-zzzzz",
        rv=99,
    )
    log.append(subjects.pod("third"), "watcher/0", third)
    found = told(log, "default", "web-7d4b9-zzzzz")
    assert found.predecessor is not None
    assert found.predecessor.name == "web-7d4b9-x8z2k"
    assert found.predecessor.is_of_owner
    first = told(log, "default", "web-7d4b9-x8z2k")
    assert first.successor is not None
    assert first.successor.uid == "third"


@pytest.mark.parametrize(
    ("name", "base"),
    [("web-7d4b9-x8z2k", "web-7d4b9"), ("train-worker-0", ""), ("x8z2k", ""), ("a-hello", "")],
)
def test_generated_names(name: str, base: str) -> None:
    assert generated_base(name) == base


def test_equal_attempts_are_one_line_with_a_count() -> None:
    log = cluster()
    uid = log.pod("a", vgpu(1, 99_999, 10))
    for _ in range(300):
        log.decide(uid)
    found = told(log, "default", "a")
    assert len(lines(found)) == 2
    assert lines(found)[-1].endswith("(the same at 300 attempts in 1m14s)")
    assert len(found.attempts) == 64
    assert found.attempts_total == 300
    shown = wrapped(timeline(found.timeline, False), 80)
    assert max(map(len, shown)) <= 80
    assert len(shown) <= 6


def test_reasons_that_alternate_do_not_grow_without_end() -> None:
    log = cluster()
    big, small = log.pod("big", vgpu(1, 40_000, 10)), log.pod("small", vgpu(1, 1_000, 10))
    for number in range(200):
        log.observe(big, gated=bool(number % 2))
    found = told(log, "default", "big")
    assert len(found.phases) == 64
    assert found.phases_left_out == 200 - 64
    assert found.phases[0].start_seq == 2
    assert small


def every_story() -> list[tuple[Recorder, str, str]]:
    logs = (busy_cluster(), preempted(), busy_queues())
    return [
        (log, pod.fact.namespace, pod.fact.name) for log in logs for pod in log.state.pods.values()
    ] + [
        (logs[0], "default", "half"),
        (logs[1], "default", "background-worker-2"),
    ]


def test_phases_follow_each_other_without_a_gap() -> None:
    for log, namespace, name in every_story():
        found = told(log, namespace, name)
        for phase, after in zip(found.phases, found.phases[1:], strict=False):
            assert (phase.end_seq, phase.end_ms) == (after.start_seq, after.start_ms), name
        assert found.phases[0].start_seq == found.seen_seq
        is_over = found.status in ("Gone", "Succeeded", "Failed")
        assert (found.phases[-1].end_seq is None) is not is_over, name


def test_the_log_of_a_pod_has_every_record_of_its_story() -> None:
    for log, namespace, name in every_story():
        found, subject = told(log, namespace, name), PodSubject(namespace, name)
        shown = {
            record.seq
            for record in log.records
            for event in decode_envelope(record.payload).events
            if subject.takes(event)
        }
        seqs = {phase.start_seq for phase in found.phases}
        seqs |= {line.seq for line in found.timeline if line.seq is not None}
        seqs |= {each.decision for each in found.displaced}
        if found.end is not None and found.end.evicted is not None:
            seqs |= {gain.decision for gain in found.end.evicted.gained if gain.decision}
            seqs.add(found.end.evicted.decision)
        assert seqs <= shown, (name, seqs - shown)


def test_a_node_that_is_gone_belongs_to_the_log_of_its_pods() -> None:
    log = cluster()
    running(log)
    other = cluster()
    seq = log.append(subjects.node("n1"), "watcher/0", NodeGone(uid=uid_of("n1"), name="n1", rv=9))
    subject = PodSubject("default", "a")
    shown = [
        record.seq
        for record in log.records
        if any(subject.takes(event) for event in decode_envelope(record.payload).events)
    ]
    assert shown[-1] == seq
    assert shown[0] == 2, "its node was there before it"
    assert other.seq == 1


def test_the_json_is_as_its_schema_says(rewrite: bool) -> None:
    schemas = {shape: msgspec.json.schema(shape) for shape in (Life, PodExplanation)}
    text = json.dumps(schemas[Life], indent=1) + "\n"
    text = re.sub(r"(\\n) +", r"\1", text)  # Python 3.13 takes the indentation out of docstrings
    if rewrite:
        STORY_SCHEMA_FILE.write_text(text)
    assert text == STORY_SCHEMA_FILE.read_text(), "see --rewrite"
    for log, namespace, name in every_story():
        life_found, explained = told(log, namespace, name), explanation(log, namespace, name)
        assert explained.life == msgspec.structs.replace(life_found, timeline=())
        for found in (life_found, explained):
            validator = jsonschema.Draft202012Validator(schemas[type(found)])
            validator.validate(json.loads(msgspec.json.encode(found)))


def test_words_are_wrapped_and_nothing_is_cut() -> None:
    line = Prose("End        refused by node gpu-02 because of a\tlong reason", 11)
    shown = wrapped([line, "a table   that is left as it is"], 32)
    assert shown == [
        "End        refused by node",
        "           gpu-02 because of",
        "           a\\tlong reason",
        "a table   that is left as it is",
    ]
    assert wrapped([line], None) == [line]
