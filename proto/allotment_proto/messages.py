"""Pipeline messages between the services: hints on core NATS that may be lost, doubled or late.

Nothing durable depends on them. A cycle whose messages vanish is issued again.
"""

import msgspec

from allotment_proto.events import (
    Admission,
    Eviction,
    Held,
    Nomination,
    Placement,
    Refusal,
    Short,
    StageTime,
)

MESSAGE_VERSION = 1


class ClassFeasible(msgspec.Struct, frozen=True, array_like=True):
    """What the filter found for one request class of a batch, at its own sequence.

    `sample` is the position in the batch of one pod of the class; `feasible` of `nodes` fitted when
    they were last counted. If none did, that is exact, and the nodes are counted by reason.
    """

    sample: int
    feasible: int
    nodes: int
    reasons: tuple[tuple[str, int], ...]


class Feasible(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """filter → scorer: a cycle was opened for `batch` (pod uids, in order) at sequence `basis`."""

    v: int
    cycle: str
    basis: int
    batch: tuple[str, ...]
    classes: tuple[ClassFeasible, ...]
    stages: tuple[StageTime, ...] = ()


class Proposal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """scorer → binder: what to decide, computed on the state at `basis`."""

    v: int
    cycle: str
    basis: int
    policy: int
    batch: tuple[str, ...]
    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    assumed: tuple[str, ...] = ()
    stages: tuple[StageTime, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()
    shorts: tuple[Short, ...] = ()
    admissions: tuple[Admission, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    holds: tuple[Held, ...] | None = None
    nominations: tuple[Nomination, ...] = ()


class Settled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """binder → filter: the cycle is over.

    `outcome` is ``decided`` (record `seq` holds it), ``nothing`` (nothing new to write) or
    ``conflict`` (another decision came first; nothing was written, try again).
    """

    v: int
    cycle: str
    outcome: str
    seq: int = 0
