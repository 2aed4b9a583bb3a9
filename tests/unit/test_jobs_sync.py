"""Plans: what is made, scaled, held back, told and forgotten."""

import msgspec
import pytest

from allotment.core.jobs.model import Notice
from allotment.core.jobs.seats import Seat
from allotment.core.jobs.status import difference
from tests.unit.jobs_parts import NOW, at, group, job, look, phase_in, pod, task


def seats(role: str, *indexes: int) -> tuple[Seat, ...]:
    return tuple(Seat(role, index) for index in indexes)


def test_a_new_job_gets_its_podgroup_and_no_pods() -> None:
    new = job(task(replicas=2), plugins={"env": []})
    made = look(new, group=None)
    assert made.create_group
    assert made.needs_objects
    assert made.create == ()
    assert made.status["state"] == {"phase": "Pending", "lastTransitionTime": NOW.text}
    assert made.status["minAvailable"] == 2
    assert made.status["conditions"] == [{"status": "Pending", "lastTransitionTime": NOW.text}]
    assert made.status["controlledResources"] == {"plugin-env": "env"}


@pytest.mark.parametrize(
    ("phase", "has_pods"),
    [("", False), ("Pending", False), ("Inqueue", True), ("Running", True), ("Unknown", True)],
)
def test_pods_come_when_the_podgroup_may_have_them(phase: str, has_pods: bool) -> None:
    waiting = job(task(replicas=2), status=at("Pending"))
    made = look(waiting, group=group(waiting, phase))
    assert made.create == (seats("worker", 0, 1) if has_pods else ())


def test_only_missing_pods_are_made_and_a_seat_is_taken_until_its_pod_is_gone() -> None:
    running = job(task(replicas=4), status=at("Running"))
    made = look(running, pod("worker-0"), pod("worker-2", is_deleting=True))
    assert made.create == seats("worker", 1, 3)


def test_scaling_down_removes_the_highest_index() -> None:
    running = job(task(replicas=2), status=at("Running"))
    made = look(running, *[pod(f"worker-{index}") for index in (3, 0, 2, 1)])
    assert [view.name for view in made.end] == ["j-worker-3", "j-worker-2"]
    assert made.create == ()


def test_scaling_changes_the_podgroup() -> None:
    running = job(task(replicas=3), status=at("Running"))
    has = msgspec.structs.replace(
        group(running), spec=msgspec.structs.replace(group(running).spec, min_member=2)
    )
    made = look(running, group=has)
    assert made.group_changes["minMember"] == 3


@pytest.mark.parametrize(
    ("iteration", "pods", "starts"),
    [
        ("all", [pod("a-0"), pod("b-0")], True),
        ("all", [pod("a-0"), pod("b-0", "Pending")], False),
        ("all", [pod("a-0"), pod("b-0", is_ready=False)], False),
        ("all", [pod("a-0"), pod("b-0", "Succeeded", is_ready=False)], True),
        ("any", [pod("a-0"), pod("b-0", "Pending")], True),
        ("any", [], False),
        ("", [pod("a-0")], False),
    ],
)
def test_roles_wait_for_those_they_depend_on(
    iteration: str, pods: list[object], starts: bool
) -> None:
    last = task("last", dependsOn={"name": ["a", "b"], "iteration": iteration})
    roles = (task("a", 2, minAvailable=1), task("b", 1), last)
    made = look(job(*roles, status=at("Pending")), *pods)  # type: ignore[arg-type]
    assert (Seat("last", 0) in made.create) is starts


def test_what_keeps_a_gang_waiting_is_told() -> None:
    waiting = job(task(), status=at("Pending"))
    said = [{"type": "Unschedulable", "status": "True", "message": "1/1 tasks in gang"}]
    made = look(waiting, group=group(waiting, "Pending", conditions=said))
    (notice,) = made.notices
    assert notice.reason == "PodGroupPending"
    assert notice.message == "PodGroup n:j-u unschedulable, reason: 1/1 tasks in gang"
    assert made.status["state"]["reason"] == "Unschedulable"
    told = job(task(), status=at("Pending") | {"state": made.status["state"]})
    too_big = look(waiting, group=group(waiting, "Inqueue", conditions=said))
    assert too_big.notices == made.notices, "it was admitted, and does not fit"
    free = look(told, group=group(told, "Inqueue"))
    assert free.status["state"]["reason"] is None


def test_an_obstacle_holds_back_a_job_only_before_it_has_begun() -> None:
    waiting = job(task(), status=at("Pending"))
    held = look(waiting, group=None, obstacle="queue is Closed")
    assert not held.create_group
    assert held.notices == (Notice("Warning", "NotAdmitted", "queue is Closed"),)
    assert held.status["state"]["message"] == "queue is Closed"
    begun = look(waiting, obstacle="queue is Closed")
    assert begun.create == seats("worker", 0)


def test_an_invalid_job_is_left_as_it_is_and_can_be_aborted() -> None:
    broken = job(status=at("Running"))
    alive = (pod("worker-0"), pod("worker-1"))
    held = look(broken, *alive, invalid="spec.tasks: at least one task is needed")
    assert (held.end, held.create, phase_in(held, broken)) == ((), (), "Running")
    assert held.status["state"]["reason"] == "InvalidJob"
    aborted = look(broken, *alive, invalid="spec.tasks", command="AbortJob")
    assert phase_in(aborted, broken) == "Aborting"
    assert len(aborted.end) == 2


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Restarting"])
@pytest.mark.parametrize("command", ["", "RestartJob"])
def test_nothing_is_made_of_an_invalid_job_in_any_phase(phase: str, command: str) -> None:
    """Not even on the way back from a restart: what is wrong may be that it is far too large."""
    broken = job(task(replicas=2), status=at(phase))
    for known in (None, group(broken)):
        made = look(broken, group=known, invalid="spec.tasks: too many", command=command)
        assert (made.needs_objects, made.create_group, made.create) == (False, False, ())


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    done = job(task(), ttlSecondsAfterFinished=60, status=at("Completed"))
    early = look(done, entered_s=NOW.s - 59)
    assert (early.delete_job, early.look_again_s) == (False, NOW.s + 1)
    assert look(done, entered_s=NOW.s - 60).delete_job
    forever = job(task(), status=at("Completed"))
    assert not look(forever, entered_s=0).delete_job
    running = job(task(), ttlSecondsAfterFinished=0, status=at("Running"))
    assert not look(running, pod("worker-0")).delete_job


def test_commands_suspend_and_resume() -> None:
    running = job(task(replicas=2), status=at("Running", version=1))
    aborted = look(running, pod("worker-0", version=1), command="AbortJob")
    assert phase_in(aborted, running) == "Aborting"
    assert aborted.notices[0].reason == "CommandIssued"
    rests = job(task(replicas=2), status=at("Aborted", version=2, retryCount=1))
    resumed = look(rests, group=None, command="ResumeJob")
    assert phase_in(resumed, rests) == "Restarting"
    assert (resumed.status["retryCount"], resumed.status["version"]) == (2, 3)
    ignored = look(running, pod("worker-0", version=1), command="ResumeJob")
    assert phase_in(ignored, running) == "Running"


def test_counts_by_role_and_why_a_job_failed() -> None:
    running = job(task("a", 1), task("b", 1), status=at("Running"))
    made = look(running, pod("a-0", "Succeeded"), pod("b-0", "Failed"), started_s=NOW.s - 65)
    assert phase_in(made, running) == "Failed"
    assert made.status["taskStatusCount"] == {
        "a": {"phase": {"Succeeded": 1}},
        "b": {"phase": {"Failed": 1}},
    }
    assert made.status["runningDuration"] == "1m5s"
    assert made.status["state"]["reason"] == "NotEnoughSucceeded"
    assert made.status["state"]["message"].endswith("0 of 1 of task b")


def test_a_status_that_says_it_already_is_not_written() -> None:
    running = job(task(replicas=2), status=at("Running"))
    pods = (pod("worker-0"), pod("worker-1"))
    first = look(running, *pods)
    again = job(task(replicas=2), status=at("Running") | first.status)
    assert look(again, *pods).status == {}


def test_a_reason_stays_with_its_phase() -> None:
    aborted = {"phase": "Aborted", "reason": "CommandIssued", "message": "because"}
    rests = job(task(), status={"state": aborted})
    assert "state" not in look(rests, group=None).status


def test_the_difference_takes_away_what_is_no_more() -> None:
    old = {"a": 1, "b": {"x": {"n": 1}, "y": {"n": 2}}, "other": 5}
    assert difference(old, {"a": 1, "b": {"y": {"n": 3}}, "c": {}}) == {
        "b": {"x": None, "y": {"n": 3}}
    }


def test_history_is_bounded() -> None:
    history = [{"status": "Running", "lastTransitionTime": str(n)} for n in range(60)]
    running = job(task(), status=at("Running", conditions=history))
    made = look(running, command="AbortJob")
    assert len(made.status["conditions"]) == 50
    assert made.status["conditions"][-1]["status"] == "Aborting"
