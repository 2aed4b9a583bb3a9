"""The working copies of a session: jobs with their counts, and what each queue has.

A session changes these and nothing else; they are made from a `View` and thrown away.
"""

from collections import Counter
from collections.abc import Callable, Iterable

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
from allotment.core.queues.resources import NOTHING, Resources


class Job:
    """A job while a session works on it: the status of every task, and what follows from that."""

    __slots__ = (
        "allocated",
        "best_effort_pending",
        "counts",
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
        if status is Status.PENDING and task.is_best_effort:
            self.best_effort_pending += sign
            self.role_best_effort[task.role] += sign
        if status in CHARGED_SET:
            change = self.allocated.plus if sign > 0 else self.allocated.minus
            self.allocated = change(task.request)


class World:
    """What plugins look at when a session opens, and keep looking at while it works."""

    __slots__ = ("children", "cluster", "jobs", "now_ms", "queues")

    def __init__(self, view: View) -> None:
        self.cluster: Cluster = view.cluster
        self.now_ms = view.now_ms
        self.queues: dict[str, QueueView] = {queue.name: queue for queue in view.queues}
        self.jobs: dict[str, Job] = {
            job.uid: Job(job) for job in view.jobs if job.queue in self.queues
        }
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


def open_books(
    world: World, of_task: TaskMeasure = asked, of_minimum: JobMeasure = minimum
) -> dict[str, QueueBook]:
    """The books of every queue as the session opens; what a task counts for is the caller's."""
    books = {name: QueueBook() for name in world.queues}
    for job in world.jobs.values():
        book = books[job.queue]
        held = NOTHING
        for task in job.view.tasks:
            if task.status in CHARGED_SET:
                held = held.plus(of_task(job, task))
            elif task.status is Status.PENDING:
                book.request = book.request.plus(of_task(job, task))
        least = of_minimum(job)
        book.allocated = book.allocated.plus(held)
        book.request = book.request.plus(held)
        book.elastic = book.elastic.plus(held.beyond(least))
        if _still_to_come(job):
            book.inqueue = book.inqueue.plus(least.beyond(held))
    return books


def _still_to_come(job: Job) -> bool:
    """Whether a group holds its place in the queue for what it does not have yet.

    A running one does while it keeps its minimum: one of which most pods are done needs no more.
    """
    if job.phase is Phase.INQUEUE:
        return True
    return job.phase is Phase.RUNNING and job.allocated_count >= job.view.min_member
