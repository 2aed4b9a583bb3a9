"""Plugin `capacity-card`: quotas by card model instead of by resource name.

A queue has its capability's CPU and memory (unset means *zero*, so it rejects) and its
`volcano.sh/card.quota` (a card that is not listed is zero). Other resources are unlimited. A pod
names with `volcano.sh/card.name` the card that its device request means, or alternatives (``A|B``).
With `cardUnlimitedCpuMemory`, CPU and memory of pods that ask for cards are neither checked nor
counted. There is no hierarchy, and no vote on victims.

Of several cards that fit and have quota, the leftmost is preferred: a node's score grows by 100
points for the first card that the pod names, by 50 for the second, by 25 for the third and so on,
each times `nodeOrderWeight`; if a node has several of them, the first counts. Older policies have
no such weight: with them, and where the plugin's `enableNodeOrder` is off, a pod gets the first
card that has quota and room, whatever the nodes score.

**Sliced cards** (our own rule; switch `allotment.shareQuota`, on by default). The rule above counts
no cards for pods that ask for parts of cards, such as `volcano.sh/vgpu-*`, so they would evade the
card quota. In a queue that has one:

* A share counts as its part of the card's memory: of ``count`` cards of model M with ``memory_mib``
  each it takes ``count · ⌈1000 · memory_mib / memory of M⌉`` thousandths of a card M. A percentage
  counts as that percentage. A share without an amount counts as the whole card, and so does one
  with `cores_pct` 100, which leaves the rest unusable. Several requests add up.
* A running pod counts against the models of the cards that it holds. A waiting pod counts against
  the models that it names in `volcano.sh/card.name`; one that names none may use any model for
  which its queue still has quota, and is placed only on those.
* It is a card pod in every respect: `cardUnlimitedCpuMemory` holds for it too.
* A share that is larger than a card of some model cannot use that model. Models whose memory no
  node reports cannot be counted, so they are not offered either.

In queues without a card quota, and with the switch off, such pods count by CPU and memory alone.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import msgspec

from allotment.core.placement.rules.card_names import ALTERNATIVES, alternatives
from allotment.core.plugin_arguments import WEIGHT_MAX, Argument, Arguments, Kind, boolean
from allotment.core.queues.answers import PERMIT, No, Vote, closed
from allotment.core.queues.limits import CardPoints
from allotment.core.queues.model import CHARGED_SET, OPEN, JobView, QueueView, Task
from allotment.core.queues.plugins.base import Key, Plugin
from allotment.core.queues.plugins.card_claims import Claim, Way, claim_of
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import (
    CPU,
    MEMORY,
    NOTHING,
    Amount,
    Resources,
    largest_share,
)
from allotment.core.queues.shares import open_books
from allotment.core.queues.work import Job, World
from allotment.core.reasons import (
    CPU_QUOTA,
    EMPTY_CAPABILITY,
    MEMORY_QUOTA,
    QUOTA_UNREADABLE,
    SCALAR_QUOTA,
)
from allotment_proto.events import QuotaShort

_FIRST_CARD_MICRO = 100_000_000
"""The points of a node with the first of several cards, in millionths of a point."""


class Settings(msgspec.Struct, frozen=True):
    """`cardUnlimitedCpuMemory`, `nodeOrderWeight` (None: a strict preference), and our
    `allotment.shareQuota`.
    """

    unlimited_cpu_memory: bool
    share_quota: bool
    node_order_weight: Fraction | None = None


def _insufficient(
    queue: str, book: QueueBook, name: str, asked: Amount, total: Amount, capability: Amount
) -> No:
    """The rejection for one name, in raw thousandths (5 cards print 5000)."""
    code = {CPU: CPU_QUOTA, MEMORY: MEMORY_QUOTA}.get(name, SCALAR_QUOTA)
    names = dict.fromkeys((name, *alternatives(name)))
    held = max(int(sum(book.allocated.amount(each) for each in names)), 0)
    promised = max(int(total - asked) - held, 0)
    return No(
        code,
        f"queue {queue} has insufficient {name} quota: requested {asked}, "
        f"total would be {total}, capability {capability}",
        queue,
        (QuotaShort(queue, name, held, promised, int(capability), int(asked)),),
    )


class CapacityCard(Plugin):
    name: ClassVar[str] = "capacity-card"
    points: ClassVar[frozenset[str]] = frozenset(
        ("queue_order", "allocatable", "job_enqueueable", "node_order")
    )
    declared: ClassVar[Arguments] = {
        "cardUnlimitedCpuMemory": boolean(False, field="unlimited_cpu_memory"),
        "nodeOrderWeight": Argument(
            Kind.DECIMAL,
            1_000,
            least=1,
            most=WEIGHT_MAX * 1_000,
            is_recorded=True,
            field="node_order_weight",
        ),
        "allotment.shareQuota": boolean(True, field="share_quota"),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._arguments = arguments
        self._world = world
        self._cards = {card.name: card for card in world.cluster.cards}
        self._claims: dict[tuple[str, str], Claim] = {}
        self.capability = {
            name: queue.capability.plus(queue.card_quota or NOTHING)
            for name, queue in world.queues.items()
        }
        self._deserved = {
            name: queue.deserved.plus(queue.card_quota or NOTHING)
            for name, queue in world.queues.items()
        }
        self.books = open_books(world, self.name, self._held, self._minimum)

    def queue_key(self, queue: QueueView) -> Key:
        allocated = self.books[queue.name].allocated
        return -queue.priority, largest_share(allocated, self._deserved[queue.name])

    def allocatable(self, queue: QueueView, job: Job, task: Task) -> No | None:
        refused = self._takes_nothing(queue)
        if refused is not None:
            return refused
        claim = self._claim(queue, task)
        if claim.problem is not None:
            return claim.problem
        if not (claim.ways and self._arguments.unlimited_cpu_memory):
            short = self.books[queue.name].allocated.too_little_left(
                self.capability[queue.name],
                task.request,
                [name for name in task.request.named if name in (CPU, MEMORY)],
            )
            if short:
                return self._short(queue, short[0], task.request)
        if claim.ways and not self._open_ways(queue, claim):
            first = claim.ways[0]
            used = self.books[queue.name].allocated.amount(first.card)
            quota = self.capability[queue.name].amount(first.card)
            total = used + first.milli
            book = self.books[queue.name]
            return _insufficient(queue.name, book, first.card, first.milli, total, quota)
        return None

    def cards(self, queue: QueueView, job: Job, task: Task) -> tuple[str, ...] | None:
        claim = self._claim(queue, task)
        if not claim.ways:
            return None
        return tuple(way.card for way in self._open_ways(queue, claim))

    def card_points(self, queue: QueueView, job: Job, task: Task) -> CardPoints | None:
        weight = self._arguments.node_order_weight
        ways = self._claim(queue, task).ways
        if weight is None or len(task.card_names) < 2 or not ways:
            return None
        first_micro = int(weight * _FIRST_CARD_MICRO)
        return CardPoints(
            self.name,
            tuple(
                (name, first_micro >> place)
                for place, name in enumerate(dict.fromkeys(task.card_names))
            ),
        )

    def job_enqueueable(self, job: Job) -> Vote | No:
        queue = self._world.queues[job.queue]
        refused = self._takes_nothing(queue)
        if refused is not None:
            return refused
        book, capability = self.books[queue.name], self.capability[queue.name]
        least = self._minimum(job.view)
        counts = job.counts_promises
        promised = book.promised(least, counts)
        for name in least.named:
            choices = alternatives(name)
            if len(choices) > 1:
                future = least[name] + sum(
                    book.promised(NOTHING, counts).amount(choice) for choice in (name, *choices)
                )
                limit = sum(capability.amount(choice) for choice in choices)
            else:
                future, limit = promised.amount(name), capability.amount(name)
            if future > limit:
                return _insufficient(queue.name, book, name, least[name], future, limit)
        return PERMIT

    def job_enqueued(self, job: Job) -> None:
        self.books[job.queue].promise(job.namespace, self._minimum(job.view))

    def charge(self, job: Job, task: Task, card: str) -> None:
        book = self.books[job.queue]
        book.allocated = book.allocated.plus(self._taken(job.queue, task, card))

    def release(self, job: Job, task: Task, card: str) -> None:
        book = self.books[job.queue]
        book.allocated = book.allocated.minus(self._taken(job.queue, task, card))

    def _takes_nothing(self, queue: QueueView) -> No | None:
        if queue.state != OPEN:
            return closed(queue.name, queue.state)
        if queue.card_quota_problem:
            return No(
                QUOTA_UNREADABLE,
                f"queue {queue.name}: annotation volcano.sh/card.quota {queue.card_quota_problem}",
                queue.name,
            )
        if not self.capability[queue.name]:
            return No(
                EMPTY_CAPABILITY,
                f"queue {queue.name} has neither a capability nor a card quota",
                queue.name,
            )
        return None

    def _claim(self, queue: QueueView, task: Task) -> Claim:
        key = queue.name, task.uid
        known = self._claims.get(key)
        if known is None:
            counted = self._arguments.share_quota and queue.card_quota is not None
            known = claim_of(task, self._cards, counts_shares=counted)
            self._claims[key] = known
        return known

    def _open_ways(self, queue: QueueView, claim: Claim) -> list[Way]:
        """The ways for which there is quota."""
        allocated, quota = self.books[queue.name].allocated, self.capability[queue.name]
        return [
            way
            for way in claim.ways
            if allocated.amount(way.card) + way.milli <= quota.amount(way.card)
        ]

    def _held(self, job: JobView, task: Task) -> Resources:
        """What a task counts for when the session opens."""
        return self._taken(job.queue, task, "")

    def _taken(self, queue: str, task: Task, card: str) -> Resources:
        """What a task counts for: CPU and memory unless they are free, and its cards: those that it
        holds, otherwise the chosen one, otherwise the one that it prefers.
        """
        claim = self._claim(self._world.queues[queue], task)
        if not claim.is_for_cards:
            return task.request.only((CPU, MEMORY))
        free = self._arguments.unlimited_cpu_memory
        host = NOTHING if free else task.request.only((CPU, MEMORY))
        if task.held_cards:
            return host.plus(task.held_cards)
        chosen = next((way for way in claim.ways if way.card == card), None)
        ways = claim.ways[:1] if chosen is None else (chosen,)
        return host.plus(Resources({way.card: way.milli for way in ways}))

    def _minimum(self, job: JobView) -> Resources:
        """What a group is admitted for. Its card request counts until it has pods; then their cards
        do.
        """
        least = (job.min_resources or NOTHING).only((CPU, MEMORY))
        cards = self._cards_of_minimum(job) if job.tasks else job.card_request
        if self._arguments.unlimited_cpu_memory and self._asks_for_cards(job):
            least = NOTHING
        return least.plus(cards)

    def _cards_of_minimum(self, job: JobView) -> Resources:
        """The cards of as many pods as the group needs, those that hold some first.

        Alternatives of a waiting pod are named together (``A|B``), where they cost the same.
        """
        queue = self._world.queues[job.queue]
        members: Sequence[Task] = job.tasks
        if len(members) > job.min_member:
            members = sorted(members, key=lambda t: (t.status not in CHARGED_SET, t.place_in_order))
        cards = NOTHING
        for task in members[: job.min_member]:
            claim = self._claim(queue, task)
            if task.status in CHARGED_SET:
                cards = cards.plus(self._held(job, task).without((CPU, MEMORY)))
            elif len({way.milli for way in claim.ways}) == 1:
                name = ALTERNATIVES.join(way.card for way in claim.ways)
                cards = cards.plus(Resources({name: claim.ways[0].milli}))
        return cards

    def _asks_for_cards(self, job: JobView) -> bool:
        if job.card_request:
            return True
        queue = self._world.queues[job.queue]
        if job.tasks:
            return any(self._claim(queue, task).is_for_cards for task in job.tasks)
        shared = self._world.cluster.share_resources
        counted = self._arguments.share_quota and queue.card_quota is not None
        return counted and any(name in shared for name in (job.min_resources or NOTHING).named)

    def _short(self, queue: QueueView, name: str, asked: Resources) -> No:
        book, quota = self.books[queue.name], self.capability[queue.name].amount(name)
        total = book.allocated.amount(name) + asked.amount(name)
        return _insufficient(queue.name, book, name, asked.amount(name), total, quota)
