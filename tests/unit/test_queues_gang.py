"""Gangs: valid, ready, pipelined, starving, and which members can be spared."""

from typing import Any

import msgspec
import pytest

from allotment.core.queues.model import Status, Task
from allotment.core.queues.plugins.gang import invalid, is_pipelined, is_ready, is_starving
from allotment.core.queues.resources import Resources
from allotment.core.queues.work import Job
from tests.unit.queues_parts import job, plugin, session, statuses, task

PODS_ONLY = Resources({"pods": 1})


def gang(members: tuple[Task, ...], minimum: int, **roles: int) -> Job:
    return Job(job("j", members, min_member=minimum, min_task_member=tuple(roles.items())))


def role(name: str, **counts: int) -> tuple[Task, ...]:
    return tuple(
        task(f"{name}-{number}", role=name, status=one.status)
        for number, one in enumerate(statuses(name, **counts))
    )


def test_ex_gang() -> None:
    assert not is_ready(gang(statuses("j", Allocated=2, Running=1, Pending=1), 4))
    assert is_ready(gang(statuses("j", Allocated=3, Succeeded=1), 4))
    best_effort = task("be", request=PODS_ONLY)
    assert is_ready(gang((*statuses("j", Allocated=2), best_effort), 3))


@pytest.mark.parametrize("status", ["Failed", "Releasing", "Unknown", "Pending", "Pipelined"])
def test_what_does_not_count_as_ready(status: str) -> None:
    assert not is_ready(gang(statuses("j", Running=2, **{status: 1}), 3))


@pytest.mark.parametrize("status", ["Bound", "Binding", "Running", "Allocated", "Succeeded"])
def test_what_counts_as_ready(status: str) -> None:
    assert is_ready(gang(statuses("j", **{status: 3}), 3))


def test_pipelined_and_starving() -> None:
    promised = gang(statuses("j", Allocated=2, Pipelined=1), 3)
    assert is_pipelined(promised)
    assert not is_ready(promised)
    assert not is_starving(promised)
    with_best_effort = gang((*statuses("j", Allocated=2), task("be", request=PODS_ONLY)), 3)
    assert is_starving(with_best_effort), "no credit for pods without a request"
    assert is_pipelined(with_best_effort)


@pytest.mark.parametrize(
    ("members", "minimum", "roles", "ready"),
    [
        # m ≥ T: every role needs its own
        (role("ps", Running=1) + role("worker", Running=3), 4, {"ps": 1, "worker": 3}, True),
        (role("ps", Running=0) + role("worker", Running=4), 4, {"ps": 1, "worker": 3}, False),
        # m < T: roles do not count
        (role("worker", Running=3), 3, {"ps": 2, "worker": 3}, True),
        (role("worker", Running=2), 3, {"ps": 2, "worker": 3}, False),
    ],
)
def test_roles(members: Any, minimum: int, roles: dict[str, int], ready: bool) -> None:
    assert is_ready(gang(members, minimum, **roles)) == ready


def test_pods_without_a_request_count_for_their_role() -> None:
    helper = task("h", role="helper", request=PODS_ONLY)
    assert is_ready(gang((*role("worker", Allocated=2), helper), 3, worker=2, helper=1))


def test_invalid_says_what_is_missing() -> None:
    no = invalid(gang(statuses("j", Pending=2, Failed=1), 3))
    assert no is not None
    assert no.code == "NotEnoughTasks"
    assert no.message == "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
    no = invalid(gang(role("ps", Failed=1) + role("w", Pending=4), 4, ps=1, w=3))
    assert no is not None
    assert (no.code, "ps" in no.message) == ("NotEnoughPodsOfTask", True)
    assert invalid(gang(role("w", Pending=3), 3, ps=1, w=3)) is None, "m < T: roles do not count"
    assert invalid(gang(statuses("j", Pending=1, Running=1, Pipelined=1), 3)) is None


def test_ex_gangvictim() -> None:
    victims = job("v", statuses("v", Running=5), min_member=3)
    taker = job("t")
    found = session(victims, taker, tiers=[["gang"]])
    chosen = found.preemptable(taker.tasks[0], victims.tasks[:4])
    assert [one.uid for one in chosen] == ["v-w-0", "v-w-1"]
    assert found.reclaimable(taker.tasks[0], victims.tasks[:4]) == chosen


@pytest.mark.parametrize(("min_member", "chosen"), [(3, ["v-ps-1"]), (2, ["v-w-0", "v-w-1"])])
def test_a_role_that_has_no_more_than_its_minimum_is_spared(
    min_member: int, chosen: list[str]
) -> None:
    """Below the sum of the roles' minima these do not count."""
    states = {"w": statuses("v", Running=2), "ps": statuses("v", Running=2)}
    tasks = [
        msgspec.structs.replace(one, uid=f"v-{role}-{n}", role=role)
        for role, found in states.items()
        for n, one in enumerate(found)
    ]
    order = [tasks[0], tasks[1], tasks[3], tasks[2]]
    minima = (("w", 2), ("ps", 1))
    victims = job("v", tasks, min_member=min_member, min_task_member=minima)
    taker = job("t")
    found = session(victims, taker, tiers=[["gang"]])
    assert [one.uid for one in found.preemptable(taker.tasks[0], order)] == chosen


def test_enable_preemptable_false_lifts_only_that_veto() -> None:
    victims = job("v", statuses("v", Running=3))
    taker = job("t", priority=1)
    lifted = plugin("gang", {"enablePreemptable": False})
    found = session(victims, taker, tiers=[["priority", lifted]])
    assert len(found.preemptable(taker.tasks[0], victims.tasks)) == 3
    assert found.reclaimable(taker.tasks[0], victims.tasks) == []
    assert not found.job_ready(found.jobs["t"]), "all or nothing stays"


def test_starving_needs_both_priority_and_gang() -> None:
    elastic = job("e", statuses("e", Running=2, Pending=2), min_member=2)
    assert not session(elastic).job_starving(_only(session(elastic)))
    first_priority = session(elastic, tiers=[["priority"], ["gang"]])
    assert first_priority.job_starving(_only(first_priority)), "the first tier decides"
    waiting = session(job("w", 2))
    assert waiting.job_starving(_only(waiting))


def _only(found: Any) -> Job:
    (one,) = found.jobs.values()
    assert isinstance(one, Job)
    return one


def test_a_job_counts_as_its_tasks_move() -> None:
    one = gang(role("w", Pending=2), 2)
    first = one.view.tasks[0]
    assert one.move(first, Status.ALLOCATED) is Status.PENDING
    assert (one.ready_count, one.allocated["nvidia.com/gpu"]) == (1, 1000)
    assert one.role_count("w", [Status.ALLOCATED]) == 1
    one.move(first, Status.PENDING)
    assert one.ready_count == 0
    assert one.counts == Job(one.view).counts
