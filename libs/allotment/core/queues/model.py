"""Plain values for order and quota: queues, groups of pods and the cluster.

They are built from the cluster's state and never change. The words are Volcano's: a *job* is a
PodGroup and its pods, a *task* is one of these pods, a *role* is the name of its template. Times
are recorded moments (Unix milliseconds); nothing here reads a clock.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.resources import NOTHING, PODS, Resources
from allotment_proto.facts import TaskTopology

ROOT = "root"
"""The queue at the top. Its limits are the cluster's."""

OPEN = "Open"


class Status(StrEnum):
    """A pod's status. `ALLOCATED` and `PIPELINED` exist only inside a session."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


ALLOCATED_SET = frozenset((Status.BOUND, Status.BINDING, Status.RUNNING, Status.ALLOCATED))
READY_SET = ALLOCATED_SET | {Status.SUCCEEDED}
SCHEDULED_SET = frozenset((Status.RUNNING, Status.BOUND, Status.SUCCEEDED, Status.FAILED))
COMPLETED_SET = frozenset((Status.SUCCEEDED, Status.FAILED))
VALID_SET = READY_SET | {Status.PIPELINED, Status.PENDING}
EVICTABLE_SET = frozenset((Status.BOUND, Status.RUNNING))
CHARGED_SET = ALLOCATED_SET | {Status.PIPELINED}
"""What counts against quotas: what a task has, and inside a session also what it was promised."""


class Phase(StrEnum):
    """A PodGroup's phase; `NEW` is the empty text of one that has not been checked yet."""

    NEW = ""
    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


WAITING = frozenset((Phase.NEW, Phase.PENDING))
"""Phases of groups that are not admitted."""


class Share(msgspec.Struct, frozen=True):
    """A part of each of `count` cards, as a pod requests it.

    `memory_pct` counts when it is above 0; with neither amount the request is for the whole memory.
    `cores_pct` 100 means the card alone.
    """

    count: int
    memory_mib: int = 0
    memory_pct: int = 0
    cores_pct: int = 0


class SubGroupRule(msgspec.Struct, frozen=True):
    """`size` pods make a sub group whole; a job needs `least` whole ones of this name to start."""

    name: str
    size: int
    least: int


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod of a job.

    `request` is what is counted (see `resources` for units; `pods` may be in it). `node` is where
    it is or is ending. `priority` counts in the job, `class_priority` against pods of other jobs.
    `preempts`: it may preempt others. `card_names` is the annotation `volcano.sh/card.name`, split
    at ``|``, `shares` its requests for sliced cards, `held_cards` what it holds by card name once
    that is known. `sub_group` is the name of a rule of its job and the key of its sub group among
    those of that name; both empty: it is in none.
    """

    uid: str
    namespace: str = "default"
    name: str = ""
    role: str = ""
    status: Status = Status.PENDING
    priority: int = 1
    class_priority: int | None = None
    request: Resources = NOTHING
    created_ms: int = 0
    node: str = ""
    gated: bool = False
    preemptable: bool = True
    preempts: bool = True
    priority_class: str = ""
    card_names: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    held_cards: Resources = NOTHING
    sub_group: tuple[str, str] = ("", "")

    @property
    def is_best_effort(self) -> bool:
        """Whether it requests nothing: no CPU, memory, resource or share."""
        if self.shares:
            return False
        return not any(amount > 0 for name, amount in self.request.items() if name != PODS)

    @property
    def place_in_order(self) -> tuple[int, int, int, str]:
        """The order when no plugin decides: the index in the name, then age, then uid.

        Names without an index come after those with one, so that the order is total.
        """
        parts = self.name.split("-")
        last = parts[-1]
        if len(parts) >= 3 and last.isascii() and last.isdigit():
            return 0, int(last[:18]), self.created_ms, self.uid
        return 1, 0, self.created_ms, self.uid


class Kind(NamedTuple):
    """What many jobs have in common and decides whether plugins might name their pods as
    victims.
    """

    queue: str
    priority: int
    is_single: bool
    spares: bool
    """Whether it has more pods than its minimum."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PodGroup and its pods.

    `priority` is its PriorityClass's value, as far as its pods have it. `card_request` is the
    annotation `volcano.sh/card.request` in thousandths; a name may be alternatives (``A|B``).
    `waiting_most_ms` is the annotation `sla-waiting-time`. `preempts` as for tasks. `is_single`: it
    is a pod without a PodGroup, which is admitted for one round at a time. `is_hollow`: it has no
    pods and no owner that would create some, so nothing is promised to it. `is_promised`: it was
    admitted a moment ago and counts for all that it was admitted for (see `Job.counts_promises`).
    `topology` is which tasks belong together by its annotations. `defect` is the error because of
    which it is left out of all rounds.
    """

    uid: str
    namespace: str = "default"
    name: str = ""
    queue: str = "default"
    priority: int = 0
    created_ms: int = 0
    phase: Phase = Phase.NEW
    min_member: int = 1
    min_task_member: tuple[tuple[str, int], ...] = ()
    min_resources: Resources | None = None
    tasks: tuple[Task, ...] = ()
    preemptable: bool = False
    preempts: bool = True
    card_request: Resources = NOTHING
    waiting_most_ms: int | None = None
    is_single: bool = False
    is_hollow: bool = False
    is_promised: bool = True
    sub_groups: tuple[SubGroupRule, ...] = ()
    topology: TaskTopology | None = None
    defect: str = ""

    @property
    def arrival(self) -> tuple[int, str, str, str]:
        """The order of jobs that no plugin tells apart."""
        return self.created_ms, self.namespace, self.name, self.uid

    @property
    def kind(self) -> Kind:
        spares = len(self.tasks) > self.min_member
        return Kind(self.queue, self.priority, self.is_single, spares)

    @property
    def is_at_gate(self) -> bool:
        return self.phase in WAITING

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for admission, or some of its pods wait for places."""
        return self.phase in WAITING or any(
            task.status is Status.PENDING and not task.gated for task in self.tasks
        )


Changes = Mapping[str, JobView | None]
"""Jobs that are new, changed, or gone (None), by uid."""


class NodeGroups(msgspec.Struct, frozen=True):
    """A queue's affinity to groups of nodes, by group name."""

    required: frozenset[str] = frozenset()
    preferred: frozenset[str] = frozenset()
    anti_required: frozenset[str] = frozenset()
    anti_preferred: frozenset[str] = frozenset()


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A Queue. A resource that a limit does not name is unlimited, unless a plugin says otherwise.

    `card_quota` is the annotation `volcano.sh/card.quota` in thousandths, None without one;
    `card_quota_problem` is why it is invalid.
    """

    name: str
    uid: str = ""
    created_ms: int = 0
    weight: int = 1
    capability: Resources = NOTHING
    deserved: Resources = NOTHING
    guarantee: Resources = NOTHING
    priority: int = 0
    parent: str = ROOT
    reclaimable: bool = True
    state: str = OPEN
    card_quota: Resources | None = None
    card_quota_problem: str = ""
    node_groups: NodeGroups | None = None


def _nothing() -> Resources:
    return NOTHING


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the nodes. `share_resources` are the names of requests for sliced cards."""

    total: Resources = NOTHING
    used: Callable[[], Resources] = _nothing
    """What is in use now, counted only when called, which is rare."""
    cards: tuple[Card, ...] = ()
    share_resources: frozenset[str] = frozenset()


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one round of decisions. `now_ms` is a recorded moment."""

    cluster: Cluster = Cluster()
    queues: tuple[QueueView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    now_ms: int = 0
