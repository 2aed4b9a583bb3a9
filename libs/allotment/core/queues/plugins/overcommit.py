"""Plugin `overcommit`: it admits no more groups than the cluster could nearly hold.

All admitted groups together may ask for the cluster's total times a factor, less what its nodes
already run.
"""

from collections.abc import Hashable
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import msgspec

from allotment.core.plugin_arguments import Argument, Arguments, Kind
from allotment.core.queues.answers import PERMIT, No, Vote, promised_before
from allotment.core.queues.plugins.base import Plugin
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import NOTHING, Resources
from allotment.core.queues.shares import promised_to
from allotment.core.queues.work import Job, World
from allotment.core.reasons import CLUSTER_OVERUSED
from allotment_proto.events import QuotaShort


class Settings(msgspec.Struct, frozen=True):
    """The factor on the cluster's total (`overcommit-factor`)."""

    factor: Fraction


class Overcommit(Plugin):
    name: ClassVar[str] = "overcommit"
    points: ClassVar[frozenset[str]] = frozenset(("job_enqueueable",))
    declared: ClassVar[Arguments] = {
        "overcommit-factor": Argument(
            Kind.DECIMAL, 1_200, least=1_000, most=1_000_000, field="factor"
        ),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._world = world
        self._factor = arguments.factor
        self.book = QueueBook()
        """What groups of all queues were admitted for."""
        for book in promised_to(world):
            for namespace, amounts in book.inqueue_of.items():
                self.book.promise(namespace, amounts)

    @cached_property
    def _room(self) -> Resources:
        """What of the limit is not in use, computed only while a group waits for admission."""
        world = self._world
        return world.kept(self.name, self._limit).minus(world.cluster.used())

    def _limit(self) -> Resources:
        """The most that may be in use and admitted together. Groups ask for whole amounts, so the
        limit can be whole as well, which is much cheaper to compare.
        """
        total = self._world.cluster.total
        return Resources(
            {name: amount * self._factor for name, amount in total.items()}
        ).whole_at_most()

    def job_enqueueable(self, job: Job) -> Vote | No:
        least = job.view.min_resources
        if least is None:
            return PERMIT
        names = self._world.listed(job.queue, least)
        inqueue = self.book.beside(job.counts_promises)
        short = inqueue.plus(least).exceeding(self._room, names)
        if not short:
            return PERMIT
        amounts = tuple(self._short(name, least, inqueue) for name in short)
        if not least.exceeding(self._room, names):
            return promised_before(job.namespace, amounts)
        text = f"resource in cluster is overused: overused {', '.join(short)}"
        return No(CLUSTER_OVERUSED, text, short=amounts)

    def _short(self, name: str, least: Resources, inqueue: Resources) -> QuotaShort:
        cluster = self._world.cluster
        used = cluster.used().amount(name)
        held, room = max(int(used), 0), cluster.total.amount(name) * self._factor - used
        return QuotaShort(
            "",
            name,
            held=held,
            promised=max(int(inqueue.amount(name)), 0),
            most=max(int(room) + held, 0),
            wants=int(least.amount(name)),
        )

    def enqueue_key(self, job: Job) -> Hashable:
        return job.view.min_resources

    def job_enqueued(self, job: Job) -> None:
        self.book.promise(job.namespace, job.view.min_resources or NOTHING)
