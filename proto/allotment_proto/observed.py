"""Facts in the log: what the watcher saw in Kubernetes and in configurations, and that time passed.

Each replaces what was known before under the same name. Events are values without cycles, so the
garbage collector need not look at them (`gc=False`): hundreds of thousands of them live in a fold.
"""

import msgspec

from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    Amount,
    Amounts,
    DeviceRequest,
    Holding,
    Int64,
    Inventory,
    LocalClaim,
    PodRequest,
    Policy,
    Problem,
    Seq,
    SubGroups,
    Taint,
    TaskTopology,
    Typical,
    refuse_twins,
)


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
    listed_twice: tuple[tuple[str, str], ...] = ()
    """Resources that count the cards of an inventory once more, each with the inventory's family:
    what is held of the one is not there for the other."""

    def __post_init__(self) -> None:
        refuse_twins("family", [inventory.family for inventory in self.inventories])
        refuse_twins("resource", [name for name, _ in self.extended])


class NodeGone(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    name: str
    uid: str
    rv: Seq


class Ending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What Kubernetes says about the end of a pod; each text is cut to a bounded length.

    `message` is the status's own, as kubelet or a device plugin worded it. `container` is the first
    one that failed, with its `exit_code` and `exit_reason` (``OOMKilled``). `disruption` and
    `disruption_message` are reason and message of the condition ``DisruptionTarget``: who ended it.
    """

    message: str = ""
    container: str = ""
    exit_code: Int64 = 0
    exit_reason: str = ""
    disruption: str = ""
    disruption_message: str = ""


class Death(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A container with devices that could not be started, or failed within seconds of its start.

    `container` is its name, `reason` kubelet's or the runtime's word for it (``StartError``,
    ``Error``), `exit_code` its exit code (0: it was not started), `message` what was said.
    """

    container: str
    reason: str
    exit_code: Int64 = 0
    message: str = ""


class Standing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod's annotations would have the device plugin of a node serve, to this pod or to
    whichever asks first: how many `devices` of a family, and which of them can be read.
    """

    node: str
    family: str
    devices: Amount
    holdings: tuple[Holding, ...] = ()


class PodObserved(
    msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True, gc=False
):
    """A pod as Kubernetes shows it now.

    `node` is empty while the pod is not bound. `holdings` are the devices that its annotations
    claim, no more of them than its limits ask for: they count for a pod that no decision placed.
    `annotated` is what they claim where that is something else. `problem` is a request that can
    never be granted as written. `tags` are what others may want to keep apart from on a card:
    ``group:<namespace>/<name>`` and ``exclusive:<rule>``. `owner` is the uid of its controller,
    `reason` the status's reason. `broken` says that it holds devices, but that its annotations do
    not tell which. `role` is the part of a
    job that it plays (`volcano.sh/task-spec`), `priority` its own (`volcano.sh/task-priority` wins
    over the pod's), `card_names` the alternatives of `volcano.sh/card.name`. `labels`, sorted, are
    what other pods' rules select by. `claims` are the PersistentVolumeClaims that must get
    its node before it is bound, so that their volumes are made where it can reach them. `preempts`
    is false if its `preemptionPolicy` is Never: no pod is evicted for it. `queue` is set while no
    annotation names the pod's group: without a `group` the pod is judged in that queue, at its gate
    like any group; with one it waits for
    that PodGroup to be made. `class_priority` is the pod's own priority where
    `priority` is the annotation's (None: there is no annotation).
    `local_claims` are those that get a volume which is there already, together with the node.
    `shares_pct` says of containers, by number, what percentage of its cards' memory each asks for:
    so much do its `holdings` count, whatever is claimed (none: as claimed).
    `ending` is what Kubernetes says about its end once it ended or is being deleted (None:
    nothing). It decides nothing, and is no reason for a record of its own.
    `misnamed` are annotations without effect, each with the one that was probably meant;
    `card_resources` the resources of cards that a pod asks for which waits for another scheduler.
    Neither decides anything.
    `unplaced` are the requests of a broken pod whose cards are unknown: each counts on
    every card that it can be on, and the rest of those cards can be given out (none: the node's
    cards take nothing new).
    `asks` is what a pod with a `problem` asks for, as far as it can be read: its
    `request` is empty. It decides nothing.
    `standing` is what a device plugin would serve by its annotations where that is not what the pod
    claims on its own node: no scheduler that keeps its books right writes that (None: nothing).
    `grace_s` is how long it may take to end once it is deleted, where that is more than a minute
    (0: it is not). `deadline_ms` is when it has to have ended, while it is being deleted (0: it is
    not, or unknown).
    `image` is that of the first container that asks for devices, of a pod of ours. `died` is how
    such a container failed as it started (None: it did not); it stays when the container is started
    again, and a second failure is no reason for a record of its own.
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
    phase: str
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
    annotated: tuple[Holding, ...] = ()
    queue: str = ""
    class_priority: Int64 | None = None
    local_claims: tuple[LocalClaim, ...] = ()
    shares_pct: tuple[tuple[Amount, Amount], ...] = ()
    ending: Ending | None = None
    misnamed: tuple[tuple[str, str], ...] = ()
    card_resources: tuple[str, ...] = ()
    unplaced: tuple[DeviceRequest, ...] = ()
    asks: PodRequest | None = None
    standing: Standing | None = None
    grace_s: Int64 = 0
    deadline_ms: Int64 = 0
    image: str = ""
    died: Death | None = None


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
    """The newest text of a configuration was read and, with `problems`, refused: what was active
    before stays active. Without any the refusal is over: the newest text is active.

    `source` says where the text is, `problems` what is wrong with it, each with its place there.
    `warnings` refuse nothing: lines of the text without effect, or places where none was found.
    """

    kind: str
    source: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class GroupObserved(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A PodGroup as Kubernetes shows it now.

    Amounts are Volcano's: `cpu` in milli-cores, `memory` in bytes, all others in thousandths.
    `min_resources` is None if it says nothing. `admitted` says that its phase is past Pending.
    `card_request` is `volcano.sh/card.request`, `waiting_most_ms` the annotation `sla-waiting-time`
    (−1: none). `owner` is the uid of its controller, empty if it has none. `sub_groups` are its
    `subGroupPolicy`: the first that a pod matches counts for it.
    `task_topology` is what the annotations `volcano.sh/task-topology-…` say (None: nothing).
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
    owner: str = ""
    sub_groups: tuple[SubGroups, ...] = ()
    task_topology: TaskTopology | None = None


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
    """The clock of the watcher stood at `at_ms` (Unix milliseconds). Recorded when a pod or group
    has waited as long as the plugin `sla` lets it: decisions go by recorded moments only.
    `unserved` are the uids of bound pods that their nodes' device plugins have not acknowledged for
    long.
    """

    at_ms: Int64
    unserved: tuple[str, ...] = ()
