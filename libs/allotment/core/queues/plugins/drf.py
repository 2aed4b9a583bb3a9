"""Plugin `drf`: of two jobs the one with the smaller dominant share goes first.

A job's share is the greatest part that it holds of anything the cluster has. A job may evict from
another as long as, with its new task, it would not have more than the other keeps.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from allotment.core.queues.model import Kind, Task
from allotment.core.queues.plugins.base import Key, NoArguments, Plugin
from allotment.core.queues.resources import Amount, Resources, largest_share
from allotment.core.queues.work import Job, World

_SHARE_TOLERANCE = Fraction(1, 1_000_000)


def dominant_share(allocated: Resources, total: Resources) -> Amount:
    """The greatest of allocated / total over all resources in `total`, whose amounts are above
    0.
    """
    return largest_share(allocated, total)


class Drf(Plugin):
    name: ClassVar[str] = "drf"
    points: ClassVar[frozenset[str]] = frozenset(("job_order", "preemptable"))

    def __init__(self, _: NoArguments, world: World) -> None:
        self._total = world.cluster.total.only(world.cluster.total.named)
        self._job_of = world.job_of

    def job_key(self, job: Job) -> Key:
        return (dominant_share(job.allocated, self._total),)

    def may_name(self, job: Job, kind: Kind) -> bool:
        """A pod without a group leaves its job nothing, so only tiny shares may evict it."""
        return not kind.is_single or any(
            dominant_share(task.request, self._total) <= _SHARE_TOLERANCE
            for task in job.tasks.values()
        )

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        own = dominant_share(self._job_of[taker.uid].allocated.plus(taker.request), self._total)
        left: dict[str, Resources] = {}
        found = []
        for victim in candidates:
            job = self._job_of[victim.uid]
            left[job.uid] = left.get(job.uid, job.allocated).minus(victim.request)
            others = dominant_share(left[job.uid], self._total)
            if own <= others or own - others <= _SHARE_TOLERANCE:
                found.append(victim)
        return found
