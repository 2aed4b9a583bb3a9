"""Pipeline messages between the services: hints on core NATS that may be lost, doubled or late.

Nothing durable depends on them. A cycle whose messages vanish is issued again.
"""

import msgspec

from allotment_proto.events import Placement, Refusal, StageTime

MESSAGE_VERSION = 1


class ClassFeasible(msgspec.Struct, frozen=True, array_like=True):
    """The nodes that one request class fits on: bit *r* of `rows_hex` is the node in row *r*.

    `sample` is the position in the batch of one pod of the class.
    """

    sample: int
    feasible: int
    rows_hex: str


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


class Settled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """binder → filter: the cycle is over. `seq` is its record, 0 when nothing had to be written."""

    v: int
    cycle: str
    seq: int
