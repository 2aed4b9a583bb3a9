"""Small facts for tests: all has a sensible default, so a test names only what it is about."""

from typing import Any

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_proto.events import (
    BindFailed,
    Decided,
    Event,
    NodeObserved,
    Placement,
    PodObserved,
    PolicyLoaded,
)
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
    PodRequest,
    Policy,
)

GIB = 1 << 30
MODEL = "NVIDIA-Tesla-T4"


def card(index: int, **changes: Any) -> CardFact:
    """A healthy card ``GPU-<index>`` of 16,000 MiB that ten may share."""
    values: dict[str, Any] = {
        "id": f"GPU-{index}",
        "index": index,
        "model": MODEL,
        "slots": 10,
        "memory_mib": 16_000,
        "cores_pct": 100,
        "healthy": True,
        "mode": "hami-core",
    }
    return CardFact(**{**values, **changes})


def node(name: str = "n1", cards: int | list[CardFact] = 2, **changes: Any) -> NodeObserved:
    """A ready node of 8 CPUs, 32 GiB and room for 20 pods, with vGPU cards."""
    facts = [card(index) for index in range(cards)] if isinstance(cards, int) else cards
    inventories = (Inventory("vgpu", "hami-core", tuple(facts)),) if facts else ()
    values: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "rv": 1,
        "cpu_milli": 8_000,
        "memory_bytes": 32 * GIB,
        "pods": 20,
        "inventories": inventories,
    }
    return NodeObserved(**{**values, **changes})


def wants(
    memory_mib: int = 4_000,
    cores_pct: int = 25,
    count: int = 1,
    *,
    memory_pct: int = 0,
    container: int = 0,
    family: str = "vgpu",
) -> DeviceRequest:
    """What one container asks of one family, per card."""
    return DeviceRequest(
        family, container, f"c{container}", count, memory_mib, memory_pct, cores_pct
    )


def request(*devices: DeviceRequest, **changes: Any) -> PodRequest:
    """100 mCPU, 1 GiB and the given devices."""
    values: dict[str, Any] = {"cpu_milli": 100, "memory_bytes": GIB, "devices": devices}
    return PodRequest(**{**values, **changes})


def pod(uid: str = "a", wanted: PodRequest | None = None, **changes: Any) -> PodObserved:
    """A pending pod of ours that asks for a quarter of one card."""
    values: dict[str, Any] = {
        "uid": uid,
        "namespace": "default",
        "name": f"pod-{uid}",
        "rv": 1,
        "created_ms": 1_000,
        "scheduler": "allotment",
        "phase": "Pending",
        "request": request(wants()) if wanted is None else wanted,
    }
    return PodObserved(**{**values, **changes})


def holding(card_id: str = "GPU-0", memory_mib: int = 4_000, cores_pct: int = 25) -> Holding:
    return Holding("vgpu", 0, card_id, memory_mib, cores_pct)


def placement(uid: str = "a", on: str = "n1", *holdings: Holding, **changes: Any) -> Placement:
    """A placement with the amounts of `pod(uid)` on ``GPU-0``."""
    values: dict[str, Any] = {
        "uid": uid,
        "namespace": "default",
        "name": f"pod-{uid}",
        "node": on,
        "holdings": holdings or (holding(),),
        "cpu_milli": 100,
        "memory_bytes": GIB,
        "extended": (),
        "score_micro": 0,
        "terms": (),
        "runners_up": (),
        "feasible": 1,
        "nodes": 1,
        "stamp_s": 1,
    }
    return Placement(**{**values, **changes})


def decided(*placements: Placement, **changes: Any) -> Decided:
    values: dict[str, Any] = {
        "cycle": "c",
        "basis": 0,
        "checked": 0,
        "policy": 0,
        "batch": tuple(p.uid for p in placements),
        "placements": placements,
    }
    return Decided(**{**values, **changes})


def bind_failed(uid: str, decision: int, on: str = "n1") -> BindFailed:
    return BindFailed(
        uid=uid, namespace="team-a", name=uid, node=on, decision=decision, code="", message=""
    )


def policy(**changes: Any) -> PolicyLoaded:
    return PolicyLoaded(policy=Policy(**changes), source="test", text_sha256="")


def state_of(*events: Event) -> ClusterState:
    """The fold of these events, the first at sequence 1."""
    state = ClusterState()
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
    return state
