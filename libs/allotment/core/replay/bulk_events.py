"""The log's events with nothing in them but what can move an amount; see `bulk`.

Tags and field names are those of `allotment_proto.events`; what is left out is skipped when a
record is decoded. Array-like types keep their first fields only.
"""

import msgspec

from allotment.core.ledger.model import ACTIVE
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
from allotment_proto.facts import (
    Amount,
    Amounts,
    Geometry,
    Holding,
    Int64,
    Problem,
    Seq,
    refuse_twins,
)


class CardFact(msgspec.Struct, array_like=True, gc=False):
    id: str
    index: Int64
    model: str
    slots: Amount
    memory_mib: Amount
    cores_pct: Amount
    healthy: bool = True
    mode: str = ""
    table: Int64 = -1


class Inventory(msgspec.Struct, array_like=True):
    family: str
    mode: str
    cards: tuple[CardFact, ...]
    tables: tuple[tuple[Geometry, ...], ...] = ()

    def __post_init__(self) -> None:
        refuse_twins("card id", [card.id for card in self.cards])


class Request(msgspec.Struct, gc=False):
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    extended: Amounts = ()


class PodObserved(msgspec.Struct, tag="PodObserved", gc=False):
    uid: str
    rv: Seq
    scheduler: str
    request: Request
    gated: bool = False
    deleting: bool = False
    phase: str = ACTIVE
    node: str = ""
    holdings: tuple[Holding, ...] = ()
    annotated: tuple[Holding, ...] = ()
    broken: Problem | None = None
    group: str = ""


class PodGone(msgspec.Struct, tag="PodGone", gc=False):
    uid: str


class NodeObserved(msgspec.Struct, tag="NodeObserved"):
    name: str
    uid: str
    rv: Seq
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    pods: Amount = 0
    extended: Amounts = ()
    inventories: tuple[Inventory, ...] = ()

    def __post_init__(self) -> None:
        refuse_twins("family", [inventory.family for inventory in self.inventories])
        refuse_twins("resource", [name for name, _ in self.extended])


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
    cpu_milli: Amount
    memory_bytes: Amount
    extended: Amounts


class Decided(msgspec.Struct, tag="Decided"):
    placements: tuple[Placement, ...] = ()
    wholes: tuple[tuple[str, ...], ...] = ()


class Bound(msgspec.Struct, tag="Bound", gc=False):
    uid: str
    decision: Seq


class BindFailed(msgspec.Struct, tag="BindFailed", gc=False):
    uid: str
    decision: Seq


class Corrected(msgspec.Struct, tag="Corrected", gc=False):
    uid: str
    node: str
    decision: Seq
    holdings: tuple[Holding, ...]


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
    | Corrected
)


class Envelope(msgspec.Struct):
    v: int
    events: list[Event]


decode = msgspec.json.Decoder(Envelope).decode
