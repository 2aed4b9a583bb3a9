"""The phases of a Job: rule 1, everything that changes a phase is in this file.

Two kinds of step. An *action* (of a policy or a Command) takes a Job out of its phase at once:
`react` has the table. Otherwise the *counts* of its pods say where it stands: `settle`. Each sync
makes one step; writing the status brings the next sync.

    Pending ⇄ Running ─▶ Completed | Failed
       │ RestartJob, RestartTask, RestartPod         │ AbortJob, CompleteJob, TerminateJob
       ▼                                             ▼
    Restarting ─▶ Pending | Failed        Aborting ─▶ Aborted ─ResumeJob─▶ Restarting
                                          Completing ─▶ Completed   Terminating ─▶ Terminated
"""

from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec

from allotment.core.jobs import policies
from allotment.core.jobs.model import (
    ABORTED,
    ABORTING,
    COMPLETED,
    COMPLETING,
    FAILED,
    FINAL,
    PENDING,
    RESTARTING,
    RUNNING,
    TERMINATED,
    TERMINATING,
    WORKING,
    JobSpec,
    PodView,
)


class Scope(Enum):
    """What an action ends."""

    JOB = "job"
    ROLE = "role"
    PARTITION = "partition"
    """The pods of a role that are in one partition; of a role without partitions, all."""
    POD = "pod"


class Reaction(msgspec.Struct, frozen=True):
    """The step that an action takes: the next phase, what it ends, whether it is a retry."""

    phase: str
    scope: Scope
    retries: int = 0


class Counts(msgspec.Struct, frozen=True):
    """Pods by what they do; one that is being deleted is terminating, whatever its phase."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    succeeded_of: Mapping[str, int] = {}
    """Per role."""

    @property
    def alive(self) -> int:
        return self.pending + self.running + self.terminating


_RESTARTS = {
    policies.RESTART_JOB: Reaction(RESTARTING, Scope.JOB, retries=1),
    policies.RESTART_TASK: Reaction(RESTARTING, Scope.ROLE, retries=1),
    policies.RESTART_POD: Reaction(RESTARTING, Scope.POD, retries=1),
    policies.RESTART_PARTITION: Reaction(RESTARTING, Scope.PARTITION, retries=1),
}
_ENDS = {
    policies.ABORT_JOB: Reaction(ABORTING, Scope.JOB),
    policies.COMPLETE_JOB: Reaction(COMPLETING, Scope.JOB),
    policies.TERMINATE_JOB: Reaction(TERMINATING, Scope.JOB),
}
_RESUME = {policies.RESUME_JOB: Reaction(RESTARTING, Scope.JOB, retries=1)}
REACTIONS: Mapping[str, Mapping[str, Reaction]] = {
    PENDING: {**_RESTARTS, **_ENDS},
    RUNNING: {**_RESTARTS, **_ENDS},
    ABORTING: _RESUME,
    ABORTED: _RESUME,
}
"""phase → action → step. All other pairs change nothing."""

_ENDED_AS = {ABORTING: ABORTED, COMPLETING: COMPLETED, TERMINATING: TERMINATED}


def react(phase: str, action: str) -> Reaction | None:
    """What an action does to a Job in this phase; None: nothing."""
    return REACTIONS.get(phase, {}).get(action)


def settle(phase: str, spec: JobSpec, counts: Counts, retry_count: int) -> str:
    """The phase that follows from the present one by the counts alone."""
    if phase == "":
        return PENDING
    if phase == PENDING:
        arrived = counts.running + counts.succeeded + counts.failed
        return RUNNING if spec.minimum <= arrived else PENDING
    if phase == RUNNING:
        return _settle_running(spec, counts)
    if phase == RESTARTING:
        if retry_count >= (spec.max_retry or 0):
            return FAILED
        return PENDING if spec.replicas - counts.terminating >= spec.minimum else RESTARTING
    if phase in _ENDED_AS:
        return phase if counts.alive else _ENDED_AS[phase]
    return phase


def _settle_running(spec: JobSpec, counts: Counts) -> str:
    replicas = spec.replicas
    if replicas == 0:
        return RUNNING
    if spec.min_success is not None and counts.succeeded >= spec.min_success:
        return COMPLETED
    if counts.succeeded + counts.failed == replicas:
        return _outcome(spec, counts)
    return PENDING if counts.pending > replicas - spec.minimum else RUNNING


def _outcome(spec: JobSpec, counts: Counts) -> str:
    """The final phase of a Job whose pods have all finished."""
    if spec.minimum >= sum(task.minimum for task in spec.roles):
        for task in spec.roles:
            if counts.succeeded_of.get(task.name, 0) < task.minimum:
                return FAILED
    if spec.min_success is not None and counts.succeeded < spec.min_success:
        return FAILED
    return COMPLETED if counts.succeeded >= spec.minimum else FAILED


def is_working(phase: str) -> bool:
    """Whether the Job wants its pods."""
    return phase in WORKING


def is_final(phase: str) -> bool:
    """Whether the Job only waits for its pods to end."""
    return phase in FINAL


def count(pods: Iterable[PodView], doomed: frozenset[str] = frozenset()) -> Counts:
    """Count pods; `doomed` are uids of those that this step deletes."""
    names = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Unknown": 0}
    terminating = 0
    succeeded_of: dict[str, int] = {}
    for pod in pods:
        phase = state_of(pod, doomed)
        if phase == "Terminating":
            terminating += 1
            continue
        names[phase] += 1
        if phase == "Succeeded":
            succeeded_of[pod.role] = succeeded_of.get(pod.role, 0) + 1
    return Counts(
        pending=names["Pending"],
        running=names["Running"],
        succeeded=names["Succeeded"],
        failed=names["Failed"],
        terminating=terminating,
        unknown=names["Unknown"],
        succeeded_of=succeeded_of,
    )


def state_of(pod: PodView, doomed: frozenset[str] = frozenset()) -> str:
    """What a pod counts as."""
    if pod.is_deleting or pod.uid in doomed:
        return "Terminating"
    return pod.phase if pod.phase in ("Pending", "Running", "Succeeded", "Failed") else "Unknown"
