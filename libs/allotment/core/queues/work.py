"""The working copies of a session: jobs with their counts, and what each queue has.

A session changes only these, and undoes its changes when it closes, so the next one can reuse what
has not changed meanwhile.
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
from allotment.core.queues.reckoning import Books, Reckoning, Share
from allotment.core.queues.resources import NOTHING, Amount, Resources, add_to

_Made = TypeVar("_Made")
_Key = TypeVar("_Key")
_REQUESTS_MAX = 4096
"""The most requests whose rationed names are cached."""


class _Counts(dict[_Key, int]):
    """Counts by key; 0 for others. Cheaper to create than a Counter."""

    def __missing__(self, key: _Key) -> int:
        return 0

    def move(self, key: _Key, number: int) -> None:
        """Change a count; keys that reach 0 are removed."""
        now = self[key] + number
        if now:
            self[key] = now
        else:
            del self[key]


_NO_COUNTS: _Counts[Any] = _Counts()
_NOTHING_BY_NAME: dict[Any, Any] = {}
"""Shared by jobs without roles and sub groups, such as lone pods. Rounds create thousands of them,
and empty dictionaries of their own were a large part of the cost. Never written to.
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
        """The requests of its tasks in `CHARGED_SET`."""
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
        """The namespace whose admitted groups count against the admission of this one; None: none
        count.

        An admitted group has its pods created, so promises count only for groups whose pods are
        still to be created: otherwise a namespace would have the pods of all its groups created at
        once. A group with pods takes nothing by its admission; nodes and quotas decide whether
        there is room. And no group waits for what other namespaces were promised, because they
        might never use it.
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
        """How many sub groups of a rule have enough pods of these statuses to be whole;
        `with_pending`: waiting pods without any request count as well.
        """
        return sum(
            self.sub_group_count(key, statuses) + with_pending * self.sub_best_effort[key]
            >= rule.size
            for key in self.sub_counts
            if key[0] == rule.name
        )

    def with_status(self, status: Status) -> list[Task]:
        """The tasks of a status, in the order without plugins."""
        found = [task for uid, task in self.tasks.items() if self.status[uid] is status]
        return sorted(found, key=lambda task: task.place_in_order)

    def move(self, task: Task, status: Status) -> Status:
        """Set a task's status; returns the one it had."""
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
    """The jobs of a world by uid, each created from its view when first read, because a round tries
    a few hundred of thousands of pods. `opened` counts those created.
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
        """Add a job; reuse one of `known` that was created from the same view."""
        uid = view.uid
        self.views[uid] = view
        if known is not None and known.views.get(uid) is view and uid in known._made:
            self._made[uid] = known._made[uid]

    def drop(self, uid: str) -> bool:
        """Remove a job; returns whether it was created."""
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
    """What plugins read when a session opens and while it works.

    It can be kept for the next session: `follow` reads what changed. `opened` counts the jobs
    created.
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
        """`jobs` replace those of the view. Jobs of a `known` world whose view is the same are
        reused.
        """
        self.cluster: Cluster = view.cluster
        self.now_ms = view.now_ms
        self.queues: dict[str, QueueView] = {queue.name: queue for queue in view.queues}
        self._jobs = _Jobs()
        self.jobs: Mapping[str, Job] = self._jobs
        self.by_queue: dict[str, dict[str, None]] = {}
        """The queues that have jobs, and the uids of these."""
        self._groups_at_gate: dict[str, None] = {}
        """The groups that were not admitted when the session opened."""
        self.unplaced: dict[str, JobView] = {}
        """Those whose queue does not exist, and those that are left out (`JobView.defect`)."""
        self._tasks: dict[str, str] = {}
        """Task uid → the uid of its job."""
        self.job_of: Mapping[str, Job] = _JobOf(self._jobs, self._tasks)
        """Task uid → its job."""
        self.standing: Counter[Kind] = Counter()
        """How many jobs of each kind may have pods to evict: groups, and lone pods that run. Kept
        up to date, so that a round need not check all of them to find that nothing can be evicted.
        """
        self.trail: Trail[str] = Trail()
        """The jobs that changed from session to session."""
        self._reckonings: dict[str, Reckoning] = {}
        self._kept: dict[str, tuple[Resources, Any]] = {}
        self._orders: dict[str, list[Task]] = {}
        self._places: dict[str, Any] = {}
        self._rationed: dict[tuple[str, Resources], tuple[str, ...]] = {}
        """The results of `rationed`, as long as the cluster has the same resources."""
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
        """Read what changed since the last session, which was closed: jobs, and the cluster's
        resources. The queues are the same.
        """
        if cluster.total is not self.cluster.total:
            self._places.clear()
            self._rationed.clear()
        self.cluster, self.now_ms = cluster, now_ms
        # Removals come before additions: a pod that joins a group is a task of its old and of its
        # new job, and either may come first in the trail.
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
        """A job that has a part in the order, as it was when the session opened; None if it has
        none.
        """
        return self._jobs.views.get(uid)

    def view_of(self, task: str) -> JobView | None:
        """The job of a task, as it was when the session opened; None if it has none."""
        uid = self._tasks.get(task)
        return None if uid is None else self._jobs.views[uid]

    def outranks_some(self, job: Job) -> bool:
        """Whether some job of its queue whose pods may be evicted has a lower priority."""
        own = job.view.priority
        return any(k.queue == job.queue and k.priority < own for k in self.standing)

    def waiting(self, uids: Iterable[str]) -> Iterator[Job]:
        """Those of these jobs that exist and wait for admission or for places."""
        for uid in uids:
            view = self._jobs.views.get(uid)
            if view is not None and view.is_waiting:
                yield self._jobs[uid]

    def at_gate(self, singles: Collection[str]) -> list[Job]:
        """The jobs that were not admitted when the session opened; of lone pods only `singles`."""
        views = self._jobs.views
        lone = (uid for uid in singles if uid in views and views[uid].is_single)
        at_gate = (uid for uid in lone if views[uid].is_at_gate)
        return [self._jobs[uid] for uid in (*self._groups_at_gate, *at_gate)]

    def reckon(self, by: str, share_of: Callable[[JobView], Share]) -> Books:
        """The books of all queues when the session opens. Shares are cached under the name `by`, so
        a job's share must follow from the job, the queues and the cluster's cards alone.
        """
        return self._reckoning(by).books(self._jobs.views, share_of)

    def _reckoning(self, by: str) -> Reckoning:
        reckoning = self._reckonings.get(by)
        if reckoning is None:
            reckoning = self._reckonings[by] = Reckoning(self._jobs.views)
        return reckoning

    def promising(self, by: str) -> Collection[str]:
        """The queues whose books, counted under a name, have something promised."""
        return tuple(self._reckoning(by).promising())

    def kept(self, by: str, make: Callable[[], _Made]) -> _Made:
        """A plugin's value made from the queues and the cluster's resources, cached while both are
        the same. `by` is the plugin's name.
        """
        total, made = self._kept.get(by, (None, None))
        if total is not self.cluster.total:
            made = make()
            self._kept[by] = self.cluster.total, made
        return cast("_Made", made)

    def in_order(self, job: Job, key: Callable[[Task], Any]) -> list[Task]:
        """The job's tasks with resources that may be placed, sorted by a key that follows from the
        task.
        """
        if len(job.tasks) == 1:
            return [t for t in job.tasks.values() if not t.gated and not t.is_best_effort]
        known = self._orders.get(job.uid)
        if known is None:
            found = (t for t in job.tasks.values() if not t.gated and not t.is_best_effort)
            known = self._orders[job.uid] = sorted(found, key=key)
        return known

    def place_of(self, job: Job, key: Callable[[Job], _Made]) -> _Made:
        """A job's place in its queue when a session opens, which follows from the job and the
        cluster's resources.
        """
        known = self._places.get(job.uid)
        if known is None:
            known = self._places[job.uid] = key(job)
        return cast("_Made", known)

    def parent(self, name: str) -> str:
        """The queue above; empty if that is the cluster itself or does not exist."""
        queue = self.queues.get(name)
        parent = queue.parent if queue else ""
        return parent if parent != name and parent in self.queues else ""

    def chain(self, name: str) -> list[str]:
        """A queue and all above it, from itself upwards. A cycle is cut where it closes."""
        found: list[str] = []
        while name and name not in found:
            found.append(name)
            name = self.parent(name)
        return found

    def rationed(self, queue: str, request: Resources) -> tuple[str, ...]:
        """The names of a request that quota may limit.

        If the whole cluster has less than a pod requests, and no queue limits it, quota is not the
        cause: the nodes show better what is missing.
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
