"""The answers of plugins: yes, no with its reason, or no opinion.

The codes are those of `reasons`. Where Volcano has a text for a "no", the message is that text.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from allotment.core.placement.devices import memory_units
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import NOTHING, Resources
from allotment.core.reasons import (
    CLUSTER_INSUFFICIENT,
    PROMISED_BEFORE,
    QUEUE_CLOSED,
    QUEUE_QUOTA,
)
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import QuotaShort
from allotment_proto.facts import AMOUNT_MOST


class No(NamedTuple):
    """A rejection: its code, the message for the user, and the queue or plugin that rejected.

    `short` are the limits that it would exceed, without units (see `recordable`).
    """

    code: str
    message: str
    queue: str = ""
    short: tuple[QuotaShort, ...] = ()


class Vote(Enum):
    PERMIT = "permit"
    ABSTAIN = "abstain"


PERMIT: Final = Vote.PERMIT
ABSTAIN: Final = Vote.ABSTAIN


def quota_insufficient(queue: str, short: tuple[QuotaShort, ...]) -> No:
    names = ", ".join(each.resource for each in short)
    return No(QUEUE_QUOTA, f"queue resource quota insufficient: insufficient {names}", queue, short)


def cluster_insufficient(short: tuple[QuotaShort, ...]) -> No:
    names = ", ".join(each.resource for each in short)
    return No(
        CLUSTER_INSUFFICIENT,
        f"the cluster has too little {names} left; no queue's quota limits it",
        short=short,
    )


def promised_before(namespace: str, short: tuple[QuotaShort, ...]) -> No:
    """The rejection of a group that waits only for groups admitted a moment ago."""
    return No(
        PROMISED_BEFORE,
        f"the rest is promised to groups of namespace {namespace} that were admitted just before, "
        "until their pods are tried or for 2 seconds",
        short[0].queue,
        short,
    )


def short_of(
    queue: str,
    names: Iterable[str],
    book: QueueBook,
    most: Resources,
    wants: Resources,
    *,
    inqueue: Resources = NOTHING,
) -> tuple[QuotaShort, ...]:
    """What is short of each name, where `most` is the limit of a queue with this book. `inqueue`
    counts in addition to what the queue holds, at admission only.
    """
    return tuple(
        QuotaShort(
            queue,
            name,
            held=max(int(book.allocated.amount(name)), 0),
            promised=max(int(inqueue.amount(name)), 0),
            most=max(int(most.amount(name)), 0),
            wants=max(int(wants.amount(name)), 0),
        )
        for name in names
    )


def recordable(short: tuple[QuotaShort, ...], devices: DeviceConfig) -> tuple[QuotaShort, ...]:
    """The same as a record has it: with the unit of amounts of card memory, and no amount above
    `AMOUNT_MOST`.
    """
    if not short:
        return ()
    units = memory_units(devices)
    return tuple(
        # Amounts of one pod fit, but the sums in thousandths may not: without the bound, a few
        # absurd requests would make the whole decision unreadable, with all other pods of the
        # batch.
        QuotaShort(
            each.queue,
            each.resource,
            held=min(each.held, AMOUNT_MOST),
            promised=min(each.promised, AMOUNT_MOST),
            most=min(each.most, AMOUNT_MOST),
            wants=min(each.wants, AMOUNT_MOST),
            unit_bytes=units.get(each.resource, 0),
        )
        for each in short
    )


def closed(queue: str, state: str) -> No:
    return No(QUEUE_CLOSED, f"queue {queue} is {state}, and takes new pods only when Open", queue)
