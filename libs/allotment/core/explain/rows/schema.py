"""The shapes of the explanations of pods, groups and queues.

These structs are the JSON (camelCase, integers only: bytes, whole percent, micro-points, Unix
milliseconds become RFC 3339). A section that does not apply is left out. Amounts of groups and
queues are Volcano's: `cpu` in milli-cores, `memory` in bytes, `pods` as they are, everything else
in thousandths, rounded down.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.queues.answers import No
from allotment.core.queues.reservations import Hold
from allotment.core.queues.round.quota import QueueHolder, QueueLimit
from allotment.core.reasons import quota_text
from allotment_proto.events import QuotaShort

SCHEMA = "allotment.dev/explain/v1"
GANG_SCHEMA = "allotment.dev/explain-gang/v1"
QUEUE_SCHEMA = "allotment.dev/explain-queue/v1"
AHEAD_SHOWN = 5


class _Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings: camelCase, every field written."""


class _Sparse(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The same, without fields that say nothing."""


class Subject(_Fact, frozen=True, kw_only=True):
    kind: str
    namespace: str
    name: str
    uid: str


class AsOf(_Fact, frozen=True, kw_only=True):
    seq: int
    time: str
    time_ms: int


class Reason(_Sparse, frozen=True, kw_only=True):
    """A "no": its code, its words, and the queue whose quota it is about, if it is."""

    code: str
    message: str
    queue: str = ""


class Quota(_Sparse, frozen=True, kw_only=True):
    """A limit of a queue, or of the whole cluster, that does not cover the request, in Volcano's
    amounts. `promised`: what other groups were admitted for and do not hold yet. `unit_bytes`: what
    one of a resource stands for that is memory of cards. `text`: the same in words.
    """

    queue: str
    resource: str
    held: int
    promised: int = 0
    most: int
    wants: int
    unit_bytes: int = 0
    text: str


class Status(_Sparse, frozen=True, kw_only=True):
    """`cause` is a reason code. `latency_ms` is from first seen to reserved, `bound_ms` to bound.

    `fits_now` counts nodes that would take a waiting pod at this sequence. `fits_empty_cluster`:
    whether it would fit if all nodes were empty, ready and not cordoned.
    """

    phase: str
    cause: str = ""
    why: str = ""
    """The cause in one sentence, with names and numbers."""
    problem: str = ""
    node: str = ""
    since_seconds: int | None = None
    attempts: int = 0
    unchanged_seconds: int | None = None
    latency_ms: int | None = None
    bound_ms: int | None = None
    nodes: int = 0
    fits_now: int = 0
    fits_empty_cluster: bool | None = None
    group: str = ""
    """Why the pod's group waits, if it is that."""
    group_name: str = ""
    """That group, as ``<namespace>/<name>``, if pods of it start together."""
    waits: str = ""
    """Why a reserved pod is not bound yet, if its node's device plugin has to serve another pod
    first.
    """
    nominated: str = ""
    """The node that is kept for it, because other pods were evicted for it."""
    evicted_for: str = ""
    """What it makes room for: a group, or ``pod <namespace>/<name>``."""
    never_preempts: bool = False
    """No pod is evicted for it, because of its `preemptionPolicy`, although the policy evicts for
    other pods.
    """
    scheduler: str = ""
    """The scheduler that it names, where that is not this one."""
    answers_to: tuple[str, ...] = ()
    """The names that this scheduler answers to, where the pod names another."""
    refused: Reason | None = None
    """Why its queue allows it nothing now, whatever is free."""
    quota: tuple[Quota, ...] = ()
    """Which limits of its queue refuse it, if it is that."""
    notes: tuple[str, ...] = ()
    """The details behind reasons about other pods: for which pods nodes are kept."""


class OpenProblem(_Sparse, frozen=True, kw_only=True):
    """A problem of a placed pod's node, card, device plugin or own annotations, as `allot doctor`
    words it. `since` is when it began (RFC 3339), empty if unknown; `place` is where on the node it
    was found.
    """

    severity: str
    code: str
    subject: str
    message: str
    remedy: str
    place: str = ""
    seq: int = 0
    since: str = ""


class DeviceAsk(_Fact, frozen=True, kw_only=True):
    """What one container asks per card; `memory_percent` above 0 replaces the amount."""

    family: str
    container: str
    count: int
    memory_bytes: int
    memory_percent: int
    compute_percent: int


class Request(_Sparse, frozen=True, kw_only=True):
    """`gpus` counts cards over all containers; the amounts are the first container's, per card.
    `unrecorded`: the card resources that a pod requests from another scheduler; their amounts are
    not recorded.
    """

    gpus: int = 0
    memory_bytes: int = 0
    memory_percent: int = 0
    compute_percent: int = 0
    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    indexes: tuple[int, ...] = ()
    mode: str = ""
    extended: dict[str, int] = {}
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    devices: tuple[DeviceAsk, ...] = ()
    unrecorded: tuple[str, ...] = ()


class Step(_Fact, frozen=True, kw_only=True):
    """One step of the funnel: how many nodes are left after it, and why the others are not."""

    step: str
    text: str
    left: int
    lost: int
    reasons: dict[str, int]


class Holder(_Fact, frozen=True, kw_only=True):
    namespace: str
    name: str
    memory_bytes: int
    compute_percent: int
    instance: str


class Closest(_Sparse, frozen=True, kw_only=True):
    """A card (or a counted resource) that nearly takes the pod: what it lacks, and which pods hold
    it.
    """

    node: str
    device: str
    reason: str
    free_memory_bytes: int | None = None
    free_compute_percent: int | None = None
    compute_whole: int = 100
    free_slots: int | None = None
    free_count: int | None = None
    short: dict[str, int] = {}
    holders: tuple[Holder, ...] = ()


MEMORY, COMPUTE = "memory", "compute"


class Fragmentation(_Fact, frozen=True, kw_only=True):
    """What is free of all cards that the pod accepts, and the most of it on one card.

    `dimension` is what no card has enough of: ``memory``, or ``compute`` next to enough memory.
    `largest_usable_bytes` is the most memory on a card that has enough compute,
    `most_compute_percent` the most compute on a card that has enough memory.
    """

    dimension: str
    free_bytes: int
    largest_bytes: int
    largest_usable_bytes: int
    needed_bytes: int
    free_compute_percent: int
    most_compute_percent: int
    needed_compute_percent: int


class Place(_Fact, frozen=True, kw_only=True):
    """A position in the waiting line, counted from 1. `never` of those ahead can never start: their
    request is invalid, or fits no node even when it is empty. Of the others ahead `ahead` has the
    first, by name.
    """

    position: int
    length: int
    ahead: tuple[str, ...]
    never: int = 0


class Lack(_Fact, frozen=True, kw_only=True):
    """What a counted reason is about, in words: of `nodes` nodes that refuse with `code`."""

    code: str
    nodes: int
    text: str


class Change(_Sparse, frozen=True, kw_only=True):
    """One change, as an operation of JSON Patch. Paths begin in the pod's manifest (``/spec``,
    ``/metadata``), or in this explanation (``/request``); with `target` in that object instead.
    """

    op: str
    path: str
    value: bool | int | str | tuple[str, ...] | dict[str, str] | None = None
    target: str = ""
    line: str = ""
    """What to write in the manifest, as YAML on one line, with a minus sign in front of lines to
    remove; for another object the command. Empty where `path` and `value` say it, or where it is
    spread over several lines.
    """


class Counterfactual(_Sparse, frozen=True, kw_only=True):
    """A change that was carried out and asked: with it alone, `nodes_fit` nodes take the pod; of a
    group `members_fit` of the `members` that it needs at once fit together. Where `nodes_fit` is
    about nodes as if they were empty, `nodes_fit_now` is how many take it as they are.
    """

    text: str
    change: Change
    nodes_fit: int = 0
    nodes_fit_now: int | None = None
    members_fit: int | None = None
    members: int | None = None


class WaitingFor(_Fact, frozen=True, kw_only=True):
    """What would wake the pod: ``Release`` on one of `nodes`, one of them no longer kept for others
    (``HoldEnd``), or ``NodeChange`` of one of them.
    """

    kind: str
    nodes: int


class Held(_Fact, frozen=True, kw_only=True):
    device: str
    id: str
    model: str
    container: int
    memory_bytes: int
    compute_percent: int
    compute_whole: int
    """What the whole card has: 100 if compute is percent, else its AI cores."""
    instance: str
    """Which piece of the card, if it is partitioned: a MIG instance, a template."""
    profile: str
    """The profile of the MIG instance; empty where the node lists none of this name."""


class Placed(_Sparse, frozen=True, kw_only=True):
    """What the pod holds, or held. `others` says that another scheduler put it there."""

    node: str
    phase: str
    devices: tuple[Held, ...] = ()
    extended: dict[str, int] = {}
    cpu_milli: int = 0
    host_memory_bytes: int = 0
    others: bool = False


class Candidate(_Fact, frozen=True, kw_only=True):
    """A node that fitted, with the cards it would have given and their memory summed."""

    rank: int
    node: str
    devices: tuple[str, ...]
    free_before_bytes: int
    free_after_bytes: int
    terms: dict[str, int]
    total_micro: int
    chosen: bool


class DecidedBy(_Sparse, frozen=True, kw_only=True):
    """What made the winner win over the second.

    `term` is a score term, ``leftover`` (equal scores, less memory left on the cards), ``name``
    (all equal) or ``only`` (nothing else fitted). Without the term the two would score as given.
    """

    term: str
    lead_micro: int = 0
    second: str = ""
    winner_without_micro: int | None = None
    second_without_micro: int | None = None


class Line(_Sparse, frozen=True, kw_only=True):
    """One step of the timeline; `offset_ms` counts from when the pod was first seen. A `detail` is
    about the scheduler's own steps, of which the pod's owner need not know.
    """

    time: str
    time_ms: int
    offset_ms: int
    by: str
    text: str
    seq: int | None = None
    detail: bool = False


class DecisionRef(_Sparse, frozen=True, kw_only=True):
    """The decision that stands: its record, what it read, and the policy's name and sequence."""

    id: str
    seq: int
    cycle: str
    basis: int
    checked: int
    policy: str
    policy_version: int
    ledger_seq: int


class TraceRef(_Fact, frozen=True, kw_only=True):
    trace_id: str


class CardStep(_Fact, frozen=True, kw_only=True):
    """One card of the node asked about: what is free, and the first thing it lacks."""

    device: str
    id: str
    model: str
    family: str
    free_slots: int
    memory_bytes: int
    free_memory_bytes: int
    compute_whole: int
    free_compute_percent: int
    verdict: str
    holders: tuple[Holder, ...]
    chosen: bool = False
    """Whether the decision gave the pod this card."""


class HostStep(_Fact, frozen=True, kw_only=True):
    step: str
    verdict: str
    detail: str


class NodeSteps(_Fact, frozen=True, kw_only=True):
    """Every step on one node: `verdict` is ``fits`` or the reason the node is charged with.
    `decision` is the record of the decision at which the node was asked, 0 for now.
    """

    node: str
    verdict: str
    host: tuple[HostStep, ...]
    cards: tuple[CardStep, ...]
    decision: int = 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a pod is where it is, at one sequence."""

    schema: str
    subject: Subject
    as_of: AsOf
    status: Status
    request: Request
    funnel: tuple[Step, ...] = ()
    fragmentation: Fragmentation | None = None
    waiting_for: WaitingFor | None = None
    lacks: tuple[Lack, ...] = ()
    """What the reasons of the funnel are about: which taint, label, resource, model, amount."""
    counterfactuals: tuple[Counterfactual, ...] = ()
    """What would make a waiting pod fit, the smallest change first. Each fits now; where nothing
    fits even an empty cluster (`status.fits_empty_cluster` false) each would fit that one."""
    advice: str = ""
    """What can be done about the cause, said of all pods that have it."""
    closest: tuple[Closest, ...] = ()
    in_queue: Place | None = None
    """Its position in the waiting line of its queue."""
    queue: str = ""
    placement: Placed | None = None
    problems: tuple[OpenProblem, ...] = ()
    """Open problems of a placed pod's node, card, device plugin or annotations."""
    candidates: tuple[Candidate, ...] = ()
    candidates_total: int = 0
    decided_by: DecidedBy | None = None
    decision: DecisionRef | None = None
    node_steps: NodeSteps | None = None
    timeline: tuple[Line, ...] = ()
    trace: TraceRef | None = None


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
    """The gate of its queue: the decision that admitted it, or the last verdict on it, and what
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
    """A pod that is evicted to make room."""

    namespace: str
    name: str
    node: str
    action: str


class GangStatus(_Sparse, frozen=True, kw_only=True):
    """`phase`: ``Unseen`` (no PodGroup of the name), ``NotInUse`` (no queues are known, so pods are
    placed one by one), ``NoQueue``, ``AtGate``, ``Incomplete`` (too few pods), ``Waiting``,
    ``Growing`` (it has its minimum, more of its pods wait), ``Placed`` or ``Completed``.

    Of `wanted` pods that it still needs at once, `together` fit now, if that was asked.
    """

    phase: str
    cause: Reason | None = None
    quota: tuple[Quota, ...] = ()
    """Which limits of its queue refuse it, if it is that."""
    since_seconds: int = 0
    group_phase: str = ""
    wanted: int = 0
    together: int | None = None
    fits_empty_cluster: bool | None = None
    at_most_empty: int | None = None
    """How many of its members can run together on empty nodes, if that is less than its minimum."""


class Wanted(_Fact, frozen=True, kw_only=True):
    """What each of a number of equal waiting pods of a group requests."""

    pods: int
    request: Request


class GangExplanation(_Sparse, frozen=True, kw_only=True):
    """Where a group stands, and why. `never_preempts`: no pod is evicted for it, or for some of its
    waiting pods, because of a `preemptionPolicy`.
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
    wants: tuple[Wanted, ...] = ()
    units: dict[str, int] = {}
    """What one of a resource stands for, in bytes, if it is memory of cards."""
    min_resources: dict[str, int] = {}
    """What it is admitted for, in Volcano's amounts."""
    problem: Reason | None = None
    gate: Gate | None = None
    said: Said | None = None
    members: tuple[Member, ...] = ()
    in_queue: Place | None = None
    queues: Place | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    """What would let it start now, the smallest change first."""
    kept: tuple[Kept, ...] = ()
    in_the_way: tuple[Kept, ...] = ()
    leaving: tuple[Leaving, ...] = ()


class QueueGroup(_Sparse, frozen=True, kw_only=True):
    """A group, or a pod without one, that waits in a queue, and why. For a group that was created
    for pods, and is named by a uid, `owner` names their owner.
    """

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
    owner: str = ""


class QueueExplanation(_Sparse, frozen=True, kw_only=True):
    """What a queue may have, what it has, and which groups wait in it."""

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
    limits: tuple[QueueLimit, ...] = ()
    waiting: tuple[QueueGroup, ...] = ()
    kept: tuple[Kept, ...] = ()
    holders: tuple[QueueHolder, ...] = ()
    """The users of its quota, the largest part first; only if a group or pod waits for quota."""
    units: dict[str, int] = {}
    """What one of a resource stands for, in bytes, if it is memory of cards."""


def quota_of(short: Sequence[QuotaShort]) -> tuple[Quota, ...]:
    return tuple(Quota(**msgspec.structs.asdict(each), text=quota_text(each)) for each in short)


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
