"""What a plugin may be asked, and which switch of the configuration turns each question off.

A plugin names in `points` the questions that it answers; it is never asked others. Orders are keys:
of two keys the smaller comes first, and equal keys leave it to the next plugin, which is the same
as comparing pair by pair and cheaper.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import msgspec

from allotment.core.plugin_arguments import Arguments
from allotment.core.queues.answers import ABSTAIN, No, Vote
from allotment.core.queues.limits import BucketPoints, CardPoints, NodePoints, NodeRule
from allotment.core.queues.model import Kind, QueueView, Task
from allotment.core.queues.work import Job, World

Key = tuple[int | Fraction | str, ...]
"""What one plugin orders by."""
Order = tuple[Key, ...]
"""The keys of all plugins that order a thing, tier by tier, and what decides in the end."""

SWITCHES: dict[str, str] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "sub_job_ready": "enabledSubJobReady",
    "job_pipelined": "enableJobPipelined",
    "job_starving": "enableJobStarving",
    "job_enqueueable": "enableJobEnqueued",
    "task_order": "enableTaskOrder",
    "queue_order": "enableQueueOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
}
"""Question → the switch's exact spelling. Questions that are not here cannot be turned off."""

ALWAYS = frozenset(("job_valid",))


class NoArguments(msgspec.Struct, frozen=True):
    """Of a plugin that can be told nothing."""


class Plugin:
    """The base of all plugins: answers nothing by itself."""

    name: ClassVar[str]
    points: ClassVar[frozenset[str]] = frozenset()
    declared: ClassVar[Arguments] = {}
    """What the configuration can tell it, by key, each with its field of `settings`."""
    settings: ClassVar[type[msgspec.Struct]] = NoArguments

    def __init__(self, arguments: Any, world: World) -> None:
        """Opened on a round's working copies, with an instance of `settings`."""

    def queue_key(self, queue: QueueView) -> Key:
        return ()

    def job_key(self, job: Job) -> Key:
        """It follows from the job and from what the cluster has: orders of jobs that did not change
        are kept from session to session.
        """
        return ()

    def task_key(self, task: Task) -> Key:
        """It follows from the task: the order of a job's tasks is kept with the job."""
        return ()

    def job_valid(self, job: Job) -> No | None:
        """Why the job cannot be worked on at all."""
        return None

    def job_ready(self, job: Job) -> bool:
        """Whether what the job has may be committed."""
        return True

    def missing_beside(self, job: Job, task: Task) -> int:
        """How many pods, the task among them, have to be placed together so that the task's sub
        group is whole; 0 if it may be placed alone.
        """
        return 0

    def job_pipelined(self, job: Job) -> Vote | No:
        """Whether the job's promises are worth keeping for the rest of the session."""
        return ABSTAIN

    def job_starving(self, job: Job) -> bool:
        """Whether the job may take from others."""
        return False

    def job_enqueueable(self, job: Job) -> Vote | No:
        """Whether the group may be let in, by its `min_resources`."""
        return ABSTAIN

    def enqueue_key(self, job: Job) -> Hashable:
        """What the vote depends on besides the job's queue and the books: jobs of one queue with
        equal keys get one answer. By default no two jobs are alike.
        """
        return job.uid

    def job_enqueued(self, job: Job) -> None:
        """The group was let in: its minimum is spoken for."""

    def overused(self, queue: QueueView) -> No | None:
        """Why the queue gets nothing more in this session."""
        return None

    def allocatable(self, queue: QueueView, job: Job, task: Task) -> No | None:
        """Why the queue's quota does not cover the task."""
        return None

    def cards(self, queue: QueueView, job: Job, task: Task) -> tuple[str, ...] | None:
        """The cards for which there is quota, the preferred in front; None if it does not say."""
        return None

    def preemptive(self, queue: QueueView, job: Job, task: Task) -> No | None:
        """Why the queue may not take from other queues for this task."""
        return None

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task] | None:
        """Those of the candidates that the taker's job may evict; None to abstain."""
        return None

    def may_name(self, job: Job, kind: Kind) -> bool:
        """Whether it might name pods of jobs of a kind as victims for pods of this job. It is asked
        before any pod, and may say yes too often.
        """
        return True

    def gives_back(self, queue: QueueView, taker: Task) -> bool:
        """Whether it might name pods of a queue to `reclaimable`. It may say yes too often."""
        return True

    keeps_due: ClassVar[bool] = False
    """Whether it says, as to `reclaimable`, what queues have to give back."""

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task] | None:
        """Those of the candidates that the taker's queue may evict; None to abstain."""
        return None

    def charge(self, job: Job, task: Task, card: str) -> None:
        """The session gave the task a place, with this of the cards that `cards` named."""

    def release(self, job: Job, task: Task, card: str) -> None:
        """What `charge` did, undone."""

    def node_rule(self, queue: QueueView) -> NodeRule | None:
        """Which nodes tasks of the queue may go to; None: any."""
        return None

    def node_points(self, queue: QueueView) -> NodePoints | None:
        """What the plugin adds to the nodes' scores for tasks of the queue."""
        return None

    def card_points(self, queue: QueueView, job: Job, task: Task) -> CardPoints | None:
        """What the cards that `cards` names add to nodes' scores; None: the first is taken that has
        room.
        """
        return None

    def bucket_points(self, job: Job, task: Task) -> BucketPoints | None:
        """What the plugin adds to the nodes' scores because of the job's other tasks."""
        return None
