"""What of a node's hardware its Node object shows: under faults, and as is configured.

A device plugin registers cards by an annotation and offers resources to kubelet. Which of them, and
by which names, follows from the hardware, from what is broken, and from the device configuration;
over-commit is applied as the configuration's documentation has it.
"""

from typing import NamedTuple

import msgspec

from allotment_local.nodes.annotations import NodeFaults
from allotment_local.nodes.inventory import USUAL, Hardware, ascend_resource, names_of
from allotment_local.nodes.npu_objects import base_devices
from allotment_proto.device_config import DeviceConfig, NodeConfig, Nvidia
from allotment_proto.facts import CardFact
from allotment_proto.volcano import ascend, keys, vgpu

MILLI = 1000
Amounts = dict[str, int]


class Shown(NamedTuple):
    """Node annotations (None: no such one), and extended resources of its status."""

    annotations: dict[str, str | None]
    capacity: Amounts
    allocatable: Amounts


def said_of(config: DeviceConfig, node: str) -> NodeConfig:
    """What is configured for one node; the last entry of its name counts."""
    found = [entry for entry in config.nodes if entry.name == node]
    return found[-1] if found else NodeConfig(node)


def is_plain(config: DeviceConfig, node: str) -> bool:
    """Whether the configuration leaves the cards of a node as they are."""
    wanted = Nvidia()
    plain = msgspec.structs.replace(
        config.nvidia,
        mig=wanted.mig,
        memory_percentage_name=wanted.memory_percentage_name,
        default_memory=wanted.default_memory,
        default_cores_pct=wanted.default_cores_pct,
        default_count=wanted.default_count,
        disable_core_limit=wanted.disable_core_limit,
    )
    return plain == wanted and said_of(config, node) == NodeConfig(node)


def registered(hardware: Hardware, config: DeviceConfig, node: str) -> tuple[CardFact, ...]:
    """The vGPU cards as the plugin registers them: memory in units of the factor, none hidden."""
    said, nvidia = said_of(config, node), config.nvidia
    return tuple(
        msgspec.structs.replace(
            card,
            slots=said.split_count or nvidia.split_count or card.slots,
            memory_mib=card.memory_mib // nvidia.memory_factor,
            mode=said.mode or card.mode,
        )
        for card in hardware.vgpu
        if card.id not in said.hidden_ids and card.index not in said.hidden_indexes
    )


def offered_by(card: CardFact, config: DeviceConfig, node: str) -> tuple[int, int, int]:
    """Number, memory and cores that a registered vGPU card adds to what kubelet is given."""
    said, nvidia = said_of(config, node), config.nvidia
    memory_milli = said.memory_scaling_milli or nvidia.memory_scaling_milli
    cores_milli = said.cores_scaling_milli or nvidia.cores_scaling_milli
    return (
        card.slots,
        card.memory_mib * memory_milli // MILLI,
        card.cores_pct * cores_milli // MILLI,
    )


def shown(hardware: Hardware, faults: NodeFaults, config: DeviceConfig, node: str) -> Shown:
    """What the Node shows. A plugin that died keeps its annotation but offers no devices."""
    out = Shown({}, dict(hardware.capacity), dict(hardware.offered))
    if hardware.vgpu:
        _show_vgpu(out, hardware, faults, config, node)
    if hardware.gpushare:
        _show_gpushare(out, hardware, faults)
    if hardware.ascend:
        _show_ascend(out, hardware, faults, config)
    if hardware.chips:
        _show_mindcluster(out, hardware, faults)
    for name, count in hardware.whole:
        gone = sum(str(index) in faults.gone for index in range(count))
        ill = sum(str(index) in faults.unhealthy - faults.gone for index in range(count))
        _lower(out.capacity, name, gone)
        _lower(out.allocatable, name, gone + ill)
    if faults.plugin_dead:
        return out._replace(allocatable=dict.fromkeys(out.allocatable, 0))
    return out


def _show_vgpu(
    out: Shown, hardware: Hardware, faults: NodeFaults, config: DeviceConfig, node: str
) -> None:
    cards = registered(hardware, config, node)
    there = [_with_health(card, faults) for card in cards if card.id not in faults.gone]
    out.annotations[keys.NODE_VGPU_REGISTER] = vgpu.encode_register(tuple(there))
    if not is_plain(config, node):
        totals = [sum(n) for n in zip(*(offered_by(c, config, node) for c in cards), strict=True)]
        for usual, name, total in zip(USUAL, names_of(config), totals or (0, 0, 0), strict=True):
            for amounts in (out.capacity, out.allocatable):
                amounts.pop(usual, None)
                if name:
                    amounts[name] = total
    for card in cards:
        _take_away(
            out,
            dict(zip(names_of(config), offered_by(card, config, node), strict=True)),
            card.id,
            faults,
        )


def _show_gpushare(out: Shown, hardware: Hardware, faults: NodeFaults) -> None:
    """The older plugin tells no cards, only how many: those that are gone are the last ones."""
    ill = [card.index for card in hardware.gpushare if card.id in faults.unhealthy - faults.gone]
    out.annotations[keys.GPU_UNHEALTHY_IDS] = ",".join(map(str, ill)) or None
    for card in hardware.gpushare:
        _take_away(out, {keys.GPU_MEMORY: card.memory_mib, keys.GPU_NUMBER: 1}, card.id, faults)


def _show_ascend(out: Shown, hardware: Hardware, faults: NodeFaults, config: DeviceConfig) -> None:
    for word in sorted({card.model for card in hardware.ascend}):
        cards = [card for card in hardware.ascend if card.model == word]
        there = [_with_health(card, faults) for card in cards if card.id not in faults.gone]
        out.annotations[keys.hami_register(word)] = ascend.encode_register(there)
        for card in cards:
            _take_away(out, {ascend_resource(config, word): card.slots}, card.id, faults)


def _show_mindcluster(out: Shown, hardware: Hardware, faults: NodeFaults) -> None:
    there = [card for card in hardware.chips if card.id not in faults.gone]
    out.annotations[keys.NPU_BASE_DEVICES] = base_devices([f"{c.model}-{c.id}" for c in there])
    for card in hardware.chips:
        _take_away(out, {keys.NPU_CORE: card.cores_pct}, card.id, faults)


def _take_away(out: Shown, amounts: Amounts, card: str, faults: NodeFaults) -> None:
    """A card that is gone is not even capacity; one that is ill cannot be allocated."""
    for name, amount in amounts.items():
        if card in faults.gone:
            _lower(out.capacity, name, amount)
        if card in faults.gone | faults.unhealthy:
            _lower(out.allocatable, name, amount)


def _lower(amounts: Amounts, name: str, by: int) -> None:
    if name in amounts:
        amounts[name] = max(0, amounts[name] - by)


def _with_health(card: CardFact, faults: NodeFaults) -> CardFact:
    return msgspec.structs.replace(card, healthy=card.healthy and card.id not in faults.unhealthy)
