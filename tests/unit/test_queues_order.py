"""Who comes first: priorities, gangs, shares, and what decides when no plugin does."""

from fractions import Fraction
from typing import Any

import pytest

from allotment.core.queues.model import Share, Status
from allotment.core.queues.plugins.drf import dominant_share
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from tests.unit.queues_parts import GPU, amounts, job, queue, session, statuses, task


def order(found: Session) -> list[str]:
    return [one.uid for one in sorted(found.jobs.values(), key=found.job_key)]


@pytest.mark.parametrize(
    ("tiers", "a_priority", "expected"),
    [
        ([["priority", "gang"]], 10, ["a", "b"]),
        ([["priority", "gang"]], 5, ["b", "a"]),
        ([["gang", "priority"]], 10, ["b", "a"]),
        ([["priority"], ["gang"]], 10, ["a", "b"]),
    ],
)
def test_ex_order(tiers: Any, a_priority: int, expected: list[str]) -> None:
    ready = job("a", statuses("a", Running=1, Pending=1), min_member=1, priority=a_priority)
    waits = job("b", 2, priority=5, created_ms=9)
    assert order(session(ready, waits, tiers=tiers)) == expected


def test_ex_drf() -> None:
    total = amounts(8, cpu=16, memory_gib=64)
    assert dominant_share(amounts(1, cpu=4, memory_gib=8), total) == Fraction(1, 4)
    assert dominant_share(amounts(4, cpu=2, memory_gib=8), total) == Fraction(1, 2)
    a = job("a", [task("a", status=Status.RUNNING, request=amounts(1, cpu=4, memory_gib=8))])
    b = job("b", [task("b", status=Status.RUNNING, request=amounts(4, cpu=2, memory_gib=8))])
    assert order(session(b, a, tiers=[["drf"]], total=total)) == ["a", "b"]


def test_priority_before_drf_over_tiers() -> None:
    greedy = job("greedy", statuses("g", Running=3), priority=2)
    modest = job("modest", statuses("m", Running=1), priority=1)
    assert order(session(modest, greedy, tiers=[["priority"], ["drf"]])) == ["greedy", "modest"]
    assert order(session(modest, greedy, tiers=[["drf"], ["priority"]])) == ["modest", "greedy"]


def test_drf_follows_what_the_session_gives() -> None:
    found = session(job("a", 2), job("b", 1), tiers=[["drf"]], total=amounts(4))
    first, second = found.jobs["a"], found.jobs["b"]
    found.assume(first, first.view.tasks[0], Status.ALLOCATED)
    assert order(found) == ["b", "a"]
    found.assume(second, second.view.tasks[0], Status.PIPELINED)
    assert order(found) == ["a", "b"]
    found.statement.rollback()
    assert order(found) == ["a", "b"]
    assert first.allocated == Resources({GPU: 0})


def test_index_2_before_10() -> None:
    names = ["job-worker-10", "job-worker-2", "job-worker-1"]
    found = session(job("j", [task(name) for name in names]))
    assert [t.name for t in found.due_tasks(found.jobs["j"])] == [
        "job-worker-1",
        "job-worker-2",
        "job-worker-10",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (task("pod-2", created_ms=1), task("pod-1", created_ms=2)),  # two parts: no index
        (task("a-b-x", created_ms=1), task("a-b-c", created_ms=2)),  # it does not parse
        (task("a", name="j-w-1"), task("b", name="k-w-1")),
        (task("z-w-7"), task("plain")),
        (task("p", priority=2, name="j-w-9"), task("q", priority=1, name="j-w-0")),
    ],
)
def test_task_order_falls_back_to_age_then_uid(first: Any, second: Any) -> None:
    for members in ([first, second], [second, first]):
        found = session(job("j", members))
        assert found.due_tasks(found.jobs["j"]) == [first, second]


def test_jobs_and_queues_fall_back_to_age_then_uid() -> None:
    old, young, twin = job("z", created_ms=1), job("b", created_ms=2), job("a", created_ms=2)
    assert order(session(twin, young, old)) == ["z", "a", "b"]
    queues = [queue("b", created_ms=1), queue("a", created_ms=1), queue("z", created_ms=0)]
    found = session(queues=queues)
    assert sorted(("a", "b", "z"), key=found.queue_key) == ["z", "a", "b"]


def test_best_effort_and_gated_tasks_are_not_due() -> None:
    members = [
        task("j-w-0", request=Resources({"pods": 1})),
        task("j-w-1", gated=True),
        task("j-w-2", request=Resources({"volcano.sh/vgpu-number": 1000})),
        task("j-w-3", status=Status.RUNNING),
        task("j-w-4", request=Resources({"pods": 1}), shares=(Share(1),)),
    ]
    found = session(job("j", members))
    assert [t.uid for t in found.due_tasks(found.jobs["j"])] == ["j-w-2", "j-w-4"]


def test_drf_victims_keep_no_less_than_the_taker_gets() -> None:
    poor, rich = job("poor", 3), job("rich", statuses("r", Running=4), min_member=1)
    found = session(poor, rich, tiers=[["drf"]], total=amounts(8))
    taker = found.jobs["poor"].view.tasks[0]
    victims = found.preemptable(taker, rich.tasks)
    # the taker would have 1/8; the victim's job keeps 3/8, 2/8, 1/8, then nothing
    assert [t.uid for t in victims] == ["r-w-0", "r-w-1", "r-w-2"]


def test_what_the_cluster_needs_is_nobodys_victim() -> None:
    members = [
        task("plain", status=Status.RUNNING),
        task("critical", status=Status.RUNNING, priority_class="system-node-critical"),
        task("system", status=Status.RUNNING, namespace="kube-system"),
    ]
    found = session(job("v", members), job("t", 1), tiers=[["conformance"]])
    taker = found.jobs["t"].view.tasks[0]
    assert [t.uid for t in found.preemptable(taker, members)] == ["plain"]
    assert [t.uid for t in found.reclaimable(taker, members)] == ["plain"]


def test_priority_victims_are_strictly_lower() -> None:
    own = (task("own-low", priority=1, status=Status.RUNNING), task("own-high", priority=9))
    jobs = [
        job("high", own, priority=5),
        job("same", statuses("s", Running=1), priority=5),
        job("low", statuses("l", Running=1), priority=4),
    ]
    found = session(*jobs, tiers=[["priority"]])
    candidates = [t for one in jobs for t in one.tasks]
    assert [t.uid for t in found.preemptable(own[1], candidates)] == ["own-low", "l-w-0"]
