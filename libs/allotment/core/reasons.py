"""Every "no" has a code from this closed list. Codes are stable: tools and alerts key on them."""

from typing import Final

from allotment_proto.events import Refusal
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
HOST_PORT_TAKEN: Final = "HostPortTaken"
POD_AFFINITY_MISMATCH: Final = "PodAffinityMismatch"
POD_ANTI_AFFINITY: Final = "PodAntiAffinity"
REPELLED_BY_POD: Final = "RepelledByPod"
SPREAD_MISMATCH: Final = "SpreadMismatch"
VOLUME_LIMIT_REACHED: Final = "VolumeLimitReached"
POD_LIMIT_REACHED: Final = "PodLimitReached"
INSUFFICIENT_CPU: Final = "InsufficientCPU"
INSUFFICIENT_MEMORY: Final = "InsufficientMemory"
INSUFFICIENT_RESOURCE: Final = "InsufficientResource"
NO_GPU: Final = "NoGPU"
HELD_FOR_GANG: Final = "HeldForGang"
KEPT_FOR_PREEMPTOR: Final = "KeptForPreemptor"

# Device
GPU_MODE_MISMATCH: Final = "GPUModeMismatch"
NOT_ENOUGH_GPUS_ON_NODE: Final = "NotEnoughGPUsOnNode"
GPU_NOT_SELECTED: Final = "GPUNotSelected"
GPU_MODEL_MISMATCH: Final = "GPUModelMismatch"
GPU_UNHEALTHY: Final = "GPUUnhealthy"
CARDS_QUARANTINED: Final = "CardsQuarantined"
CARD_KEPT_APART: Final = "CardKeptApart"
SHARE_LIMIT_REACHED: Final = "ShareLimitReached"
EXCLUSIVE_CONFLICT: Final = "ExclusiveConflict"
INSUFFICIENT_GPU_MEMORY: Final = "InsufficientGPUMemory"
NO_FITTING_INSTANCE: Final = "NoFittingInstance"
INSUFFICIENT_GPU_COMPUTE: Final = "InsufficientGPUCompute"

# Request
INVALID_REQUEST: Final = "InvalidRequest"
VOLUME_NOT_READY: Final = "VolumeNotReady"

# Policy
GANG_INCOMPLETE: Final = "GangIncomplete"

# Eviction
DISRUPTION_BUDGET: Final = "DisruptionBudget"
POD_ENDED: Final = "PodEnded"

# Machinery
STALE_LEDGER: Final = "StaleLedger"
BIND_CONFLICT: Final = "BindConflict"
API_ERROR: Final = "APIError"
POD_GONE: Final = "PodGone"

LASTING: Final = frozenset(
    (
        NODE_NOT_READY,
        NODE_CORDONED,
        TAINT_NOT_TOLERATED,
        SELECTOR_MISMATCH,
        AFFINITY_MISMATCH,
        VOLUME_OUT_OF_REACH,
        NO_GPU,
        GPU_MODE_MISMATCH,
        GPU_NOT_SELECTED,
        GPU_MODEL_MISMATCH,
    )
)
"""What no room on a node cures: only another fact about the node, or another wish of the pod."""

EXPLANATIONS: Final[dict[str, str]] = {
    NODE_NOT_READY: "the node's Ready condition is not True",
    NODE_CORDONED: "the node is marked unschedulable",
    TAINT_NOT_TOLERATED: "the node has a taint that the pod does not tolerate",
    SELECTOR_MISMATCH: "the node lacks a label of the pod's nodeSelector",
    AFFINITY_MISMATCH: "the node matches no term of the pod's required node affinity",
    VOLUME_OUT_OF_REACH: "a volume of the pod cannot be reached from the node",
    NODE_GROUP: "the pod's queue may not use the node's group",
    CARD_WITHOUT_QUOTA: "the node has no card for which the pod's queue has quota",
    HOST_PORT_TAKEN: "another pod on the node has a host port that the pod wants",
    POD_AFFINITY_MISMATCH: "no pod that the pod must be near runs in the node's domain",
    POD_ANTI_AFFINITY: "a pod that the pod must not be near runs in the node's domain",
    REPELLED_BY_POD: "a pod in the node's domain must not be near the pod",
    SPREAD_MISMATCH: "the node's domain would hold too many pods of a topology spread constraint",
    VOLUME_LIMIT_REACHED: "the node cannot have so many volumes of a driver attached",
    POD_LIMIT_REACHED: "the node already runs as many pods as it may",
    INSUFFICIENT_CPU: "not enough unreserved CPU on the node",
    INSUFFICIENT_MEMORY: "not enough unreserved memory on the node",
    INSUFFICIENT_RESOURCE: "not enough of another resource the pod asks for",
    NO_GPU: "the node offers no device of the kind the pod asks for",
    HELD_FOR_GANG: "the node would do but is held for a group that was passed by too often",
    KEPT_FOR_PREEMPTOR: "the node would do but is kept for a group until its victims are gone",
    GPU_MODE_MISMATCH: "the node's sharing mode is not the one the pod demands",
    NOT_ENOUGH_GPUS_ON_NODE: "a container asks for more cards than the node has, or than it "
    "has left where cards are only counted",
    GPU_NOT_SELECTED: "no card has an id or index that the pod selects",
    GPU_MODEL_MISMATCH: "no card has a model that the pod accepts",
    GPU_UNHEALTHY: "every otherwise suitable card is unhealthy",
    CARDS_QUARANTINED: "a pod on the node holds devices that its annotations do not name readably",
    CARD_KEPT_APART: "suitable cards are held by pods that this one must be kept apart from",
    SHARE_LIMIT_REACHED: "suitable cards already have as many holders as they may",
    EXCLUSIVE_CONFLICT: "a whole card is wanted but others hold a part of it, or the reverse",
    INSUFFICIENT_GPU_MEMORY: "no suitable card has enough unreserved memory",
    NO_FITTING_INSTANCE: "no suitable card can hand out another piece that is large enough",
    INSUFFICIENT_GPU_COMPUTE: "no suitable card has enough unreserved compute",
    VOLUME_NOT_READY: "a volume that the pod names does not exist or cannot be had yet",
    INVALID_REQUEST: "the pod's request cannot be granted as it is written",
    GANG_INCOMPLETE: "another member of the pod's group found no place",
    DISRUPTION_BUDGET: "a disruption budget allows no eviction of the pod now",
    POD_ENDED: "the pod ended by itself before it was evicted",
    STALE_LEDGER: "something else took the place meanwhile; it is tried again",
    BIND_CONFLICT: "the API server refused the Binding",
    API_ERROR: "the API server could not be reached or answered with an error",
    POD_GONE: "the pod was deleted before it could be bound",
}
"""One line each, for help pages and `allot explain`."""

CODES = ("", *EXPLANATIONS)
NUMBER = {code: number for number, code in enumerate(CODES)}
"""Reason codes by number, so that they fit a column; number 0 is "none"."""

GROUP_MISSING = "GroupMissing"
CURED_BY_ROOM = frozenset(
    (
        HOST_PORT_TAKEN,
        POD_ANTI_AFFINITY,
        REPELLED_BY_POD,
        SPREAD_MISMATCH,
        VOLUME_LIMIT_REACHED,
        POD_LIMIT_REACHED,
        INSUFFICIENT_CPU,
        INSUFFICIENT_MEMORY,
        INSUFFICIENT_RESOURCE,
        NOT_ENOUGH_GPUS_ON_NODE,
        SHARE_LIMIT_REACHED,
        EXCLUSIVE_CONFLICT,
        INSUFFICIENT_GPU_MEMORY,
        NO_FITTING_INSTANCE,
        CARD_KEPT_APART,
        INSUFFICIENT_GPU_COMPUTE,
    )
)

KEPT_BACK = frozenset((HELD_FOR_GANG, KEPT_FOR_PREEMPTOR))
"""What nodes answer that would take the pod but are there for somebody else."""

EXCLUDED_BY_POD = frozenset((SELECTOR_MISMATCH, AFFINITY_MISMATCH))
BEFORE_THE_POD = frozenset((NODE_NOT_READY, NODE_CORDONED, TAINT_NOT_TOLERATED))
"""What is asked of a node before whether the pod accepts it."""
_NEAR = (
    (GPU_UNHEALTHY, CARDS_QUARANTINED),
    (GPU_MODEL_MISMATCH, GPU_NOT_SELECTED),
    (GPU_MODE_MISMATCH,),
)
"""What nodes answer that have such devices, the nearest first."""


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
        return "NoNodes"
    code, _ = min(counted, key=lambda item: (_distance(item[0]), -item[1], item[0]))
    return code


def _distance(code: str) -> int:
    if code in KEPT_BACK:
        return -1
    if code in CURED_BY_ROOM:
        return 0
    return next((far for far, codes in enumerate(_NEAR, 1) if code in codes), len(_NEAR) + 1)


MESSAGE_CHARS_MAX = 1000
GOES_ON = ("has ", "is ", "may ", "of ", "takes ")
"""How a message begins that makes one sentence with the queue that it is about."""


def problem_text(problem: Problem) -> str:
    """One line: the code, the place, the value and what would be right."""
    is_new = problem.place.startswith("queue ") and not problem.message.startswith(GOES_ON)
    colon = ":" if is_new or problem.place == "its group" else ""
    return f"{problem.code}: {problem.place}{colon} {problem.message}"


def refusal_text(refusal: Refusal) -> str:
    """``0/5 nodes are available: 3 NoGPU, 2 TaintNotTolerated.``: sorted, so it is stable. What the
    refusal notes follows, a sentence each.
    """
    if refusal.problem is not None:
        return cut(problem_text(refusal.problem))
    counts = ", ".join(f"{count} {code}" for code, count in refusal.reasons)
    said = f"0/{refusal.nodes} nodes are available" + (f": {counts}." if counts else ".")
    return cut(" ".join([said, *(f"{note[:1].upper()}{note[1:]}." for note in refusal.notes)]))


def cut(text: str) -> str:
    """A text that API servers take as an Event's note."""
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
