"""MIG cards: which instance is handed out, what it is charged, and what is left."""

from collections.abc import Mapping
from typing import Any

from allotment.core.ledger.ledger import Card, Ledger
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import Rules, choose_cards
from allotment.core.placement.devices.free import in_order
from allotment_proto.facts import CardFact, DeviceRequest, Geometry, Holding, Inventory, Profile
from allotment_proto.volcano import keys, mig
from tests.compat.file import Vector
from tests.compat.runners import vgpu
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.world import LISTED, World, policy_of

FAMILY = vgpu.FAMILY
SLOTS = 100
"""Vectors of single functions do not count holders."""


def parse_id(vector: Vector) -> Fields:
    """Card, group and position of a device id."""
    found = mig.parse_id(vector.input["text"], "vector")
    error = vector.expected.get("error")
    if isinstance(found, mig.MigId):
        said = {"card": found.card, "uuid": found.card, "group": found.group, "error": None}
        return compared(vector.expected, {**said, "position": found.position})
    refused = {"card": None, "uuid": None, "group": None, "position": None}
    return compared(vector.expected, {**refused, "error": error or found.message})


def find_match(vector: Vector) -> Fields:
    """The instance that a card hands out."""
    given = vector.input
    ledger = _used(given, given["uuid"])
    found = _choose(ledger, given)
    said = {"fit": False, "device_id": "", "instance_mem": 0, "group": "", "position": -1}
    if found is not None:
        said = _said(found, given)
    return compared(vector.expected, said)


def try_add(vector: Vector) -> Fields:
    """The same, and the card's books with the instance charged."""
    given = vector.input
    ledger = _used(given, given["uuid"])
    found = _choose(ledger, given)
    said: dict[str, Any] = {"fit": False, "device_id": "", "group": "", "instance_mem_raw": 0}
    if found is not None:
        said = _said(found, given)
        ledger.charge(given.get("pod") or "p", found)
    return compared(vector.expected, {**said, "device_used": _device_used(ledger.cards[0])})


def add_pod(vector: Vector) -> Fields:
    """A bound pod's annotation, charged; with ``add_then_sub`` the pod is gone again."""
    given = vector.input
    identity = mig.parse_id(given["device_id"], "vector")
    card = identity.card if isinstance(identity, mig.MigId) else given["device_id"]
    fact, inventory = _card(given, card)
    world = World(FAMILY, inventory, policy_of(None))
    text = f"{given['device_id']},NVIDIA,{given['request_mem']},{given['core']}:"
    uid = given.get("pod") or "p"
    world.add({"uid": uid, "annotations": {keys.VGPU_IDS: text}})
    if vector.function == "mig_add_then_sub_pod":
        world.remove(uid)
    books = world.state.nodes[world.name].ledgers[FAMILY].by_id[fact.id]
    held = next((h for (owner, _, _), h in books.holders.items() if owner == uid), None)
    said = {
        "device_used": _device_used(books),
        "pod_used": {
            "mem": books.charged_mib(held) if held else 0,
            "core": held.cores_pct if held else 0,
        },
        "pod_present": held is not None,
        **vgpu.geometry_in_use(books),
    }
    return compared(vector.expected, said)


def mark_then_unmark(vector: Vector) -> Fields:
    """One instance held, and released."""
    given = vector.input
    fact, inventory = _card(given, "GPU-0")
    ledger = Ledger(inventory)
    card = ledger.cards[0]
    held = Holding(FAMILY, 0, fact.id, 0, 0, mig.instance_name(given["group"], given["position"]))
    before_mib = card.free_memory_mib
    ledger.charge("p", held)
    charged_mib = before_mib - card.free_memory_mib
    used = vgpu.geometry_in_use(card)["migUsed"]
    ledger.release("p", held)
    said = {
        "add_returns_mem": charged_mib,
        "used_position": next((ordinals[0] for ordinals in used.values()), None),
        "sub_returns_mem": charged_mib - (before_mib - card.free_memory_mib),
        "usage_list_len_after_sub": len(vgpu.geometry_in_use(card)["migUsed"]),
        "index_after_sub": vgpu.geometry_in_use(card)["migIndex"],
    }
    return compared(vector.expected, said)


def _geometries(given: Mapping[str, Any], factor: int) -> tuple[Geometry, ...]:
    """The vector's table, memory in units of the factor."""
    return tuple(
        Geometry(
            entry["group"],
            tuple(
                Profile(p["name"], p["memory"] // factor, p["count"]) for p in entry["instances"]
            ),
        )
        for entry in given["geometries"]
    )


def _factor(given: Mapping[str, Any]) -> int:
    return int(given.get("gpu_memory_factor") or 1)


def _card(given: Mapping[str, Any], card: str) -> tuple[CardFact, Inventory]:
    """A card that is as large as the largest geometry of the vector's table."""
    table = _geometries(given, _factor(given))
    memory = max((sum(p.memory_mib * p.count for p in g.profiles) for g in table), default=0)
    fact = CardFact(
        card, 0, "NVIDIA", SLOTS, memory, 100, healthy=True, mode=keys.MODE_MIG, table=0
    )
    return fact, Inventory(FAMILY, keys.MODE_MIG, (fact,), (table,))


def _used(given: Mapping[str, Any], card: str) -> Ledger:
    """The card with what a vector says is used: ordinals of profiles of one geometry."""
    fact, inventory = _card(given, card)
    ledger = Ledger(inventory)
    usage = given.get("usage") or {}
    chosen = usage.get("index", -1)
    if not 0 <= chosen < len(inventory.tables[0]):
        return ledger
    geometry = inventory.tables[0][chosen]
    for entry in usage.get("list") or ():
        profile = next(
            (n for n, p in enumerate(geometry.profiles) if p.name == entry["name"]), None
        )
        for ordinal in entry.get("used_index") or () if profile is not None else ():
            position = mig.first_position(geometry, profile or 0) + ordinal
            instance = mig.instance_name(geometry.name, position)
            ledger.charge(instance, Holding(FAMILY, 0, fact.id, 0, 0, instance))
    return ledger


def _choose(ledger: Ledger, given: Mapping[str, Any]) -> Holding | None:
    wanted = DeviceRequest(FAMILY, 0, "c0", 1, given["request_mem"], 0, given.get("core", 0))
    rules = Rules(mig_order=LISTED)
    found = choose_cards(
        ledger, [wanted], rules, FAMILIES[FAMILY], lambda cards, _: in_order(cards, "first")
    )
    return None if isinstance(found, str) else found.holdings[0]


def _said(held: Holding, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was handed out, with the instance's memory as configured, in MiB."""
    identity = mig.encode_id(held.card, held.instance)
    group, _, position = held.instance.rpartition("-")
    raw = mig.profile_of(_geometries(given, 1), held.instance)
    memory_mib = raw.memory_mib if raw is not None else 0
    return {
        "fit": True,
        "device_id": identity,
        "group": group,
        "position": int(position),
        "instance_mem": memory_mib,
        "instance_mem_raw": memory_mib,
    }


def _device_used(card: Card) -> dict[str, int]:
    return {
        "num": card.used_slots,
        "mem": card.used_memory_mib,
        "core": card.used_cores_pct,
    }
