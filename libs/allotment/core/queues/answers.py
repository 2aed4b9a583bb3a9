"""What plugins answer: yes, no with its reason, or nothing.

Codes are stable: tools and alerts key on them. Where Volcano has a text for a "no", the message is
that text.
"""

from enum import Enum
from typing import Final, NamedTuple

from allotment.core import reasons

QUEUE_UNKNOWN: Final = "QueueUnknown"
QUEUE_CLOSED: Final = "QueueClosed"
QUEUE_NOT_LEAF: Final = "QueueNotLeaf"
QUEUE_OVERUSED: Final = "QueueOverused"
QUEUE_QUOTA: Final = "QueueQuotaInsufficient"
CLUSTER_OVERUSED: Final = "ClusterOverused"
CLUSTER_INSUFFICIENT: Final = "ClusterInsufficient"
EMPTY_CAPABILITY: Final = "EmptyQueueCapability"
CPU_QUOTA: Final = "InsufficientCPUQuota"
MEMORY_QUOTA: Final = "InsufficientMemoryQuota"
SCALAR_QUOTA: Final = "InsufficientScalarQuota"
CARD_UNREADABLE: Final = "GetTaskRequestResourceFailed"
QUOTA_UNREADABLE: Final = "CardQuotaUnreadable"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
NOT_ENOUGH_TASKS: Final = "NotEnoughTasks"
NOT_ENOUGH_PODS_OF_TASK: Final = "NotEnoughPodsOfTask"
SAME_ROLE_FAILED: Final = "SameRoleFailed"
HELD_FOR_GANG: Final = reasons.HELD_FOR_GANG
KEPT_FOR_PREEMPTOR: Final = reasons.KEPT_FOR_PREEMPTOR
NODE_GROUP: Final = reasons.NODE_GROUP
GANG_INCOMPLETE: Final = "GangIncomplete"

EXPLANATIONS: Final[dict[str, str]] = {
    QUEUE_UNKNOWN: "the group names a queue that does not exist",
    QUEUE_CLOSED: "the queue takes nothing new",
    QUEUE_NOT_LEAF: "the queue has queues below it, and only the lowest may take pods",
    QUEUE_OVERUSED: "the queue already has what it deserves",
    QUEUE_QUOTA: "the queue, or one above it, has no quota left for the request",
    CLUSTER_OVERUSED: "groups that were let in before already ask for all of the cluster",
    CLUSTER_INSUFFICIENT: "the cluster has too little left for the request, whatever the quota",
    EMPTY_CAPABILITY: "the queue has neither a capability nor a card quota, which allows nothing",
    CPU_QUOTA: "the queue's CPU quota does not cover the request",
    MEMORY_QUOTA: "the queue's memory quota does not cover the request",
    SCALAR_QUOTA: "the queue's quota of this card or resource does not cover the request",
    CARD_UNREADABLE: "the pod names a card that no node has, or does not ask for it properly",
    QUOTA_UNREADABLE: "the queue's card quota cannot be read",
    NOT_ENOUGH_RESOURCES: "the group's members do not all fit together",
    NOT_ENOUGH_TASKS: "the group has fewer pods than it needs to start",
    NOT_ENOUGH_PODS_OF_TASK: "one role of the group has fewer pods than it needs to start",
    SAME_ROLE_FAILED: "another pod of the same role found no place in this round",
    HELD_FOR_GANG: "the place or quota is held for a group that was passed by too often",
    KEPT_FOR_PREEMPTOR: "the place is kept for a group until the pods that it evicts are gone",
    NODE_GROUP: "the queue may not use the node's group",
    GANG_INCOMPLETE: "other members of the group found no place",
}
"""One line each, for help pages and `allot explain`."""


QUOTA_CODES: Final = frozenset((QUEUE_QUOTA, CPU_QUOTA, MEMORY_QUOTA, SCALAR_QUOTA))
"""Refusals that end when others in the queue give something back."""


class No(NamedTuple):
    """A refusal: its code, what to tell the user, and the queue or plugin at which it arose."""

    code: str
    message: str
    queue: str = ""


class Vote(Enum):
    PERMIT = "permit"
    ABSTAIN = "abstain"


PERMIT: Final = Vote.PERMIT
ABSTAIN: Final = Vote.ABSTAIN


def quota_insufficient(names: tuple[str, ...], queue: str) -> No:
    return No(
        QUEUE_QUOTA, f"queue resource quota insufficient: insufficient {', '.join(names)}", queue
    )


def cluster_insufficient(names: tuple[str, ...]) -> No:
    return No(
        CLUSTER_INSUFFICIENT,
        f"the cluster has too little {', '.join(names)} left beside what runs and was promised; no "
        "queue's quota limits it",
    )


def closed(queue: str, state: str) -> No:
    return No(QUEUE_CLOSED, f"queue {queue} is {state}, and takes new pods only when Open", queue)
