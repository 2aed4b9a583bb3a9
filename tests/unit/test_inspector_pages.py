"""The pages of pods, decisions, queues, gangs and the log, as their views return them."""

import csv
import json
from functools import partial
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from click.testing import CliRunner

from allotment.core.explain.gang import explain_gang
from allotment.core.explain.rows.amounts import short_text
from allotment.core.replay.usage import NAMES
from allotment_cli.main import main
from allotment_inspector.frame import sentence
from allotment_inspector.history import Entry
from allotment_inspector.pages import usage
from allotment_inspector.pages.parts.found import NotFound
from allotment_inspector.pages.records.compare import ComparePage
from allotment_inspector.pages.records.decision import DecisionPage
from allotment_inspector.pages.records.log import LogPage
from allotment_inspector.pages.records.whatif import WhatIfPage
from allotment_inspector.pages.search import SearchPage
from allotment_inspector.pages.things.gang import GangPage
from allotment_inspector.pages.things.gang_advice import GangAdvicePage
from allotment_inspector.pages.things.node import NodePage
from allotment_inspector.pages.things.pod import PodPage
from allotment_inspector.pages.things.pod_advice import AdvicePage
from allotment_inspector.pages.things.pods import PodsPage
from allotment_inspector.pages.things.queue import QueuePage
from allotment_inspector.pages.things.queues import QueuesPage
from allotment_inspector.pages.usage import UsagePage
from allotment_inspector.said import Bit
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided
from tests.inspecting import csv_of, history_of, view_of
from tests.recording import Recorder, busy_cluster, uid_of, vgpu
from tests.recording_batch import busy_queues, preempted
from tests.unit.replaying import LIES, tampered, two_on_one_node


def page(
    log: Recorder, page_name: str, /, at: int | None = None, query: Any = None, **match: str
) -> Any:
    """What a page says at a moment; `match` is what its address names."""
    history, _ = history_of(log.records)
    return anyio.run(partial(view_of, history, page_name, match, query or {}, at))


def pod(log: Recorder, key: str, at: int | None = None, **query: str) -> Any:
    namespace, _, name = key.partition("/")
    return page(log, "pod", at, query, namespace=namespace, name=name)


def words(bits: tuple[Bit, ...]) -> str:
    return "".join(bit.text for bit in bits)


def decisions_of(log: Recorder) -> list[tuple[int, Decided]]:
    return [
        (record.seq, event)
        for record in log.records
        for event in decode_envelope(record.payload, record.subject).events
        if isinstance(event, Decided)
    ]


# Pods


def test_a_running_pod_says_where_it_is_and_how_long_it_waited() -> None:
    found = pod(busy_cluster(), "default/big")
    assert isinstance(found, PodPage)
    assert words(found.sentence) == (
        "Runs on gpu-01/GPU-2 since 14:00:04 and holds 19.5 GiB memory, 60% compute."
        " It waited 250 ms and was placed at the first attempt."
    )
    assert found.sentence[1].path == "/nodes/gpu-01"
    assert (found.status, found.look, found.wants_advice) == ("Running", "", False)


def test_the_waterfall_encloses_and_adds_up() -> None:
    found = pod(busy_cluster(), "default/big")
    rows = found.falls[0].rows
    assert [(row.label, row.kind, row.depth) for row in rows] == [
        ("queued", "wait", 0),
        ("attempt 1", "step", 1),
        ("filter nodes", "work", 2),
        ("score", "work", 2),
        ("check and commit", "work", 2),
        ("binding", "step", 0),
        ("device plugin", "step", 0),
        ("runs", "run", 0),
    ]
    tops = [row for row in rows if row.depth == 0]
    ends = [row.x + row.w for row in tops]
    assert all(abs(row.x - end) <= 1 for row, end in zip(tops[1:], ends, strict=False))
    assert ends[-1] == 10_000
    assert [row.is_open for row in tops] == [False, False, False, True]
    assert [mark.x for mark in found.falls[0].axis] == [0, 2500, 5000, 7500, 10_000]


def test_what_a_long_life_hides_is_drawn_once_more() -> None:
    log = busy_cluster()
    log.now_ms += 3_600_000
    log.observe(uid_of("default/big"), labels=(("a", "b"),))
    whole, began = pod(log, "default/big").falls
    assert [row.depth for row in whole.rows] == [0, 0, 0, 0]
    assert whole.title == "Lifetime 1h00m so far"
    assert began.title.startswith("Start: ")
    assert began.end_ms - began.start_ms < 3_000
    assert {row.depth for row in began.rows} == {0, 1, 2}


def test_a_waiting_pod_says_what_is_nearest_and_asks_for_advice_apart() -> None:
    found = pod(busy_cluster(), "research/llama")
    assert found.wants_advice
    assert (found.status, found.look) == ("Waiting", "wait")
    assert (
        "16.0 GiB requested, only 10.7 GiB free on gpu-02/GPU-0 (in use by research/a100-only)"
        in words(found.sentence)
    )
    assert found.explanation.counterfactuals == ()
    assert [step.left for step in found.funnel] == [6, 5, 4, 2, 1, 0]
    assert sum(step.lost for step in found.funnel) == 6
    near = found.closest[0]
    assert (near.node, near.device, near.holders[0].name) == ("gpu-02", "GPU-0", "a100-only")
    advice = page(busy_cluster(), "advice", namespace="research", name="llama")
    assert isinstance(advice, AdvicePage)
    assert [(each.text, each.then, each.line) for each in advice.changes][1] == (
        "uncordon node gpu-03",
        "1 node",
        "kubectl uncordon gpu-03",
    )


def test_a_pod_that_can_never_fit_hears_nothing_about_waiting() -> None:
    text = words(pod(busy_cluster(), "research/never").sentence)
    assert "can never fit" in text
    assert "waits for pods to end" not in text


def test_an_evicted_pod_says_for_whom_and_who_gained() -> None:
    log = preempted()
    evicted = [
        (eviction.namespace, eviction.name, eviction.uid)
        for _, event in decisions_of(log)
        for eviction in event.evictions
    ]
    assert evicted
    namespace, name, uid = evicted[0]
    found = pod(log, f"{namespace}/{name}", uid=uid)
    assert (found.status, found.look) == ("Evicted", "fail")
    assert words(found.sentence).startswith("Evicted at ")
    links = {bit.path for bit in found.sentence if bit.path}
    assert f"/decisions/{found.life.end.evicted.decision}" in links
    got = [f"{gain.name} got {gain.node} by" for gain in found.life.end.evicted.gained]
    assert len(got) > 1
    assert all(text in words(found.sentence) for text in got)
    ticks = [tick for row in found.falls[0].rows for tick in row.ticks if tick.is_eviction]
    assert len(ticks) == 1


def test_a_pod_that_nobody_knows_is_answered_with_names_like_it() -> None:
    found = pod(busy_cluster(), "research/lama")
    assert isinstance(found, NotFound)
    assert "research/llama" in [near.name for near in found.nearest]
    assert isinstance(pod(busy_cluster(), "research/llama", at=3), NotFound)


# Lists


def test_pods_are_filtered_and_counted() -> None:
    log = busy_cluster()
    every = page(log, "pods")
    assert isinstance(every, PodsPage)
    assert every.counts == {"waiting": 4, "running": 4}
    assert every.total == 8
    waiting = page(log, "pods", query={"state": "waiting", "namespace": "research"})
    assert [row.pod.text for row in waiting.rows] == ["llama", "never"]
    assert {row.look for row in waiting.rows} == {"wait"}
    by_cause = page(log, "pods", query={"cause": "InvalidRequest"})
    assert [row.pod.text for row in by_cause.rows] == ["wrong"]
    on_node = page(log, "pods", query={"node": "gpu-01"})
    assert {row.node.text for row in on_node.rows} == {"gpu-01"}


def test_pods_are_paged() -> None:
    log = busy_cluster()
    for number in range(450):
        log.pod(f"many-{number:03}")
    first = page(log, "pods", query={"q": "many-"})
    last = page(log, "pods", query={"q": "many-", "first": "100000"})
    assert (first.total, len(first.rows), first.first) == (450, 200, 0)
    assert (last.first, len(last.rows)) == (400, 50)
    assert last.rows[-1].pod.text == "many-449"


def test_every_page_says_where_a_binder_begins() -> None:
    log = busy_cluster()
    seq = log.append(subjects.DECISION, "binder/b")
    said = "binder/b decides; what another binder had under way is refused"
    row = page(log, "log").rows[0]
    assert (row.seq, row.type, row.text) == (seq, "Fence", said)
    assert page(log, "record", seq=str(seq)).lines == (("Fence", said),)
    assert sentence(Entry(seq, 1, subjects.DECISION, "binder/b", (), b"{}")) == said


def test_the_log_is_read_back_page_by_page() -> None:
    log = busy_cluster()
    for number in range(400):
        log.pod(f"many-{number:03}")
    seen: list[int] = []
    query: dict[str, str] = {}
    while True:
        found = page(log, "log", query=query)
        assert isinstance(found, LogPage)
        seen += [row.seq for row in found.rows]
        if not found.earlier:
            break
        query = {"to": str(found.earlier)}
    assert seen == list(range(log.seq, 0, -1))
    back = page(log, "log", query={"to": "10"})
    assert back.later == 160


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"type": "NodeObserved"}, {"NodeObserved"}),
        ({"pod": "default/half"}, {"PodObserved", "Decided", "Bound", "PodGone"}),
        ({"node": "gpu-02"}, {"NodeObserved", "Decided", "Bound", "PodObserved"}),
        ({"q": "whole-more"}, {"PodObserved", "Decided"}),
    ],
)
def test_the_log_is_filtered(query: dict[str, str], wanted: set[str]) -> None:
    found = page(busy_cluster(), "log", query=query)
    assert {row.type for row in found.rows} <= wanted
    assert found.rows
    if "q" in query:
        assert all(query["q"] in row.text for row in found.rows)
    if "pod" in query:
        assert found.rows[0].type == "PodGone"
        assert len(found.rows) == 6


def test_the_log_ends_at_the_moment() -> None:
    found = page(busy_cluster(), "log", at=7)
    assert [row.seq for row in found.rows] == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("q", "kind", "text"),
    [
        ("llama", "pods", "research/llama"),
        (uid_of("research/llama"), "pods", "research/llama"),
        (uid_of("research/llama").replace("-", "")[:12], "pods", "research/llama"),
        (uid_of("default/half"), "pods", "default/half"),
        ("gpu-03", "nodes", "gpu-03"),
        (f"GPU-{uid_of('gpu-02/1')[:8]}", "cards", "gpu-02/GPU-1"),
        (uid_of("gpu-02/1")[:8], "cards", "gpu-02/GPU-1"),
        ("gpu-01/GPU-2", "cards", "gpu-01/GPU-2"),
        ("11", "records", "decision 11"),
        ("10", "records", "record 10"),
    ],
)
def test_search_finds_by_name_and_by_id(q: str, kind: str, text: str) -> None:
    found = page(busy_cluster(), "search", query={"q": q})
    assert isinstance(found, SearchPage)
    hits = {each.name: [hit.link.text for hit in each.hits] for each in found.kinds}
    assert hits[kind][0] == text


def test_an_exact_name_is_found_among_thousands_that_have_it_in_theirs() -> None:
    log = busy_cluster()
    for number in range(1_200):
        log.pod(f"a-{number}")
    log.pod("a")
    found = page(log, "search", query={"q": "a"})
    (pods,) = [kind for kind in found.kinds if kind.name == "pods"]
    assert (pods.hits[0].link.text, pods.hits[0].exact) == ("default/a", True)
    assert (len(pods.hits), pods.more) == (40, True)
    assert [hit.exact for hit in pods.hits[1:]] == [False] * 39


def test_search_finds_gangs_and_queues() -> None:
    log = busy_queues()
    group = next(iter(log.state.groups))
    queue = next(iter(log.state.queues))
    for q, kind in ((group, "gangs"), (queue, "queues")):
        found = page(log, "search", query={"q": q})
        assert {each.name for each in found.kinds} >= {kind}


def test_a_search_without_a_hit_offers_names_like_it() -> None:
    found = page(busy_cluster(), "search", query={"q": "llamma"})
    assert found.kinds == ()
    assert "research/llama" in [near.name for near in found.nearest]


# Decisions


def test_a_decision_says_what_it_did_and_why_the_winner_won() -> None:
    log = busy_cluster()
    found = page(log, "decision", seq="11")
    assert isinstance(found, DecisionPage)
    assert words(found.sentence) == "Places half and 2 more."
    assert [outcome.word for outcome in found.outcomes] == ["placed"] * 3
    assert found.score is not None
    event = dict(decisions_of(log))[11]
    assert found.score.scores[0].total == event.placements[0].score_micro
    assert sum(found.score.scores[0].terms.values()) == found.score.total
    assert found.score.scores[0].is_chosen
    second = found.score.scores[1]
    assert found.score.recorded == ((second.node, second.total),)
    other = page(log, "decision", query={"pod": uid_of("default/big")}, seq="11")
    assert other.score.pod.text == "big"
    assert [led.relation for led in found.before_and_after] == ["based on"] + ["led to"] * 3


def test_a_pod_that_a_decision_did_not_place_is_no_other_question() -> None:
    """What anybody writes behind `?pod=` must not fill what pages remember."""
    history, _ = history_of(busy_cluster().records)

    def shown(pod_uid: str) -> Any:
        return anyio.run(
            partial(view_of, history, "decision", {"seq": "11"}, {"pod": pod_uid}, None)
        )

    first = shown("")
    assert first.score.pod.text == "half"
    kept = len(history.memo)
    assert [shown(f"made-up-{number}") for number in range(5)] == [first] * 5
    assert len(history.memo) == kept


def test_a_decision_that_refuses_counts_every_node_once() -> None:
    found = page(busy_cluster(), "decision", seq="29")
    for refused in found.refused:
        assert sum(lost.nodes for lost in refused.lost) == refused.nodes
    assert found.look == "wait"


@pytest.mark.parametrize("seq", ["1", "9999", "x", "-1", "9" * 40])
def test_what_is_no_decision_is_said(seq: str) -> None:
    found = page(busy_cluster(), "decision", seq=seq)
    assert isinstance(found, NotFound)
    assert isinstance(page(busy_cluster(), "whatif", seq=seq), NotFound)


@pytest.mark.parametrize("make", [busy_cluster, busy_queues, preempted])
def test_every_decision_made_again_under_its_own_policy_is_the_recorded_one(make: Any) -> None:
    log = make()
    for seq, event in decisions_of(log):
        found = page(log, "whatif", seq=str(seq))
        assert isinstance(found, WhatIfPage)
        assert found.is_identical
        own = found.policies[0]
        assert own.is_recorded
        assert own.placed == len(event.placements)


def test_a_decision_that_was_dropped_in_part_comes_out_as_recorded() -> None:
    log = two_on_one_node()
    for seq, _ in decisions_of(log):
        assert page(log, "whatif", seq=str(seq)).is_identical


@pytest.mark.parametrize("lie", LIES)
def test_a_decision_is_compared_in_everything(lie: str) -> None:
    """Not only in its nodes: as a replay of the log compares it."""
    log = Recorder()
    log.node("n1", cards=1)
    log.node("n2", cards=1, memory_mib=50000)
    fits, never = log.pod("fits"), log.pod("never", vgpu(1, 99999, 10))
    log.decide(fits, never)
    field, change = LIES[lie]
    log.records[:] = tampered(log.records, change)
    found = page(log, "whatif", seq=str(log.seq))
    if lie == "a basis in the future":
        assert isinstance(found, NotFound)
        return
    assert not found.is_identical
    assert found.again.field == field


def test_a_decision_by_rules_of_a_later_release_is_not_made_again() -> None:
    log = busy_cluster()
    log.records[:] = tampered(log.records, lambda d: msgspec.structs.replace(d, rules=99))
    found = page(log, "whatif", seq=str(decisions_of(log)[-1][0]))
    assert found.again.why_not.startswith("it was made by rules 99")
    assert (found.is_identical, found.policies) == (False, ())


def test_who_is_not_placed_is_counted_for_each_policy() -> None:
    log = busy_cluster()
    for seq, event in decisions_of(log):
        for policy in page(log, "whatif", seq=str(seq)).policies:
            assert policy.placed + policy.not_placed == len(event.batch)


def test_another_policy_may_choose_other_cards() -> None:
    found = page(busy_cluster(), "whatif", seq="11")
    by_name = {policy.policy: policy for policy in found.policies}
    assert by_name["spread"].same < by_name["binpack"].same == 3
    assert by_name["spread"].cards >= by_name["binpack"].cards


# Queues and gangs


def test_a_node_shows_its_pods_its_facts_and_what_it_answers_to_pods_that_wait() -> None:
    found = page(busy_cluster(), "node", name="gpu-04")
    assert isinstance(found, NodePage)
    assert found.explanation.taints == ("dedicated=serving:NoSchedule",)
    assert found.explanation.node.cpu_milli > 0
    assert "TaintNotTolerated" in {each.verdict for each in found.explanation.answers}
    used = page(busy_cluster(), "node", name="gpu-02")
    assert isinstance(used, NodePage)
    assert [view.name for view in used.explanation.pods] == ["a100-only"]


def test_queues_count_who_waits() -> None:
    log = busy_queues()
    found = page(log, "queues")
    assert isinstance(found, QueuesPage)
    assert [row.queue.text for row in found.queues] == sorted(log.state.queues)
    ours = {uid for uid in log.state.pending if log.state.pods[uid].allocation is None}
    assert sum(row.waiting for row in found.queues) + sum(found.unknown.values()) >= len(ours)


def test_a_queue_shows_its_limits_as_meters() -> None:
    log = busy_queues()
    for name in log.state.queues:
        found = page(log, "queue", name=name)
        assert isinstance(found, QueuePage)
        for limit in found.limits:
            assert 0 <= limit.held + limit.wanted <= 10_000
            assert limit.most is None or limit.most <= 10_000
        assert [row.position for row in found.waiting] == list(range(1, len(found.waiting) + 1))


def test_all_queues_show_their_quota_as_the_page_of_each_does() -> None:
    found = page(busy_queues(), "queues")
    assert isinstance(found, QueuesPage)
    limited = {row.queue.text: row.limits for row in found.queues if row.limits}
    assert limited
    for name, limits in limited.items():
        one = page(busy_queues(), "queue", name=name)
        assert isinstance(one, QueuePage)
        assert limits == tuple(each for each in one.limits if each.most is not None)
    assert all(row.parent != row.queue.text for row in found.queues)


def test_the_sentence_of_a_queue_says_each_thing_once() -> None:
    log = busy_queues()
    log.group("second", 1, 0, 1_000, queue="closed", phase="Pending", min_resources=(("cpu", 5),))
    closed = "QueueClosed: queue closed is Closed, and takes new pods only when Open"
    assert words(page(log, "queue", name="closed").sentence) == (
        f"Admits no pods now: {closed}. 2 groups and pods are waiting. First is default/late."
    )
    alone = page(busy_queues(), "queue", name="closed")
    assert words(alone.sentence) == f"Admits no pods now: {closed}. default/late is waiting."
    assert all(bit.text for bit in alone.sentence)


def test_a_lone_pod_that_waits_in_a_queue_says_why_in_words() -> None:
    log = busy_queues()
    log.pod("alone", vgpu(1, 99_000, 10), scheduler="volcano")
    log.round()
    found = page(log, "queue", name="default")
    (why,) = [row.why for row in found.waiting if row.who.text == "alone"]
    assert why.startswith("InsufficientGPUMemory: 96.7 GiB of one GPU requested; the largest GPU")


def test_a_gang_says_what_each_of_its_pods_lacks() -> None:
    log = busy_queues()
    waited = 0
    for key in log.state.groups:
        namespace, _, name = key.partition("/")
        found = page(log, "gang", namespace=namespace, name=name)
        assert isinstance(found, GangPage)
        members = {member.pod.text for member in found.members}
        assert all(row.same_as in members for row in found.members if row.same_as)
        waited += found.look == "wait"
    assert waited


def gang(log: Recorder, name: str, page_name: str = "gang") -> Any:
    return page(log, page_name, namespace="default", name=name)


def test_the_advice_to_a_gang_is_asked_for_apart() -> None:
    log = busy_queues()
    found = gang(log, "quota")
    assert found.wants_advice
    assert found.explanation.counterfactuals == ()
    assert not gang(log, "llama").wants_advice
    advice = gang(log, "quota", "gangAdvice")
    assert isinstance(advice, GangAdvicePage)
    whole = explain_gang(log.state, "default/quota", 0)
    assert advice.changes
    assert [each.text for each in advice.changes] == [c.text for c in whole.counterfactuals]
    assert {each.then for each in advice.changes} == {"3 of 3 pods fit"}
    assert advice.member is None
    assert isinstance(gang(log, "none", "gangAdvice"), NotFound)


def test_changes_to_one_pod_of_a_gang_are_said_to_be_that_pods() -> None:
    advice = gang(busy_queues(), "huge", "gangAdvice")
    assert advice.title.startswith("What would fit these nodes if they were empty")
    assert advice.member.path == "/pods/default/huge-worker-0"


def test_a_pod_of_a_gang_hears_the_advice_to_its_gang_as_such() -> None:
    log = busy_queues()
    found = page(log, "advice", namespace="default", name="quota-worker-0")
    assert found.gang.path == "/gangs/default/quota"
    assert page(log, "advice", namespace="default", name="huge-worker-0").gang is None


def test_a_queue_or_gang_that_does_not_exist_is_said() -> None:
    log = busy_queues()
    assert isinstance(page(log, "queue", name="no-such"), NotFound)
    assert isinstance(page(log, "gang", namespace="a", name="b"), NotFound)


# Cards


@pytest.mark.parametrize(
    ("compute", "is_percent", "text"),
    [(1, False, "1 AI core"), (4, False, "4 AI cores"), (50, True, "50%")],
)
def test_compute_is_counted_as_people_do(compute: int, is_percent: bool, text: str) -> None:
    assert short_text(0, compute, is_percent=is_percent) == text
    assert short_text(2_970, compute, is_percent=is_percent) == f"2.9 GiB, {text}"


# Between moments


def test_what_changed_between_two_moments() -> None:
    found = page(busy_cluster(), "compare", query={"from": "10"})
    assert isinstance(found, ComparePage)
    assert found.before_seq == 10
    pods = {thing.link.text: thing for kind in found.kinds for thing in kind.things}
    assert pods["default/whole"].how == "added"
    assert pods["default/big"].how == "changed"
    assert pods["default/half"].how == "removed"
    nothing = page(busy_cluster(), "compare", query={"from": "31"})
    assert nothing.total == 0


@pytest.mark.parametrize("by", NAMES)
def test_usage_is_what_the_command_adds_up(tmp_path: Path, by: str) -> None:
    log = busy_cluster()
    history, _ = history_of(log.records)
    path = log.write(tmp_path / "log.jsonl")
    for seq in (None, 20):
        found = anyio.run(partial(view_of, history, "usage", {}, {"by": by}, seq))
        assert isinstance(found, UsagePage)
        assert found.from_ms == found.asked_ms
        last = str(log.records[-1].seq if seq is None else seq)
        words = ["usage", "--file", str(path), "--to", last, "--by", by, "-o", "json"]
        wanted = json.loads(CliRunner().invoke(main, words).stdout)
        mine = sorted((row.usage for row in found.rows), key=lambda used: used.name)
        assert msgspec.to_builtins(mine) == wanted["usage"]
        assert (found.from_ms, found.to_ms) == (wanted["fromMs"], wanted["toMs"])
    assert sum(row.share for row in found.rows) in range(9_990, 10_001)


def test_usage_of_a_long_log_is_that_of_its_last_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(usage, "EVENTS_MAX", 12)
    log = busy_cluster()
    history, _ = history_of(log.records)
    found = anyio.run(partial(view_of, history, "usage", {}, {}, None))
    first = next(seq for seq in range(1, 32) if history.index.events_between(seq, 31) <= 12)
    assert found.asked_ms < found.from_ms == history.index.ms_of(first)
    path = log.write(tmp_path / "log.jsonl")
    words = ["usage", "--file", str(path), "--from", str(first), "-o", "json"]
    wanted = json.loads(CliRunner().invoke(main, words).stdout)["usage"]
    mine = sorted((row.usage for row in found.rows), key=lambda used: used.name)
    assert msgspec.to_builtins(mine) == wanted


@pytest.mark.parametrize("by", NAMES)
def test_curves_and_csv_of_usage_add_up_to_its_rows(by: str) -> None:
    history, _ = history_of(busy_cluster().records)
    found = anyio.run(partial(view_of, history, "usage", {}, {"by": by}, None))
    lengths = [end - begin for begin, end in pairwise(found.edges)]
    assert (found.edges[0], found.edges[-1]) == (found.from_ms, found.to_ms)
    for row in found.rows:
        held = sum(map(mul, row.curve.card_micro, lengths))
        assert held == pytest.approx(row.usage.card_micro_ms, rel=1e-3)
    together = [sum(row.curve.card_micro[k] for row in found.rows) for k in range(len(lengths))]
    assert list(found.curve.card_micro) == pytest.approx(together, abs=len(found.rows))
    assert found.curve.path.startswith("M0 20H")
    text = anyio.run(csv_of, history, "usage", {"by": by})
    header, *lines = csv.reader(text.splitlines())
    assert header[:3] == [by, "from", "to"]
    for row in found.rows:
        hours = [float(line[4]) for line in lines if line[0] == row.usage.name]
        assert sum(hours) * 3_600_000 == pytest.approx(row.usage.card_micro_ms / 1e6, rel=1e-3)


def test_steps_of_a_curve_go_down_to_the_ground() -> None:
    assert usage.steps_path([2, 2, 0, 1], 2) == "M0 20H0V0H2V20H3V10H4V20"
    assert usage.steps_path([0, 0], 0) == "M0 20"


def test_every_page_is_json() -> None:
    log = busy_queues()
    for found in (page(log, "queues"), page(log, "pods"), page(log, "log")):
        assert msgspec.json.decode(msgspec.json.encode(found))
