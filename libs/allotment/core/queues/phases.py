"""What a PodGroup is said to be once a round is over: its phase and its conditions."""

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
    """The phase from the members' statuses. `releasing_on_node` of them are being ended on a node,
    `unschedulable` says that this round found the group so.
    """
    if counts.get(Status.RUNNING, 0) and unschedulable:
        return Phase.UNKNOWN
    scheduled = releasing_on_node + sum(counts.get(status, 0) for status in SCHEDULED_SET)
    if scheduled >= min_member:
        completed = sum(counts.get(status, 0) for status in COMPLETED_SET)
        return Phase.COMPLETED if completed == scheduled else Phase.RUNNING
    return Phase.INQUEUE if before is Phase.INQUEUE else Phase.PENDING


def gang_condition(job: Job, attempt: Attempt) -> Condition | None:
    """What the gang plugin says of a group with members; None if there is nothing to say.

    A group with too few pods for its minimum says so, instead of a want of resources.
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
    """Phase, condition and counts of a group as the round ends."""
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
