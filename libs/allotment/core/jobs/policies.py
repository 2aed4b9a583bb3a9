"""What a Job's policies do about events of its pods.

Events are derived from the pods' present state, not from changes between two syncs: a pod that
failed while no controller ran is found failed when one runs again, and a time limit is void as soon
as the pod has recovered. Only a lost pod has no state left, so the caller passes its loss as
`Happened`.

A role's policies come before the Job's; within a list the first match counts.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from allotment.core.jobs.durations import parse_ms
from allotment.core.jobs.model import GROUP_UNKNOWN, JobSpec, PodView, Policy, Task

ABORT_JOB = "AbortJob"
RESTART_JOB = "RestartJob"
RESTART_TASK = "RestartTask"
RESTART_POD = "RestartPod"
RESTART_PARTITION = "RestartPartition"
TERMINATE_JOB = "TerminateJob"
COMPLETE_JOB = "CompleteJob"
RESUME_JOB = "ResumeJob"
ACTIONS = frozenset(
    {
        *(ABORT_JOB, RESTART_JOB, RESTART_TASK, RESTART_POD, RESTART_PARTITION),
        *(TERMINATE_JOB, COMPLETE_JOB, RESUME_JOB),
    }
)
"""What a policy or a Command may ask for."""

ANY = "*"
_POD_FAILED = "PodFailed"
POD_EVICTED = "PodEvicted"
POD_PENDING = "PodPending"
_UNKNOWN = "Unknown"
_TASK_COMPLETED = "TaskCompleted"
_TASK_FAILED = "TaskFailed"
EVENTS = (ANY, _POD_FAILED, POD_EVICTED, POD_PENDING, _UNKNOWN, _TASK_COMPLETED, _TASK_FAILED)

_STRENGTH = {RESTART_POD: 1, RESTART_PARTITION: 2, RESTART_TASK: 3, RESUME_JOB: 4, RESTART_JOB: 5}
_STRONGEST = 6


class Happened(msgspec.Struct, frozen=True):
    """Something that happened to a Job, a role or a pod; `since_s` in seconds since 1970."""

    event: str
    role: str = ""
    pod: str = ""
    exit_code: int = 0
    version: int = 0
    since_s: int = 0


class Due(msgspec.Struct, frozen=True):
    """An action that a policy asks for at a time."""

    action: str
    at_s: int
    why: Happened


def answer(spec: JobSpec, happened: Happened, version: int) -> Policy | None:
    """The policy for what happened; None to change nothing.

    Events of pods of an older version of the Job are ignored.
    """
    if happened.version < version:
        return None
    task = spec.role(happened.role) if happened.role else None
    of_role = (task.policies or []) if task else []
    ordered: list[Policy] = [*of_role, *(spec.policies or ())]
    return next((policy for policy in ordered if _is_for(policy, happened)), None)


def _is_for(policy: Policy, happened: Happened) -> bool:
    events = [*([policy.event] if policy.event else ()), *(policy.events or ())]
    if happened.event in events:
        return True
    if ANY in events:  # every pod waits at first: that alone calls for no action
        return happened.event != POD_PENDING or policy.timeout is not None
    code = policy.exit_code
    return code is not None and happened.event == _POD_FAILED and code == happened.exit_code


def happenings(
    spec: JobSpec, pods: Sequence[PodView], group_phase: str, version: int
) -> Iterator[Happened]:
    """The events that the Job's present state shows."""
    ours = [pod for pod in pods if not pod.is_marked]
    for pod in ours:
        if pod.is_deleting:
            continue
        event = {"Failed": _POD_FAILED, "Pending": POD_PENDING}.get(pod.phase)
        if event is not None:
            yield Happened(event, pod.role, pod.name, pod.exit_code, pod.version, pod.changed_s)
    for task in spec.roles:
        of_role = [pod for pod in ours if pod.role == task.name and pod.version >= version]
        if _is_completed(task, of_role):
            since_s = max(pod.changed_s for pod in of_role)
            yield Happened(_TASK_COMPLETED, task.name, version=version, since_s=since_s)
        if _is_failed(task, of_role):
            since_s = max(pod.changed_s for pod in of_role)
            yield Happened(_TASK_FAILED, task.name, version=version, since_s=since_s)
    if group_phase == GROUP_UNKNOWN:
        yield Happened(_UNKNOWN, version=version)


def _is_completed(task: Task, pods: Sequence[PodView]) -> bool:
    done = sum(pod.phase == "Succeeded" for pod in pods)
    return bool(task.replicas) and done >= task.replicas


def _is_failed(task: Task, pods: Sequence[PodView]) -> bool:
    """Its containers were restarted in place more often than the role may retry."""
    if task.max_retry is None or task.max_retry < 0:
        return False
    return sum(pod.restarts for pod in pods) > task.max_retry


def due_actions(spec: JobSpec, happened: Iterable[Happened], version: int) -> list[Due]:
    """What the policies ask for, the earliest first, of one time the strongest first."""
    due = []
    for what in happened:
        policy = answer(spec, what, version)
        if policy is None or not policy.action:
            continue
        wait_ms = parse_ms(policy.timeout) if policy.timeout else 0
        due.append(Due(policy.action, what.since_s + -(-(wait_ms or 0) // 1000), what))
    return sorted(due, key=lambda d: (d.at_s, -_strength(d.action), d.why.role, d.why.pod))


def choose(due: Sequence[Due], now_s: int) -> Due | None:
    """The strongest action whose time has come: it includes the weaker ones."""
    ready = [action for action in due if action.at_s <= now_s]
    return max(ready, key=lambda d: _strength(d.action), default=None)


def _strength(action: str) -> int:
    """How much an action ends: a pod, a role, everything for a while, everything for good."""
    return _STRENGTH.get(action, _STRONGEST)
