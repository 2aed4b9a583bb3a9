"""One vGPU card at a time: its books, and whether a pod accepts it."""

from collections.abc import Mapping
from typing import Any

from allotment.core.ledger.ledger import Card, Ledger
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import Rules, card_refusal, model_wanted
from allotment.core.placement.devices.free import Free
from allotment.core.reasons import CARD_KEPT_APART
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory
from allotment_proto.volcano import keys, selection
from allotment_proto.volcano import vgpu as wire
from tests.compat.file import Vector
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.vgpu import FAMILY, card_fact, node_of
from tests.compat.runners.world import World, group_on_cards

SMALLEST = DeviceRequest(FAMILY, 0, "c0", 1, 1, 0, 0)
CARD = "GPU-0"


def hamicore(vector: Vector) -> Fields:
    """Pods booked on a card; with ``add_sub_add`` the first is released and booked again."""
    given, expected = vector.input, vector.expected
    ledger = _ledger(given["device"])
    holding = Holding(FAMILY, 0, CARD, given["mem"], given["core"])
    names = given.get("pods") or [given["pod"]]
    for name in names:
        ledger.charge(name, holding)
    if vector.function != "hamicore_add_sub_add":
        return compared(expected, _books(ledger, names[-1]))
    out: Fields = {}
    ledger.release(names[0], holding)
    out |= compared(expected.get("after_sub") or {}, _books(ledger, names[0]), "after_sub.")
    ledger.charge(names[0], holding)
    out |= compared(expected.get("after_readd") or {}, _books(ledger, names[0]), "after_readd.")
    rest = {k: v for k, v in expected.items() if k not in ("after_sub", "after_readd")}
    return {**out, **compared(rest, _books(ledger, names[0]))}


def _ledger(device: Mapping[str, Any]) -> Ledger:
    fact = card_fact({**device, "uuid": CARD}, 0, keys.MODE_HAMI_CORE)
    ledger = Ledger(Inventory(FAMILY, keys.MODE_HAMI_CORE, (fact,)))
    for uid, used in (device.get("pods") or {}).items():
        ledger.charge(uid, Holding(FAMILY, 0, CARD, used["used_mem"], used["used_core"]))
    return ledger


def _books(ledger: Ledger, pod: str) -> dict[str, Any]:
    card = ledger.cards[0]
    held = next((h for (uid, _, _), h in card.holders.items() if uid == pod), None)
    return {
        "used_num": card.used_slots,
        "used_mem": card.used_memory_mib,
        "used_core": card.used_cores_pct,
        "pod_present": held is not None,
        "pod_used_mem": held.memory_mib if held else 0,
        "pod_used_core": held.cores_pct if held else 0,
        "pods": sorted({uid for uid, _, _ in card.holders}),
    }


def type_allowed(vector: Vector) -> Fields:
    """Whether the pod's lists of card types admit a card."""
    chosen, problems = selection.decode(vector.input.get("pod_annotations") or {})
    allowed = not problems and model_wanted(vector.input["card_type"], chosen)
    return compared(vector.expected, {"allowed": allowed})


def id_allowed(vector: Vector) -> Fields:
    """Whether the pod's lists of card ids admit a card, which must have an id to be one."""
    chosen, problems = selection.decode(vector.input.get("pod_annotations") or {})
    fact = CardFact(vector.input["device_uuid"], 0, wire.ENTRY_TYPE, 1, 1, 100, True, "hami-core")
    cards = wire.decode_register(wire.encode_register((fact,))).cards
    allowed = not problems and bool(cards) and _refusal(Card(fact), Rules(chosen)) is None
    return compared(vector.expected, {"allowed": allowed})


def same_group(vector: Vector) -> Fields:
    """Whether a card is refused because of who is on it already."""
    given = vector.input
    ledger = Ledger(
        Inventory(FAMILY, "", (CardFact(CARD, 0, "NVIDIA", 100, 10**6, 100, True, ""),))
    )
    for uid, used in (given.get("pods_on_device") or {}).items():
        tags = (f"group:{used['group']}",) if used.get("group") else ()
        held = Holding(FAMILY, 0, CARD, used.get("used_mem", 0), used.get("used_core", 0))
        ledger.charge(uid, held, tags)
    group = given.get("current_group")
    rules = Rules(apart=(f"group:{group}",) if group else ())
    blocked = _refusal(ledger.cards[0], rules) == CARD_KEPT_APART
    return compared(vector.expected, {"blocked": blocked})


def _refusal(card: Card, rules: Rules) -> str | None:
    return card_refusal(Free(card), SMALLEST, rules, FAMILIES[FAMILY])


def add_pod_usage(vector: Vector) -> Fields:
    """A bound pod's annotations, charged."""
    given = vector.input
    world: World = node_of({**given, "devices": given["devices"]})
    pod = {"uid": "p", "namespace": given.get("namespace"), "annotations": given["pod_annotations"]}
    world.add(pod)
    on = [card for card in world.cards if any(uid == "p" for uid, _, _ in card.holders)]
    said = {
        "pod_on_some_device": bool(on),
        "devices": [card.fact.id for card in on],
        "used_num": sum(card.used_slots for card in on),
        "used_mem": sum(card.used_memory_mib for card in on),
        "used_core": sum(card.used_cores_pct for card in on),
        "group_key": group_on_cards(world.state.pods["p"].fact) if on else "",
    }
    return compared(vector.expected, said)
