"""What explanations of groups and queues have in common, and the shape of both.

These structs are the JSON (camelCase, integers only). Amounts are Volcano's: `cpu` in milli-cores,
`memory` in bytes, `pods` as they are, everything else in thousandths, rounded down.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.explain.schema import AsOf, Subject
from allotment.core.queues.answers import No
from allotment.core.queues.reservations import Hold

GANG_SCHEMA = "allotment.dev/explain-gang/v1"
QUEUE_SCHEMA = "allotment.dev/explain-queue/v1"
AHEAD_SHOWN = 5


class _Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _Sparse(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Reason(_Sparse, frozen=True, kw_only=True):
    """A "no": its code, its words, and the queue whose quota it is about, if it is."""

    code: str
    message: str
    queue: str = ""


class Member(_Sparse, frozen=True, kw_only=True):
    """A pod of a group. `state` is its status, or of one that waits ``placeable``, ``blocked``,
    ``gated`` or ``anywhere`` (it asks for nothing). `node` is where it is, or would go now;
    `reasons` count the nodes by what they lack.
    """

    name: str
    role: str = ""
    state: str
    node: str = ""
    reason: Reason | None = None
    reasons: dict[str, int] = {}


class Said(_Fact, frozen=True, kw_only=True):
    """What the log says of the group's last trial. `passed`: pods of others placed since then;
    `since` is the decision that first found it short, `basis` the state that it stood on.
    """

    code: str
    message: str
    together: int
    wanted: int
    waiting: int
    tried: bool
    since: int
    basis: int
    passed: int


class Gate(_Sparse, frozen=True, kw_only=True):
    """The gate of its queue: the decision that let it in, or what was said of it there, and what
    would be said now.
    """

    let_in: bool
    decision: int = 0
    said: Reason | None = None
    now: Reason | None = None


class Kept(_Sparse, frozen=True, kw_only=True):
    """A hold: what is kept for a group, and since which decision (0: while its victims leave)."""

    group: str
    since: int = 0
    nodes: tuple[str, ...] = ()
    queue: str = ""


class Leaving(_Fact, frozen=True, kw_only=True):
    """A pod that was told to make room."""

    namespace: str
    name: str
    node: str
    action: str


class Place(_Fact, frozen=True, kw_only=True):
    """A position among those who wait, counted from 1; the first of those ahead by name."""

    position: int
    length: int
    ahead: tuple[str, ...]


class GangStatus(_Sparse, frozen=True, kw_only=True):
    """`phase`: ``Unseen`` (no PodGroup of the name), ``NotInUse`` (no queues are known, so pods are
    placed one by one), ``NoQueue``, ``AtGate``, ``Incomplete`` (too few pods), ``Waiting``,
    ``Growing`` (it has its minimum, more of its pods wait), ``Placed`` or ``Completed``.

    Of `wanted` pods that it still needs at once, `together` fit now, if that was asked.
    """

    phase: str
    cause: Reason | None = None
    since_seconds: int = 0
    group_phase: str = ""
    wanted: int = 0
    together: int | None = None
    fits_empty_cluster: bool | None = None


class GangExplanation(_Sparse, frozen=True, kw_only=True):
    """Where a group stands, and why. `never_preempts`: nobody is evicted for it, or for some of its
    pods that wait, because of a `preemptionPolicy`.
    """

    schema: str
    subject: Subject
    as_of: AsOf
    status: GangStatus
    min_member: int
    min_task_member: dict[str, int] = {}
    counts: dict[str, int] = {}
    priority: int = 0
    priority_class: str = ""
    preemptable: bool = False
    never_preempts: bool = False
    queue: str = ""
    queue_state: str = ""
    problem: Reason | None = None
    gate: Gate | None = None
    said: Said | None = None
    members: tuple[Member, ...] = ()
    in_queue: Place | None = None
    queues: Place | None = None
    kept: tuple[Kept, ...] = ()
    in_the_way: tuple[Kept, ...] = ()
    leaving: tuple[Leaving, ...] = ()


class Limit(_Sparse, frozen=True, kw_only=True):
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


class QueueGroup(_Sparse, frozen=True, kw_only=True):
    """A group, or a pod without one, that waits in a queue, and why."""

    position: int
    namespace: str
    name: str
    is_pod: bool = False
    phase: str = ""
    min_member: int = 1
    waiting: int = 0
    priority: int = 0
    passed: int = 0
    since_seconds: int = 0
    reason: Reason | None = None


class QueueHolder(_Sparse, frozen=True, kw_only=True):
    """A group, or a pod without one, that has a part of a queue's quota: what its `pods` with a
    place have of it, and what it was let in for and does not have yet.
    """

    queue: str
    namespace: str
    name: str
    is_pod: bool = False
    phase: str = ""
    pods: int
    allocated: dict[str, int] = {}
    promised: dict[str, int] = {}


class QueueExplanation(_Sparse, frozen=True, kw_only=True):
    """What a queue may have, has, and whom it keeps waiting."""

    schema: str
    subject: Subject
    as_of: AsOf
    state: str
    parent: str = ""
    children: tuple[str, ...] = ()
    weight: int
    priority: int
    reclaimable: bool
    plugin: str = ""
    problem: Reason | None = None
    refuses: Reason | None = None
    groups: dict[str, int] = {}
    queues: Place | None = None
    limits: tuple[Limit, ...] = ()
    waiting: tuple[QueueGroup, ...] = ()
    kept: tuple[Kept, ...] = ()
    holders: tuple[QueueHolder, ...] = ()
    """Who has its quota, the largest part in front; only if somebody waits for some of it."""


def reason_of(no: No) -> Reason:
    return Reason(code=no.code, message=no.message, queue=no.queue)


def kept_of(holds: Sequence[Hold]) -> tuple[Kept, ...]:
    return tuple(
        Kept(group=hold.job, since=hold.since, nodes=hold.nodes, queue=hold.queue) for hold in holds
    )


def place_among(names: Sequence[str], name: str) -> Place | None:
    if name not in names:
        return None
    at = names.index(name)
    return Place(position=at + 1, length=len(names), ahead=tuple(names[:at][:AHEAD_SHOWN]))
