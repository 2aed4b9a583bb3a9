"""The phases of a Job, row by row of the table."""

from typing import Any

import pytest

from allotment.core.jobs.machine import REACTIONS, Counts, Scope, count, react, settle
from allotment.core.jobs.policies import ACTIONS
from tests.unit.jobs_parts import at, group, job, look, phase_in, pod, spec, task

THREE = spec(task(replicas=3), minAvailable=3)


@pytest.mark.parametrize(
    ("phase", "counts", "following"),
    [
        ("", Counts(), "Pending"),
        ("Pending", Counts(running=2, pending=1), "Pending"),
        ("Pending", Counts(running=1, succeeded=1, failed=1), "Running"),
        ("Running", Counts(running=3), "Running"),
        ("Running", Counts(running=2, pending=1), "Pending"),
        ("Running", Counts(succeeded=3, succeeded_of={"worker": 3}), "Completed"),
        ("Running", Counts(succeeded=2, failed=1, succeeded_of={"worker": 2}), "Failed"),
        ("Restarting", Counts(terminating=1), "Restarting"),
        ("Restarting", Counts(), "Pending"),
        ("Aborting", Counts(terminating=1), "Aborting"),
        ("Aborting", Counts(succeeded=1, failed=2), "Aborted"),
        ("Aborted", Counts(), "Aborted"),
        ("Completing", Counts(running=1), "Completing"),
        ("Completing", Counts(), "Completed"),
        ("Terminating", Counts(pending=1), "Terminating"),
        ("Terminating", Counts(), "Terminated"),
        ("Completed", Counts(running=3), "Completed"),
        ("Terminated", Counts(running=3), "Terminated"),
        ("Failed", Counts(running=3), "Failed"),
    ],
)
def test_what_counts_make_of_a_phase(phase: str, counts: Counts, following: str) -> None:
    assert settle(phase, THREE, counts, 0) == following


def test_enough_that_succeed_complete_a_job_while_others_run() -> None:
    two = spec(task(replicas=3), minSuccess=2, minAvailable=1)
    assert settle("Running", two, Counts(running=1, succeeded=2), 0) == "Completed"
    assert settle("Running", two, Counts(running=2, succeeded=1), 0) == "Running"
    assert settle("Running", two, Counts(failed=2, succeeded=1), 0) == "Failed"


def test_a_roles_minimum_counts_only_where_the_gang_has_all_of_them() -> None:
    done = Counts(succeeded=3, failed=1, succeeded_of={"ps": 0, "worker": 3})
    roles = (task("ps", 1), task("worker", 3))
    assert settle("Running", spec(*roles), done, 0) == "Failed"
    assert settle("Running", spec(*roles, minAvailable=3), done, 0) == "Completed"


def test_a_job_waits_again_when_more_wait_than_it_can_spare() -> None:
    elastic = spec(task(replicas=3, minAvailable=2), minAvailable=2)
    assert settle("Running", elastic, Counts(running=2, pending=1), 0) == "Running"
    assert settle("Running", elastic, Counts(running=1, pending=2), 0) == "Pending"


@pytest.mark.parametrize("retried", [3, 4])
def test_retried_too_often(retried: int) -> None:
    assert settle("Restarting", THREE, Counts(), retried) == "Failed"
    assert settle("Restarting", THREE, Counts(terminating=3), retried) == "Failed"


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(
    ("action", "following", "scope", "retries"),
    [
        ("RestartJob", "Restarting", Scope.JOB, 1),
        ("RestartTask", "Restarting", Scope.ROLE, 1),
        ("RestartPod", "Restarting", Scope.POD, 1),
        ("RestartPartition", "Restarting", Scope.PARTITION, 1),
        ("AbortJob", "Aborting", Scope.JOB, 0),
        ("CompleteJob", "Completing", Scope.JOB, 0),
        ("TerminateJob", "Terminating", Scope.JOB, 0),
    ],
)
def test_what_actions_do(
    phase: str, action: str, following: str, scope: Scope, retries: int
) -> None:
    reaction = react(phase, action)
    assert reaction is not None
    assert (reaction.phase, reaction.scope, reaction.retries) == (following, scope, retries)


def test_only_an_aborted_job_is_resumed() -> None:
    for phase in ("Aborting", "Aborted"):
        assert {action for action in ACTIONS if react(phase, action)} == {"ResumeJob"}
    for phase in ("", "Restarting", "Completing", "Completed", "Terminating", "Terminated"):
        assert phase not in REACTIONS
    assert react("Running", "ResumeJob") is None


def test_a_pod_that_is_deleted_is_terminating_whatever_its_phase() -> None:
    pods = [
        pod("worker-0", "Succeeded", is_deleting=True),
        pod("worker-1", "Running"),
        pod("worker-2", "Weird"),
        pod("worker-3", "Pending"),
    ]
    counts = count(pods, frozenset({"uid-worker-3"}))
    assert (counts.terminating, counts.running, counts.unknown, counts.pending) == (2, 1, 1, 0)
    assert counts.succeeded_of == {}


# What ends with a step


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({"totalPartitions": 2, "partitionSize": 2}, {"j-worker-2", "j-worker-3"}),
        (None, {f"j-worker-{n}" for n in range(4)}),
    ],
)
def test_a_partition_restarts_alone(policy: dict[str, int] | None, names: set[str]) -> None:
    workers = task(
        replicas=4,
        partitionPolicy=policy,
        policies=[{"event": "PodFailed", "action": "RestartPartition"}],
    )
    running = job(workers, task("other"), status=at("Running"))
    alive = [pod(f"worker-{n}") for n in (0, 1, 3)]
    made = look(running, *alive, pod("worker-2", "Failed"), pod("other-0"))
    assert ended(made) == names
    assert phase_in(made, running) == "Restarting"


def ended(made: Any) -> set[str]:
    return {view.name for view in made.end}


MIXED = (
    pod("worker-0", "Running"),
    pod("worker-1", "Pending"),
    pod("worker-2", "Succeeded"),
    pod("worker-3", "Failed"),
    pod("worker-4", "Running", is_deleting=True),
)
FIVE = task(replicas=5)
ALIVE = {"j-worker-0", "j-worker-1"}
FINISHED = {"j-worker-2", "j-worker-3"}


@pytest.mark.parametrize("action", ["AbortJob", "CompleteJob", "TerminateJob"])
def test_ending_a_job_keeps_what_has_finished(action: str) -> None:
    made = look(job(FIVE, status=at("Running", version=2)), *MIXED, command=action)
    assert ended(made) == ALIVE
    assert made.delete_group
    assert made.status["version"] == 3
    assert made.create == ()


def test_a_restart_takes_all_pods_and_the_last_one_keeps_the_finished() -> None:
    first = look(job(FIVE, status=at("Running")), *MIXED, command="RestartJob")
    assert ended(first) == ALIVE | FINISHED
    last = look(job(FIVE, status=at("Running", retryCount=2)), *MIXED, command="RestartJob")
    assert ended(last) == ALIVE


@pytest.mark.parametrize("phase", ["Completed", "Terminated", "Failed", "Aborted"])
def test_a_job_at_rest_ends_whatever_is_still_alive(phase: str) -> None:
    made = look(job(FIVE, status=at(phase)), *MIXED)
    assert ended(made) == ALIVE
    assert made.delete_group
    assert made.create == ()


def test_after_a_crash_in_a_restart_pods_of_the_old_life_still_go() -> None:
    restarting = job(task(replicas=3), status=at("Restarting", version=1, retryCount=1))
    old_and_new = (pod("worker-0", "Succeeded", version=0), pod("worker-1", version=1))
    made = look(restarting, *old_and_new, group=None)
    assert ended(made) == {"j-worker-0"}
    waiting = job(task(replicas=3), status=at("Pending", version=1))
    assert ended(look(waiting, *old_and_new)) == {"j-worker-0"}


def test_a_podgroup_of_the_old_life_goes_before_a_new_one_comes() -> None:
    before = job(task(), status=at("Pending", version=0))
    now = job(task(), status=at("Pending", version=1))
    made = look(now, group=group(before, "Running"))
    assert made.delete_group
    assert not made.create_group
    assert made.create == ()
    assert look(now, group=None).create_group


def test_restart_of_a_role_or_a_pod_leaves_the_others_and_the_podgroup() -> None:
    def failing(action: str) -> Any:
        roles = (task("ps", 2), task("worker", 2))
        policies = [{"event": "PodFailed", "action": action}]
        running = job(*roles, policies=policies, status=at("Running", version=1))
        pods = (
            *(pod("ps-0", version=1), pod("ps-1", version=1)),
            *(pod("worker-0", "Failed", version=1), pod("worker-1", version=1)),
        )
        return look(running, *pods)

    role, one = failing("RestartTask"), failing("RestartPod")
    assert ended(role) == {"j-worker-0", "j-worker-1"}
    assert ended(one) == {"j-worker-0"}
    for made in (role, one):
        assert made.status["retryCount"] == 1
        assert "version" not in made.status, "other pods live on"
        assert not made.delete_group
    assert phase_in(role, job(task())) == "Restarting"
