"""The working copies of a session: jobs with their counts, and what each queue has.

A session changes these and nothing else; they are made from a `View` and thrown away.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from allotment.core.queues.model import (
    ALLOCATED_SET,
    CHARGED_SET,
    READY_SET,
    VALID_SET,
    Cluster,
    JobView,
    Phase,
    QueueView,
    Status,
    Task,
    View,
)
from allotment.core.queues.resources import NOTHING, Amount, Resources, add_to


class Job:
    """A job while a session works on it: the status of every task, and what follows from that."""

    __slots__ = (
        "allocated",
        "best_effort_pending",
        "counts",
        "memo",
        "phase",
        "ready_count",
        "role_best_effort",
        "role_counts",
        "role_minima",
        "status",
        "tasks",
        "view",
    )

    def __init__(self, view: JobView) -> None:
        self.view = view
        self.phase = view.phase
        self.tasks: dict[str, Task] = {task.uid: task for task in view.tasks}
        self.status: dict[str, Status] = {}
        self.counts: Counter[Status] = Counter()
        self.role_counts: dict[str, Counter[Status]] = {}
        self.role_best_effort: Counter[str] = Counter()
        self.best_effort_pending = 0
        self.ready_count = 0
        self.role_minima = dict(view.min_task_member)
        self.allocated = NOTHING
        """What tasks of `CHARGED_SET` ask for."""
        self.memo: dict[str, Share] = {}
        """What it counts for as a session opens, by the plugin that counts."""
        for task in view.tasks:
            self._count(task, task.status, 1)
            self.status[task.uid] = task.status

    @property
    def uid(self) -> str:
        return self.view.uid

    @property
    def queue(self) -> str:
        return self.view.queue

    @property
    def roles_total(self) -> int:
        return sum(self.role_minima.values())

    @property
    def pipelined_count(self) -> int:
        return self.counts[Status.PIPELINED]

    @property
    def valid_count(self) -> int:
        return sum(count for status, count in self.counts.items() if status in VALID_SET)

    @property
    def allocated_count(self) -> int:
        return sum(count for status, count in self.counts.items() if status in ALLOCATED_SET)

    def role_count(self, role: str, statuses: Iterable[Status]) -> int:
        counts = self.role_counts.get(role)
        return sum(counts[status] for status in statuses) if counts else 0

    def with_status(self, status: Status) -> list[Task]:
        """The tasks of a status, in the order that needs no plugin."""
        found = [task for uid, task in self.tasks.items() if self.status[uid] is status]
        return sorted(found, key=lambda task: task.place_in_order)

    def move(self, task: Task, status: Status) -> Status:
        """Give a task another status; answers the one it had."""
        before = self.status[task.uid]
        self._count(task, before, -1)
        self._count(task, status, 1)
        self.status[task.uid] = status
        return before

    def _count(self, task: Task, status: Status, sign: int) -> None:
        self.counts[status] += sign
        if status in READY_SET:
            self.ready_count += sign
        if task.role:
            self.role_counts.setdefault(task.role, Counter())[status] += sign
        if status is Status.PENDING and task.is_best_effort and not task.gated:
            self.best_effort_pending += sign
            self.role_best_effort[task.role] += sign
        if status in CHARGED_SET:
            change = self.allocated.plus if sign > 0 else self.allocated.minus
            self.allocated = change(task.request)


class World:
    """What plugins look at when a session opens, and keep looking at while it works."""

    __slots__ = ("children", "cluster", "job_of", "jobs", "now_ms", "queues")

    def __init__(self, view: View, known: Mapping[str, Job] | None = None) -> None:
        """`known` are jobs of an earlier session that was closed: those whose view is the same
        are used again.
        """
        known = known or {}
        self.cluster: Cluster = view.cluster
        self.now_ms = view.now_ms
        self.queues: dict[str, QueueView] = {queue.name: queue for queue in view.queues}
        self.jobs: dict[str, Job] = {
            job.uid: old if (old := known.get(job.uid)) and old.view is job else Job(job)
            for job in view.jobs
            if job.queue in self.queues
        }
        self.job_of: dict[str, Job] = {uid: job for job in self.jobs.values() for uid in job.tasks}
        """Task uid → its job."""
        self.children: dict[str, list[str]] = {}
        for queue in view.queues:
            parent = self.parent(queue.name)
            if parent:
                self.children.setdefault(parent, []).append(queue.name)

    def parent(self, name: str) -> str:
        """The queue above, empty if that is the cluster itself or not a queue that exists."""
        queue = self.queues.get(name)
        parent = queue.parent if queue else ""
        return parent if parent != name and parent in self.queues else ""

    def chain(self, name: str) -> list[str]:
        """A queue and all above it, from itself upwards. A circle is cut where it closes."""
        found: list[str] = []
        while name and name not in found:
            found.append(name)
            name = self.parent(name)
        return found

    def rationed(self, queue: str, request: Resources) -> tuple[str, ...]:
        """The names of a request in which quota has a say.

        Where the whole cluster has less than a pod asks for, and no queue limits it, it is not
        quota that is short: the nodes say better what is missing.
        """
        total = self.cluster.total
        if not total:
            return request.named
        return tuple(
            name
            for name in request.named
            if request.amount(name) <= total.amount(name) or self._is_limited(queue, name)
        )

    def listed(self, queue: str, request: Resources) -> tuple[str, ...]:
        """The names of a request that some node lists or some queue above limits."""
        total = self.cluster.total
        if not total:
            return request.named
        return tuple(
            name for name in request.named if total.amount(name) or self._is_limited(queue, name)
        )

    def _is_limited(self, queue: str, name: str) -> bool:
        return any(name in self.queues[above].capability for above in self.chain(queue))

    def jobs_of(self, queue: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.queue == queue]


class QueueBook:
    """What one queue has and has promised."""

    __slots__ = ("allocated", "elastic", "inqueue", "request")

    def __init__(self) -> None:
        self.allocated = NOTHING
        """What its tasks hold, and what this session gave them."""
        self.request = NOTHING
        """The same, and what its pending tasks ask for."""
        self.inqueue = NOTHING
        """What groups were let in for and do not hold yet."""
        self.elastic = NOTHING
        """What groups hold beyond their minimum."""

    def promised(self, minimum: Resources) -> Resources:
        """What the queue would have to stand for if another group were let in."""
        return minimum.plus(self.allocated).plus(self.inqueue).minus(self.elastic)


TaskMeasure = Callable[[Job, Task], Resources]
JobMeasure = Callable[[Job], Resources]


def asked(_: Job, task: Task) -> Resources:
    return task.request


def minimum(job: Job) -> Resources:
    return job.view.min_resources or NOTHING


class Share(NamedTuple):
    """What one job adds to the books of its queue."""

    allocated: Resources
    pending: Resources
    elastic: Resources
    inqueue: Resources


def open_books(
    world: World, by: str, of_task: TaskMeasure = asked, of_minimum: JobMeasure = minimum
) -> dict[str, QueueBook]:
    """The books of every queue as the session opens; what a task counts for is the caller's.

    `by` is the plugin that counts: what a job counts for is remembered under its name.
    """
    sums = {name: _Sums() for name in world.queues}
    for job in world.jobs.values():
        share = job.memo.get(by)
        if share is None:
            share = job.memo[by] = _share(job, of_task, of_minimum)
        sum_ = sums[job.view.queue]
        if share.allocated is not NOTHING:
            add_to(sum_.allocated, share.allocated)
        if share.pending is not NOTHING:
            add_to(sum_.pending, share.pending)
        if share.elastic is not NOTHING:
            add_to(sum_.elastic, share.elastic)
        if share.inqueue is not NOTHING:
            add_to(sum_.inqueue, share.inqueue)
    return {name: sum_.book() for name, sum_ in sums.items()}


def _share(job: Job, of_task: TaskMeasure, of_minimum: JobMeasure) -> Share:
    held: dict[str, Amount] = {}
    pending: dict[str, Amount] = {}
    for task in job.view.tasks:
        if task.status in CHARGED_SET:
            add_to(held, of_task(job, task))
        elif task.status is Status.PENDING:
            add_to(pending, of_task(job, task))
    comes = _still_to_come(job)
    has, least = Resources(held), of_minimum(job) if held or comes else NOTHING
    return Share(
        _or_nothing(has),
        _or_nothing(Resources(pending)),
        _or_nothing(has.beyond(least)) if held else NOTHING,
        _or_nothing(least.beyond(has)) if comes else NOTHING,
    )


def _or_nothing(amounts: Resources) -> Resources:
    """The one object for all that is nothing, so that it need not be added up."""
    return amounts if any(amounts.values()) else NOTHING


class _Sums:
    """A queue's book while it is added up."""

    __slots__ = ("allocated", "elastic", "inqueue", "pending")

    def __init__(self) -> None:
        self.allocated: dict[str, Amount] = {}
        self.pending: dict[str, Amount] = {}
        self.inqueue: dict[str, Amount] = {}
        self.elastic: dict[str, Amount] = {}

    def book(self) -> QueueBook:
        book = QueueBook()
        book.allocated = Resources(self.allocated)
        book.request = book.allocated.plus(Resources(self.pending))
        book.inqueue = Resources(self.inqueue)
        book.elastic = Resources(self.elastic)
        return book


def _still_to_come(job: Job) -> bool:
    """Whether a group holds its place in the queue for what it does not have yet.

    A running one does while it keeps its minimum: one of which most pods are done needs no more.
    """
    if job.phase is Phase.INQUEUE:
        return True
    return job.phase is Phase.RUNNING and job.allocated_count >= job.view.min_member
