"""Decisions in the log, with all that they stood on, and how their Bindings and evictions ended.

The binder writes both: a decision by compare-and-append, an outcome when the API server has
answered.
"""

import msgspec

from allotment_proto.facts import (
    Amount,
    Amounts,
    Holding,
    Int64,
    Problem,
    Seq,
)


class RunnerUp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node that would also have fit, and its total in micro-points (10⁻⁶ of a point)."""

    node: str
    score_micro: Int64
    cards: tuple[str, ...]


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod put on one node, with all amounts, so that it can be charged without any lookup.

    `terms` are the weighted parts of `score_micro`. `stamp_s` orders the pods of a node for its
    device plugin (strictly increasing per node, at least the Unix time in seconds). `volumes` are
    claims of the pod, each with the PersistentVolume to which it is to be bound.
    """

    uid: str
    namespace: str
    name: str
    node: str
    holdings: tuple[Holding, ...]
    cpu_milli: Amount
    memory_bytes: Amount
    extended: Amounts
    score_micro: Int64
    terms: tuple[tuple[str, Int64], ...]
    runners_up: tuple[RunnerUp, ...]
    feasible: Amount
    nodes: Amount
    stamp_s: Seq = 0
    volumes: tuple[tuple[str, str], ...] = ()


class Dropped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A proposed placement that no longer fitted when the binder asked again."""

    placement: Placement
    code: str


class QuotaShort(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One resource of which a limit does not cover what a pod or a group `wants`.

    Amounts are Volcano's: `cpu` in milli-cores, `memory` in bytes, `pods` as they are, everything
    else in thousandths. `promised` is what others were admitted for and do not hold yet. `queue` is
    the one whose limit it is; empty if it is the whole cluster. `unit_bytes` is what one of a
    resource stands for that is memory of cards, else 0.
    """

    queue: str
    resource: str
    held: Amount
    promised: Amount
    most: Amount
    wants: Amount
    unit_bytes: Amount = 0


class Refusal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that fits nowhere now. `reasons` count every node once, by its first obstacle.

    With a `problem` the pod's own request is at fault and no node was asked. `notes` say in words
    what stands behind reasons that are about others: for whom a node is held, what a queue may use.
    `quota` says by what amounts a quota refused it as the decision was made; a pod that is refused
    again with other amounts alone is not told again.
    """

    uid: str
    namespace: str
    name: str
    nodes: Amount
    reasons: tuple[tuple[str, Amount], ...]
    problem: Problem | None = None
    notes: tuple[str, ...] = ()
    quota: tuple[QuotaShort, ...] = ()


class Short(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A PodGroup that did not get its minimum, and why: `code` and `message`.

    Of its `waiting` pods `together` fit together, at most as many if nothing was `tried`; `wanted`
    is what it needs at once. `queue` is the one whose quota was short, empty if it was room.
    """

    group: str
    code: str
    message: str
    waiting: Amount
    wanted: Amount
    together: Amount
    tried: bool
    queue: str = ""


class Admission(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A PodGroup that may have its pods made and placed, or (with a code) may not yet. `quota` are
    the limits that are in the way, if it is that.
    """

    group: str
    code: str = ""
    message: str = ""
    quota: tuple[QuotaShort, ...] = ()


class Eviction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that has to make room. `action` is ``preempt`` or ``reclaim``, `preemptor` for whom."""

    uid: str
    namespace: str
    name: str
    node: str
    action: str
    preemptor: str


class Nomination(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod of `preemptor`, for which others make room, and the node where it will be placed.

    That need not be where a victim goes: some pods of a group may find room as it is, or room that
    others make. `holdings` are the cards that were found for it there.
    """

    uid: str
    namespace: str
    name: str
    node: str
    preemptor: str
    holdings: tuple[Holding, ...] = ()


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is held for a PodGroup that others passed by too often: nodes, or a queue's quota."""

    group: str
    since: Seq
    nodes: tuple[str, ...]
    queue: str


class StageTime(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When one service worked on a cycle (Unix microseconds). Recorded, never decided upon."""

    stage: str
    instance: str
    received_us: Int64
    finished_us: Int64


RULES = 1
"""By which rules cycles are decided now (`Decided.rules`). A change to what a cycle decides, or to
what the fold makes of a decision, takes the next number, and decisions of the log keep theirs."""


class Decided(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """One cycle's decisions, and all they stood on, so that they can be made again and compared.

    The scorer placed `batch` in order on the state at `basis`; the binder checked every placement
    again on the state at `checked` and appended this expecting no other decision since. `policy` is
    the sequence of the active `PolicyLoaded`. Each of the `placements` stands on those before it:
    with groups that is not the order of `batch`. A refusal that repeats the pod's last one word for
    word is left out.

    The placements of the pods in one of the `wholes` stand together or not at all: they are the
    minimum of a PodGroup. `shorts` are groups that did not get theirs, `admissions` groups that
    were admitted by their queue or get what they lack, `evictions` pods that make room,
    `holds` all reservations from now on (None: as before). `nominations` are the pods for which
    the victims go: the nodes are kept for them until they were tried there with all victims gone.
    `rules` says by which rules it was made, so that a later release makes the decision again, and
    folds it, as it was meant.
    """

    cycle: str
    basis: Seq
    checked: Seq
    policy: Seq
    batch: tuple[str, ...]
    placements: tuple[Placement, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    stages: tuple[StageTime, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()
    shorts: tuple[Short, ...] = ()
    admissions: tuple[Admission, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    holds: tuple[Held, ...] | None = None
    nominations: tuple[Nomination, ...] = ()
    rules: Amount = RULES


class Evicted(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The API server took the eviction of decision `decision`, or (with a code) refused it.

    `action` is as in `Eviction`; `for_whom` says in words who was to get the room: a group's
    ``<namespace>/<name>``, or ``pod <namespace>/<name>`` (both empty: not known).
    """

    uid: str
    namespace: str
    name: str
    node: str
    decision: Seq
    code: str = ""
    message: str = ""
    action: str = ""
    for_whom: str = ""


class Bound(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The API server accepted the Binding of decision `decision` (or was found to have)."""

    uid: str
    namespace: str
    name: str
    node: str
    decision: Seq


class BindFailed(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The pod cannot be bound as `decision` said; what was reserved for it is free again."""

    uid: str
    namespace: str
    name: str
    node: str
    decision: Seq
    code: str
    message: str
    holdings: tuple[Holding, ...] = ()
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    extended: Amounts = ()


class Corrected(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A pod of ours runs although its record was not served: it got the devices of another one's.

    `holdings` is what is booked for it from now on, `was` what was booked before. `served` is the
    pod (``namespace/name``) whose record it was served with; empty if that is not known, and then
    the books stay as they were. `code` says which of these it is, `message` why.
    """

    uid: str
    namespace: str
    name: str
    node: str
    decision: Seq
    holdings: tuple[Holding, ...]
    was: tuple[Holding, ...]
    code: str
    message: str
    served: str = ""
