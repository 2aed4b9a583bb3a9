"""A PodGroup's phase and conditions at the end of a round."""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.queues.model import (
    COMPLETED_SET,
    SCHEDULED_SET,
    Phase,
    Status,
)
from allotment.core.queues.plugins.gang import invalid, is_ready
from allotment.core.queues.texts import SCHEDULED_REASON, Attempt, gang_unschedulable
from allotment.core.queues.work import Job
from allotment.core.reasons import NOT_ENOUGH_RESOURCES

UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
TRUE = "True"


class Condition(NamedTuple):
    """A PodGroup's condition; it replaces the older one of its type."""

    type: str
    status: str
    reason: str
    message: str


class Closing(NamedTuple):
    """What to write to a PodGroup."""

    phase: Phase
    condition: Condition | None
    running: int
    succeeded: int
    failed: int


def phase_after(
    before: Phase,
    min_member: int,
    counts: Mapping[Status, int],
    *,
    releasing_on_node: int = 0,
    unschedulable: bool = False,
) -> Phase:
    """The phase that follows from the members' statuses. `releasing_on_node` of them are ending on
    a node; `unschedulable`: this round found the group unschedulable.
    """
    if counts.get(Status.RUNNING, 0) and unschedulable:
        return Phase.UNKNOWN
    scheduled = releasing_on_node + sum(counts.get(status, 0) for status in SCHEDULED_SET)
    if scheduled >= min_member:
        completed = sum(counts.get(status, 0) for status in COMPLETED_SET)
        return Phase.COMPLETED if completed == scheduled else Phase.RUNNING
    return Phase.INQUEUE if before is Phase.INQUEUE else Phase.PENDING


def gang_condition(job: Job, attempt: Attempt) -> Condition | None:
    """The gang plugin's condition for a group with members; None if there is none to write.

    Too few pods for the minimum is the reason before a lack of resources.
    """
    if not job.tasks:
        return None
    if is_ready(job):
        return Condition(SCHEDULED, TRUE, SCHEDULED_REASON, "")
    ending = job.counts[Status.RELEASING]
    waits = job.counts[Status.PENDING] or job.counts[Status.PIPELINED]
    if not waits and job.ready_count + ending >= job.view.min_member:
        return None
    no = invalid(job)
    if no is None:
        reason = NOT_ENOUGH_RESOURCES
    else:
        reason, attempt = no.code, attempt._replace(job_error=no.message)
    return Condition(UNSCHEDULABLE, TRUE, reason, gang_unschedulable(job, attempt))


def close(job: Job, attempt: Attempt) -> Closing:
    """The phase, condition and counts of a group at the end of the round."""
    condition = gang_condition(job, attempt)
    on_node = sum(
        bool(job.tasks[uid].node)
        for uid, status in job.status.items()
        if status is Status.RELEASING
    )
    phase = phase_after(
        job.phase,
        job.view.min_member,
        job.counts,
        releasing_on_node=on_node,
        unschedulable=condition is not None and condition.type == UNSCHEDULABLE,
    )
    return Closing(
        phase,
        condition,
        running=job.counts[Status.RUNNING],
        succeeded=job.counts[Status.SUCCEEDED],
        failed=job.counts[Status.FAILED],
    )
