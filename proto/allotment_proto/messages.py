"""Pipeline messages between the services: hints on core NATS that may be lost, doubled or late.

Nothing durable depends on them. A cycle whose messages vanish is issued again. Any client of NATS
can send one, so what is decoded is bounded: by what a record of the log can hold, and a cycle's
name by what may stand in a message's headers.
"""

from typing import Annotated, Literal

import msgspec

from allotment_proto.decided import RULES
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
from allotment_proto.facts import Amount, Seq

MESSAGE_VERSION = 1
Outcome = Literal["decided", "nothing", "conflict", "failed", "under_way"]
UNDER_WAY_EVERY_S = 0.5
"""So often scorer and binder say of a cycle that they work on it: it is not issued again."""
CYCLE_CHARS_MAX = 256
Cycle = Annotated[str, msgspec.Meta(min_length=1, max_length=CYCLE_CHARS_MAX)]
"""The name of a cycle: printable, without blanks around it."""


def check_cycle(cycle: str) -> None:
    """Raise ValueError for a name that cannot stand in a header."""
    if not cycle.isprintable() or cycle != cycle.strip():
        raise ValueError(f"cycle {cycle[:80]!r} must be printable, without blanks around it")


class ClassFeasible(msgspec.Struct, frozen=True, array_like=True):
    """What the filter found for one request class of a batch, at its own sequence.

    `sample` is the position in the batch of one pod of the class; `feasible` of `nodes` fitted when
    they were last counted. If none did, that is exact, and the nodes are counted by reason.
    """

    sample: Amount
    feasible: Amount
    nodes: Amount
    reasons: tuple[tuple[str, Amount], ...]


class Feasible(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """filter → scorer: a cycle was opened for `batch` (pod uids, in order) at sequence `basis`."""

    v: int
    cycle: Cycle
    basis: Seq
    batch: tuple[str, ...]
    classes: tuple[ClassFeasible, ...]
    stages: tuple[StageTime, ...] = ()

    def __post_init__(self) -> None:
        check_cycle(self.cycle)


class Proposal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """scorer → binder: what to decide, computed on the state at `basis`. With `failed` nothing is
    proposed: the scorer could not compute anything, and why. `rules` as in `Decided`.

    With `under_way` nothing is proposed yet: the scorer works on the cycle, and the binder passes
    that on.
    """

    v: int
    cycle: Cycle
    basis: Seq
    policy: Seq
    batch: tuple[str, ...]
    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    stages: tuple[StageTime, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()
    shorts: tuple[Short, ...] = ()
    admissions: tuple[Admission, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    holds: tuple[Held, ...] | None = None
    nominations: tuple[Nomination, ...] = ()
    failed: str = ""
    rules: Amount = RULES
    under_way: bool = False

    def __post_init__(self) -> None:
        check_cycle(self.cycle)


class Settled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """binder → filter: the cycle is over, or (``under_way``) is still being worked on.

    `outcome` is ``decided`` (record `seq` holds it), ``nothing`` (nothing new to write),
    ``conflict`` (another decision came first; nothing was written, try again) or ``failed``
    (scorer or binder raised an error about it; try fewer pods, and a single one later).
    """

    v: int
    cycle: Cycle
    outcome: Outcome
    seq: Seq = 0

    def __post_init__(self) -> None:
        check_cycle(self.cycle)
