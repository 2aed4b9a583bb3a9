"""GPU exclusivity: rules, the pods that match them, and the cards that are kept apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allotment.core.ledger.ledger import Card
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import card_refusal, rules_of
from allotment.core.placement.devices.free import Free
from allotment_proto.facts import PodRequest, Policy
from allotment_proto.volcano import exclusive, keys
from allotment_proto.volcano.exclusive import Rule
from tests.compat.file import Vector
from tests.compat.runners import vgpu
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.config import arguments
from tests.compat.runners.world import World, policy_of

FAMILY = vgpu.FAMILY
ARGUMENT = "deviceshare.GPUExclusiveRules"
LARGE_MIB = 10**6
LIMITS = {keys.VGPU_NUMBER: "1", keys.VGPU_MEMORY: "1"}
"""The smallest pod that asks for a card at all."""


def rules_from_arguments(vector: Vector) -> Fields:
    """The rules of a scheduler configuration."""
    return compared(vector.expected, {"rules": _maps(arguments(vector.input))})


def parse_rules(vector: Vector) -> Fields:
    """The same, by the value of the argument alone."""
    policy = arguments({ARGUMENT: vector.input.get("raw")})
    return compared(vector.expected, {"rules": _maps(policy)})


def rule_matches(vector: Vector) -> Fields:
    rules, number = _rules(vector), vector.input["rule_index"]
    matches = 0 <= number < len(rules) and number in exclusive.matching_rules(
        rules, _labels(vector)
    )
    return compared(vector.expected, {"matches": matches})


def matching_rules(vector: Vector) -> Fields:
    found = exclusive.matching_rules(_rules(vector), _labels(vector))
    return compared(vector.expected, {"rule_indices": list(found)})


def rebuild(vector: Vector) -> Fields:
    """Which cards belong to which rule, by the pods that are there."""
    given, rules = vector.input, _rules(vector)
    world = _world(rules, _cards(given))
    for pod in given["pods"]:
        namespace, _, name = pod["name"].rpartition("/")
        _hold(world, pod.get("devices") or (), pod.get("labels"), name, namespace)
    belongs = {
        str(number): [c.fact.index for c in world.cards if f"exclusive:{text}" in c.tags]
        for number, text in enumerate(map(exclusive.rule_text, rules))
    }
    found = {number: cards for number, cards in belongs.items() if cards}
    return compared(vector.expected, {"rule_gpus": found})


def reserved_devices(vector: Vector) -> Fields:
    """The cards that a pod may not have because of the rules that it matches."""
    world = _held(vector)
    pod = _request(world, _labels(vector))
    reserved = [card.fact.index for card in world.cards if not _takes(world, card, pod)]
    return compared(vector.expected, {"reserved": reserved})


def available_devices(vector: Vector) -> Fields:
    """How many cards a pod may have."""
    world = _held(vector)
    pod = _request(world, _labels(vector))
    available = sum(_takes(world, card, pod) for card in world.cards)
    return compared(vector.expected, {"available_devices": available})


def cap_devices(vector: Vector) -> Fields:
    """How many pods a card can have, as a pod sees it that is kept apart, and any other."""
    labels = {"capped": "yes"}
    world = _world([tuple(labels.items())], _cards(vector.input))
    _fill(world, vector.input["devices"], dict.fromkeys(map(str, vector.input["cap"]), labels))
    said = {}
    for name, seen_by in (("count_while_capped", labels), ("count_after_restore", {})):
        pod = _request(world, seen_by)
        said[name] = {card.fact.id: _count(world, card, pod) for card in world.cards}
    return compared(vector.expected, said)


def _count(world: World, card: Card, pod: PodRequest) -> int:
    return card.used_slots + (card.free_slots if _takes(world, card, pod) else 0)


def _maps(policy: Policy) -> list[dict[str, str]]:
    return [dict(rule) for rule in policy.exclusive_rules]


def _rules(vector: Vector) -> Sequence[Rule]:
    """The vector's rules, each in its place."""
    return [tuple(sorted(labels.items())) for labels in vector.input.get("rules") or ()]


def _labels(vector: Vector) -> Mapping[str, str]:
    return vector.input.get("pod_labels") or {}


def _cards(given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Cards by index, listed or only counted."""
    return given.get("devices") or {str(n): {} for n in range(given["device_count"])}


def _world(rules: Sequence[Rule], cards: Mapping[str, Mapping[str, Any]]) -> World:
    devices = [
        {"uuid": n, "index": int(n), "count": card.get("count", 10), "memory": LARGE_MIB}
        for n, card in cards.items()
    ]
    policy = msgspec.structs.replace(policy_of(None), exclusive_rules=tuple(rules))
    return World(FAMILY, vgpu.inventory({"devices": devices}), policy)


def _held(vector: Vector) -> World:
    """The cards, each rule's held by a pod that matches it, with as many others as are used."""
    rules = _rules(vector)
    cards = _cards(vector.input)
    world = _world(rules, cards)
    holders: dict[str, dict[str, str]] = {}
    for number, held in (vector.input.get("rule_gpus") or {}).items():
        for card in held:
            holders.setdefault(str(card), {}).update(dict(rules[int(number)]))
    _fill(world, cards, holders)
    return world


def _fill(
    world: World,
    cards: Mapping[str, Mapping[str, Any]],
    holders: Mapping[str, Mapping[str, str]],
) -> None:
    """As many pods on each card as it has used; the first has the labels."""
    for number, card in cards.items():
        labels = holders.get(number)
        for holder in range(max(card.get("used_num", 0), 1 if labels else 0)):
            _hold(world, [number], None if holder else labels, f"{number}-{holder}")


def _hold(
    world: World,
    cards: Sequence[object],
    labels: Mapping[str, str] | None,
    name: str,
    namespace: str = "",
) -> None:
    ids = "".join(f"{card},NVIDIA,1,0:" for card in cards)
    pod = {"name": name, "namespace": namespace, "labels": labels}
    world.add({**pod, "annotations": {keys.VGPU_IDS: ids}})


def _request(world: World, labels: Mapping[str, str]) -> PodRequest:
    return world.fact({"name": "new", "labels": labels, "containers": [{"limits": LIMITS}]}).request


def _takes(world: World, card: Card, pod: PodRequest) -> bool:
    rules = rules_of(pod, world.policy, world.name)
    return card_refusal(Free(card), pod.devices[0], rules, FAMILIES[FAMILY]) is None
