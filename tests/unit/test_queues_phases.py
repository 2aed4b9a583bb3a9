"""What a group and its pods are said to be after a round, word for word."""

import pytest

from allotment.core.queues.actions.allocate import Turn
from allotment.core.queues.model import Phase, Status
from allotment.core.queues.phases import Condition, close, gang_condition, phase_after
from allotment.core.queues.texts import (
    Attempt,
    PodMessage,
    assigned,
    attempt_of,
    bind_error,
    job_fit_error,
)
from allotment.core.queues.work import Job
from tests.unit.queues_parts import Toy, allocate, job, session, statuses, task

FIT = "0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("counts", "before", "unschedulable", "expected"),
    [
        ({"Bound": 3}, Phase.INQUEUE, False, Phase.RUNNING),
        ({"Running": 2, "Pending": 1}, Phase.RUNNING, True, Phase.UNKNOWN),
        ({"Succeeded": 3}, Phase.RUNNING, False, Phase.COMPLETED),
        ({"Running": 1, "Succeeded": 2}, Phase.RUNNING, False, Phase.RUNNING),
        ({"Binding": 3}, Phase.INQUEUE, False, Phase.INQUEUE),
        ({"Pending": 3}, Phase.RUNNING, False, Phase.PENDING),
        ({"Succeeded": 2, "Failed": 1}, Phase.RUNNING, False, Phase.COMPLETED),
        ({"Pending": 3}, Phase.INQUEUE, True, Phase.INQUEUE),
        ({"Pending": 3}, Phase.NEW, False, Phase.PENDING),
        ({"Running": 3}, Phase.UNKNOWN, False, Phase.RUNNING),
    ],
)
def test_ex_phase(
    counts: dict[str, int], before: Phase, unschedulable: bool, expected: Phase
) -> None:
    found = {Status(name): count for name, count in counts.items()}
    assert phase_after(before, 3, found, unschedulable=unschedulable) is expected


def test_members_that_end_on_a_node_count_as_scheduled() -> None:
    found = {Status.RUNNING: 2, Status.RELEASING: 1}
    assert phase_after(Phase.RUNNING, 3, found, releasing_on_node=1) is Phase.RUNNING
    assert phase_after(Phase.RUNNING, 3, found) is Phase.PENDING
    with_node = Job(job("j", statuses("j", Running=2, Releasing=1), phase=Phase.RUNNING))
    assert close(with_node, Attempt()).phase is Phase.RUNNING


def gang() -> Job:
    return Job(job("j", [task(f"j-w-{number}") for number in range(4)]))


ATTEMPT = Attempt(nodes={f"j-w-{number}": "n1" for number in range(3)}, errors={"j-w-3": FIT})


def test_ex_msg() -> None:
    condition = gang_condition(gang(), ATTEMPT)
    tail = (
        "tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; "
        "Pending: 1 Unschedulable, 3 Schedulable. Origin reason is j-w-3: "
        "0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu."
    )
    assert condition == Condition("Unschedulable", "True", "NotEnoughResources", f"1/4 {tail}")


def test_ex_msg_from_a_round() -> None:
    """The same texts, from what the allocate action found out."""
    found = session(job("j", [task(f"j-w-{number}") for number in range(4)]))
    turns = list(allocate(found, Toy({"n1": 1, "n2": 1, "n3": 1})))
    attempt = attempt_of(turns)
    assert attempt.nodes == {"j-w-0": "n1", "j-w-1": "n2", "j-w-2": "n3"}
    closing = close(found.jobs["j"], attempt)
    assert closing.condition is not None
    assert closing.condition.message == (
        "1/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; "
        f"Pending: 1 Unschedulable, 3 Schedulable. Origin reason is j-w-3: {FIT}"
    )
    assert closing.phase is Phase.INQUEUE


def test_a_ready_group_is_scheduled() -> None:
    ready = Job(job("j", statuses("j", Running=2, Pending=1), min_member=2))
    assert gang_condition(ready, Attempt()) == Condition(
        "Scheduled", "True", "tasks in gang are ready to be scheduled", ""
    )
    assert job_fit_error(ready, Attempt()) == (
        "pod group is ready, 1 Pending, 2 Running, 2 minAvailable; Pending: 1 Unschedulable"
    )


def test_a_group_with_too_few_pods_says_so() -> None:
    condition = gang_condition(Job(job("j", 2, min_member=3)), Attempt())
    assert condition is not None
    assert condition.reason == "NotEnoughTasks"
    assert condition.message == (
        "3/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 3 minAvailable; "
        "Pending: 2 Unschedulable. Origin reason is: "
        "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
    )


def test_nothing_is_said_while_members_end_and_nobody_waits() -> None:
    ending = Job(job("j", statuses("j", Running=1, Releasing=2)))
    assert gang_condition(ending, Attempt()) is None
    assert gang_condition(Job(job("j", (), min_member=1)), Attempt()) is None
    short = Job(job("j", statuses("j", Running=1, Releasing=1), min_member=3))
    assert gang_condition(short, Attempt()) is not None


def test_a_group_that_lost_members_is_unknown() -> None:
    lost = Job(job("j", statuses("j", Running=2, Pending=1), phase=Phase.RUNNING))
    closing = close(lost, Attempt(errors={"j-w-2": FIT}))
    assert (closing.phase, closing.running) == (Phase.UNKNOWN, 2)


def test_job_errors_of_turns_that_tried_nothing() -> None:
    found = session(job("j", 1, min_member=2))
    turns: list[Turn] = list(allocate(found, Toy({"n1": 1})))
    assert attempt_of(turns).job_error.startswith("Not enough valid tasks")


def test_the_other_texts() -> None:
    assert assigned("ns", "p", "n1") == "Successfully assigned ns/p to n1"
    assert bind_error("n1", "oops") == PodMessage(
        "SchedulerError", "failed to bind to node n1: oops"
    )
