"""What plugins answer: yes, no with its reason, or nothing.

The codes are those of `reasons`. Where Volcano has a text for a "no", the message is that text.
"""

from enum import Enum
from typing import Final, NamedTuple

from allotment.core.reasons import CLUSTER_INSUFFICIENT, QUEUE_CLOSED, QUEUE_QUOTA


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
