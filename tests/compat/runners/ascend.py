"""Ascend chips through HAMi: their nodes in the vectors' words, and how a vector lists chips."""

from collections.abc import Mapping
from typing import Any

import yaml

from allotment.core.placement.devices import FAMILIES
from allotment.core.reasons import INVALID_REQUEST
from allotment_proto.device_config import AscendChip, DeviceConfig
from allotment_proto.facts import CardFact
from allotment_proto.volcano import ascend as wire
from allotment_proto.volcano import device_config, keys
from tests.compat.runners.world import World, config_of

FAMILY = wire.FAMILY
LARGE_MIB = 10**6
CORES_WHOLE = 100
WORD = "Ascend910A"
"""The chip of vectors that name none."""


def registered(world: World | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The kinds of chips that the node has, and the resources that are not counted for them."""
    if world is None:
        return {"types": [], "ignored": []}
    models = {card.fact.model for card in world.cards}
    chips = [chip for chip in world.config.ascend if chip.common_word in models]
    unadvertised = FAMILIES[FAMILY].unadvertised(world.config)
    names = [n for c in chips for n in (c.resource_memory_name, c.resource_core_name)]
    return {
        "types": [chip.common_word for chip in chips],
        "ignored": [name for name in names if name in unadvertised],
    }


def books(world: World) -> list[dict[str, Any]]:
    """What is used of each chip."""
    return [
        {
            "id": card.fact.id,
            "used": card.used_slots,
            "usedmem": card.used_memory_mib,
            "usedcores": card.used_cores_pct,
        }
        for card in world.cards
    ]


def code(refusal: str) -> int:
    """Volcano's code: 1 for a request that cannot be meant, 2 for a shortage."""
    return 1 if refusal == INVALID_REQUEST else 2


# Chips as a vector lists them


def pod_mode(given: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of a pod, which may ask for soft slices."""
    annotations = dict(given.get("annotations") or {})
    if given.get("pod_hami_core") or given.get("hami_core"):
        annotations[keys.VNPU_MODE] = keys.MODE_HAMI_CORE
    return annotations


def chip_of(entry: Mapping[str, Any]) -> AscendChip:
    """A chip's configuration, read as a file would be."""
    text = yaml.safe_dump({"vnpus": [dict(entry)]})
    return config_of({"config": text}).ascend[0]


def any_chip(word: str) -> AscendChip:
    """The configured chip of this name, or one of which nothing but the name matters."""
    configured = {chip.common_word: chip for chip in device_config.default().ascend}
    return configured.get(word) or chip_of({"commonWord": word, "memoryAllocatable": LARGE_MIB})


def config_for(word: str) -> DeviceConfig:
    return config_with(any_chip(word))


def config_with(chip: AscendChip, *, soft: bool = False) -> DeviceConfig:
    return DeviceConfig(ascend=(chip,), ascend_soft_slicing=soft)


def chip_fact(
    name: str, index: int, device: Mapping[str, Any], word: str, *, soft: bool = False
) -> CardFact:
    return CardFact(
        id=name,
        index=index,
        model=word,
        slots=device.get("count", 1),
        memory_mib=device.get("devmem", 0),
        cores_pct=CORES_WHOLE if soft else device.get("devcore", 0),
        healthy=device.get("health", True),
        mode=keys.MODE_HAMI_CORE if soft else "",
        network=device.get("network", -1),
    )


def use_chip(world: World, word: str, card: str, holders: int, used: Mapping[str, Any]) -> None:
    """So many pods on a chip; the first has all the amounts."""
    memory = used.get("usedmem", used.get("mem", 0))
    cores = used.get("usedcores", used.get("core", 0))
    for number in range(max(holders, 1 if memory or cores else 0)):
        amounts = (memory, cores) if number == 0 else (0, 0)
        text = f"{card},{word},{amounts[0]},{amounts[1]}:;"
        name = f"there-{card}-{number}"
        world.add({"uid": name, "annotations": {keys.hami_allocated(word): text}})
