"""Plugin `gang`: a job starts with its minimum or not at all.

For a job with minimum m, role minima t and T = Σ t, roles count only if m ≥ T; otherwise m alone
counts. Pending pods without any request count as ready: they find a place anywhere once the others
have one.

Pods of a sub group (`subGroupPolicy`) are placed together, as many as make it whole, or not at all.
A job needs the number of whole sub groups that each policy sets. A whole one may get more pods, one
by one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from allotment.core.queues.answers import PERMIT, No, Vote
from allotment.core.queues.model import READY_SET, VALID_SET, Kind, Status, Task
from allotment.core.queues.plugins.base import Key, NoArguments, Plugin
from allotment.core.queues.work import Job, World
from allotment.core.reasons import GANG_INCOMPLETE, NOT_ENOUGH_PODS_OF_TASK, NOT_ENOUGH_TASKS

_PROMISED_SET = READY_SET | {Status.PIPELINED}


def _has_role_minima(job: Job) -> bool:
    """Whether the role minima count: only if the job's own minimum covers them."""
    return bool(job.role_minima) and job.view.min_member >= job.roles_total


def invalid(job: Job) -> No | None:
    """Why the job has too few pods ever to start; None if it has enough."""
    if _has_role_minima(job):
        for role, least in job.view.min_task_member:
            count = job.role_count(role, VALID_SET)
            if count < least:
                return No(
                    NOT_ENOUGH_PODS_OF_TASK,
                    f"Not enough valid pods of task {role} for gang-scheduling, "
                    f"valid: {count}, min: {least}",
                )
    for rule in job.view.sub_groups:
        count = job.wholes(rule, VALID_SET, with_pending=False)
        if count < rule.least:
            return No(
                NOT_ENOUGH_PODS_OF_TASK,
                f"Not enough valid subGroups of {rule.name} for gang-scheduling: "
                f"{count} with {rule.size} pods, min: {rule.least}",
            )
    if job.valid_count < job.view.min_member:
        return No(
            NOT_ENOUGH_TASKS,
            "Not enough valid tasks for gang-scheduling, "
            f"valid: {job.valid_count}, min: {job.view.min_member}",
        )
    return None


def is_ready(job: Job) -> bool:
    """Whether what the job has may be committed."""
    return _covers(job, job.ready_count, READY_SET)


def is_pipelined(job: Job) -> bool:
    """Whether the job will be ready once what was promised to it is free."""
    return _covers(job, job.ready_count + job.pipelined_count, _PROMISED_SET)


def is_starving(job: Job) -> bool:
    """Whether the job has less than its minimum; pods without a request do not count."""
    return job.ready_count + job.pipelined_count < job.view.min_member


def surplus(job_of: Mapping[str, Job], candidates: Iterable[Task]) -> list[Task]:
    """Those of the candidates that their jobs can lose and still keep their minimum and their
    roles' minima.
    """
    left: dict[str, int] = {}
    left_of_role: dict[tuple[str, str], int] = {}
    broken: Counter[str] = Counter()
    found = []
    for task in candidates:
        job = job_of[task.uid]
        ready = left.get(job.uid, job.ready_count)
        role = job.uid, task.role
        of_role = left_of_role.get(role, job.role_count(task.role, READY_SET))
        least = job.role_minima.get(task.role, 0) if _has_role_minima(job) else 0
        if not _spares(job, task, broken[job.uid]):
            continue
        if ready > job.view.min_member and (of_role > least or not least):
            broken[job.uid] += bool(task.sub_group[0])
            left[job.uid], left_of_role[role] = ready - 1, of_role - 1
            found.append(task)
    return found


def _spares(job: Job, task: Task, broken: int) -> bool:
    """Whether a job keeps its minimum of whole sub groups without a task and without `broken`
    others.
    """
    rule = next((rule for rule in job.view.sub_groups if rule.name == task.sub_group[0]), None)
    if rule is None or not rule.least:
        return True
    return job.wholes(rule, READY_SET, with_pending=False) - broken > rule.least


def _missing(job: Job, task: Task) -> int:
    """How many pods the task's sub group lacks to be whole; 0 if it is in none, or in one of size
    1.
    """
    if not job.view.sub_groups:
        return 0
    rule = next((rule for rule in job.view.sub_groups if rule.name == task.sub_group[0]), None)
    if rule is None or rule.size < 2:
        return 0
    there = job.sub_group_count(task.sub_group, _PROMISED_SET) + job.sub_best_effort[task.sub_group]
    return max(rule.size - there, 0)


def _covers(job: Job, count: int, statuses: Collection[Status]) -> bool:
    if count + job.best_effort_pending < job.view.min_member:
        return False
    for rule in job.view.sub_groups:
        if job.wholes(rule, statuses, with_pending=True) < rule.least:
            return False
    return not _has_role_minima(job) or all(
        job.role_count(role, statuses) + job.role_best_effort[role] >= least
        for role, least in job.view.min_task_member
    )


class Gang(Plugin):
    name: ClassVar[str] = "gang"
    points: ClassVar[frozenset[str]] = frozenset(
        (
            "job_order",
            "job_valid",
            "job_ready",
            "sub_job_ready",
            "job_pipelined",
            "job_starving",
            "preemptable",
            "reclaimable",
        )
    )

    def __init__(self, _: NoArguments, world: World) -> None:
        self._job_of = world.job_of

    def job_key(self, job: Job) -> Key:
        """A running group that lost some of its minimum comes first, because until it is whole
        again what it has is idle. Then those that lack theirs, then all others.
        """
        ready = int(is_ready(job))
        return (ready, int(ready or not job.ready_count))

    def job_valid(self, job: Job) -> No | None:
        return invalid(job)

    def job_ready(self, job: Job) -> bool:
        return is_ready(job)

    def missing_beside(self, job: Job, task: Task) -> int:
        return _missing(job, task)

    def job_pipelined(self, job: Job) -> Vote | No:
        if is_pipelined(job):
            return PERMIT
        return No(GANG_INCOMPLETE, "pod group is not ready")

    def job_starving(self, job: Job) -> bool:
        return is_starving(job)

    def may_name(self, job: Job, kind: Kind) -> bool:
        return kind.spares

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        return surplus(self._job_of, candidates)

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        return surplus(self._job_of, candidates)
