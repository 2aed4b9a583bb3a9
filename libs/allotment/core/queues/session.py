"""A session: one round of decisions on a view, with all plugins opened on it.

It answers by the rules of tiers (`votes`) and keeps all books in step: `assume` gives a task a
place, a rollback of its `statement` takes it back exactly. It serves one round; once it is closed,
none of its changes are left in its world.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from allotment.core.queues import votes
from allotment.core.queues.answers import No
from allotment.core.queues.limits import BucketPoints, CardPoints, NodePoints, NodeRule
from allotment.core.queues.model import (
    WAITING,
    JobView,
    Kind,
    Phase,
    QueueView,
    Status,
    Task,
    View,
)
from allotment.core.queues.plugins.base import Order, Plugin
from allotment.core.queues.plugins.registry import Configured
from allotment.core.queues.statement import Statement
from allotment.core.queues.timings import PLUGIN, OnStep, untimed
from allotment.core.queues.turns import in_turns
from allotment.core.queues.work import Job, World
from allotment.core.reasons import QUEUE_UNKNOWN, SCHEDULER_DEFECT


class _Asked:
    """The plugins to call for the questions about every pod, in tier order. Created at the first
    question, because many rounds need none.
    """

    def __init__(self, plugins: Sequence[Plugin], flat: Callable[[str], Iterable[Plugin]]) -> None:
        self.charged = [p for p in plugins if type(p).charge is not Plugin.charge]
        """The plugins that keep books of what tasks take."""
        self.task_keys = [plugin.task_key for plugin in flat("task_order")]
        self.job_enqueued = [
            plugin.job_enqueued
            for plugin in flat("job_enqueueable")
            if type(plugin).job_enqueued is not Plugin.job_enqueued
        ]
        self.job_valid = [plugin.job_valid for plugin in flat("job_valid")]
        self.job_ready = [plugin.job_ready for plugin in flat("job_ready")]
        self.overused = [plugin.overused for plugin in flat("overused")]
        self.allocatable = [plugin.allocatable for plugin in flat("allocatable")]
        self.choosing_cards = [p for p in flat("allocatable") if type(p).cards is not Plugin.cards]
        self.cards = [plugin.cards for plugin in self.choosing_cards]
        self.bucket_points = [
            plugin.bucket_points
            for plugin in flat("node_order")
            if type(plugin).bucket_points is not Plugin.bucket_points
        ]
        self.missing_beside = [plugin.missing_beside for plugin in flat("sub_job_ready")]


class Session:
    """Plugins of all tiers over one world, each opened when first asked, and all before the session
    changes anything. `unplaced` are jobs whose queue does not exist, or that are left out: they
    have no part in the order.
    """

    def __init__(
        self,
        world: World,
        tiers: Sequence[Sequence[Configured]],
        served: Mapping[str, int] | None = None,
    ) -> None:
        """`served` has the namespaces' last turns (see `turns.in_turns`); None if they take no
        turns.
        """
        self.world = world
        self.served = served
        self.unplaced: Mapping[str, JobView] = world.unplaced
        self._tiers = tiers
        self._plugins: dict[tuple[int, int], Plugin] = {}
        """By tier, and position in it."""
        self._points: dict[str, list[list[Plugin]]] = {}
        self._asked: _Asked | None = None
        self.statement = Statement()
        """What was tried in this session, here and on the nodes."""
        self._let_in: list[Job] = []
        self._gate: dict[tuple[Hashable, ...], No | None] = {}
        """Admission votes on the current books."""
        self._queue_keys: dict[str, Order] = {}
        self._node_rules: dict[str, tuple[NodeRule, ...]] = {}
        self._node_points: dict[str, tuple[NodePoints, ...]] = {}

    def open_all(self, on_step: OnStep = untimed) -> list[Plugin]:
        """The plugins, tier by tier. `on_step` is called for each that is opened now."""
        places = ((n, k) for n, tier in enumerate(self._tiers) for k in range(len(tier)))
        return [self._open(place, on_step) for place in places]

    def _open(self, place: tuple[int, int], on_step: OnStep = untimed) -> Plugin:
        plugin = self._plugins.get(place)
        if plugin is None:
            tier, number = place
            configured = self._tiers[tier][number]
            plugin = self._plugins[place] = configured.open(self.world)
            on_step(PLUGIN, configured.name)
        return plugin

    @property
    def jobs(self) -> Mapping[str, Job]:
        return self.world.jobs

    @property
    def _ask(self) -> _Asked:
        if self._asked is None:
            self._asked = _Asked(self.open_all(), self._flat)
        return self._asked

    def queue(self, name: str) -> QueueView:
        return self.world.queues[name]

    def plugin(self, name: str) -> Plugin | None:
        """The opened plugin of a name, to read its books; None if no tier has it."""
        return next((plugin for plugin in self.open_all() if plugin.name == name), None)

    @property
    def plugin_names(self) -> frozenset[str]:
        return frozenset(configured.name for tier in self._tiers for configured in tier)

    def chooses_nodes(self, uid: str) -> bool:
        """Whether plugins restrict a job to some of the nodes, or cards, that fit."""
        job = self.jobs[uid]
        is_for_some = any(self.cards(job, task) is not None for task in self.due_tasks(job))
        return is_for_some or bool(self.node_rules(job))

    def queue_key(self, name: str) -> Order:
        """A queue's key: the smaller comes first. Total, by age and uid in the end."""
        known = self._queue_keys.get(name)
        if known is None:
            queue = self.world.queues[name]
            parts = [plugin.queue_key(queue) for plugin in self._flat("queue_order")]
            known = (*parts, (queue.created_ms, queue.uid, name))
            self._queue_keys[name] = known
        return known

    def job_key(self, job: Job) -> Order:
        if self.statement:
            return self._job_key(job)
        return self.world.place_of(job, self._job_key)  # still valid from when the session opened

    def _job_key(self, job: Job) -> Order:
        return (*[plugin.job_key(job) for plugin in self._flat("job_order")], job.view.arrival)

    def in_job_order(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs of one queue in the order of their keys. Where no plugin tells jobs apart, the
        namespaces take turns, or age decides if they take none.
        """
        keyed = [(self.job_key(job), job.view.namespace, job) for job in jobs]
        keyed.sort(key=_key)
        if self.served is not None and len({namespace for _, namespace, _ in keyed}) > 1:
            return [job for _, _, job in in_turns(keyed, _level, _namespace, self.served)]
        return [job for _, _, job in keyed]

    def place_in_line(self, uid: str) -> tuple[str, Order, str] | None:
        """The queue of a waiting job, its key there when the session opened, and its namespace;
        None if it does not wait.
        """
        view = self.world.view(uid)
        if view is None or not view.is_waiting:
            return None
        return view.queue, self.job_key(self.jobs[uid]), view.namespace

    def task_key(self, task: Task) -> Order:
        parts = [ask(task) for ask in self._ask.task_keys]
        return (*parts, task.place_in_order)

    def job_valid(self, job: Job) -> No | None:
        return votes.first_no(self._ask.job_valid, job)

    def job_ready(self, job: Job) -> bool:
        return votes.all_agree(self._ask.job_ready, job)

    def job_pipelined(self, job: Job) -> bool:
        return (
            votes.poll(self._at("job_pipelined"), lambda plugin: plugin.job_pipelined(job)) is None
        )

    def job_starving(self, job: Job) -> bool:
        return votes.starving(self._at("job_starving"), lambda plugin: plugin.job_starving(job))

    def job_enqueueable(self, job: Job) -> No | None:
        tiers = self._at("job_enqueueable")
        key = (
            job.queue,
            job.counts_promises,
            job.view.priority,
            *[plugin.enqueue_key(job) for tier in tiers for plugin in tier],
        )
        try:
            return self._gate[key]
        except KeyError:
            no = votes.poll(tiers, lambda plugin: plugin.job_enqueueable(job))
            self._gate[key] = no
            return no

    def let_in(self, job: Job) -> None:
        """Admit the group: its phase becomes Inqueue, and all plugins that vote record what it may
        ask for.
        """
        if not job.view.is_hollow and job.counts_promises is not None:
            self._gate.clear()
            for note in self._ask.job_enqueued:
                note(job)
        job.phase = Phase.INQUEUE
        self._let_in.append(job)

    def overused(self, name: str) -> No | None:
        return votes.first_no(self._ask.overused, self.world.queues[name])

    def allocatable(self, job: Job, task: Task) -> No | None:
        return votes.first_no(self._ask.allocatable, self.world.queues[job.queue], job, task)

    def refuses(self, uid: str) -> No | None:
        """Why a round that begins now rejects a pod without a group before it checks any node; None
        if it does not. What others get in the round makes no room for it.
        """
        job = self.jobs[uid]
        no = None
        if job.phase in WAITING and job.view.min_resources is not None:
            no = self.job_enqueueable(job)
        (task,) = job.tasks.values()
        if no is None and not task.is_best_effort:  # those are backfilled, whatever the quota
            no = self.overused(job.queue)
            if no is None:
                no = self.allocatable(job, task)
        return no

    def all_waiting(self, uid: str) -> tuple[int, list[str]] | None:
        """How many pods of a group must start together, and all of its pods in order. Only for an
        admitted group, without sub groups and topology, all of whose pods wait for a place with
        resources; None for other jobs.
        """
        job = self.jobs[uid]
        view = job.view
        if view.is_single or job.phase in WAITING or view.sub_groups or view.topology is not None:
            return None
        due = self.due_tasks(job)
        if not due or len(due) < len(job.tasks):
            return None
        needed = 1 if self.job_ready(job) else max(view.min_member, 1)
        return needed, [task.uid for task in due]

    def cards(self, job: Job, task: Task) -> tuple[str, ...] | None:
        """The cards for which there is quota, the preferred first; None: any."""
        queue = self.world.queues[job.queue]
        for ask in self._ask.cards:
            cards = ask(queue, job, task)
            if cards is not None:
                return cards
        return None

    def preemptive(self, job: Job, task: Task) -> bool:
        """Whether the job's queue may take from other queues for a task."""
        queue = self.world.queues[job.queue]
        return all(plugin.preemptive(queue, job, task) for plugin in self._flat("preemptive"))

    def taking_key(self, name: str) -> Hashable:
        """What decides, besides a job itself, whether pods might be evicted for jobs of a queue,
        and which cards they may use: in one world equal keys mean equal answers.
        """
        queue = self.world.queues[name]
        plugins = (p for point in ("overused", "preemptive") for p in self._flat(point))
        keys = [plugin.taking_key(queue) for plugin in (*plugins, *self._ask.choosing_cards)]
        return self.world.cluster.total, frozenset(self.world.standing), *keys

    def may_name(self, point: str, job: Job, kind: Kind) -> bool:
        """Whether some tier might name pods of jobs of a kind as victims for pods of a job, at the
        point `preemptable` or `reclaimable`.
        """
        tiers = (tier for tier in self._at(point) if tier)
        return any(all(plugin.may_name(job, kind) for plugin in tier) for tier in tiers)

    def gives_back(self, name: str, taker: Task) -> bool:
        """Whether a queue might have to give something back for a task of another queue."""
        queue = self.world.queues[name]
        return queue.reclaimable and all(
            plugin.gives_back(queue, taker)
            for plugin in self._flat("reclaimable")
            if plugin.keeps_due
        )

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """The candidates that may be evicted for a task of the same queue."""
        return votes.victims(
            self._at("preemptable"), lambda plugin: plugin.preemptable(taker, candidates)
        )

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """The candidates that may be evicted for a task of another queue. The first tier that
        answers decides, except that queues keep what they deserve, whatever that tier answers.
        """
        found = votes.victims(
            self._at("reclaimable"), lambda plugin: plugin.reclaimable(taker, candidates)
        )
        for plugin in self._flat("reclaimable"):
            if plugin.keeps_due:
                found = plugin.reclaimable(taker, found) or []
        return found

    def node_rules(self, job: Job) -> tuple[NodeRule, ...]:
        """The rules for the nodes that the job may use; all of them must allow a node."""
        known = self._node_rules.get(job.queue)
        if known is None:
            queue = self.world.queues[job.queue]
            rules = (plugin.node_rule(queue) for plugin in self._flat("predicate"))
            known = tuple(rule for rule in rules if rule is not None)
            self._node_rules[job.queue] = known
        return known

    def card_points(self, job: Job, task: Task) -> CardPoints | None:
        """What these cards add to nodes' scores; None: the first card with room wins."""
        queue = self.world.queues[job.queue]
        found = (plugin.card_points(queue, job, task) for plugin in self._flat("node_order"))
        return next((points for points in found if points is not None), None)

    def bucket_points(self, job: Job, task: Task) -> BucketPoints | None:
        """What nodes are worth to the task because of its job's other tasks."""
        for ask in self._ask.bucket_points:
            points = ask(job, task)
            if points is not None:
                return points
        return None

    def node_points(self, job: Job) -> tuple[NodePoints, ...]:
        """What nodes are worth to the job's queue, by plugin."""
        if job.queue not in self._node_points:
            queue = self.world.queues[job.queue]
            found = (plugin.node_points(queue) for plugin in self._flat("node_order"))
            self._node_points[job.queue] = tuple(p for p in found if p is not None)
        return self._node_points[job.queue]

    def due_tasks(self, job: Job) -> list[Task]:
        """A job's tasks that wait for a place with resources, in task order; those of a sub group
        follow its first.
        """
        status = job.status
        ordered = self.world.in_order(job, self.task_key)
        found = [task for task in ordered if status[task.uid] is Status.PENDING]
        if len(found) < 2 or not job.view.sub_groups:
            return found
        first: dict[tuple[str, str], int] = {}
        for place, task in enumerate(found):
            first.setdefault(task.sub_group, place)
        place_of = {
            task.uid: first[task.sub_group] if task.sub_group[0] else place
            for place, task in enumerate(found)
        }
        return sorted(found, key=lambda task: place_of[task.uid])

    def pods_to_place(self, uid: str) -> list[str]:
        """The pods of a job that wait for a place, in order; last those that request nothing."""
        job = self.jobs[uid]
        return [task.uid for task in (*self.due_tasks(job), *best_effort(job))]

    def missing_beside(self, job: Job, task: Task) -> int:
        """How many pods, including the task, must be placed together so that its sub group is
        whole; 0 if it may be placed alone.
        """
        return max((ask(job, task) for ask in self._ask.missing_beside), default=0)

    def quota_ever_covers(self, job: Job) -> bool:
        """Whether the job would get its minimum if no other job used any quota."""
        world = self.world
        queues = tuple(world.queues.values())
        view = View(cluster=world.cluster, queues=queues, jobs=(job.view,), now_ms=world.now_ms)
        alone = Session(World(view), self._tiers)
        own = alone.jobs[job.uid]
        for task in alone.due_tasks(own):
            if alone.allocatable(own, task) is None:
                card = next(iter(alone.cards(own, task) or ()), "")
                alone.assume(own, task, Status.ALLOCATED, card)
        return alone.job_ready(own)

    def assume(self, job: Job, task: Task, status: Status, card: str = "", node: str = "") -> None:
        """Give the task a place in all books. `card` is one of `cards`, if it named any; `node` is
        empty if the caller does not need it.
        """
        charged = self._ask.charged  # opened on the books before the change
        before = job.move(task, status)
        if node:
            job.given[task.uid] = node
        for plugin in charged:
            plugin.charge(job, task, card)
        self.statement.did(partial(self._take_back, job, task, before, card))
        self._forget_keys(job.queue)

    def vacate(self, job: Job, task: Task) -> None:
        """Release a task that has to leave its place, in all books."""
        charged = self._ask.charged
        before = job.move(task, Status.RELEASING)
        for plugin in charged:
            plugin.release(job, task, "")
        self.statement.did(partial(self._return, job, task, before))
        self._forget_keys(job.queue)

    def _take_back(self, job: Job, task: Task, before: Status, card: str) -> None:
        """Undo `assume`."""
        for plugin in self._ask.charged:
            plugin.release(job, task, card)
        job.move(task, before)
        job.given.pop(task.uid, None)
        self._forget_keys(job.queue)

    def _return(self, job: Job, task: Task, before: Status) -> None:
        """Undo `vacate`."""
        for plugin in self._ask.charged:
            plugin.charge(job, task, "")
        job.move(task, before)
        self._forget_keys(job.queue)

    def close(self) -> None:
        """Undo everything, so that another session can use the world."""
        self.statement.rollback()
        for job in self._let_in:
            job.phase = job.view.phase
        self._let_in.clear()

    def _forget_keys(self, name: str) -> None:
        """Forget the order of a queue, its siblings and those below, after its books changed."""
        self._gate.clear()
        if not self.world.children:
            self._queue_keys.pop(name, None)
        else:
            self._queue_keys.clear()

    def _at(self, point: str) -> list[list[Plugin]]:
        """The plugins that answer a question, tier by tier."""
        known = self._points.get(point)
        if known is None:
            known = self._points[point] = [
                [self._open((n, k)) for k, one in enumerate(tier) if point in one.points]
                for n, tier in enumerate(self._tiers)
            ]
        return known

    def _flat(self, point: str) -> Iterable[Plugin]:
        return (plugin for tier in self._at(point) for plugin in tier)


def best_effort(job: Job) -> list[Task]:
    """A job's pending tasks that request nothing."""
    return [
        task
        for uid, task in job.tasks.items()
        if job.status[uid] is Status.PENDING and not task.gated and task.is_best_effort
    ]


_Keyed = tuple[Order, str, object]


def _key(keyed: _Keyed) -> Order:
    return keyed[0]


def _level(keyed: _Keyed) -> Order:
    """The plugins' part of a job's key; the last part is its arrival."""
    return keyed[0][:-1]


def _namespace(keyed: _Keyed) -> str:
    return keyed[1]


def why_unplaced(job: JobView) -> No:
    """Why a job is not scheduled: it is left out, or its queue does not exist."""
    name = f"{job.namespace}/{job.name}"
    if job.defect:
        return No(SCHEDULER_DEFECT, f"{name} is left out, because it fails: {job.defect}")
    return No(QUEUE_UNKNOWN, f"queue {job.queue} of {name} does not exist", job.queue)
