"""The allocation log's vocabulary: past tense, complete, never changed once written.

A stored record is one `Envelope`: who appended it, when, and one or more events that take effect
together in order. Its position in the stream is its sequence.

* facts (watcher): `NodeObserved`, `NodeGone`, `PodObserved`, `PodGone`, `GroupObserved`,
  `GroupGone`, `QueueObserved`, `QueueGone`, `PriorityClassObserved`, `PriorityClassGone`,
  `PolicyLoaded`, `MixLearned`, `DevicesConfigured`, `ConfigurationChecked`, `TimePassed`
* decisions (binder, by compare-and-append): `Decided`
* outcomes (binder): `Bound`, `BindFailed`, `Evicted`

Events are values without cycles, so the garbage collector need not look at them (`gc=False`):
hundreds of thousands of them live in a fold.
"""

import msgspec

from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    Amount,
    Amounts,
    Holding,
    Int64,
    Inventory,
    PodRequest,
    Policy,
    Problem,
    Seq,
    Taint,
    Typical,
    refuse_twins,
)

ENVELOPE_VERSION = 4
"""The newest version that this release reads; a record is written with `version_of` its events."""


class NodeObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A node as Kubernetes shows it now. Replaces what was known under the same name.

    `rv` is the object's resourceVersion: an older observation that arrives late is ignored.
    """

    name: str
    uid: str
    rv: Seq
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    pods: Amount = 0
    extended: Amounts = ()
    inventories: tuple[Inventory, ...] = ()
    problems: tuple[Problem, ...] = ()
    volume_limits: Amounts = ()
    """By driver, sorted: how many volumes can be attached. What is not named has no limit."""
    images: Amounts = ()
    """Sizes in MiB by name, sorted, of images here that pods of ours have asked for."""

    def __post_init__(self) -> None:
        refuse_twins("family", [inventory.family for inventory in self.inventories])
        refuse_twins("resource", [name for name, _ in self.extended])


class NodeGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    name: str
    uid: str
    rv: Seq


class PodObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A pod as Kubernetes shows it now.

    `node` is empty while the pod is not bound. `holdings` are the devices that its annotations say
    it holds (charged even when another scheduler bound it). `problem` is a request that can never
    be granted as written. `tags` are what others may want to keep apart from on a card:
    ``group:<namespace>/<name>`` and ``exclusive:<rule>``. `owner` is the uid of its controller,
    `reason` the status's reason. `broken` says that it holds devices, but that its annotations do
    not tell which: until that is mended its node's cards take nothing new. `role` is the part of a
    job that it plays (`volcano.sh/task-spec`), `priority` its own (`volcano.sh/task-priority` wins
    over the pod's), `card_names` the alternatives of `volcano.sh/card.name`. `labels`, sorted, are
    what other pods' rules select by. `claims` are the PersistentVolumeClaims that are to be told
    its node before it is bound, so that their volumes are made where it can reach them. `preempts`
    is false if its `preemptionPolicy` is Never: nobody is evicted for it.
    """

    uid: str
    namespace: str
    name: str
    rv: Seq
    created_ms: Int64
    scheduler: str
    request: PodRequest
    priority: Int64 = 0
    gated: bool = False
    deleting: bool = False
    phase: str = "Pending"
    node: str = ""
    holdings: tuple[Holding, ...] = ()
    bind_phase: str = ""
    group: str = ""
    problem: Problem | None = None
    tags: tuple[str, ...] = ()
    owner: str = ""
    reason: str = ""
    broken: Problem | None = None
    role: str = ""
    preemptable: bool = True
    priority_class: str = ""
    card_names: tuple[str, ...] = ()
    nominated_node: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    claims: tuple[str, ...] = ()
    preempts: bool = True


class PodGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    uid: str
    namespace: str
    name: str
    rv: Seq


class PolicyLoaded(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A configuration took effect. Its version is the sequence of this record."""

    policy: Policy
    source: str
    text_sha256: str


class MixLearned(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """What the pods seen so far typically ask for, for device policies that look ahead.

    `policy` is the device policy it was learned for, `pods` how many pods it was learned from.
    """

    policy: str
    mix: tuple[Typical, ...]
    pods: Amount


class DevicesConfigured(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A device configuration took effect. Its version is the sequence of this record."""

    config: DeviceConfig
    source: str
    text_sha256: str


SCHEDULER_CONFIG, DEVICE_CONFIG = "scheduler", "device"
"""Kinds of configuration: the scheduler's (`PolicyLoaded`), the devices' (`DevicesConfigured`)."""


class ConfigurationChecked(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The newest text of a configuration was read and, with `problems`, refused: what was in force
    before stays so. Without any the refusal is over: what is written is in force.

    `source` says where the text is, `problems` what is wrong with it, each with its place there.
    """

    kind: str
    source: str
    problems: tuple[Problem, ...] = ()


class GroupObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A PodGroup as Kubernetes shows it now.

    Amounts are Volcano's: `cpu` in milli-cores, `memory` in bytes, all others in thousandths.
    `min_resources` is None if it says nothing. `admitted` says that its phase is past Pending.
    `card_request` is `volcano.sh/card.request`, `waiting_most_ms` the annotation `sla-waiting-time`
    (−1: none).
    """

    uid: str
    namespace: str
    name: str
    rv: Seq
    created_ms: Int64 = 0
    queue: str = "default"
    priority_class: str = ""
    min_member: Int64 = 1
    min_task_member: tuple[tuple[str, Int64], ...] = ()
    min_resources: Amounts | None = None
    phase: str = ""
    preemptable: bool = False
    card_request: Amounts = ()
    waiting_most_ms: Int64 = -1
    problem: Problem | None = None


class GroupGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    uid: str
    namespace: str
    name: str
    rv: Seq


class QueueObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A Queue as Kubernetes shows it now; amounts as in `GroupObserved`.

    `card_quota` is the annotation `volcano.sh/card.quota`, None without one. `node_groups` are
    required, preferred, anti-required and anti-preferred names of `spec.affinity`, None without it.
    """

    uid: str
    name: str
    rv: Seq
    created_ms: Int64 = 0
    weight: Int64 = 1
    capability: Amounts = ()
    deserved: Amounts = ()
    guarantee: Amounts = ()
    priority: Int64 = 0
    parent: str = "root"
    reclaimable: bool = True
    state: str = "Open"
    card_quota: Amounts | None = None
    node_groups: tuple[tuple[str, ...], ...] | None = None
    problem: Problem | None = None


class QueueGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    uid: str
    name: str
    rv: Seq


class PriorityClassObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A PriorityClass as Kubernetes shows it now; `preempts` as in `PodObserved`."""

    uid: str
    name: str
    rv: Seq
    value: Int64
    is_default: bool = False
    preempts: bool = True


class PriorityClassGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    uid: str
    name: str
    rv: Seq


class TimePassed(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The clock of the watcher stood at `at_ms` (Unix milliseconds). Told when somebody has waited
    as long as the plugin `sla` lets it: decisions go by recorded moments only.
    """

    at_ms: Int64


class RunnerUp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node that would also have fit, and its total in micro-points (10⁻⁶ of a point)."""

    node: str
    score_micro: Int64
    cards: tuple[str, ...]


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod put on one node, with all amounts, so that it can be charged without any lookup.

    `terms` are the weighted parts of `score_micro`. `stamp_s` orders the pods of a node for its
    device plugin (strictly increasing per node, at least the Unix time in seconds).
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


class Dropped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A proposed placement that no longer fitted when the binder asked again."""

    placement: Placement
    code: str


class Refusal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that fits nowhere now. `reasons` count every node once, by its first obstacle.

    With a `problem` the pod's own request is at fault and no node was asked. `notes` say in words
    what stands behind reasons that are about others: for whom a node is held, what a queue may use.
    """

    uid: str
    namespace: str
    name: str
    nodes: Amount
    reasons: tuple[tuple[str, Amount], ...]
    problem: Problem | None = None
    notes: tuple[str, ...] = ()


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
    """A PodGroup that may have its pods made and placed, or (with a code) may not yet."""

    group: str
    code: str = ""
    message: str = ""


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

    That need not be where a victim goes: some pods of a group may find room as it is.
    """

    uid: str
    namespace: str
    name: str
    node: str
    preemptor: str


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


class Decided(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """One cycle's decisions, and all they stood on, so that they can be made again and compared.

    The scorer placed `batch` in order on the state at `basis`; the binder checked every placement
    again on the state at `checked` and appended this expecting no other decision since. `assumed`
    are cycles the scorer counted on that were not in the log yet. `policy` is the sequence of the
    `PolicyLoaded` in force. A refusal that repeats the pod's last one word for word is left out.

    The placements of the pods in one of the `wholes` stand together or not at all: they are the
    minimum of a PodGroup. `shorts` are groups that did not get theirs, `admissions` groups that
    passed the gate of their queue or are told what they lack, `evictions` pods that make room,
    `holds` all reservations from now on (None: as before). `nominations` are the pods for which
    the victims go: the nodes are kept for them until they were tried there with all victims gone.
    """

    cycle: str
    basis: Seq
    checked: Seq
    policy: Seq
    batch: tuple[str, ...]
    placements: tuple[Placement, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    assumed: tuple[str, ...] = ()
    stages: tuple[StageTime, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()
    shorts: tuple[Short, ...] = ()
    admissions: tuple[Admission, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    holds: tuple[Held, ...] | None = None
    nominations: tuple[Nomination, ...] = ()


class Evicted(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The API server took the eviction of decision `decision`, or (with a code) refused it."""

    uid: str
    namespace: str
    name: str
    node: str
    decision: Seq
    code: str = ""
    message: str = ""


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


Event = (
    NodeObserved
    | NodeGone
    | PodObserved
    | PodGone
    | PolicyLoaded
    | MixLearned
    | DevicesConfigured
    | ConfigurationChecked
    | GroupObserved
    | GroupGone
    | QueueObserved
    | QueueGone
    | PriorityClassObserved
    | PriorityClassGone
    | TimePassed
    | Decided
    | Bound
    | BindFailed
    | Evicted
)
SINCE_V2 = (MixLearned,)
"""Events that releases which read version 1 only do not know."""
SINCE_V3 = (
    DevicesConfigured,
    GroupObserved,
    GroupGone,
    QueueObserved,
    QueueGone,
    PriorityClassObserved,
    PriorityClassGone,
    Evicted,
)
SINCE_V4 = (TimePassed, ConfigurationChecked)


_SINCE: dict[type[object], int] = {
    kind: version
    for version, kinds in ((2, SINCE_V2), (3, SINCE_V3), (4, SINCE_V4))
    for kind in kinds
}


def version_of(events: tuple[Event, ...]) -> int:
    """The lowest version that a record of these events can have."""
    return max(map(_needed, events), default=1)


def _needed(event: Event) -> int:
    return 3 if _has_v3(event) else _SINCE.get(type(event), 1)


def _has_v3(event: Event) -> bool:
    """Whether a decision means something else to a release that passes over its newer fields."""
    return isinstance(event, Decided) and bool(
        event.wholes or event.admissions or event.evictions or event.holds or event.nominations
    )


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of the log. `by` is the appending service and instance, `at_ms` its Unix time."""

    v: Int64
    at_ms: Int64
    by: str
    events: tuple[Event, ...]
