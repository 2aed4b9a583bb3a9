"""Defaults of Jobs, and what is said of wrong ones."""

from typing import Any

import msgspec
import pytest

from allotment.core.jobs.admission import (
    defaulted,
    problems_of,
    queue_problem,
    self_waiting,
    update_problems,
    without_effect,
)
from allotment.core.jobs.durations import parse_ms, show_s
from allotment.core.jobs.model import JobSpec, Queue
from tests.unit.jobs_parts import spec, task


def fields(*tasks: Any, name: str = "j", **more: Any) -> list[str]:
    return [problem.field for problem in problems_of(name, spec(*tasks, **more))]


def test_defaults() -> None:
    made = spec({"replicas": 2, "template": {}}, {"replicas": 3, "minAvailable": 1, "template": {}})
    assert [role.name for role in made.roles] == ["default0", "default1"]
    assert [role.min_available for role in made.roles] == [2, 1]
    assert (made.minimum, made.queue, made.max_retry) == (3, "default", 3)
    assert made.roles[0].max_retry == 3
    assert made.scheduler_name == "volcano"
    assert spec(task(), schedulerName="mine", minAvailable=0).minimum == 0


def test_a_sound_job_has_no_problems() -> None:
    policies = [
        {"event": "PodEvicted", "action": "RestartJob"},
        {"exitCode": 3, "action": "TerminateJob"},
        {"event": "PodPending", "action": "AbortJob", "timeout": "1h30m"},
    ]
    worker = task(policies=[{"event": "TaskCompleted", "action": "CompleteJob"}])
    after = task("after", dependsOn={"name": ["worker"], "iteration": "any"})
    assert fields(worker, after, policies=policies, plugins={"env": [], "svc": None}) == []


@pytest.mark.parametrize(
    ("tasks", "more", "field"),
    [
        ([], {}, "spec.tasks"),
        ([task(replicas=2)], {"minAvailable": 3}, "spec.minAvailable"),
        ([task(replicas=2)], {"minAvailable": -1}, "spec.minAvailable"),
        ([task(replicas=2, minAvailable=3)], {}, "spec.tasks[0].minAvailable"),
        ([task(), task()], {}, "spec.tasks[1].name"),
        ([task("Worker")], {}, "spec.tasks[0].name"),
        ([task("w" * 64)], {}, "spec.tasks[0].name"),
        ([task(maxRetry=-2)], {}, "spec.tasks[0].maxRetry"),
        ([task(template={"spec": {}})], {}, "spec.tasks[0].template.spec.containers"),
        (
            [task(template={"spec": {"containers": [1]}})],
            {},
            "spec.tasks[0].template.spec.containers",
        ),
        ([task()], {"maxRetry": -1}, "spec.maxRetry"),
        ([task()], {"minSuccess": 0}, "spec.minSuccess"),
        ([task()], {"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
        ([task()], {"plugins": {"magic": []}}, "spec.plugins[magic]"),
        ([task("a", 60_000, minAvailable=1), task("b", 40_001)], {"minAvailable": 1}, "spec.tasks"),
        ([task()], {"plugins": {"mpi": []}}, "spec.plugins[mpi]"),
        ([task("master")], {"plugins": {"mpi": ["--worker=w"]}}, "spec.plugins[mpi]"),
        ([task()], {"plugins": {"ray": None}}, "spec.plugins[ray]"),
        ([task(dependsOn={"name": ["nobody"]})], {}, "spec.tasks[0].dependsOn.name"),
        ([task(dependsOn={"name": ["worker"]})], {}, "spec.tasks"),
        ([task()], {"volumes": [{"mountPath": "/a"}]}, "spec.volumes[0]"),
        ([task("w" * 50)], {"plugins": {"svc": []}, "name": "j" * 20}, "spec.tasks[0].name"),
        ([task()], {"name": "j" * 64}, "metadata.name"),
    ],
)
def test_each_problem_names_its_field(tasks: list[Any], more: dict[str, Any], field: str) -> None:
    assert field in fields(*tasks, **more)


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        ({"event": "PodFailed", "action": "Dance"}, ".action"),
        ({"event": "PodDanced", "action": "AbortJob"}, ".event"),
        ({"action": "AbortJob"}, ""),
        ({"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}, ""),
        ({"exitCode": 0, "action": "AbortJob"}, ".exitCode"),
        ({"event": "PodPending", "action": "AbortJob"}, ".timeout"),
        ({"event": "PodFailed", "action": "AbortJob", "timeout": "soon"}, ".timeout"),
    ],
)
def test_policies_that_mean_nothing(policy: dict[str, Any], part: str) -> None:
    assert f"spec.policies[0]{part}" in fields(task(), policies=[policy])
    assert f"spec.tasks[0].policies[0]{part}" in fields(task(policies=[policy]))


def test_events_are_named_once_and_a_star_stands_alone() -> None:
    failed = {"event": "PodFailed", "action": "AbortJob"}
    assert fields(task(), policies=[failed, failed]) == ["spec.policies[1]"]
    anything = {"event": "*", "action": "RestartJob"}
    assert fields(task(), policies=[failed, anything]) == ["spec.policies"]
    assert fields(task(), policies=[anything, {"exitCode": 1, "action": "AbortJob"}]) == []


def test_dependencies_in_a_circle() -> None:
    first = task("a", dependsOn={"name": ["b"]})
    (problem,) = problems_of("j", spec(first, task("b", dependsOn={"name": ["a"]}), task("c")))
    assert str(problem) == "spec.tasks: dependsOn goes in a circle: a, b"


def test_fields_without_effect_are_warned_of() -> None:
    topology = {"networkTopology": {"mode": "hard"}}
    halves = {"totalPartitions": 2, "partitionSize": 1}
    assert without_effect(spec(task(replicas=2, partitionPolicy=halves))) == ""
    assert without_effect(spec(task(replicas=2), minAvailable=1)) == ""
    few = spec(task("a"), task(replicas=2, partitionPolicy={**halves, "minPartitions": 1}))
    assert without_effect(few) == ""
    near = spec(task(replicas=2, partitionPolicy={**halves, **topology}), **topology)
    assert without_effect(near) == (
        "spec.networkTopology has no effect;"
        " spec.tasks[0].partitionPolicy.networkTopology has no effect"
    )


def test_a_gang_that_waits_for_itself_is_warned_of() -> None:
    last = task("last", 2, dependsOn={"name": ["first"]})
    assert self_waiting(spec(task("first", 1), last)).endswith("set minAvailable to at most 1")
    assert self_waiting(spec(task("first", 1), last, minAvailable=1)) == ""
    assert self_waiting(spec(task("first", 1), task("last", 2))) == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("open", None),
        (
            "nowhere",
            "spec.queue: there is no queue 'nowhere'; queues that take Jobs: child, open",
        ),
        ("opne", "spec.queue: there is no queue 'opne'; did you mean open?"),
        ("closed", "spec.queue: queue 'closed' is Closed and takes no new Jobs"),
        ("root", "spec.queue: root takes no Jobs: name a queue below it"),
        ("parent", "spec.queue: queue 'parent' has queues below it: name one of those"),
    ],
)
def test_which_queue_takes_a_job(name: str, says: str | None) -> None:
    def queue(name: str, state: str = "Open", parent: str = "root") -> Queue:
        body = {"metadata": {"name": name}, "spec": {"parent": parent}, "status": {"state": state}}
        return msgspec.convert(body, Queue)

    queues = [queue("open"), queue("closed", "Closed"), queue("root", parent=""), queue("parent")]
    queues.append(queue("child", parent="parent"))
    found = queue_problem(name, {found.metadata.name: found for found in queues})
    assert (str(found) if found else None) == says


def test_what_may_change() -> None:
    old = spec(task(replicas=2), queue="a")
    new = spec(task(replicas=3, minAvailable=1), queue="a", minAvailable=1, priorityClassName="p")
    assert update_problems(old, new) == []
    other = spec(task(replicas=2, template={}), queue="b")
    assert {str(problem) for problem in update_problems(old, other)} == {
        "spec.queue: may not be changed",
        "spec.tasks[0].template: may not be changed",
    }
    assert [p.field for p in update_problems(old, spec(task(), task("b"), queue="a"))] == [
        "spec.tasks"
    ]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("500ms", 500),
        ("1ns", 1),
        ("0", 0),
        ("+.5h", 1_800_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize("text", ["", "soon", "5", "-1s", "1s!", "s", "1h 30m"])
def test_no_durations(text: str) -> None:
    assert parse_ms(text) is None


def test_durations_are_shown_as_go_does() -> None:
    assert [show_s(n) for n in (5, 65, 3600, 3725)] == ["5s", "1m5s", "1h0m0s", "1h2m5s"]


def test_a_spec_with_nulls_is_read() -> None:
    body = {"tasks": None, "policies": None, "plugins": None, "volumes": None}
    made = defaulted(msgspec.convert(body, JobSpec), "volcano")
    assert [problem.field for problem in problems_of("j", made)] == ["spec.tasks"]
