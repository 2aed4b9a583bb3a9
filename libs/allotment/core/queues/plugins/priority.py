"""Plugin `priority`: higher priorities first, and victims only of lower ones."""

from collections.abc import Sequence
from typing import ClassVar

from allotment.core.queues.model import Kind, Task
from allotment.core.queues.plugins.base import Key, NoArguments, Plugin
from allotment.core.queues.work import Job, World


class Priority(Plugin):
    name: ClassVar[str] = "priority"
    points: ClassVar[frozenset[str]] = frozenset(
        ("job_order", "task_order", "preemptable", "job_starving")
    )

    def __init__(self, _: NoArguments, world: World) -> None:
        self._job_of = world.job_of

    def job_key(self, job: Job) -> Key:
        return (-job.view.priority,)

    def task_key(self, task: Task) -> Key:
        return (-task.priority,)

    def job_starving(self, job: Job) -> bool:
        """As long as any task waits: elastic ones may take from others as well."""
        return job.ready_count + job.pipelined_count < len(job.tasks)

    def may_name(self, job: Job, kind: Kind) -> bool:
        return kind.priority < job.view.priority

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """From other jobs, pods of jobs with a lower priority; from the same job, lower tasks."""
        own = self._job_of[taker.uid]
        return [
            victim
            for victim in candidates
            if (
                victim.priority < taker.priority
                if (other := self._job_of[victim.uid]) is own
                else other.view.priority < own.view.priority
            )
        ]
