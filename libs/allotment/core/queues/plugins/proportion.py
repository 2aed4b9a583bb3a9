"""Plugin `proportion`: queues share the cluster by weight.

Only queues with jobs take part. Filling computes what a queue deserves: each queue gets the part of
the rest that its weight gives it, but no more than it asks for and may have, and no less than it is
guaranteed. What it could not take is shared again among the others.

Volcano fills all resources together in rounds that converge without quite ending, because a queue
that is satisfied in one resource keeps drawing its part and giving it back. Filling each resource
by itself, with exact rationals, reaches the same limit in at most as many rounds as there are
queues. As there, the first round uses the weights of all queues, because guarantees make it count.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import ClassVar, NamedTuple

from allotment.core.queues.answers import (
    PERMIT,
    No,
    Vote,
    closed,
    cluster_insufficient,
    promised_before,
    quota_insufficient,
    short_of,
)
from allotment.core.queues.model import OPEN, QueueView, Task
from allotment.core.queues.plugins.base import Key, NoArguments, Plugin
from allotment.core.queues.plugins.guarantees import Guarantees, Unguaranteed
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import (
    CPU,
    MEMORY,
    NOTHING,
    Amount,
    Resources,
    largest_share,
    total_of,
)
from allotment.core.queues.shares import open_books
from allotment.core.queues.work import Job, World
from allotment.core.reasons import QUEUE_OVERUSED


class Claim(NamedTuple):
    """One queue's part in the filling of one resource."""

    weight: int
    most: Amount
    """What it asks for, up to what it may have."""
    least: Amount = 0
    """What it is guaranteed."""


def fill(total: Amount, claims: Sequence[Claim]) -> list[Amount]:
    """How much of one resource each claim deserves, in the claims' order."""
    weights = sum(claim.weight for claim in claims)
    if not weights:
        return [claim.least for claim in claims]
    wanted = [max(c.least, c.most if c.weight else min(c.most, 0)) for c in claims]
    if sum(wanted) <= total:
        return wanted  # there is enough for all
    # integers in units of 1/unit, which is exact enough and far cheaper
    scale = lcm(total.denominator, *(a.denominator for c in claims for a in (c.most, c.least)))
    unit = scale * weights
    all_, mosts = int(total * unit), [int(claim.most * unit) for claim in claims]
    given = [
        max(int(claim.least * unit), min(int(total * scale) * claim.weight, most))
        for claim, most in zip(claims, mosts, strict=True)
    ]
    while True:
        left = all_ - sum(given)
        open_ = [at for at, claim in enumerate(claims) if claim.weight and given[at] < mosts[at]]
        if left <= 0 or not open_:
            return [Fraction(amount, unit) for amount in given]
        weights = sum(claims[at].weight for at in open_)
        finer = weights // gcd(left, weights)
        if finer > 1:
            unit, all_ = unit * finer, all_ * finer
            given, mosts = [n * finer for n in given], [n * finer for n in mosts]
        for at in open_:
            part = left * finer * claims[at].weight // weights
            given[at] = min(given[at] + part, mosts[at])


def _limits_of(capability: Resources) -> Resources:
    """What a capability limits: CPU and memory of 0 count as unlimited."""
    return capability.without(
        [name for name in (CPU, MEMORY) if name in capability and capability[name] <= 0]
    )


def real_capability(total: Resources, guaranteed: Resources, queue: QueueView) -> Resources:
    """The most a queue may have: everything that is not guaranteed to others, within its
    capability.
    """
    return total.beyond(guaranteed).plus(queue.guarantee).capped(_limits_of(queue.capability))


def refused_at_gate(
    world: World, job: Job, queue: str, book: QueueBook, most: Resources
) -> No | None:
    """Why a job that counts in the book of `queue`, which may have `most`, is not admitted; None if
    it is.

    If `most` is all that the cluster has, quota is not the cause. A job whose pods exist and
    outrank some that run there is admitted, because it may preempt them.
    """
    least, counts = job.view.min_resources or NOTHING, job.counts_promises
    names = world.listed(job.queue, least)
    names = book.promised(least, counts).exceeding(most, names)
    if not names:
        return None
    is_quota = not is_all(world, most, names)
    place, inqueue = queue if is_quota else "", book.beside(counts)
    short = short_of(place, names, book, most, least, inqueue=inqueue)
    if not book.promised(least, None).exceeding(most, names):
        return promised_before(job.namespace, short)
    if is_quota:
        return quota_insufficient(queue, short)
    return None if counts is None and world.outranks_some(job) else cluster_insufficient(short)


def is_all(world: World, most: Resources, names: Iterable[str]) -> bool:
    """Whether a queue may have all that the cluster has of these. Then quota does not limit them,
    and what nodes have left decides.
    """
    total = world.cluster.total
    return all(most.amount(name) >= total.amount(name) for name in names)


class _Wants(NamedTuple):
    """A queue's input to filling."""

    queue: QueueView
    request: Resources
    capability: Resources


def _deserved(total: Resources, queues: Sequence[_Wants]) -> dict[str, Resources]:
    """What every queue deserves, by its name."""
    out: dict[str, dict[str, Amount]] = {wants.queue.name: {} for wants in queues}
    for name in sorted({*total, *(n for wants in queues for n in wants.queue.guarantee)}):
        claims = [
            Claim(
                wants.queue.weight,
                min(wants.request.amount(name), wants.capability.amount(name)),
                wants.queue.guarantee.amount(name),
            )
            for wants in queues
        ]
        for wants, amount in zip(queues, fill(total.amount(name), claims), strict=True):
            out[wants.queue.name][name] = amount
    return {name: Resources(amounts) for name, amounts in out.items()}


class Proportion(Plugin):
    name: ClassVar[str] = "proportion"
    keeps_due: ClassVar[bool] = True
    points: ClassVar[frozenset[str]] = frozenset(
        (
            "queue_order",
            "overused",
            "allocatable",
            "preemptive",
            "reclaimable",
            "job_enqueueable",
        )
    )

    def __init__(self, _: NoArguments, world: World) -> None:
        self._world = world
        self.books = open_books(world)
        self._job_of = world.job_of
        self.capability, guarantees = world.kept(self.name, self._limits)
        self._shared = Unguaranteed(guarantees, lambda name: self.books[name].allocated)

    @cached_property
    def deserved(self) -> Mapping[str, Resources]:
        """What each queue with jobs deserved when the session opened: it follows from what they ask
        for, which placements do not change. Computed on first use, because few sessions with one
        queue need it.
        """
        world = self._world
        return _deserved(
            world.cluster.total,
            [
                _Wants(world.queues[name], self.books[name].request, self.capability[name])
                for name in sorted(world.by_queue)
            ],
        )

    # tasks take integers, so limits may be integers too, which are much cheaper to compare

    @cached_property
    def _most(self) -> Mapping[str, Resources]:
        return {name: due.whole_at_most() for name, due in self.deserved.items()}

    @cached_property
    def _full(self) -> Mapping[str, Resources]:
        return {name: due.whole_at_least() for name, due in self.deserved.items()}

    def _limits(self) -> tuple[Mapping[str, Resources], Guarantees]:
        """The capabilities by queue, and the guarantees."""
        queues, total = self._world.queues, self._world.cluster.total
        guarantees = {name: queue.guarantee for name, queue in queues.items()}
        guaranteed = total_of([*guarantees.values()])
        return {
            name: real_capability(total, guaranteed, queue) for name, queue in queues.items()
        }, Guarantees(total, guarantees)

    def queue_key(self, queue: QueueView) -> Key:
        return -queue.priority, largest_share(self.books[queue.name].allocated, self._due(queue))

    def overused(self, queue: QueueView) -> No | None:
        full = self._full.get(queue.name, NOTHING)
        if full.is_within(self.books[queue.name].allocated):
            return No(QUEUE_OVERUSED, f"queue {queue.name} has all that it deserves", queue.name)
        return None

    def _most_beside(self, queue: str) -> Resources:
        """What a queue may have, given what the others hold."""
        return self._shared.most(queue, self._most.get(queue, NOTHING))

    def allocatable(self, queue: QueueView, job: Job, task: Task) -> No | None:
        return self._beyond(queue, task, self._most_beside(queue.name))

    def _beyond(self, queue: QueueView, task: Task, most: Resources) -> No | None:
        if queue.state != OPEN:
            return closed(queue.name, queue.state)
        book = self.books[queue.name]
        names = book.allocated.too_little_left(
            most, task.request, self._world.rationed(queue.name, task.request)
        )
        if not names or is_all(self._world, most, names):
            return None
        return quota_insufficient(queue.name, short_of(queue.name, names, book, most, task.request))

    def preemptive(self, queue: QueueView, job: Job, task: Task) -> bool:
        """Checked as if the other queues had given back what they have to."""
        return self._beyond(queue, task, self._most.get(queue.name, NOTHING)) is None

    def taking_key(self, queue: QueueView) -> Hashable:
        return self.books[queue.name].allocated, self._due(queue)

    def job_enqueueable(self, job: Job) -> Vote | No:
        queue = self._world.queues[job.queue]
        if queue.state != OPEN:
            return closed(queue.name, queue.state)
        if job.view.min_resources is None:
            return PERMIT
        book, most = self.books[queue.name], self.capability[queue.name]
        return refused_at_gate(self._world, job, queue.name, book, most) or PERMIT

    def enqueue_key(self, job: Job) -> Hashable:
        return job.view.min_resources

    def job_enqueued(self, job: Job) -> None:
        self.books[job.queue].promise(job.namespace, job.view.min_resources or NOTHING)

    def gives_back(self, queue: QueueView, taker: Task) -> bool:
        holds = self.books[queue.name].allocated
        return bool(holds.exceeding(self._due(queue), taker.request.named))

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """Victims of queues that have more than they deserve, until they no longer do."""
        left: dict[str, Resources] = {}
        found = []
        for victim in candidates:
            queue = self._world.queues[self._job_of[victim.uid].queue]
            holds = left.get(queue.name, self.books[queue.name].allocated)
            if self._spares(holds, self._due(queue), taker, victim):
                left[queue.name] = holds.minus(victim.request)
                found.append(victim)
        return found

    def _spares(self, holds: Resources, due: Resources, taker: Task, victim: Task) -> bool:
        """Whether a queue gives back a victim: it has more than its due of what is requested, and
        the victim is part of that.
        """
        over = holds.exceeding(due, taker.request.named)
        given = [name for name in over if victim.request.amount(name) > 0]
        return bool(given) and due.only(given).is_within(holds.minus(victim.request))

    def charge(self, job: Job, task: Task, card: str) -> None:
        self._holds(job.queue, self.books[job.queue].allocated.plus(task.request))

    def release(self, job: Job, task: Task, card: str) -> None:
        self._holds(job.queue, self.books[job.queue].allocated.minus(task.request))

    def _holds(self, queue: str, amounts: Resources) -> None:
        self.books[queue].allocated = amounts
        self._shared.holds(queue, amounts)

    def _due(self, queue: QueueView) -> Resources:
        return self.deserved.get(queue.name, NOTHING)
