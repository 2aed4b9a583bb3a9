"""The questions that a plugin answers, and the configuration switch that turns each one off.

A plugin names in `points` the questions that it answers; it is asked no others. Orders are keys:
the smaller key comes first, and equal keys leave the order to the next plugin. That equals
comparing pair by pair and is cheaper.
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
"""One plugin's key."""
Order = tuple[Key, ...]
"""The keys of all plugins that order something, tier by tier, and a final one that decides ties."""

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
"""Question → the switch's exact spelling. Other questions cannot be turned off."""

ALWAYS = frozenset(("job_valid",))


class NoArguments(msgspec.Struct, frozen=True):
    """The settings of a plugin without arguments."""


class Plugin:
    """The base of all plugins; it answers nothing by itself."""

    name: ClassVar[str]
    points: ClassVar[frozenset[str]] = frozenset()
    declared: ClassVar[Arguments] = {}
    """Its arguments in the configuration, by key, each with its field of `settings`."""
    settings: ClassVar[type[msgspec.Struct]] = NoArguments

    def __init__(self, arguments: Any, world: World) -> None:
        """Opened on a round's working copies, with an instance of `settings`."""

    def queue_key(self, queue: QueueView) -> Key:
        return ()

    def job_key(self, job: Job) -> Key:
        """It must follow from the job and the cluster's resources: orders of unchanged jobs are
        kept from session to session.
        """
        return ()

    def task_key(self, task: Task) -> Key:
        """It must follow from the task: the order of a job's tasks is kept with the job."""
        return ()

    def job_valid(self, job: Job) -> No | None:
        """Why the job cannot start at all; None if it can."""
        return None

    def job_ready(self, job: Job) -> bool:
        """Whether what the job has may be committed."""
        return True

    def missing_beside(self, job: Job, task: Task) -> int:
        """How many pods, including the task, must be placed together so that the task's sub group
        is whole; 0 if it may be placed alone.
        """
        return 0

    def job_pipelined(self, job: Job) -> Vote | No:
        """Whether the job keeps its promises for the rest of the session."""
        return ABSTAIN

    def job_starving(self, job: Job) -> bool:
        """Whether the job may take from others."""
        return False

    def job_enqueueable(self, job: Job) -> Vote | No:
        """Whether the group may be admitted, by its `min_resources`."""
        return ABSTAIN

    def enqueue_key(self, job: Job) -> Hashable:
        """What the vote depends on besides the job's queue and the books: jobs of one queue with
        equal keys get one answer. By default no two jobs have equal keys.
        """
        return job.uid

    def job_enqueued(self, job: Job) -> None:
        """Record that the group was admitted, with its minimum."""

    def overused(self, queue: QueueView) -> No | None:
        """Why the queue gets nothing more in this session; None if it may."""
        return None

    def allocatable(self, queue: QueueView, job: Job, task: Task) -> No | None:
        """Why the queue's quota does not cover the task; None if it does."""
        return None

    def cards(self, queue: QueueView, job: Job, task: Task) -> tuple[str, ...] | None:
        """The cards for which there is quota, the preferred first; None: no restriction."""
        return None

    def preemptive(self, queue: QueueView, job: Job, task: Task) -> bool:
        """Whether the queue may take from other queues for this task."""
        return True

    def taking_key(self, queue: QueueView) -> Hashable:
        """What `overused` and `preemptive` depend on besides the task, the queues and the cluster's
        resources: equal keys, equal answers. By default no two sessions have equal keys.
        """
        return object()

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task] | None:
        """Those of the candidates that the taker's job may evict; None to abstain."""
        return None

    def may_name(self, job: Job, kind: Kind) -> bool:
        """Whether it might name pods of jobs of a kind as victims for pods of this job. Called
        before any pod is checked; it may return True too often.
        """
        return True

    def gives_back(self, queue: QueueView, taker: Task) -> bool:
        """Whether `reclaimable` might name pods of a queue. It may return True too often."""
        return True

    keeps_due: ClassVar[bool] = False
    """Whether its `reclaimable` decides what queues have to give back."""

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task] | None:
        """Those of the candidates that the taker's queue may evict; None to abstain."""
        return None

    def charge(self, job: Job, task: Task, card: str) -> None:
        """Record that the session gave the task a place, with this one of the cards that `cards`
        named.
        """

    def release(self, job: Job, task: Task, card: str) -> None:
        """Undo `charge`."""

    def node_rule(self, queue: QueueView) -> NodeRule | None:
        """The rule for the nodes of the queue's tasks; None: any."""
        return None

    def node_points(self, queue: QueueView) -> NodePoints | None:
        """What the plugin adds to the nodes' scores for tasks of the queue."""
        return None

    def card_points(self, queue: QueueView, job: Job, task: Task) -> CardPoints | None:
        """What the cards that `cards` named add to nodes' scores; None: the first card with room
        wins.
        """
        return None

    def bucket_points(self, job: Job, task: Task) -> BucketPoints | None:
        """What the plugin adds to the nodes' scores because of the job's other tasks."""
        return None
