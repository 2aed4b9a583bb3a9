"""vGPU nodes: their cards in the vectors' words, and one question about a card at a time."""

from collections.abc import Mapping
from typing import Any

from allotment.core.ledger.ledger import Card
from allotment.core.placement.devices.choosing import Chosen, Pick
from allotment.core.placement.rules.predicates import Fit
from allotment.core.placement.rules.scores import score
from allotment.core.reasons import GPU_NOT_SELECTED
from allotment_proto.events import PodObserved
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory, PodRequest
from allotment_proto.volcano import keys
from allotment_proto.volcano import vgpu as wire
from tests.compat.file import Vector
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.refusals import error_pair
from tests.compat.runners.world import (
    MICRO,
    NODE,
    POINTS_DIGITS,
    SCHEDULER,
    World,
    group_on_cards,
    held_by_pod,
    holdings_of,
    policy_of,
)

FAMILY = wire.FAMILY
MODEL = "NVIDIA"


def registered(world: World | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the node shows; of one that is not registered there is nothing to show."""
    if world is None:
        return {"registered": False, "mode": None, "devices": None}
    ledger = world.state.nodes[world.name].ledgers[FAMILY]
    return {
        "registered": True,
        "mode": ledger.mode,
        "devices": [_device(card) for card in ledger.cards],
    }


def _device(card: Card) -> dict[str, Any]:
    fact = card.fact
    return {
        "index": fact.index,
        "uuid": fact.id,
        "count": fact.slots,
        "memory": fact.memory_mib,
        "type": fact.model,
        "health": fact.healthy,
        "migGroups": [geometry.name for geometry in card.table],
    }


def books(world: World) -> list[dict[str, Any]]:
    """Who holds how much of which card."""
    is_mig = world.state.nodes[world.name].ledgers[FAMILY].mode == keys.MODE_MIG
    shown = []
    for card in world.cards:
        pods = {
            uid: {
                "core": sum(held.cores_pct for held in part),
                "mem": sum(card.charged_mib(held) for held in part),
                "group": group_on_cards(world.state.pods[uid].fact),
            }
            for uid, part in held_by_pod(card).items()
        }
        entry = {
            "index": card.fact.index,
            "uuid": card.fact.id,
            "usedNum": card.used_slots,
            "usedMem": card.used_memory_mib,
            "usedCore": card.used_cores_pct,
            "pods": pods,
        }
        shown.append({**entry, **geometry_in_use(card)} if is_mig else entry)
    return shown


def geometry_in_use(card: Card) -> dict[str, Any]:
    """Which geometry a MIG card is cut by, −1 for none, and the used ordinals of each profile."""
    used: dict[str, list[int]] = {}
    for instance in card.held:
        name, _, position = instance.rpartition("-")
        geometry = next((g for g in card.table if g.name == name), None)
        start = 0
        for profile in geometry.profiles if geometry is not None else ():
            if start <= int(position) < start + profile.count:
                used.setdefault(profile.name, []).append(int(position) - start)
            start += profile.count
    chosen = card.state[0] if card.state else -1
    return {
        "migIndex": chosen,
        "migUsed": {name: sorted(ordinals) for name, ordinals in sorted(used.items())},
    }


def assignment(found: Fit) -> str:
    """The assignment that would be written on the pod."""
    return wire.encode_assignment(holdings_of(found))


# A node whose cards a vector lists as they are, with what is used of them


def inventory(given: Mapping[str, Any]) -> Inventory:
    """The listed cards, with nothing used."""
    mode = given.get("mode") or keys.MODE_HAMI_CORE
    facts = (card_fact(d, number, mode) for number, d in enumerate(given["devices"]) if d)
    return Inventory(FAMILY, mode, tuple(facts))


def node_of(given: Mapping[str, Any]) -> World:
    """The listed cards. What is used of them belongs to one pod, its first container has it all."""
    found = inventory(given)
    world = World(FAMILY, found, policy_of(given.get("policy")), node=given.get("node") or NODE)
    holdings: list[Holding] = []
    for fact, device in zip(found.cards, filter(None, given["devices"]), strict=True):
        for holder in range(device.get("used_num", 0)):
            amounts = (device.get("used_mem", 0), device.get("used_core", 0))
            holdings.append(Holding(FAMILY, holder, fact.id, *(amounts if not holder else (0, 0))))
    world.observe(
        PodObserved(
            uid="there",
            namespace="default",
            name="there",
            rv=1,
            created_ms=0,
            scheduler=SCHEDULER,
            request=PodRequest(),
            phase="Running",
            node=world.name,
            holdings=tuple(holdings),
        )
    )
    return world


def card_fact(device: Mapping[str, Any], number: int, mode: str) -> CardFact:
    return CardFact(
        id=device.get("uuid", f"GPU-{number}"),
        index=device.get("index", number),
        model=device.get("type", MODEL),
        slots=device.get("count", 10),
        memory_mib=device.get("memory", 0),
        cores_pct=100,
        healthy=device.get("health", True),
        mode=mode,
    )


def vgpu_filter(vector: Vector) -> Fields:
    """One pod on one node."""
    expected = dict(vector.expected)
    world = node_of(vector.input)
    fact = world.fact(vector.input["pod"])
    found = world.fit(fact)
    fit = found if isinstance(found, Fit) else None
    refusal = found if isinstance(found, str) else None
    points = world.points(fact, fit) if fit else None
    cards = [held.card for held in holdings_of(fit)] if fit else []
    indexes = [p.card.fact.index for c in fit.chosen for p in c.picks] if fit else []
    out: Fields = {}
    if (text := expected.pop("error_contains", None)) is not None:
        is_about_ids = keys.USE_GPUUUID in text or keys.NOUSE_GPUUUID in text
        says = GPU_NOT_SELECTED if is_about_ids else refusal
        out["error_contains"] = (text, text if refusal is not None and refusal == says else refusal)
    if "error" in expected:
        out["error"] = error_pair(expected.pop("error"), refusal)
    if (most := expected.pop("score_at_most", None)) is not None:
        out["score_at_most"] = (True, points is not None and points <= most)
    if isinstance(expected.get("score"), int | float):
        expected["score"] = round(expected["score"], POINTS_DIGITS)
    said = {
        "fit": fit is not None,
        "code": 0 if fit is not None else 2,
        "score": points,
        "uuid": cards[0] if cards else None,
        "uuids": cards,
        "device_index": indexes[0] if indexes else None,
        "device_indexes": indexes,
        "wouldAllocate": assignment(fit) if fit else None,
    }
    return {**out, **compared(expected, said)}


def vgpu_allocate_sequence(vector: Vector) -> Fields:
    """Pods one after the other on one node."""
    world = node_of(vector.input)
    fitted: list[bool] = []
    cards: list[str] = []
    for pod in vector.input["pods"]:
        fitted.append(isinstance(world.allocate(pod), dict))
        allocation = world.state.pods[world.fact(pod).uid].allocation
        cards.extend(held.card for held in (allocation.holdings if allocation else ()))
    distinct = len(set(cards))
    by_id = {card.fact.id: card.fact.index for card in world.cards}
    said: dict[str, Any] = {
        "fits": fitted,
        "all_fit": all(fitted),
        "uuids": cards,
        "devices": cards,
        "device_indexes": [by_id[card] for card in cards],
        "distinct": distinct,
    }
    for name, value in vector.expected.items():
        if name.endswith("same_device"):
            said[name] = distinct == 1
        elif "all_devices" in name:
            said[name] = distinct == len(by_id)
        elif any(word in name for word in ("distinct", "different", "devices_used")):
            said[name] = distinct == len(cards) if isinstance(value, bool) else distinct
    return compared(vector.expected, said)


def vgpu_device_score(vector: Vector) -> Fields:
    """The points of one chosen card, in the state after it was charged."""
    device = vector.input["device"]
    memory_mib, used_mib = device.get("memory", 0), device.get("used_mem", 0)
    world = node_of({"devices": [{"memory": memory_mib}], "policy": vector.input.get("policy")})
    pick = Pick(world.cards[0], device.get("used_num", 0) == 0, used_mib, memory_mib - used_mib)
    node = world.state.nodes[world.name]
    request = PodRequest(devices=(DeviceRequest(FAMILY, 0, "c0", 1, 0, 0, 0),))
    held = Holding(FAMILY, 0, pick.card.fact.id, 0, 0)
    points = score(node, request, Fit((Chosen((held,), (pick,)),)), world.policy).terms
    wanted = {
        name: float(value) if isinstance(value, int) else value
        for name, value in vector.expected.items()
    }
    return compared(wanted, {"score": round(dict(points)["device"] / MICRO, POINTS_DIGITS)})
