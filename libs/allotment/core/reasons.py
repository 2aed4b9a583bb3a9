"""Every "no" has a code from the table below. Codes are stable: tools and alerts key on them.

The table says everything about a code: at which step of `predicates.fits` a node refuses with it,
what ends it, and what its reader should know and do. Whatever sorts codes is derived from the
table here, so that a new code is one constant and one row.
"""

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from allotment.core.units import resource_text
from allotment_proto.events import Admission, QuotaShort, Refusal
from allotment_proto.facts import Problem

# Node
NODE_NOT_READY: Final = "NodeNotReady"
NODE_CORDONED: Final = "NodeCordoned"
TAINT_NOT_TOLERATED: Final = "TaintNotTolerated"
SELECTOR_MISMATCH: Final = "SelectorMismatch"
AFFINITY_MISMATCH: Final = "AffinityMismatch"
VOLUME_OUT_OF_REACH: Final = "VolumeOutOfReach"
NODE_GROUP: Final = "NodeGroupMismatch"
CARD_WITHOUT_QUOTA: Final = "CardWithoutQuota"
NOT_NOMINATED: Final = "NotNominatedNode"
HOST_PORT_TAKEN: Final = "HostPortTaken"
CLAIM_IN_USE: Final = "ClaimInUse"
POD_AFFINITY_MISMATCH: Final = "PodAffinityMismatch"
POD_ANTI_AFFINITY: Final = "PodAntiAffinity"
REPELLED_BY_POD: Final = "RepelledByPod"
SPREAD_MISMATCH: Final = "SpreadMismatch"
VOLUME_LIMIT_REACHED: Final = "VolumeLimitReached"
POD_LIMIT_REACHED: Final = "PodLimitReached"
INSUFFICIENT_CPU: Final = "InsufficientCPU"
INSUFFICIENT_MEMORY: Final = "InsufficientMemory"
CARDS_IN_OTHER_USE: Final = "CardsInOtherUse"
CARDS_LISTED_TWICE: Final = "CardsListedTwice"
INSUFFICIENT_RESOURCE: Final = "InsufficientResource"
HELD_FOR_GANG: Final = "HeldForGang"
KEPT_FOR_PREEMPTOR: Final = "KeptForPreemptor"
NODE_FAILING: Final = "NodeFailing"
DEVICE_PLUGIN_BUSY: Final = "DevicePluginBusy"
NO_NODES: Final = "NoNodes"

# Device
NO_GPU: Final = "NoGPU"
RECORD_FORGED: Final = "RecordForged"
CARDS_QUARANTINED: Final = "CardsQuarantined"
GPU_MODE_MISMATCH: Final = "GPUModeMismatch"
NOT_ENOUGH_GPUS_ON_NODE: Final = "NotEnoughGPUsOnNode"
GPU_NOT_SELECTED: Final = "GPUNotSelected"
CARD_FAILING: Final = "CardFailing"
GPU_MODEL_MISMATCH: Final = "GPUModelMismatch"
GPU_UNHEALTHY: Final = "GPUUnhealthy"
CARD_UNHEALTHY: Final = "CardUnhealthy"
NODE_GONE: Final = "NodeGone"
CARD_KEPT_APART: Final = "CardKeptApart"
SHARE_LIMIT_REACHED: Final = "ShareLimitReached"
EXCLUSIVE_CONFLICT: Final = "ExclusiveConflict"
INSUFFICIENT_GPU_MEMORY: Final = "InsufficientGPUMemory"
NO_FITTING_INSTANCE: Final = "NoFittingInstance"
INSUFFICIENT_GPU_COMPUTE: Final = "InsufficientGPUCompute"

# Request
INVALID_REQUEST: Final = "InvalidRequest"
VOLUME_NOT_READY: Final = "VolumeNotReady"
UNKNOWN_FIELD: Final = "UnknownField"
GUARANTEE_TOO_LARGE: Final = "GuaranteeTooLarge"
ANNOTATION_NOT_READ: Final = "AnnotationNotRead"
NAMESPACE_LIMIT: Final = "NamespaceLimitReached"
GATED: Final = "Gated"
NOT_OURS: Final = "NotOurs"
QUEUED: Final = "Queued"

# Queue
QUEUE_UNKNOWN: Final = "QueueUnknown"
SCHEDULER_DEFECT: Final = "SchedulerDefect"
QUEUE_CLOSED: Final = "QueueClosed"
QUEUE_NOT_LEAF: Final = "QueueNotLeaf"
QUEUE_OVERUSED: Final = "QueueOverused"
QUEUE_QUOTA: Final = "QueueQuotaInsufficient"
CLUSTER_OVERUSED: Final = "ClusterOverused"
CLUSTER_INSUFFICIENT: Final = "ClusterInsufficient"
PROMISED_BEFORE: Final = "PromisedBefore"
EMPTY_CAPABILITY: Final = "EmptyQueueCapability"
CPU_QUOTA: Final = "InsufficientCPUQuota"
MEMORY_QUOTA: Final = "InsufficientMemoryQuota"
SCALAR_QUOTA: Final = "InsufficientScalarQuota"
CARD_UNREADABLE: Final = "GetTaskRequestResourceFailed"
QUOTA_UNREADABLE: Final = "CardQuotaUnreadable"

# Group
GROUP_MISSING: Final = "GroupMissing"
GANG_INCOMPLETE: Final = "GangIncomplete"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
NOT_ENOUGH_TASKS: Final = "NotEnoughTasks"
NOT_ENOUGH_PODS_OF_TASK: Final = "NotEnoughPodsOfTask"
SAME_ROLE_FAILED: Final = "SameRoleFailed"

# Eviction
DISRUPTION_BUDGET: Final = "DisruptionBudget"
OTHER_VICTIM_STAYS: Final = "OtherVictimStays"
POD_ENDED: Final = "PodEnded"

# Machinery
STALE_LEDGER: Final = "StaleLedger"
BIND_CONFLICT: Final = "BindConflict"
API_ERROR: Final = "APIError"
POD_GONE: Final = "PodGone"

# Device plugin
WAITING_FOR_PLUGIN: Final = "WaitingForDevicePlugin"
NOT_ACKNOWLEDGED: Final = "NotAcknowledged"
MISDELIVERED: Final = "Misdelivered"
"""Of a `Corrected`: the pod was served with another one's record, and its devices are known."""
DEVICES_UNKNOWN: Final = "DevicesUnknown"
"""Of a `Corrected`: it was, but it is unknown with whose."""
CLAIM_MISMATCH: Final = "ClaimMismatch"
CLAIM_UNREADABLE: Final = "ClaimUnreadable"


class Step(NamedTuple):
    """One step of `predicates.fits`: its stable name, and the same for people."""

    key: str
    text: str
    is_of_card: bool = False
    """Whether each card is asked, not the node as a whole."""
    is_rare: bool = False
    """Whether few pods have it: an explanation leaves it out where it costs no node."""


STEPS: Final = (
    Step("nodeReady", "ready and not cordoned"),
    Step("nodeConstraints", "taints, selector, affinity"),
    Step("volumes", "its volumes can be reached", is_rare=True),
    Step("queueNodes", "its queue may use the node", is_rare=True),
    Step("nominated", "the node that an eviction makes room on for it", is_rare=True),
    Step("otherPods", "rules about other pods", is_rare=True),
    Step("volumeLimits", "its volumes can be attached", is_rare=True),
    Step("hostRoom", "room on the host"),
    Step("cardBook", "its cards are not in use as a whole, or in shares", is_rare=True),
    Step("devices", "has such devices"),
    Step("gpuModel", "a card that the pod accepts", is_of_card=True),
    Step("sharing", "that card can be shared", is_of_card=True),
    Step("gpuMemory", "with enough unreserved memory", is_of_card=True),
    Step("gpuCompute", "with enough unreserved compute", is_of_card=True),
    Step("otherResources", "other resources"),
    Step("keptForOthers", "not kept for others", is_rare=True),
    Step("nodeHealth", "its last pods started", is_rare=True),
    Step("pluginBacklog", "its device plugin has no other pods to serve", is_rare=True),
)
"""The steps in their order. A node is charged to the first that it fails."""


class Cure(Enum):
    """What ends a refusal."""

    NODE = "the node changes"
    POD = "the pod accepts other nodes"
    EITHER = "the node or the pod changes"
    ROOM = "a pod on the node ends"
    PODS = "other pods start or end"
    HOLD = "a reservation for another pod ends"
    QUEUE = "a queue changes"
    QUOTA = "other pods of the queue end"
    GROUP = "the group has all its pods, and room for them"
    PLUGIN = "the node's device plugin reports its devices"
    SERVED = "the device plugin handles another pod"
    TRIAL = "the node or card gets another trial"
    DEVICE = "a card or its holder changes"
    TEXT = "the invalid text is fixed"
    SOURCE = "the configuration can be read"
    RETRY = "the pod is tried"
    NOTHING = "never: the pod has ended"


FAR: Final = 4
"""The distance of a node that the pod or the node excludes."""


class Reason(NamedTuple):
    """One code. The order of the rows is the order of the checks."""

    code: str
    cured_by: Cure
    text: str
    """What is the case."""
    advice: str
    """What its reader can do about it."""
    step: str = ""
    """The `Step` at which a node refuses with it; empty if nodes do not."""
    distance: int = FAR
    """How far such a node is from taking the pod, for those that no release cures: 1 is nearest."""
    is_of_group: bool = False
    """Whether it says why the whole group waits, so that its other members hear the same."""
    is_error: bool = False
    """Of a problem of a node: whether pods are refused or cards oversold because of it."""


_HELD_BY_OTHERS = "wait until a pod on the card ends, or delete one: allot explain names them"
_SMALLER = "request less, or wait until a pod on the node ends"

TABLE: Final = (
    Reason(
        NODE_NOT_READY,
        Cure.NODE,
        "the node's Ready condition is not True",
        "repair the node, or wait until its kubelet reports again",
        step="nodeReady",
    ),
    Reason(
        NODE_CORDONED,
        Cure.NODE,
        "the node is marked unschedulable",
        "run kubectl uncordon, if the node may take pods again",
        step="nodeReady",
    ),
    Reason(
        TAINT_NOT_TOLERATED,
        Cure.NODE,
        "the node has a taint that the pod does not tolerate",
        "add a toleration to the pod, or remove the taint from the node",
        step="nodeConstraints",
    ),
    Reason(
        SELECTOR_MISMATCH,
        Cure.POD,
        "the node lacks a label of the pod's nodeSelector",
        "correct the pod's nodeSelector, or label the node",
        step="nodeConstraints",
    ),
    Reason(
        AFFINITY_MISMATCH,
        Cure.POD,
        "the node matches no term of the pod's required node affinity",
        "correct the pod's node affinity, or label the node",
        step="nodeConstraints",
    ),
    Reason(
        VOLUME_OUT_OF_REACH,
        Cure.EITHER,
        "a volume of the pod cannot be reached from the node",
        "use a volume that these nodes can reach, or let the pod run where its volume is",
        step="volumes",
    ),
    Reason(
        NODE_GROUP,
        Cure.QUEUE,
        "the queue may not use the node's group",
        "submit to a queue that may use these nodes, or change the queue's node group affinity",
        step="queueNodes",
        is_of_group=True,
    ),
    Reason(
        CARD_WITHOUT_QUOTA,
        Cure.QUEUE,
        "the node has no card for which the pod's queue has quota",
        "accept another card model, or give the queue quota for this one",
        step="queueNodes",
    ),
    Reason(
        NOT_NOMINATED,
        Cure.RETRY,
        "the pod is nominated for another node, where pods are evicted for it",
        "no action needed: its nominated node is tried first, then all others",
        step="nominated",
    ),
    Reason(
        HOST_PORT_TAKEN,
        Cure.ROOM,
        "another pod on the node uses a host port that the pod requests",
        "use another host port, or wait until the other pod ends",
        step="otherPods",
    ),
    Reason(
        CLAIM_IN_USE,
        Cure.ROOM,
        "a claim of the pod serves one pod at a time (ReadWriteOncePod) and another pod has it",
        "wait until the other pod ends, or give the pod a claim of its own",
        step="otherPods",
    ),
    Reason(
        POD_AFFINITY_MISMATCH,
        Cure.PODS,
        "no pod that the required pod affinity names runs in the node's topology domain",
        "start such a pod first, or correct the pod affinity",
        step="otherPods",
    ),
    Reason(
        POD_ANTI_AFFINITY,
        Cure.ROOM,
        "a pod that the required pod anti-affinity names runs in the node's topology domain",
        "wait until the other pod ends, or relax the pod anti-affinity",
        step="otherPods",
    ),
    Reason(
        REPELLED_BY_POD,
        Cure.ROOM,
        "a pod in the node's topology domain has a required anti-affinity to this pod",
        "wait until the other pod ends, or relax that pod's anti-affinity",
        step="otherPods",
    ),
    Reason(
        SPREAD_MISMATCH,
        Cure.ROOM,
        "the node's topology domain would exceed a topology spread constraint",
        "raise maxSkew, or make room in the domains that hold fewer pods",
        step="otherPods",
    ),
    Reason(
        VOLUME_LIMIT_REACHED,
        Cure.ROOM,
        "the node cannot attach that many volumes of a driver",
        "wait until a pod with such volumes ends, or use fewer volumes",
        step="volumeLimits",
    ),
    Reason(
        POD_LIMIT_REACHED,
        Cure.ROOM,
        "the node already runs its maximum number of pods",
        "wait until a pod on the node ends, or raise the kubelet's maxPods",
        step="hostRoom",
    ),
    Reason(
        INSUFFICIENT_CPU,
        Cure.ROOM,
        "not enough free CPU on the node",
        _SMALLER,
        step="hostRoom",
    ),
    Reason(
        INSUFFICIENT_MEMORY,
        Cure.ROOM,
        "not enough free memory on the node",
        _SMALLER,
        step="hostRoom",
    ),
    Reason(
        CARDS_IN_OTHER_USE,
        Cure.ROOM,
        "the node lists its cards twice, and some are already in use whole or in shares",
        "wait until these pods end, or run one device plugin on the node",
        step="cardBook",
    ),
    Reason(
        NO_GPU,
        Cure.EITHER,
        "the node has no device of the requested kind",
        "request a device that nodes offer (allot ledger lists them), or deploy its device plugin",
        step="devices",
    ),
    Reason(
        RECORD_FORGED,
        Cure.DEVICE,
        "a pod's forged annotations would make the node's device plugin give its devices to others",
        "delete that pod (allot doctor names it), and install deploy/base/annotation-policy.yaml",
        step="devices",
        distance=1,
        is_error=True,
    ),
    Reason(
        CARDS_QUARANTINED,
        Cure.DEVICE,
        "a pod on the node holds devices, and its annotations do not say which",
        "correct that pod's annotation, or delete that pod: allot doctor names it",
        step="devices",
        distance=1,
    ),
    Reason(
        GPU_MODE_MISMATCH,
        Cure.EITHER,
        "the node's sharing mode is not the requested one",
        "change the requested sharing mode, or that of the node's device plugin",
        step="devices",
        distance=3,
    ),
    Reason(
        NOT_ENOUGH_GPUS_ON_NODE,
        Cure.ROOM,
        "a container requests more cards than the node has, or than it "
        "has left where cards are only counted",
        "request fewer cards in one container, or wait until cards of the node are free",
        step="devices",
    ),
    Reason(
        GPU_NOT_SELECTED,
        Cure.EITHER,
        "no card has an id or index that the pod selects",
        "correct the pod's card selection: allot ledger lists the ids",
        step="gpuModel",
        distance=2,
    ),
    Reason(
        CARD_FAILING,
        Cure.TRIAL,
        "suitable cards are held back because pods did not start on them",
        "repair the card (allot doctor shows the records); it is retried automatically",
        step="gpuModel",
        distance=1,
    ),
    Reason(
        GPU_MODEL_MISMATCH,
        Cure.EITHER,
        "no card has a model that the pod accepts",
        "accept another card model: allot ledger lists what nodes have",
        step="gpuModel",
        distance=2,
    ),
    Reason(
        GPU_UNHEALTHY,
        Cure.DEVICE,
        "every otherwise suitable card is unhealthy",
        "repair the cards, or restart their device plugin: allot doctor names them",
        step="gpuModel",
        distance=1,
    ),
    Reason(
        CARD_KEPT_APART,
        Cure.ROOM,
        "suitable cards are in use by pods that must not share a card with this one",
        _HELD_BY_OTHERS,
        step="sharing",
    ),
    Reason(
        SHARE_LIMIT_REACHED,
        Cure.ROOM,
        "suitable cards already have their maximum number of pods",
        _HELD_BY_OTHERS,
        step="sharing",
    ),
    Reason(
        EXCLUSIVE_CONFLICT,
        Cure.ROOM,
        "a whole card is requested but others use a part of it, or the reverse",
        f"request a part of a card, or {_HELD_BY_OTHERS}",
        step="sharing",
    ),
    Reason(
        INSUFFICIENT_GPU_MEMORY,
        Cure.ROOM,
        "no suitable card has enough free memory",
        f"request less memory of a card, or {_HELD_BY_OTHERS}",
        step="gpuMemory",
    ),
    Reason(
        NO_FITTING_INSTANCE,
        Cure.ROOM,
        "no suitable card has a free piece that is large enough",
        f"request a smaller piece, or {_HELD_BY_OTHERS}",
        step="gpuMemory",
    ),
    Reason(
        INSUFFICIENT_GPU_COMPUTE,
        Cure.ROOM,
        "no suitable card has enough free compute",
        f"request less compute of a card, or {_HELD_BY_OTHERS}",
        step="gpuCompute",
    ),
    Reason(
        INSUFFICIENT_RESOURCE,
        Cure.ROOM,
        "not enough of another requested resource",
        _SMALLER,
        step="otherResources",
    ),
    Reason(
        HELD_FOR_GANG,
        Cure.HOLD,
        "the place or quota is reserved for a group that was skipped too often",
        "wait until the group has started: allot explain names it",
        step="keptForOthers",
        is_of_group=True,
    ),
    Reason(
        KEPT_FOR_PREEMPTOR,
        Cure.HOLD,
        "the place is reserved for a preemptor until its victims are gone",
        "wait until the group has started: allot explain names it",
        step="keptForOthers",
        is_of_group=True,
    ),
    Reason(
        NODE_FAILING,
        Cure.TRIAL,
        "the node would take the pod, but is held back because pods did not start on it",
        "repair the node (allot doctor shows the records), then cordon and uncordon it, or wait",
        step="nodeHealth",
        distance=-1,
        is_error=True,
    ),
    Reason(
        DEVICE_PLUGIN_BUSY,
        Cure.SERVED,
        "many pods wait for the node's device plugin, so the pod starts sooner elsewhere",
        "no action needed: the node is skipped only while another one takes the pod",
        step="pluginBacklog",
    ),
    Reason(
        NO_NODES,
        Cure.NODE,
        "the cluster has no node",
        "add a node, or check with allot status that the watcher runs",
    ),
    Reason(
        INVALID_REQUEST,
        Cure.TEXT,
        "the pod's request is invalid",
        "fix the field named above and recreate the pod",
    ),
    Reason(
        VOLUME_NOT_READY,
        Cure.RETRY,
        "a volume of the pod does not exist or is not available yet",
        "create the PersistentVolumeClaim or the volume named above",
    ),
    Reason(
        NAMESPACE_LIMIT,
        Cure.RETRY,
        "the pods of its namespace already make as many different requests as one namespace may",
        "use the same rules and resources in the pods of the namespace, or delete some of them",
    ),
    Reason(
        GATED,
        Cure.POD,
        "the pod has scheduling gates",
        "remove the pod's schedulingGates, or wait for the controller that set them",
    ),
    Reason(
        NOT_OURS,
        Cure.POD,
        "the pod names another scheduler",
        "set the pod's schedulerName to one that Allotment serves",
    ),
    Reason(
        QUEUED,
        Cure.RETRY,
        "the pod was not tried yet",
        "wait; if it lasts, ask allot doctor, which names services that do not work",
    ),
    Reason(
        QUEUE_UNKNOWN,
        Cure.QUEUE,
        "the group names a queue that does not exist",
        "correct the queue's name, or create the queue",
        is_of_group=True,
    ),
    Reason(
        SCHEDULER_DEFECT,
        Cure.POD,
        "the scheduler fails on this pod or group and skips it",
        "report the error with the manifest; delete the pod or group, or change it",
        is_of_group=True,
    ),
    Reason(
        QUEUE_CLOSED,
        Cure.QUEUE,
        "the queue is closed",
        "open the queue, or submit to another one",
        is_of_group=True,
    ),
    Reason(
        QUEUE_NOT_LEAF,
        Cure.QUEUE,
        "the queue has child queues, and only queues without children accept pods",
        "submit to one of its child queues",
        is_of_group=True,
    ),
    Reason(
        QUEUE_OVERUSED,
        Cure.PODS,
        "the queue already has its full deserved share",
        "wait until pods of the queue end, or raise what the queue deserves",
        is_of_group=True,
    ),
    Reason(
        QUEUE_QUOTA,
        Cure.QUOTA,
        "the queue, or one above it, has no quota left for the request",
        "raise the queue's quota, or delete pods that use it: see allot explain queue",
        is_of_group=True,
    ),
    Reason(
        CLUSTER_OVERUSED,
        Cure.PODS,
        "groups admitted earlier already request the whole cluster",
        "wait until those groups end, or add nodes",
        is_of_group=True,
    ),
    Reason(
        CLUSTER_INSUFFICIENT,
        Cure.PODS,
        "the cluster does not have enough left",
        "request less, wait until other pods end, or add nodes",
        is_of_group=True,
    ),
    Reason(
        PROMISED_BEFORE,
        Cure.PODS,
        "the rest is promised to groups of its namespace that were admitted earlier",
        "wait until the pods of those groups have been tried, two seconds at most",
        is_of_group=True,
    ),
    Reason(
        EMPTY_CAPABILITY,
        Cure.QUEUE,
        "the queue has neither a capability nor a card quota, so it may use nothing",
        "give the queue a capability or a card quota",
        is_of_group=True,
    ),
    Reason(
        CPU_QUOTA,
        Cure.QUOTA,
        "the queue's CPU quota does not cover the request",
        "raise the queue's CPU quota, or delete pods that use it: see allot explain queue",
        is_of_group=True,
    ),
    Reason(
        MEMORY_QUOTA,
        Cure.QUOTA,
        "the queue's memory quota does not cover the request",
        "raise the queue's memory quota, or delete pods that use it: see allot explain queue",
        is_of_group=True,
    ),
    Reason(
        SCALAR_QUOTA,
        Cure.QUOTA,
        "the queue's quota of this card or resource does not cover the request",
        "raise that quota of the queue, or delete pods that use it: see allot explain queue",
        is_of_group=True,
    ),
    Reason(
        CARD_UNREADABLE,
        Cure.TEXT,
        "the pod names a card that no node has, or its request for it is invalid",
        "correct the pod's card name and request: allot ledger lists what nodes have",
        is_of_group=True,
    ),
    Reason(
        QUOTA_UNREADABLE,
        Cure.TEXT,
        "the queue's card quota cannot be read",
        "correct the card quota annotation of the queue",
        is_of_group=True,
    ),
    Reason(
        GROUP_MISSING,
        Cure.GROUP,
        "the pod's PodGroup does not exist",
        "create the PodGroup, or check that the controller that creates it runs",
    ),
    Reason(
        GANG_INCOMPLETE,
        Cure.GROUP,
        "other members of the group found no place",
        "run allot explain gang to see why the other members wait",
        is_of_group=True,
    ),
    Reason(
        NOT_ENOUGH_RESOURCES,
        Cure.GROUP,
        "the group's members do not all fit together",
        "request less per pod, lower minMember, or wait until other pods end",
        is_of_group=True,
    ),
    Reason(
        NOT_ENOUGH_TASKS,
        Cure.GROUP,
        "the group has fewer pods than it needs to start",
        "create the missing pods, or lower minMember",
        is_of_group=True,
    ),
    Reason(
        NOT_ENOUGH_PODS_OF_TASK,
        Cure.GROUP,
        "one role of the group has fewer pods than it needs to start",
        "create the missing pods of the role, or lower its minTaskMember",
        is_of_group=True,
    ),
    Reason(
        SAME_ROLE_FAILED,
        Cure.GROUP,
        "another pod of the same role does not fit",
        "run allot explain gang to see why the other pod waits",
        is_of_group=True,
    ),
    Reason(
        DISRUPTION_BUDGET,
        Cure.RETRY,
        "a disruption budget allows no eviction of the pod now",
        "wait until the budget allows it, or relax the PodDisruptionBudget",
    ),
    Reason(
        OTHER_VICTIM_STAYS,
        Cure.RETRY,
        "another pod that would have to be evicted with it cannot be evicted, so neither is",
        "no action needed: other pods, or none, are evicted instead",
    ),
    Reason(
        POD_ENDED,
        Cure.NOTHING,
        "the pod ended by itself before it was evicted",
        "no action needed: its devices are free",
    ),
    Reason(
        STALE_LEDGER,
        Cure.RETRY,
        "another pod took the place first; the pod is retried",
        "no action needed: it is retried at once",
    ),
    Reason(
        BIND_CONFLICT,
        Cure.RETRY,
        "the API server refused the Binding",
        "check whether another scheduler uses the same schedulerName",
    ),
    Reason(
        API_ERROR,
        Cure.RETRY,
        "the API server could not be reached or answered with an error",
        "check that the API server answers and that the binder has its RBAC rights",
    ),
    Reason(
        POD_GONE,
        Cure.NOTHING,
        "the pod was deleted before it could be bound",
        "no action needed: the pod is gone",
    ),
    Reason(
        WAITING_FOR_PLUGIN,
        Cure.SERVED,
        "the device plugin has to allocate another pod of the node first",
        "wait; if that pod does not start, delete it",
    ),
    Reason(
        NOT_ACKNOWLEDGED,
        Cure.SERVED,
        "the pod is bound, and the device plugin has not allocated its devices yet",
        "check that the node's device plugin runs; if the pod does not start, delete it",
    ),
    Reason(
        MISDELIVERED,
        Cure.DEVICE,
        "the device plugin gave the pod another pod's devices",
        "delete the pod: it uses devices that were meant for another pod",
    ),
    Reason(
        DEVICES_UNKNOWN,
        Cure.DEVICE,
        "the device plugin gave the pod unknown devices",
        "delete the pod: it uses devices that were meant for another pod",
    ),
    Reason(
        CLAIM_MISMATCH,
        Cure.TEXT,
        "the pod's annotations claim devices other than those it was given",
        "find out who changed the annotations, and delete the pod if it may use what it claims",
    ),
    Reason(
        CLAIM_UNREADABLE,
        Cure.TEXT,
        "the pod holds devices, and its annotations do not say which",
        "fix the annotation named above, or delete the pod",
    ),
    Reason(
        "BrokenAssignment",
        Cure.TEXT,
        "an annotation that assigns devices to the pod cannot be read",
        "delete the pod, or fix the annotation named above",
    ),
    Reason(
        "BrokenMigId",
        Cure.TEXT,
        "the id of a MIG instance cannot be read",
        "delete the pod, or fix the annotation named above",
    ),
    Reason(
        "InvalidSelection",
        Cure.TEXT,
        "an annotation by which the pod selects cards cannot be read",
        "fix the annotation named above and recreate the pod",
    ),
    Reason(
        "InvalidExclusiveRule",
        Cure.TEXT,
        "a rule for pods that share no card cannot be read",
        "fix the rule named above",
    ),
    Reason(
        "InvalidAmount",
        Cure.TEXT,
        "an amount of a PodGroup, Job or Queue cannot be read",
        "fix the amount named above; it is ignored until then",
    ),
    Reason(
        "InvalidTaskTopology",
        Cure.TEXT,
        "an annotation volcano.sh/task-topology-* of a PodGroup or Job cannot be read",
        "fix the annotation named above; all of them are ignored until then",
    ),
    Reason(
        UNKNOWN_FIELD,
        Cure.TEXT,
        "a field of a Queue or PodGroup does not exist and is ignored",
        "fix the field named above; it is ignored until then",
    ),
    Reason(
        GUARANTEE_TOO_LARGE,
        Cure.QUEUE,
        "queues are guaranteed more than the cluster has, so other queues get nothing",
        "lower spec.guarantee.resource of the queues named above, or add nodes",
    ),
    Reason(
        ANNOTATION_NOT_READ,
        Cure.TEXT,
        "an annotation or label of a pod is not read by this scheduler",
        "correct the key and recreate the pods",
    ),
    Reason(
        "UnreadableObject",
        Cure.TEXT,
        "a Kubernetes object cannot be read",
        "fix the object named above",
    ),
    Reason(
        CARD_UNHEALTHY,
        Cure.DEVICE,
        "a device plugin reports a card as unhealthy",
        "check the card; no new pods are placed on it",
    ),
    Reason(
        "CardOversold",
        Cure.DEVICE,
        "more of a card is in use than it has",
        "delete one of its pods, or wait until one ends",
        is_error=True,
    ),
    Reason(
        "NodeOversold",
        Cure.DEVICE,
        "the node's pods hold more than the node now offers",
        "find out why the node offers less (kubelet, device plugin, cards), or delete a pod",
    ),
    Reason(
        "InstancesContradict",
        Cure.DEVICE,
        "the pieces of a card in use are not of one geometry",
        "delete the card's pods, or add the geometry to the device configuration",
    ),
    Reason(
        "NotAllocatable",
        Cure.PLUGIN,
        "the node registers devices that the kubelet does not list",
        "check the device plugin's pod on the node: without it the kubelet lists no such devices",
        is_error=True,
    ),
    Reason(
        CARDS_LISTED_TWICE,
        Cure.PLUGIN,
        "two device plugins list the node's cards: one to share them, one to give them whole",
        "run one of the two on the node: until then its cards are given in shares or whole, "
        "never both",
        is_error=True,
    ),
    Reason(
        "NotRegistered",
        Cure.PLUGIN,
        "the kubelet lists devices that the node does not register",
        "deploy the complete device plugin: nothing can be scheduled on the node's cards",
        is_error=True,
    ),
    Reason(
        "BrokenRegister",
        Cure.PLUGIN,
        "the annotation by which a node registers its devices cannot be read",
        "check the device plugin: its register annotation cannot be read",
        is_error=True,
    ),
    Reason(
        "BrokenNpuNode",
        Cure.PLUGIN,
        "the node's labels or annotations about its NPUs cannot be read",
        "check the device plugin that writes them",
    ),
    Reason(
        "BrokenDeviceInfo",
        Cure.DEVICE,
        "the ConfigMap with a node's NPUs cannot be read",
        "check the device plugin that writes the ConfigMap",
    ),
    Reason(
        "NodeSeparated",
        Cure.NODE,
        "the node is separated: no new pods are placed on its NPUs",
        "repair the node; the ConfigMap of its device plugin names the fault",
    ),
    Reason(
        "UnknownLevel",
        Cure.TEXT,
        "a vNPU level is unknown and is read as low",
        "fix the level named above and recreate the pod",
    ),
    Reason(
        "OverCapacity",
        Cure.DEVICE,
        "pods hold more of a card than it has",
        "delete one of its pods, or wait until one ends",
    ),
    Reason(
        "DeviceConfigMismatch",
        Cure.TEXT,
        "a node's cards do not match the device configuration",
        "make device configuration, device plugin and node agree",
    ),
    Reason(
        "BrokenCapacity",
        Cure.NODE,
        "the amount of a device resource on the node cannot be read",
        "check the device plugin: the amount that the node reports is wrong",
    ),
    Reason(
        "BrokenQuantity",
        Cure.NODE,
        "an amount in the node's status cannot be read",
        "correct the amount that the node reports",
    ),
    Reason(
        "BrokenIndexList",
        Cure.TEXT,
        "a list of card indexes cannot be read",
        "write the card indexes as numbers separated by commas",
    ),
    Reason(
        "UnhealthyCardUnknown",
        Cure.TEXT,
        "a card is marked unhealthy that the node does not have",
        "write the card's index as the node's device plugin counts cards",
    ),
    Reason(
        "NoMigTable",
        Cure.TEXT,
        "a card's model has no table of MIG geometries",
        "add the model to knownMigGeometries of the device configuration",
    ),
    Reason(
        "InvalidMigTable",
        Cure.TEXT,
        "a table of MIG geometries cannot be used",
        "correct the table in the device configuration",
    ),
    Reason(
        "UnknownFamily",
        Cure.NODE,
        "the node has devices of a family that this release does not support",
        "update Allotment, or do not use those devices",
    ),
    Reason(
        NODE_GONE,
        Cure.NODE,
        "the node is gone, and pods still hold parts of it",
        "delete the pods that still hold parts of it",
    ),
    Reason(
        "BrokenNodeLock",
        Cure.TEXT,
        "the lock annotation of a node cannot be read",
        "remove the lock annotation named above",
    ),
    Reason(
        "InvalidSchedulerConfig",
        Cure.TEXT,
        "a line of the scheduler configuration is invalid",
        "fix or remove the line named above",
    ),
    Reason(
        "InvalidDeviceConfig",
        Cure.TEXT,
        "a line of the device configuration is invalid",
        "fix or remove the line named above",
    ),
    Reason(
        "ConfigWithoutEffect",
        Cure.TEXT,
        "a line of the configuration has no effect",
        "fix or remove the line named above",
    ),
    Reason(
        "ConfigNotFound",
        Cure.SOURCE,
        "the ConfigMap with the configuration does not exist",
        "create the ConfigMap, or name the one that exists",
    ),
    Reason(
        "ConfigNotRead",
        Cure.SOURCE,
        "a configuration exists that nothing reads",
        "keep the configuration in one place",
    ),
    Reason(
        "UnreadableConfig",
        Cure.SOURCE,
        "the watcher may not read the configuration",
        "grant the watcher the right, or name another place",
    ),
    Reason(
        "UnreadableDeviceConfig",
        Cure.SOURCE,
        "the watcher may not read the device configuration",
        "grant the watcher the right, or name another place",
    ),
)
"""All codes; those at which nodes refuse are in the order of the checks."""

REASONS: Final = {reason.code: reason for reason in TABLE}

CODES: Final = ("", *REASONS)
NUMBER: Final = {code: number for number, code in enumerate(CODES)}
"""Reason codes by number, so that they fit a column; number 0 is "none". Columns are thrown away
with the process, so numbers mean nothing outside it."""


def _cured(*cures: Cure) -> frozenset[str]:
    return frozenset(reason.code for reason in TABLE if reason.cured_by in cures)


CODES_AT: Final = {
    step.key: tuple(reason.code for reason in TABLE if reason.step == step.key) for step in STEPS
}
"""By step, the codes with which a node refuses there, in the order of the checks."""
STEP_NUMBER: Final = {code: n for n, step in enumerate(STEPS) for code in CODES_AT[step.key]}
"""At which step a node refuses with a code, counted from 0."""
REFUSAL_ORDER: Final = tuple(c for step in STEPS if step.is_of_card for c in CODES_AT[step.key])
"""The order of a card's checks. A node is charged to the reason of the card that got furthest."""
LASTING: Final = _cured(Cure.NODE, Cure.POD, Cure.EITHER).intersection(STEP_NUMBER)
"""What no room on a node cures: only another fact about the node, or another wish of the pod."""
CURED_BY_ROOM: Final = _cured(Cure.ROOM)
BUSY: Final = CURED_BY_ROOM.intersection(REFUSAL_ORDER)
"""What a card lacks that a release can give it."""
KEPT_BACK: Final = _cured(Cure.HOLD)
"""What nodes answer that would take the pod but are reserved for others."""
EXCLUDED_BY_POD: Final = _cured(Cure.POD).intersection(STEP_NUMBER)
BEFORE_THE_POD: Final = _cured(Cure.NODE).intersection(STEP_NUMBER)
"""What is asked of a node before whether the pod accepts it."""
QUOTA_CODES: Final = _cured(Cure.QUOTA)
"""Refusals that end when others in the queue give something back."""
OF_GROUP: Final = frozenset(reason.code for reason in TABLE if reason.is_of_group)
"""What the other members of a group get verbatim: it holds for all of them."""
OF_CLUSTER: Final = frozenset((CLUSTER_OVERUSED, CLUSTER_INSUFFICIENT))
"""What is short in the whole cluster, whatever queues may have."""
_NODES_HELP: Final = (
    frozenset(reason.code for reason in TABLE if reason.step)
    - _cured(Cure.SERVED, Cure.QUEUE, Cure.RETRY)
    | OF_CLUSTER
    | {NO_NODES, NOT_ENOUGH_RESOURCES, SAME_ROLE_FAILED}
)
"""Rejections that another node might end: what is checked of nodes, and too little room in all."""
_FULL: Final = _cured(Cure.ROOM, Cure.DEVICE, Cure.TRIAL, Cure.HOLD)
_BUSY: Final = _cured(Cure.SERVED)
UNSCHEDULABLE: Final = "Unschedulable"


def condition_reason(code: str) -> str:
    """The reason of a waiting pod's condition `PodScheduled`: `Unschedulable`, for which cluster
    autoscalers add nodes, only where another node might help; else the reason code itself.

    Source: cluster-autoscaler and Karpenter take a pod as pending only with this reason.
    """
    return UNSCHEDULABLE if code in _NODES_HELP or code not in REASONS else code


def refusal_reason(refusal: Refusal) -> str:
    """The same of a refusal. Where a node fits and its device plugin is busy with another pod, or
    the queue has no quota for such cards, none has to be added.
    """
    if refusal.problem is not None:
        return condition_reason(refusal.problem.code)
    codes = [code for code, _ in refusal.reasons]
    if CARD_WITHOUT_QUOTA in codes and _FULL.isdisjoint(codes):
        return CARD_WITHOUT_QUOTA
    return next((code for code in codes if code in _BUSY), UNSCHEDULABLE)


@lru_cache(maxsize=4096)  # thousands of pods are refused for the same counts
def shown_cause(counted: tuple[tuple[str, int], ...]) -> str:
    """The same for people: nodes that the pod itself excludes are no cause while another node that
    it accepts lacks something. (`main_cause` is in decisions, so it stays as it is.)
    """
    accepted = tuple(item for item in counted if item[0] not in EXCLUDED_BY_POD)
    is_lacking = any(code not in BEFORE_THE_POD for code, _ in accepted)
    return main_cause(accepted if is_lacking else counted)


def main_cause(counted: tuple[tuple[str, int], ...]) -> str:
    """The reason worth naming first: that of nodes that would do but are kept for others; else the
    most frequent that a release could cure; else that of the nodes that came nearest, which have
    such devices; else any.

    In a mixed cluster most nodes are of another kind, and that is not why the pod waits.
    """
    if not counted:
        return NO_NODES
    code, _ = min(counted, key=lambda item: (_distance(item[0]), -item[1], item[0]))
    return code


def _distance(code: str) -> int:
    if code in KEPT_BACK:
        return -1
    if code in CURED_BY_ROOM:
        return 0
    reason = REASONS.get(code)
    return FAR if reason is None else reason.distance


_MESSAGE_CHARS_MAX = 1000
_GOES_ON = ("has ", "is ", "may ", "of ", "takes ")
"""How a message begins that makes one sentence with the queue that it is about."""


def answers_to(scheduler_names: Sequence[str]) -> str:
    """Whose pods are scheduled here: ``this scheduler answers to allotment``."""
    names = ", ".join(scheduler_names)
    return f"this scheduler answers to {names}" if names else "Allotment only records here"


def problem_text(problem: Problem) -> str:
    """One line: the code, the place, the value and what would be right."""
    is_named = problem.place.startswith("queue ") or problem.place == "the cluster"
    is_new = is_named and not problem.message.startswith(_GOES_ON)
    colon = ":" if is_new or problem.place == "its group" else ""
    return f"{problem.code}: {problem.place}{colon} {problem.message}"


def quota_text(short: QuotaShort, *, names_queue: bool = True) -> str:
    """``queue team-a: 2 of 2 volcano.sh/vgpu-number in use, 1 requested``."""
    held, promised, most, wants = (
        resource_text(short.resource, amount, short.unit_bytes)
        for amount in (short.held, short.promised, short.most, short.wants)
    )
    also = f" and {promised} promised to others of its namespace" if short.promised else ""
    where = "" if not names_queue else f"queue {short.queue}: " if short.queue else "the cluster: "
    return f"{where}{held} of {most} {short.resource} in use{also}, {wants} requested"


def gate_text(gate: Admission) -> str:
    """What is said of a group that may not start yet; where limits are in the way, by how much."""
    amounts = "; ".join(map(quota_text, gate.quota))
    return f"{gate.message} ({amounts})" if amounts else gate.message


def refusal_text(refusal: Refusal) -> str:
    """``0/5 nodes are available: 3 NoGPU, 2 TaintNotTolerated.``: sorted, so it is stable. What the
    refusal notes follows, a sentence each; where a quota refuses, by which amounts.
    """
    if refusal.problem is not None:
        said, place = problem_text(refusal.problem), refusal.problem.place
        amounts = "; ".join(
            quota_text(short, names_queue=f"queue {short.queue}" != place and bool(short.queue))
            for short in refusal.quota
        )
        return cut(f"{said} ({amounts})" if amounts else said)
    counts = ", ".join(f"{count} {code}" for code, count in refusal.reasons)
    said = f"0/{refusal.nodes} nodes are available" + (f": {counts}." if counts else ".")
    return cut(" ".join([said, *(f"{note[:1].upper()}{note[1:]}." for note in refusal.notes)]))


def cut(text: str, more: int = 0) -> str:
    """A text that API servers take as an Event's note, with room for so many characters more. It is
    cut between two words: half a name is not known for the name that it is."""
    most = _MESSAGE_CHARS_MAX - more
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + "…"
