"""Plugin `task-topology`: places related pods of a job on one node, others apart.

Annotations of the PodGroup (copied from its Job) name tasks, which are the names of pod templates.
Groups of names are separated by ``;``, names by ``,``. A group of one name relates the pods of that
task to each other, a group of several relates each pair of its tasks.

When a session opens, each job's pods of tasks that affinity or anti-affinity name are put into
*buckets*. Pods that have a node are in the bucket of that node. Each other pod, in order, joins the
bucket with most affinity, counted in pods, less those that it should avoid; among equals the one
with the smallest request, then the first. If even the best has more pods to avoid, the pod opens a
bucket of its own.

Pods of the largest buckets come first, bucket by bucket, in the order of the annotation. A node
gets a point for each pod of the bucket that is placed there, and for each that can follow; it loses
one for each pod there that should be avoided. Points are multiplied by `task-topology.weight`, and
100 equal as many as the largest bucket has pods.

Unlike in Volcano, where a session sees everything that waits, pods placed in an earlier session
count among those to avoid, buckets keep the order that they had when the session opened, and pods
that ended do not count.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from allotment.core.plugin_arguments import Argument, Arguments, Kind
from allotment.core.queues.limits import BucketPoints
from allotment.core.queues.model import COMPLETED_SET, Status, Task
from allotment.core.queues.plugins.base import Key, Plugin
from allotment.core.queues.resources import CPU, MEMORY, PODS, Amount, Resources
from allotment.core.queues.work import Job, World
from allotment_proto.facts import TaskTopology

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"

_NAMES_MAX = 256
"""The most names that an annotation may have: each pair of a group is checked."""
_NO_TOPOLOGY = "until that is mended the annotations volcano.sh/task-topology-* have no effect"
_NAME_MAX = 63
_WANTED = "wanted: names of tasks, each once in a group, like ps,worker;ps,evaluator"
_FOLLOWERS_MAX = 512
"""The most pods of a bucket that are tried on a node: no node takes more at once."""
_MIB = 1 << 20
_FULL_MICRO = 100 * 1_000_000
_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1
"""The order among tasks that the annotation does not name: first those that open most buckets."""

_Mix = frozenset[tuple[str, int]]
"""How many pods of each task a bucket has."""
_Front = tuple[Amount, int]
"""The request of a bucket's waiting pods, and its index."""
_NOWHERE: tuple[int, _Front, _Mix] = (1, (0, 0), frozenset())
"""No bucket fits: open one."""

_OUTSIDE: Key = (1,)
"""The key of a pod that is in no bucket."""


class TopologyError(ValueError):
    """Raised for invalid annotations: `key` names the annotation, the text says why."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def read_topology(annotations: Mapping[str, str]) -> TaskTopology | None:
    """The topology that the annotations describe; None without any. Raises TopologyError."""
    if not any(key in annotations for key in (AFFINITY, ANTI_AFFINITY, TASK_ORDER)):
        return None
    order = annotations.get(TASK_ORDER)
    return TaskTopology(
        affinity=_groups(AFFINITY, annotations.get(AFFINITY, "")),
        anti_affinity=_groups(ANTI_AFFINITY, annotations.get(ANTI_AFFINITY, "")),
        order=() if order is None else _names(TASK_ORDER, order),
    )


def _unknown_task(topology: TaskTopology, tasks: Iterable[str]) -> tuple[str, str] | None:
    """The first annotation that names a task which is not among these, and what is wrong."""
    known = sorted(set(tasks))
    for key, groups in (
        (AFFINITY, topology.affinity),
        (ANTI_AFFINITY, topology.anti_affinity),
        (TASK_ORDER, (topology.order,)),
    ):
        for name in (name for group in groups for name in group):
            if name and name not in known:
                there = ", ".join(known) or "none"
                return key, f"names the task {name!r}, which is none of the group's: {there}"
    return None


def without_effect(annotations: Mapping[str, str], tasks: Collection[str] | None = None) -> str:
    """Which annotation has no effect and why, for a group with these tasks if they are known; empty
    if all have one.
    """
    try:
        topology = read_topology(annotations)
    except TopologyError as error:
        return f"annotation {error.key} {error}; {_NO_TOPOLOGY}"
    if topology is None or tasks is None:
        return ""
    found = _unknown_task(topology, tasks)
    return "" if found is None else f"annotation {found[0]} {found[1]}; {_NO_TOPOLOGY}"


def _groups(key: str, text: str) -> tuple[tuple[str, ...], ...]:
    groups = tuple(_names(key, part) for part in text.split(";"))
    if sum(map(len, groups)) > _NAMES_MAX:
        raise TopologyError(key, f"has more than {_NAMES_MAX} names")
    return tuple(group for group in groups if any(group))


def _names(key: str, text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if len(names) > _NAMES_MAX:
        raise TopologyError(key, f"has more than {_NAMES_MAX} names")
    for place, name in enumerate(names):
        if name != name.strip():
            raise TopologyError(key, f"has blanks around {name.strip()!r}; {_WANTED}")
        if len(name) > _NAME_MAX:
            raise TopologyError(key, f"has {name[:_NAME_MAX]!r}…, longer than a name; {_WANTED}")
        if name and name in names[:place]:
            raise TopologyError(key, f"names {name!r} twice in {','.join(names)!r}; {_WANTED}")
    return names


class Settings(msgspec.Struct, frozen=True):
    """`task-topology.weight`."""

    weight: int


class _Bucket:
    """Pods that belong together: `waiting` without a node, in order, and how many each node has."""

    __slots__ = ("asked", "counts", "index", "nodes", "waiting")

    def __init__(self, index: int) -> None:
        self.index = index
        self.counts: Counter[str] = Counter()
        """By task, including those that have a node."""
        self.nodes: Counter[str] = Counter()
        self.waiting: list[Task] = []
        self.asked: Amount = 0
        """The request of its waiting pods: a CPU, a GiB and one of anything else count the same."""

    def add(self, task: Task) -> None:
        self.counts[task.role] += 1
        if task.node:
            self.nodes[task.node] += 1
        else:
            self.waiting.append(task)
            self.asked += _size(task.request)

    @property
    def size(self) -> int:
        return len(self.waiting) + self.nodes.total()

    @property
    def mix(self) -> _Mix:
        """The counts that decide its affinity."""
        return frozenset(self.counts.items())


class Buckets:
    """The buckets of one job when a session opens. Annotations that name a task without pods in the
    job have no effect.
    """

    def __init__(self, topology: TaskTopology, job: Job) -> None:
        self.all: list[_Bucket] = []
        self.of: dict[str, _Bucket] = {}
        """By uid of a pod."""
        self.on_node: dict[str, Counter[str]] = {}
        """Node → how many pods of each task it has."""
        self._affinity: dict[str, set[str]] = {}
        self._anti: dict[str, set[str]] = {}
        self._priority: dict[str, int] = {}
        self._place = {name: place for place, name in enumerate(topology.order)}
        tasks = [task for task in job.view.tasks if task.role and task.status not in COMPLETED_SET]
        if _unknown_task(topology, (task.role for task in job.view.tasks)) is None:
            self._relate(topology.affinity, self._affinity, _SELF, _INTER)
            self._relate(topology.anti_affinity, self._anti, _SELF_ANTI, _INTER_ANTI)
            self._fill([task for task in tasks if task.role in self._priority])
        for task in tasks:
            if task.node:
                self.on_node.setdefault(task.node, Counter())[task.role] += 1
        self.most = max((bucket.size for bucket in self.all), default=0)
        self.keys: dict[str, Key] = {
            uid: (0, -len(bucket.waiting), bucket.index, *self._rank(job.tasks[uid]))
            for uid, bucket in self.of.items()
        }
        for bucket in self.all:
            bucket.waiting.sort(key=lambda task: (self.keys[task.uid], task.place_in_order))

    def attraction(self, role: str, there: Mapping[str, int]) -> int:
        """How many of the pods there a task belongs with, less those that it should avoid."""
        near = self._affinity.get(role, ())
        return sum(there[name] for name in near if name in there) - self.avoided(role, there)

    def avoided(self, role: str, there: Mapping[str, int]) -> int:
        """How many of the pods there a task should avoid."""
        return sum(there[name] for name in self._anti.get(role, ()) if name in there)

    def _relate(
        self,
        groups: Iterable[Sequence[str]],
        related: dict[str, set[str]],
        alone: int,
        several: int,
    ) -> None:
        for group in groups:
            for name in group:
                others = set(group) - {name} if len(group) > 1 else {name}
                related.setdefault(name, set()).update(others)
                priority = several if len(group) > 1 else alone
                self._priority[name] = max(self._priority.get(name, 0), priority)

    def _rank(self, task: Task) -> tuple[int, int]:
        """The rank of its task: tasks that the annotation orders come first, in that order."""
        place = self._place.get(task.role, len(self._place))
        return place, -self._priority[task.role]

    def _fill(self, tasks: Sequence[Task]) -> None:
        """Put the tasks into buckets, those that have a node first.

        Buckets with the same mix of tasks attract a pod equally, and the pod joins the smallest of
        these. So buckets are in a heap for each mix, the smallest at the front, which is the only
        entry that changes.
        """
        by_node: dict[str, _Bucket] = {}
        for task in sorted((t for t in tasks if t.node), key=lambda t: (t.node, t.uid)):
            if task.node not in by_node:
                by_node[task.node] = self._open()
            self._put(task, by_node[task.node])
        heaps: dict[_Mix, list[_Front]] = {}
        for bucket in self.all:
            heapq.heappush(heaps.setdefault(bucket.mix, []), (bucket.asked, bucket.index))
        waiting = (task for task in tasks if not task.node)
        for task in sorted(waiting, key=lambda t: (self._rank(t), t.name, t.uid)):
            fronts = [
                (-self.attraction(task.role, dict(mix)), heap[0], mix)
                for mix, heap in heaps.items()
            ]
            repulsion, front, mix = min(fronts, key=_worst_last, default=_NOWHERE)
            if repulsion > 0:
                bucket = self._open()
            else:
                bucket = self.all[front[1]]
                heapq.heappop(heaps[mix])
                if not heaps[mix]:
                    del heaps[mix]
            self._put(task, bucket)
            heapq.heappush(heaps.setdefault(bucket.mix, []), (bucket.asked, bucket.index))

    def _open(self) -> _Bucket:
        self.all.append(_Bucket(len(self.all)))
        return self.all[-1]

    def _put(self, task: Task, bucket: _Bucket) -> None:
        bucket.add(task)
        self.of[task.uid] = bucket


def _worst_last(found: tuple[int, _Front, _Mix]) -> tuple[int, _Front]:
    return found[:2]


def _size(request: Resources) -> Amount:
    """In thousandths of a MiB, so that it is an integer: 1 milli-CPU counts as 1 MiB."""
    others = sum(amount for name, amount in request.items() if name not in (CPU, MEMORY, PODS))
    return (request.amount(CPU) + others) * _MIB + request.amount(MEMORY)


class Topology(Plugin):
    name: ClassVar[str] = "task-topology"
    points: ClassVar[frozenset[str]] = frozenset(("task_order", "node_order"))
    declared: ClassVar[Arguments] = {
        "task-topology.weight": Argument(Kind.INTEGER, 1, field="weight"),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._weight = arguments.weight
        self._job_of = world.job_of
        self._made: dict[str, Buckets] = {}

    def buckets(self, job: Job) -> Buckets | None:
        """The job's buckets; None if it has no topology."""
        topology = job.view.topology
        if topology is None:
            return None
        known = self._made.get(job.uid)
        if known is None:
            known = self._made[job.uid] = Buckets(topology, job)
        return known

    def task_key(self, task: Task) -> Key:
        buckets = self.buckets(self._job_of[task.uid])
        return () if buckets is None else buckets.keys.get(task.uid, _OUTSIDE)

    def bucket_points(self, job: Job, task: Task) -> BucketPoints | None:
        buckets = self.buckets(job)
        bucket = None if buckets is None else buckets.of.get(task.uid)
        if buckets is None or bucket is None or not self._weight:
            return None
        status = job.status
        others = (t.uid for t in bucket.waiting if status[t.uid] is Status.PENDING)
        followers = [uid for uid in others if uid != task.uid][:_FOLLOWERS_MAX]
        return BucketPoints(
            self.name,
            (task.uid, *followers),
            tuple(sorted(_by_node(buckets, bucket, job, task))),
            self._weight * _FULL_MICRO,
            buckets.most,
        )


def _by_node(buckets: Buckets, bucket: _Bucket, job: Job, task: Task) -> Iterator[tuple[str, int]]:
    """The points of nodes that have pods of the job, or got some in this session."""
    there, own = buckets.on_node, bucket.nodes
    if job.given:
        there, own = {name: Counter(counts) for name, counts in there.items()}, Counter(own)
        for uid, node in job.given.items():
            there.setdefault(node, Counter())[job.tasks[uid].role] += 1
            own[node] += buckets.of.get(uid) is bucket
    for node, counts in there.items():
        points = own[node] - buckets.avoided(task.role, counts)
        if points:
            yield node, points
