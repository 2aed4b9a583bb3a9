"""What a queue has and may have, as the plugin that limits it counts it: explanations and gauges.

Amounts are Volcano's: `cpu` in milli-cores, `memory` in bytes, `pods` as they are, everything else
in thousandths, rounded down.
"""

from fractions import Fraction
from typing import NamedTuple

import msgspec

from allotment.core.ledger.model import SINGLE
from allotment.core.queues.model import WAITING
from allotment.core.queues.plugins.capacity import Capacity
from allotment.core.queues.plugins.card import CapacityCard
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import (
    CPU,
    MEMORY,
    NOTHING,
    PODS,
    Resources,
    largest_share,
    total_of,
)
from allotment.core.queues.session import Session
from allotment.core.queues.shares import open_books, share_of

FIRST = (CPU, MEMORY)


class QueueLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One resource of a queue. Without `most` nothing limits it; `capability`, `guarantee` and
    `card_quota` are what the Queue says, `most` and `deserved` what the plugin makes of it.
    """

    resource: str
    allocated: int
    promised: int = 0
    request: int
    deserved: int | None = None
    most: int | None = None
    capability: int | None = None
    guarantee: int | None = None
    card_quota: int | None = None


class QueueHolder(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A group, or a pod without one, that uses a part of a queue's quota: how much its `pods` with
    a place use, and what it was admitted for and does not use yet. For a group that was created for
    pods, and is named by a uid, an explanation names their `owner`.
    """

    queue: str
    namespace: str
    name: str
    is_pod: bool = False
    phase: str = ""
    pods: int
    allocated: dict[str, int] = {}
    promised: dict[str, int] = {}
    owner: str = ""


class Reckoned(NamedTuple):
    """What the plugin that limits a queue makes of it."""

    plugin: str
    book: QueueBook
    request: Resources
    most: Resources | None = None
    """None: there is no limit."""
    deserved: Resources | None = None
    is_strict: bool = False
    """CPU and memory that are not set are limited to 0, other names have no limit."""


def reckoned(session: Session, name: str) -> Reckoned:
    """The books of a queue, and the limits of the first plugin that sets some."""
    asked = open_books(session.world)[name]
    capacity, card = session.plugin("capacity"), session.plugin("capacity-card")
    proportion = session.plugin("proportion")
    if isinstance(capacity, Capacity):
        tree, book = capacity.tree, capacity.books[name]
        return Reckoned(
            capacity.name, book, asked.request, tree.capability[name], tree.deserved[name]
        )
    if isinstance(card, CapacityCard):
        queue, book = session.queue(name), card.books[name]
        deserved = queue.deserved.plus(queue.card_quota or NOTHING)
        return Reckoned(
            card.name, book, book.request, card.capability[name], deserved, is_strict=True
        )
    if isinstance(proportion, Proportion):
        book, due = proportion.books[name], proportion.deserved.get(name, NOTHING)
        return Reckoned(proportion.name, book, book.request, proportion.capability[name], due)
    return Reckoned("", asked, asked.request)


def limits_of(session: Session, name: str) -> tuple[QueueLimit, ...]:
    """Every resource that a queue limits or uses, CPU and memory first."""
    queue, found = session.queue(name), reckoned(session, name)
    at_gate = [
        job.view.min_resources
        for job in session.world.at_gate(())
        if job.phase in WAITING
        and not job.tasks
        and job.view.min_resources is not None
        and name in session.world.chain(job.queue)
    ]
    found = found._replace(request=found.request.plus(total_of(at_gate)))
    quota = queue.card_quota or NOTHING
    book = found.book
    configured = {*queue.capability, *queue.deserved, *queue.guarantee, *quota}
    used = {*book.allocated.named, *found.request.named, *book.inqueue.named} - {PODS}
    names = sorted(configured | used, key=lambda n: (n not in FIRST, n))
    held = book.allocated.plus(found.request).plus(book.inqueue)
    limited = {*FIRST, *configured, *session.world.listed(name, held)}
    return tuple(
        QueueLimit(
            resource=n,
            allocated=int(book.allocated.amount(n)),
            promised=int(book.inqueue.amount(n)),
            request=int(found.request.amount(n)),
            deserved=None if found.deserved is None else _of(found.deserved, n, found.is_strict),
            most=None if n not in limited else _most(found, n, quota),
            capability=_of(queue.capability, n),
            guarantee=_of(queue.guarantee, n),
            card_quota=_of(quota, n),
        )
        for n in names
    )


def _most(found: Reckoned, name: str, quota: Resources) -> int | None:
    """The most of a name that the queue may have: card quotas limit CPU, memory and cards, other
    plugins what the cluster has.
    """
    if found.most is None:
        return None
    if found.is_strict and name not in (*FIRST, *quota):
        return None
    return int(found.most.amount(name))


def holders_of(session: Session, name: str) -> tuple[QueueHolder, ...]:
    """The holders of the quota of a queue, or of those below it, the largest part first."""
    most = reckoned(session, name).most or session.world.cluster.total
    found: list[tuple[Fraction, str, QueueHolder]] = []
    for job in session.jobs.values():
        share = share_of(job.view)
        has = share.allocated.plus(share.inqueue)
        if (share.allocated or share.inqueue) and name in session.world.chain(job.queue):
            holder = QueueHolder(
                queue=job.queue,
                namespace=job.view.namespace,
                name=job.view.name,
                is_pod=job.uid.startswith(SINGLE),
                phase=job.phase.value,
                pods=job.allocated_count,
                allocated=whole(share.allocated),
                promised=whole(share.inqueue),
            )
            found.append((-Fraction(largest_share(has, most)), job.uid, holder))
    return tuple(holder for _, _, holder in sorted(found, key=lambda entry: entry[:2]))


def whole(amounts: Resources) -> dict[str, int]:
    """Whole amounts by name, CPU and memory first, without pods and what is 0."""
    named = sorted(amounts.named, key=lambda name: (name not in FIRST, name))
    return {name: int(amounts[name]) for name in named if amounts[name] and name != PODS}


def _of(amounts: Resources, name: str, is_strict: bool = False) -> int | None:
    return int(amounts[name]) if name in amounts else 0 if is_strict and name in FIRST else None
