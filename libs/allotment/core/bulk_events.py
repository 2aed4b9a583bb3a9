"""The log's events with nothing in them but what can move an amount; see `bulk`.

Tags and field names are those of `allotment_proto.events`; what is left out is skipped when a
record is decoded. Array-like types keep their first fields only.
"""

import msgspec

from allotment.core.model import ACTIVE
from allotment_proto.events import (
    ConfigurationChecked,
    DevicesConfigured,
    Evicted,
    GroupGone,
    GroupObserved,
    MixLearned,
    PolicyLoaded,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    TimePassed,
)
from allotment_proto.facts import Amounts, Geometry, Holding, Problem


class CardFact(msgspec.Struct, array_like=True, gc=False):
    id: str
    index: int
    model: str
    slots: int
    memory_mib: int
    cores_pct: int
    healthy: bool = True
    mode: str = ""
    table: int = -1


class Inventory(msgspec.Struct, array_like=True):
    family: str
    mode: str
    cards: tuple[CardFact, ...]
    tables: tuple[tuple[Geometry, ...], ...] = ()


class Request(msgspec.Struct, gc=False):
    cpu_milli: int = 0
    memory_bytes: int = 0
    extended: Amounts = ()


class PodObserved(msgspec.Struct, tag="PodObserved", gc=False):
    uid: str
    rv: int
    scheduler: str
    request: Request
    gated: bool = False
    deleting: bool = False
    phase: str = ACTIVE
    node: str = ""
    holdings: tuple[Holding, ...] = ()
    broken: Problem | None = None
    group: str = ""


class PodGone(msgspec.Struct, tag="PodGone", gc=False):
    uid: str


class NodeObserved(msgspec.Struct, tag="NodeObserved"):
    name: str
    uid: str
    rv: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    extended: Amounts = ()
    inventories: tuple[Inventory, ...] = ()


class NodeGone(msgspec.Struct, tag="NodeGone", gc=False):
    name: str
    uid: str


class Placement(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a placement; also what a pod holds that was seen on a node."""

    uid: str
    namespace: str
    name: str
    node: str
    holdings: tuple[Holding, ...]
    cpu_milli: int
    memory_bytes: int
    extended: Amounts


class Decided(msgspec.Struct, tag="Decided"):
    placements: tuple[Placement, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()


class Bound(msgspec.Struct, tag="Bound", gc=False):
    uid: str
    decision: int


class BindFailed(msgspec.Struct, tag="BindFailed", gc=False):
    uid: str
    decision: int


Event = (
    PodObserved
    | Decided
    | Bound
    | PodGone
    | NodeObserved
    | NodeGone
    | BindFailed
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
    | Evicted
)


class Envelope(msgspec.Struct):
    v: int
    events: list[Event]


decode = msgspec.json.Decoder(Envelope).decode
