"""Plugin `capacity`: queues with quotas of their own, in a hierarchy.

A queue may use up to its capability, within what others are not guaranteed, and *deserves* what it
may take back from others that borrowed it. With `enableHierarchy` every check applies to the queue
and to all above it, and only queues without queues below may take pods; without it, parents are
ignored. The queue `root` stands for the cluster and has no limit of its own.
"""

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

import msgspec

from allotment.core.plugin_arguments import Argument, Arguments, Kind, boolean
from allotment.core.queues.answers import PERMIT, No, Vote, closed, quota_insufficient, short_of
from allotment.core.queues.model import OPEN, ROOT, QueueView, Task
from allotment.core.queues.plugins.base import Key, Plugin
from allotment.core.queues.plugins.guarantees import Guarantees, Unguaranteed
from allotment.core.queues.plugins.proportion import is_all, real_capability, refused_at_gate
from allotment.core.queues.reckoning import Books, QueueBook
from allotment.core.queues.resources import (
    NOTHING,
    PODS,
    Amount,
    Resources,
    largest_share,
    total_of,
)
from allotment.core.queues.shares import open_books
from allotment.core.queues.work import Job, World
from allotment.core.reasons import QUEUE_NOT_LEAF

_UNDESERVING = Fraction(1)
"""The share of a queue that deserves nothing in particular: it comes last."""


class Settings(msgspec.Struct, frozen=True):
    """Whether queues form a hierarchy (`enableHierarchy`)."""

    hierarchy: bool


class _Tree:
    """The queues' limits, and which queue is above which."""

    def __init__(self, world: World, *, hierarchy: bool) -> None:
        self._world = world
        self._hierarchy = hierarchy
        self.capability: dict[str, Resources] = {}
        self.deserved: dict[str, Resources] = {}
        self._chains = {name: self._chain(name) for name in world.queues}
        self.members: dict[str, list[str]] = {}
        """By queue, itself and those below it."""
        for name, chain in self._chains.items():
            for above in chain:
                self.members.setdefault(above, []).append(name)
        self._beside = self._side_by_side()
        for name in world.queues:
            self._resolve(name)
        for name in sorted(world.queues, key=lambda name: -len(self._chains[name])):
            self._entitle(name)
        self.guarantees = {
            above: Guarantees(
                self.capability[above] if above else world.cluster.total,
                {name: world.queues[name].guarantee for name in names},
            )
            for above, names in self._beside.items()
        }
        """By the queue above (empty: the cluster), those of the queues below it."""

    def chain(self, name: str) -> list[str]:
        """The queue and those above it that limit it, from itself upwards."""
        return self._chains[name]

    def is_leaf(self, name: str) -> bool:
        return not self._hierarchy or (name != ROOT and not self._world.children.get(name))

    def _chain(self, name: str) -> list[str]:
        if not self._hierarchy:
            return [name]
        return [above for above in self._world.chain(name) if above != ROOT]

    def _side_by_side(self) -> Mapping[str, Sequence[str]]:
        """The queues that share what a queue above them has; under "" what the cluster has."""
        found: dict[str, list[str]] = {}
        for name in self._world.queues:
            if name != ROOT:
                found.setdefault(self.parent(name), []).append(name)
        return found

    def parent(self, name: str) -> str:
        """The queue above that limits a queue; empty: the cluster does."""
        above = self._chains[name][1:2]
        return above[0] if above else ""

    def _resolve(self, name: str) -> Resources:
        """The most that the queue may have: its part of what the queue above may have."""
        known = self.capability.get(name)
        if known is not None:
            return known
        total = self._world.cluster.total
        if name == ROOT:
            found = total
        else:
            self.capability[name] = total  # ends a cycle of parents
            parent = self.parent(name)
            beside = self._beside[parent]
            found = real_capability(
                self._resolve(parent) if parent else total,
                total_of([self._world.queues[other].guarantee for other in beside]),
                self._world.queues[name],
            )
        self.capability[name] = found
        return found

    def _entitle(self, name: str) -> None:
        """What the queue deserves; if it does not say, what those below it deserve."""
        queue = self._world.queues[name]
        said = queue.deserved
        if not said and self._hierarchy:
            below = self._world.children.get(name, [])
            said = total_of([self.deserved.get(child, NOTHING) for child in below])
        if said:
            within = {
                dimension: min(amount, self.capability[name].amount(dimension))
                for dimension, amount in said.items()
            }
            self.deserved[name] = Resources(within).raised(queue.guarantee)
        else:
            self.deserved[name] = queue.guarantee


class Capacity(Plugin):
    name: ClassVar[str] = "capacity"
    keeps_due: ClassVar[bool] = True
    points: ClassVar[frozenset[str]] = frozenset(
        ("queue_order", "allocatable", "preemptive", "reclaimable", "job_enqueueable")
    )
    declared: ClassVar[Arguments] = {
        "ancestorReclaimLevel": Argument(Kind.INTEGER, 0),
        "capacity.DynamicResourceAllocationEnable": boolean(False, is_used=False),
        "capacity.DRAConsumableCapacityEnable": boolean(False, is_used=False),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._world = world
        hierarchy = arguments.hierarchy
        by = f"{self.name}/{hierarchy}"
        self.tree = world.kept(by, lambda: _Tree(world, hierarchy=hierarchy))
        self._job_of = world.job_of
        self._own = open_books(world)
        self.books = Books(self._book)
        self._shared = {
            above: Unguaranteed(guarantees, lambda name: self.books[name].allocated)
            for above, guarantees in self.tree.guarantees.items()
        }
        """By the queue above (empty: the cluster), what the queues below it share."""

    def _book(self, name: str) -> QueueBook:
        """The book of a queue, with those of the queues below it."""
        book = QueueBook()
        for each in self.tree.members.get(name, ()):
            book.add_below(self._own[each])
        return book

    def queue_key(self, queue: QueueView) -> Key:
        """From the top down, so that the queues of one parent come together."""
        key: list[int | Fraction | str] = []
        for name in reversed(self.tree.chain(queue.name)):
            above = self._world.queues[name]
            key += (-above.priority, *self._share(name))
            if name != queue.name:
                key += (above.created_ms, above.uid or name)
        return tuple(key)

    def allocatable(self, queue: QueueView, job: Job, task: Task) -> No | None:
        refused = self._takes_nothing(queue)
        if refused is not None:
            return refused
        for name in self.tree.chain(queue.name):
            book, most = self.books[name], self._most(name)
            short = book.allocated.too_little_left(
                most, task.request, self._world.rationed(queue.name, task.request)
            )
            if short and not is_all(self._world, most, short):
                return quota_insufficient(name, short_of(name, short, book, most, task.request))
        return None

    def job_enqueueable(self, job: Job) -> Vote | No:
        queue = self._world.queues[job.queue]
        refused = self._takes_nothing(queue)
        if refused is not None:
            return refused
        if job.view.min_resources is None:
            return PERMIT
        for name in self.tree.chain(queue.name):
            book, most = self.books[name], self.tree.capability[name]
            refused = refused_at_gate(self._world, job, name, book, most)
            if refused is not None:
                return refused
        return PERMIT

    def enqueue_key(self, job: Job) -> Hashable:
        return job.view.min_resources

    def job_enqueued(self, job: Job) -> None:
        for name in self.tree.chain(job.queue):
            self.books[name].promise(job.namespace, job.view.min_resources or NOTHING)

    def preemptive(self, queue: QueueView, job: Job, task: Task) -> bool:
        """With the task, the queue must stay within its capability, and for some resource within
        its due.
        """
        name, asked = queue.name, task.request.named
        future = self.books[name].allocated.plus(task.request)
        if future.exceeding(self.tree.capability[name], asked):
            return False
        wanted = [resource for resource in asked if resource != PODS]
        return not wanted or len(future.exceeding(self.tree.deserved[name], wanted)) < len(wanted)

    def taking_key(self, queue: QueueView) -> Hashable:
        """A queue that deserves nothing in particular may take nothing, whatever it holds."""
        due = self.tree.deserved[queue.name]
        return self.books[queue.name].allocated if due else due

    def gives_back(self, queue: QueueView, taker: Task) -> bool:
        due = self.tree.deserved[queue.name]
        shared = [dimension for dimension in taker.request.named if dimension in due]
        return not shared or bool(self.books[queue.name].allocated.exceeding(due, shared))

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """Victims of queues that keep their guarantee and have more than their due of what is
        requested, or have no due in it at all.
        """
        left: dict[str, Resources] = {}
        found = []
        for victim in candidates:
            name = self._job_of[victim.uid].queue
            holds = left.get(name, self.books[name].allocated)
            keeps = holds.minus(victim.request)
            if not self._world.queues[name].guarantee.is_within(keeps):
                continue
            due = self.tree.deserved[name]
            shared = [dimension for dimension in taker.request.named if dimension in due]
            if not shared or self._spares(holds, due, shared, victim):
                left[name] = keeps
                found.append(victim)
        return found

    def _spares(self, holds: Resources, due: Resources, asked: Sequence[str], victim: Task) -> bool:
        """Whether a queue gives back a victim: it has more than its due of what is requested, and
        the victim is part of that.
        """
        over = holds.exceeding(due, asked)
        given = [name for name in over if victim.request.amount(name) > 0]
        return bool(given) and due.only(given).is_within(holds.minus(victim.request))

    def charge(self, job: Job, task: Task, card: str) -> None:
        for name in self.tree.chain(job.queue):
            self._holds(name, self.books[name].allocated.plus(task.request))

    def release(self, job: Job, task: Task, card: str) -> None:
        for name in self.tree.chain(job.queue):
            self._holds(name, self.books[name].allocated.minus(task.request))

    def _holds(self, name: str, amounts: Resources) -> None:
        self.books[name].allocated = amounts
        shared = self._shared.get(self.tree.parent(name))
        if shared is not None:
            shared.holds(name, amounts)

    def _most(self, name: str) -> Resources:
        """What a queue may have, given what its siblings hold."""
        capability, shared = self.tree.capability[name], self._shared.get(self.tree.parent(name))
        return capability if shared is None else shared.most(name, capability)

    def _share(self, name: str) -> tuple[Amount, int]:
        """The queue's share of its due, and whether it has none."""
        due = self.tree.deserved[name]
        if not due:
            return _UNDESERVING, 1
        return largest_share(self.books[name].allocated, due), 0

    def _takes_nothing(self, queue: QueueView) -> No | None:
        for name in self.tree.chain(queue.name):
            above = self._world.queues[name]
            if above.state != OPEN:
                return closed(name, above.state)
        if not self.tree.is_leaf(queue.name):
            below = ", ".join(sorted(self._world.children.get(queue.name, ()))) or "none yet"
            why = f"queue {queue.name} takes no pods itself, only queues below it do: {below}"
            return No(QUEUE_NOT_LEAF, why, queue.name)
        return None
