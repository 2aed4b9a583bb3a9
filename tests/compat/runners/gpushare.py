"""GPU sharing by memory and whole cards by number."""

from collections.abc import Mapping, Sequence
from typing import Any

from allotment.core.ledger.ledger import Card, Ledger
from allotment.core.ledger.model import ENDED
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import Rules, choose_cards
from allotment.core.placement.devices.free import Free
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory
from allotment_proto.volcano import gpushare as wire
from tests.compat.file import Vector
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.world import World, pod_source

FAMILY = wire.FAMILY
SHARERS = 1_000
"""As many as a vector may put on one card."""


def registered(world: World | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the node shows; of one that is not registered there is nothing to show."""
    if world is None:
        return {"registered": False, "devices": None}
    return {"registered": True, "devices": books(world)}


def books(world: World) -> list[dict[str, Any]]:
    """The healthy cards, by index. A pod is mapped to its cards as long as it is known at all."""
    mapped: dict[str, set[str]] = {}
    for uid, pod in world.state.pods.items():
        held = pod.allocation.holdings if pod.allocation else pod.fact.holdings
        for holding in held:
            mapped.setdefault(holding.card, set()).add(uid)
    return [
        {
            "id": card.fact.index,
            "memory": card.fact.memory_mib,
            "idle": _idle_mib(card),
            "pods": sorted(mapped.get(card.fact.id, ())),
        }
        for card in world.cards
        if card.fact.healthy
    ]


def _idle_mib(card: Card) -> int:
    """What Volcano calls idle: who has whole cards by number has no memory in its books."""
    by_number = (h.memory_mib for h in card.holders.values() if h.cores_pct == CORES_WHOLE_PCT)
    return max(card.free_memory_mib + sum(by_number), 0)


def amount(vector: Vector) -> Fields:
    """What a pod asks for, all containers together."""
    requests, _ = FAMILIES[FAMILY].requests(pod_source(vector.input))
    by_memory = vector.function == "gpushare_pod_memory"
    got = sum(r.memory_mib if by_memory else r.count for r in requests)
    return compared(vector.expected, {"value": got})


def idle_memory(vector: Vector) -> Fields:
    """What is free on each card, by its id as a text: JSON knows no other keys."""
    got = {card.fact.id: max(card.free_memory_mib, 0) for card in _ledger(vector.input).cards}
    expected = dict(vector.expected)
    if isinstance(expected.get("idle"), dict):
        expected["idle"] = {str(card): idle for card, idle in expected["idle"].items()}
    return compared(expected, {"idle": got})


def candidates(vector: Vector) -> Fields:
    """The cards that take a request, each asked alone."""
    ledger = _ledger(vector.input)
    wanted = DeviceRequest(FAMILY, 0, "c0", 1, vector.input["request"], 0, 0)
    got = [card.fact.index for card in ledger.cards if _takes(ledger, card.fact.id, wanted)]
    return compared(vector.expected, {"device_ids": got})


def _takes(ledger: Ledger, card: str, wanted: DeviceRequest) -> bool:
    only = {(FAMILY, wanted.container): {card}}
    found = choose_cards(ledger, [wanted], Rules(), FAMILIES[FAMILY], _by_index, only=only)
    return not isinstance(found, str)


def _by_index(cards: Sequence[Free], wanted: DeviceRequest) -> Sequence[Free]:
    return cards


def _ledger(given: Mapping[str, Any]) -> Ledger:
    facts = tuple(
        CardFact(str(d["id"]), d["id"], wire.MODEL, SHARERS, d["memory"], 100, True, "")
        for d in given["devices"]
    )
    ledger = Ledger(Inventory(FAMILY, "", facts))
    for pod in given.get("pods") or ():
        if pod.get("phase") in ENDED:
            continue
        held = Holding(FAMILY, 0, str(pod["device"]), pod["gpu_memory"], 0)
        ledger.charge(pod["uid"], held)
    return ledger
