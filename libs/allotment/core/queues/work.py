"""The working copies of a session: jobs with their counts, and what each queue has.

A session changes these and nothing else, and takes its changes back as it is closed; so what did
not change meanwhile serves the next one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from allotment.core.ledger.changes import Trail
from allotment.core.queues.model import (
    ALLOCATED_SET,
    CHARGED_SET,
    EVICTABLE_SET,
    READY_SET,
    VALID_SET,
    Changes,
    Cluster,
    JobView,
    Kind,
    QueueView,
    Status,
    SubGroupRule,
    Task,
    View,
)
from allotment.core.queues.reckoning import QueueBook, Reckoning, Share
from allotment.core.queues.resources import NOTHING, Amount, Resources, add_to

_Made = TypeVar("_Made")
_Key = TypeVar("_Key")
_REQUESTS_MAX = 4096
"""For so many requests it is remembered in which names of them quota has a say."""


class _Counts(dict[_Key, int]):
    """How many there are of each; of what is not named, none. Cheaper to make than a Counter."""

    def __missing__(self, key: _Key) -> int:
        return 0

    def move(self, key: _Key, number: int) -> None:
        """Count so many more, or fewer; what is not there any more is not named."""
        now = self[key] + number
        if now:
            self[key] = now
        else:
            del self[key]


_NO_COUNTS: _Counts[Any] = _Counts()
_NOTHING_BY_NAME: dict[Any, Any] = {}
"""What jobs without roles and sub groups share, as lone pods are. Thousands of those are made while
rounds follow each other, and dictionaries that stay empty were a good part of what they cost. Never
written to.
"""


class Job:
    """A job while a session works on it: the status of every task, and what follows from that."""

    __slots__ = (
        "allocated",
        "best_effort_pending",
        "counts",
        "given",
        "phase",
        "ready_count",
        "role_best_effort",
        "role_counts",
        "role_minima",
        "status",
        "sub_best_effort",
        "sub_counts",
        "tasks",
        "view",
    )

    def __init__(self, view: JobView) -> None:
        self.view = view
        self.phase = view.phase
        self.tasks: dict[str, Task] = {task.uid: task for task in view.tasks}
        self.status: dict[str, Status] = {}
        self.given: dict[str, str] = {}
        """Task uid → the node that the session gave it."""
        self.counts = _Counts[Status]()
        self.role_counts: dict[str, _Counts[Status]] = _NOTHING_BY_NAME
        self.role_best_effort: _Counts[str] = _NO_COUNTS
        self.sub_counts: dict[tuple[str, str], _Counts[Status]] = _NOTHING_BY_NAME
        """By sub group, like `role_counts`."""
        self.sub_best_effort: _Counts[tuple[str, str]] = _NO_COUNTS
        self.best_effort_pending = 0
        self.ready_count = 0
        least = view.min_task_member
        self.role_minima: dict[str, int] = dict(least) if least else _NOTHING_BY_NAME
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
    def namespace(self) -> str:
        return self.view.namespace

    @property
    def counts_promises(self) -> str | None:
        """The namespace whose groups keep this one at the gate by what they were let in for; None:
        nobody's do.

        To be let in is to have pods made, so promises are for those whose pods are still to be
        made: else a namespace had the pods of all its groups made at once. Who has them takes
        nothing by being let in; whether there is room for them nodes and quotas say. And nobody
        waits for what other namespaces were promised: they might never use it.
        """
        view = self.view
        return None if self.tasks and self.valid_count >= view.min_member else view.namespace

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

    def sub_group_count(self, key: tuple[str, str], statuses: Iterable[Status]) -> int:
        """How many pods of a sub group have one of these statuses."""
        counts = self.sub_counts.get(key)
        return sum(counts[status] for status in statuses) if counts else 0

    def wholes(self, rule: SubGroupRule, statuses: Iterable[Status], *, with_pending: bool) -> int:
        """How many sub groups of a rule have as many pods of these statuses as make one whole;
        `with_pending`: pods without any request that wait count as well.
        """
        return sum(
            self.sub_group_count(key, statuses) + with_pending * self.sub_best_effort[key]
            >= rule.size
            for key in self.sub_counts
            if key[0] == rule.name
        )

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
        self.counts.move(status, sign)
        if status in READY_SET:
            self.ready_count += sign
        if task.role:
            if self.role_counts is _NOTHING_BY_NAME:
                self.role_counts = {}
            self.role_counts.setdefault(task.role, _Counts()).move(status, sign)
        if task.sub_group[0]:
            if self.sub_counts is _NOTHING_BY_NAME:
                self.sub_counts = {}
            self.sub_counts.setdefault(task.sub_group, _Counts()).move(status, sign)
        if status is Status.PENDING and task.is_best_effort and not task.gated:
            if self.role_best_effort is _NO_COUNTS:
                self.role_best_effort, self.sub_best_effort = _Counts(), _Counts()
            self.best_effort_pending += sign
            self.role_best_effort.move(task.role, sign)
            self.sub_best_effort.move(task.sub_group, sign)
        if status in CHARGED_SET:
            if sign < 0:
                self.allocated = self.allocated.minus(task.request)
            elif self.allocated:
                self.allocated = self.allocated.plus(task.request)
            else:
                self.allocated = task.request


class _Jobs(Mapping[str, Job]):
    """The jobs of a world by uid, each made of its view when somebody asks for it: of thousands of
    pods a round tries a few hundred. `opened` counts those that were made.
    """

    __slots__ = ("_made", "opened", "views")

    def __init__(self) -> None:
        self.opened = 0
        self.views: dict[str, JobView] = {}
        self._made: dict[str, Job] = {}

    def __getitem__(self, uid: str) -> Job:
        made = self._made.get(uid)
        if made is None:
            made = self._made[uid] = Job(self.views[uid])
            self.opened += 1
        return made

    def __contains__(self, uid: object) -> bool:
        return uid in self.views

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)

    def add(self, view: JobView, known: "_Jobs | None") -> None:
        """Add a job; one that was made of the very same view among the `known` is used again."""
        uid = view.uid
        self.views[uid] = view
        if known is not None and known.views.get(uid) is view and uid in known._made:
            self._made[uid] = known._made[uid]

    def drop(self, uid: str) -> bool:
        """Forget a job; whether it was made."""
        del self.views[uid]
        return self._made.pop(uid, None) is not None


class _JobOf(Mapping[str, Job]):
    """The job of each task."""

    __slots__ = ("_jobs", "_uids")

    def __init__(self, jobs: _Jobs, uids: Mapping[str, str]) -> None:
        self._jobs = jobs
        self._uids = uids

    def __getitem__(self, task: str) -> Job:
        return self._jobs[self._uids[task]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._uids)

    def __len__(self) -> int:
        return len(self._uids)


class World:
    """What plugins look at when a session opens, and keep looking at while it works.

    It can be kept for the next session: `follow` takes over what changed. `opened` counts the jobs
    that were made for it.
    """

    __slots__ = (
        "_groups_at_gate",
        "_jobs",
        "_kept",
        "_orders",
        "_places",
        "_rationed",
        "_reckonings",
        "_tasks",
        "by_queue",
        "children",
        "cluster",
        "job_of",
        "jobs",
        "now_ms",
        "queues",
        "standing",
        "trail",
        "unplaced",
    )

    def __init__(
        self,
        view: View,
        known: "World | None" = None,
        jobs: Iterable[JobView] | None = None,
    ) -> None:
        """`jobs` are in place of those of the view. Jobs of a `known` world whose view is the same
        are used again.
        """
        self.cluster: Cluster = view.cluster
        self.now_ms = view.now_ms
        self.queues: dict[str, QueueView] = {queue.name: queue for queue in view.queues}
        self._jobs = _Jobs()
        self.jobs: Mapping[str, Job] = self._jobs
        self.by_queue: dict[str, dict[str, None]] = {}
        """The queues that have jobs, and the uids of these."""
        self._groups_at_gate: dict[str, None] = {}
        """The groups that were not let in as the session opened."""
        self.unplaced: dict[str, JobView] = {}
        """Those whose queue does not exist, and those that are left out (`JobView.defect`)."""
        self._tasks: dict[str, str] = {}
        """Task uid → the uid of its job."""
        self.job_of: Mapping[str, Job] = _JobOf(self._jobs, self._tasks)
        """Task uid → its job."""
        self.standing: Counter[Kind] = Counter()
        """How many jobs of each kind may have pods to evict: groups, and lone pods that run. Kept,
        so that a round need not ask everybody to learn that nobody can be evicted.
        """
        self.trail: Trail[str] = Trail()
        """The jobs that changed from session to session."""
        self._reckonings: dict[str, Reckoning] = {}
        self._kept: dict[str, tuple[Resources, Any]] = {}
        self._orders: dict[str, list[Task]] = {}
        self._places: dict[str, Any] = {}
        self._rationed: dict[tuple[str, Resources], tuple[str, ...]] = {}
        """What `rationed` answers, as long as the cluster has the same."""
        self.children: dict[str, list[str]] = {}
        for queue in view.queues:
            parent = self.parent(queue.name)
            if parent:
                self.children.setdefault(parent, []).append(queue.name)
        for job in view.jobs if jobs is None else jobs:
            self._add(job, None if known is None else known._jobs)

    @property
    def opened(self) -> int:
        return self._jobs.opened

    def follow(self, changes: Changes, cluster: Cluster, now_ms: int) -> None:
        """Take over what changed since the last session, which was closed: jobs, and what the
        cluster has. The queues are the same.
        """
        if cluster.total is not self.cluster.total:
            self._places.clear()
            self._rationed.clear()
        self.cluster, self.now_ms = cluster, now_ms
        # Removals come before additions. A pod that joins a group is a task of the job that it was
        # and of the one that it is in now, and either of them may come first in the trail.
        for uid in changes:
            self._remove(uid)
            self.trail.add(uid)
        for job in changes.values():
            if job is not None:
                self._add(job)
        for reckoning in self._reckonings.values():
            reckoning.follow(changes)

    def _stand(self, job: JobView, number: int) -> None:
        if job.is_single and job.tasks[0].status not in EVICTABLE_SET:
            return
        kind = job.kind
        self.standing[kind] += number
        if not self.standing[kind]:
            del self.standing[kind]

    def _add(self, job: JobView, known: _Jobs | None = None) -> None:
        uid, queue = job.uid, job.queue
        if queue not in self.queues or job.defect:
            self.unplaced[uid] = job
            return
        names = self.by_queue.get(queue)
        if names is None:
            names = self.by_queue[queue] = {}
        names[uid] = None
        self._jobs.add(job, known)
        self._stand(job, 1)
        for task in job.tasks:
            self._tasks[task.uid] = uid
        if job.is_at_gate and not job.is_single:
            self._groups_at_gate[uid] = None

    def _remove(self, uid: str) -> None:
        job = self._jobs.views.get(uid)
        if job is None:
            self.unplaced.pop(uid, None)
            return
        self._stand(job, -1)
        if self._jobs.drop(uid):
            self._orders.pop(uid, None)
            self._places.pop(uid, None)
        for task in job.tasks:
            del self._tasks[task.uid]
        self._groups_at_gate.pop(uid, None)
        names = self.by_queue[job.queue]
        del names[uid]
        if not names:
            del self.by_queue[job.queue]

    def view(self, uid: str) -> JobView | None:
        """A job that has a part in the order, as it was when the session opened."""
        return self._jobs.views.get(uid)

    def view_of(self, task: str) -> JobView | None:
        """The job of a task, as it was when the session opened."""
        uid = self._tasks.get(task)
        return None if uid is None else self._jobs.views[uid]

    def outranks_some(self, job: Job) -> bool:
        """Whether some job of its queue whose pods may be evicted has a lower priority."""
        own = job.view.priority
        return any(k.queue == job.queue and k.priority < own for k in self.standing)

    def waiting(self, uids: Iterable[str]) -> Iterator[Job]:
        """Those of these jobs that are there, and wait at their queue's gate or for places."""
        for uid in uids:
            view = self._jobs.views.get(uid)
            if view is not None and view.is_waiting:
                yield self._jobs[uid]

    def at_gate(self, singles: Collection[str]) -> list[Job]:
        """The jobs that were not let in as the session opened; of lone pods only these."""
        views = self._jobs.views
        lone = (uid for uid in singles if uid in views and views[uid].is_single)
        at_gate = (uid for uid in lone if views[uid].is_at_gate)
        return [self._jobs[uid] for uid in (*self._groups_at_gate, *at_gate)]

    def reckon(self, by: str, share_of: Callable[[JobView], Share]) -> dict[str, QueueBook]:
        """The books of every queue as the session opens. What a job counts for is remembered under
        the name `by`, so it has to follow from the job, the queues, and what cards there are.
        """
        reckoning = self._reckonings.get(by)
        if reckoning is None:
            reckoning = self._reckonings[by] = Reckoning(self._jobs.views)
        return reckoning.books(self.queues, self._jobs.views, share_of)

    def kept(self, by: str, make: Callable[[], _Made]) -> _Made:
        """What a plugin makes of the queues and of what the cluster has: as long as both are the
        same. `by` is the plugin's name.
        """
        total, made = self._kept.get(by, (None, None))
        if total is not self.cluster.total:
            made = make()
            self._kept[by] = self.cluster.total, made
        return cast("_Made", made)

    def in_order(self, job: Job, key: Callable[[Task], Any]) -> list[Task]:
        """The job's tasks with resources that may be placed, sorted by what follows from a task."""
        if len(job.tasks) == 1:
            return [t for t in job.tasks.values() if not t.gated and not t.is_best_effort]
        known = self._orders.get(job.uid)
        if known is None:
            found = (t for t in job.tasks.values() if not t.gated and not t.is_best_effort)
            known = self._orders[job.uid] = sorted(found, key=key)
        return known

    def place_of(self, job: Job, key: Callable[[Job], _Made]) -> _Made:
        """Where a job stands in its queue as a session opens: that follows from the job and from
        what the cluster has.
        """
        known = self._places.get(job.uid)
        if known is None:
            known = self._places[job.uid] = key(job)
        return cast("_Made", known)

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
        known = self._rationed.get((queue, request))
        if known is None:
            if len(self._rationed) >= _REQUESTS_MAX:
                self._rationed.clear()
            known = self._rationed[queue, request] = self._rationed_now(queue, request)
        return known

    def _rationed_now(self, queue: str, request: Resources) -> tuple[str, ...]:
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

    def held_in_namespaces(self) -> dict[str, Resources]:
        """What the jobs of each namespace hold."""
        held: dict[str, dict[str, Amount]] = {}
        for job in self._jobs.views.values():
            of_namespace = held.setdefault(job.namespace, {})
            for task in job.tasks:
                if task.status in CHARGED_SET:
                    add_to(of_namespace, task.request)
        return {name: Resources(amounts) for name, amounts in held.items()}

    def jobs_of(self, queue: str) -> list[Job]:
        return [self.jobs[uid] for uid in self.by_queue.get(queue, ())]
