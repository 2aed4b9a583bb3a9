"""What users read about waiting pods and groups: Volcano's sentences, word for word.

People search for these texts and scripts match them. Where Volcano quotes an arbitrary pod, this
quotes the first in task order, so that a text changes only when something else does.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allotment.core.queues.actions.allocate import DISCARDED, Promised, Turn
from allotment.core.queues.model import Status
from allotment.core.queues.plugins.gang import is_ready
from allotment.core.queues.work import Job
from allotment.core.reasons import UNSCHEDULABLE

_REASON_SCHEDULABLE = "Schedulable"
_REASON_BIND_ERROR = "SchedulerError"
READY = "pod group is ready"
_NOT_READY = "pod group is not ready"
SCHEDULED_REASON = "tasks in gang are ready to be scheduled"


def _histogram(counts: Mapping[str, int]) -> str:
    """``3 Pending, 4 minAvailable``: sorted as text, counts included, without zeros."""
    return ", ".join(sorted(f"{count} {name}" for name, count in counts.items() if count))


class Attempt(NamedTuple):
    """A round's findings about the tasks of a job that still waits."""

    nodes: Mapping[str, str] = {}
    """Task uid → node that it had before everything was given back."""
    promised: Mapping[str, str] = {}
    """Task uid → node that was promised to it."""
    errors: Mapping[str, str] = {}
    """Task uid → why it found no place (a fit error, a quota, the same role)."""
    job_error: str = ""
    """Why the job as a whole was not tried."""


def attempt_of(turns: Iterable[Turn]) -> Attempt:
    """The findings of one job's turns in a round."""
    nodes: dict[str, str] = {}
    promised: dict[str, str] = {}
    errors: dict[str, str] = {}
    job_error = ""
    for turn in turns:
        for uid, place in turn.placed:
            if turn.ending == DISCARDED:
                nodes[uid] = place.node
            elif isinstance(place, Promised):
                promised[uid] = place.node
        errors.update((uid, no.message) for uid, no in turn.refused)
        if turn.no is not None:
            job_error = turn.no.message
    return Attempt(nodes, promised, errors, job_error)


def job_fit_error(job: Job, attempt: Attempt) -> str:
    """The state of a group in one line, and the first reason why it waits."""
    counts = {status.value: number for status, number in job.counts.items()}
    counts["minAvailable"] = job.view.min_member
    text = f"{READY if is_ready(job) else _NOT_READY}, {_histogram(counts)}"
    pending = job.with_status(Status.PENDING)
    if pending:
        reasons: dict[str, int] = {}
        for task in pending:
            reason = _REASON_SCHEDULABLE if task.uid in attempt.nodes else UNSCHEDULABLE
            reasons[reason] = reasons.get(reason, 0) + 1
        text += f"; {Status.PENDING.value}: {_histogram(reasons)}"
    if attempt.job_error:
        return f"{text}. Origin reason is: {attempt.job_error}"
    quoted = next((task for task in pending if task.uid in attempt.errors), None)
    if quoted is not None:
        text += f". Origin reason is {quoted.name}: {attempt.errors[quoted.uid]}"
    return text


def gang_unschedulable(job: Job, attempt: Attempt) -> str:
    """The message of the PodGroup's condition: how many tasks of the minimum lack a place."""
    schedulable = job.ready_count + sum(job.status[uid] is Status.PENDING for uid in attempt.nodes)
    short = max(job.view.min_member - schedulable, 0)
    return f"{short}/{len(job.tasks)} tasks in gang unschedulable: {job_fit_error(job, attempt)}"


class PodMessage(NamedTuple):
    """The reason and the message of a pod's Event or condition."""

    reason: str
    message: str


def bind_error(node: str, error: str) -> PodMessage:
    return PodMessage(_REASON_BIND_ERROR, f"failed to bind to node {node}: {error}")


def assigned(namespace: str, name: str, node: str) -> str:
    """The message of the pod's `Scheduled` Event."""
    return f"Successfully assigned {namespace}/{name} to {node}"
