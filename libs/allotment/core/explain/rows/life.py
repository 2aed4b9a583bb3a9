"""The structs of one pod's story, from its request to its end with cause: `pod_story` fills them.

These structs are JSON, as those of `schema` are. A trace follows from them without another look at
the log: `trace_id` is the trace, each of the `phases` a span with its service, start and end, each
of the `attempts` one below the phase that it falls in, with a span for each of its stages. Times of
phases are those of the log's clock, to the millisecond; times of stages those of the services'.
"""

import msgspec

from allotment.core.explain.rows.schema import AsOf, Explanation, Line, Request, Subject

STORY_SCHEMA = "allotment.dev/story/v1"

WAITING, RESERVED, BOUND = "waiting", "reserved", "bound"
STARTING, RUNNING, TERMINATING = "starting", "running", "terminating"
"""Phases: until a decision, until the Binding, until its device plugin has served it, until
kubelet has started it, until it ends, from its deletion until it is gone."""

SUCCEEDED, FAILED, EVICTED = "Succeeded", "Failed", "Evicted"
REFUSED_BY_NODE, NODE_GONE, DISRUPTED = "RefusedByNode", "NodeGone", "Disrupted"
DELETED_WAITING, DELETED = "DeletedWhileWaiting", "Deleted"
"""How a pod ends. ``Evicted``: by a decision of ours. ``Disrupted``: by another actor that
Kubernetes names. ``Deleted``: by an unknown actor.
"""


class _Sparse(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """camelCase, without fields that say nothing."""


class Ask(_Sparse, frozen=True, kw_only=True):
    """What the pod asks for, in its own words. `affinity` has a text for each alternative term,
    `others` says that rules about other pods (affinity, spread, host ports) come on top.
    """

    request: Request
    node_selector: dict[str, str] = {}
    affinity: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    others: bool = False
    queue: str = ""
    group: str = ""
    role: str = ""
    scheduler: str = ""
    priority: int = 0
    priority_class: str = ""
    never_preempts: bool = False


class Phase(_Sparse, frozen=True, kw_only=True):
    """A part of the pod's life, between two records; without `end` it lasts.

    `service` works on it, or the pod waits for it. The phase ``waiting`` has one part for each
    cause, in turn: `code` is the reason's, `text` the words of the last answer, `attempts` how many
    decisions found that cause, the last of them at `last_attempt_ms`.
    """

    name: str
    service: str
    start: str
    start_ms: int
    start_seq: int
    end: str = ""
    end_ms: int | None = None
    end_seq: int | None = None
    code: str = ""
    text: str = ""
    attempts: int = 0
    last_attempt_ms: int | None = None
    last_attempt_seq: int | None = None
    node: str = ""
    decision: int | None = None


class Stage(_Sparse, frozen=True, kw_only=True):
    """One service's work on an attempt (Unix microseconds, by its own clock)."""

    service: str
    instance: str
    received_us: int
    finished_us: int


class Try(_Sparse, frozen=True, kw_only=True):
    """One decision about the pod; the newest of them are kept. `number` counts all from 1."""

    number: int
    seq: int
    time_ms: int
    outcome: str
    basis: int
    checked: int
    cycle: str
    code: str = ""
    text: str = ""
    node: str = ""
    feasible: int | None = None
    nodes: int | None = None
    score_micro: int | None = None
    stages: tuple[Stage, ...] = ()


class Gain(_Sparse, frozen=True, kw_only=True):
    """A pod that others were evicted for: `node` is where it is nominated, and once a decision
    placed it, where it was placed, by the decision `decision`.
    """

    namespace: str
    name: str
    uid: str
    node: str
    decision: int | None = None


class EvictedFor(_Sparse, frozen=True, kw_only=True):
    """The decision that evicted the pod: by which action (``preempt`` or ``reclaim``), for which
    pod or group, and which pods gained by it.
    """

    decision: int
    time: str
    time_ms: int
    action: str
    preemptor: str
    node: str
    gained: tuple[Gain, ...] = ()


class End(_Sparse, frozen=True, kw_only=True):
    """How the pod ended, or ends while it is being deleted (`gone_seq` is None until it is gone).

    `seq` is the record that shows it. `run_ms` is how long it was seen running.
    """

    kind: str
    text: str
    seq: int
    time: str
    time_ms: int
    code: str = ""
    message: str = ""
    node: str = ""
    run_ms: int | None = None
    container: str = ""
    exit_code: int = 0
    evicted: EvictedFor | None = None
    node_gone_seq: int | None = None
    waited_for: str = ""
    gone_seq: int | None = None
    gone_ms: int | None = None


class Displaced(_Sparse, frozen=True, kw_only=True):
    """A pod that was evicted for this one, or for its group. `ending`: ``leaving``, ``gone``, or
    ``stays`` with the reason why it could not be evicted.
    """

    namespace: str
    name: str
    uid: str
    node: str
    action: str
    decision: int
    time_ms: int
    ending: str
    reason: str = ""


class Relative(_Sparse, frozen=True, kw_only=True):
    """The pod before or after this one: of the same name, or (`is_of_owner`) of the same owner."""

    namespace: str
    name: str
    uid: str
    seen_seq: int
    seen_ms: int
    is_of_owner: bool = False
    status: str = ""
    node: str = ""
    end: End | None = None


class Life(_Sparse, frozen=True, kw_only=True):
    """One pod's story. `seen_ms` is the time of its first record in the log, `created_ms` that of
    its creation in Kubernetes. `timeline` is the same in lines; an explanation has it as a field of
    its own instead.
    """

    schema: str
    subject: Subject
    as_of: AsOf
    trace_id: str
    owner: str = ""
    created_ms: int
    seen_ms: int
    seen_seq: int
    status: str
    cause: str = ""
    ask: Ask
    phases: tuple[Phase, ...] = ()
    phases_left_out: int = 0
    nominated: str = ""
    displaced: tuple[Displaced, ...] = ()
    end: End | None = None
    predecessor: Relative | None = None
    successor: Relative | None = None
    attempts: tuple[Try, ...] = ()
    attempts_total: int = 0
    timeline: tuple[Line, ...] = ()


class PodExplanation(Explanation, frozen=True, kw_only=True):
    """Why a pod is where it is, and its story; the story's timeline is the explanation's."""

    life: Life | None = None
