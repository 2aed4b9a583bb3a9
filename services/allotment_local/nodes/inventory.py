"""The cards that a Node object says it has, by family.

Every Node in the cluster gets fake plugins, regardless of its creator: its cards are read from
annotations and capacity, as a scheduler reads them. What they were at first is the hardware. What
the Node shows of it afterwards follows from faults and from the device configuration (`showing`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from allotment_local.nodes.amounts import amounts, is_extended
from allotment_local.nodes.device_map import chip_named
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import CardFact
from allotment_proto.volcano import (
    ascend,
    device_config,
    gpushare,
    keys,
    mindcluster,
    mindcluster_node,
    vgpu,
)

VGPU = vgpu.FAMILY
GPUSHARE = gpushare.FAMILY
ASCEND = ascend.FAMILY
MINDCLUSTER = mindcluster.FAMILY
_REGISTER = keys.hami_register("")
_OLDER_RESOURCES = (keys.GPU_MEMORY, keys.GPU_NUMBER, keys.NPU_CORE)

Listed = tuple[tuple[str, int], ...]
"""Extended resources with how many of them there are."""


class Hardware(NamedTuple):
    """A node's cards by family, and what its plugins offer when all is well.

    Amounts of vGPU are kept under the names that are usual, whatever is configured.
    """

    vgpu: tuple[CardFact, ...] = ()
    gpushare: tuple[CardFact, ...] = ()
    whole: Listed = ()
    """Other extended resources."""
    offered: Listed = ()
    """Allocatable extended resources."""
    ascend: tuple[CardFact, ...] = ()
    """Chips of all kinds, by kind; the model is the common word."""
    chips: tuple[CardFact, ...] = ()
    """Chips through MindCluster."""
    soft: bool = False
    """Whether Ascend chips take soft slices."""
    capacity: Listed = ()

    def card_ids(self) -> tuple[str, ...]:
        """The names by which faults mean cards; an index is a position in here."""
        for cards in (self.vgpu, self.gpushare, self.ascend, self.chips):
            if cards:
                return tuple(card.id for card in cards)
        return tuple(str(index) for index in range(max((n for _, n in self.whole), default=0)))


class Names(NamedTuple):
    """How the three resources of vGPU are called."""

    number: str = keys.VGPU_NUMBER
    memory: str = keys.VGPU_MEMORY
    cores: str = keys.VGPU_CORES


USUAL = Names()


def names_of(config: DeviceConfig) -> Names:
    nvidia = config.nvidia
    return Names(nvidia.count_name, nvidia.memory_name, nvidia.cores_name)


def ascend_resource(config: DeviceConfig, common_word: str) -> str:
    """The resource by which chips of a kind are counted."""
    chip = chip_named(config, common_word)
    return f"huawei.com/{common_word}" if chip is None else chip.resource_name


def read_hardware(node: dict[str, Any], config: DeviceConfig | None = None) -> Hardware:
    """The cards as the Node object lists them."""
    config = config or device_config.default()
    annotations = node["metadata"].get("annotations") or {}
    status = node.get("status") or {}
    capacity, allocatable = amounts(status.get("capacity")), amounts(status.get("allocatable"))
    register = annotations.get(keys.NODE_VGPU_REGISTER)
    cards = () if register is None else vgpu.decode_register(register).cards
    shared: tuple[CardFact, ...] = ()
    if keys.GPU_MEMORY in capacity and keys.GPU_NUMBER in capacity:
        shared = gpushare.cards_from_capacity(
            capacity[keys.GPU_MEMORY], capacity[keys.GPU_NUMBER], frozenset()
        )
    soft = ascend.slices_softly(annotations, config.ascend_soft_slicing)
    npus = _ascend(annotations, soft)
    resources = {*USUAL, *_OLDER_RESOURCES}
    resources |= {ascend_resource(config, chip.model) for chip in npus}
    if cards:
        resources |= {*names_of(config)}
    return Hardware(
        vgpu=cards,
        gpushare=shared,
        whole=tuple(
            (name, count)
            for name, count in sorted(allocatable.items())
            if is_extended(name) and name not in resources
        ),
        offered=_listed(allocatable, config, renamed=bool(cards)),
        ascend=npus,
        chips=_mindcluster(node["metadata"].get("labels") or {}, annotations, capacity),
        soft=soft,
        capacity=_listed(capacity, config, renamed=bool(cards)),
    )


def _listed(found: Mapping[str, int], config: DeviceConfig, *, renamed: bool) -> Listed:
    """The extended resources, those of vGPU under their usual names."""
    usual = dict(zip(names_of(config), USUAL, strict=True)) if renamed else {}
    return tuple(
        (usual.get(name, name), count) for name, count in sorted(found.items()) if is_extended(name)
    )


def _ascend(annotations: Mapping[str, str], soft: bool) -> tuple[CardFact, ...]:
    words = (
        key.removeprefix(_REGISTER) for key in sorted(annotations) if key.startswith(_REGISTER)
    )
    return tuple(
        card
        for word in words
        for card in ascend.decode_register(annotations[keys.hami_register(word)], word, soft).cards
    )


def _mindcluster(
    labels: Mapping[str, str], annotations: Mapping[str, str], capacity: Mapping[str, int]
) -> tuple[CardFact, ...]:
    """The chips that the node's labels and its AI cores make, all of them well."""
    npu_cores = capacity.get(keys.NPU_CORE, 0)
    info = mindcluster_node.DeviceInfo(available=())
    found = mindcluster_node.decode_node(labels, annotations, npu_cores, info)
    if found.cards or not found.cores_per_chip:
        return found.cards
    chips = tuple(range(npu_cores // found.cores_per_chip))
    info = mindcluster_node.DeviceInfo(available=chips)
    return mindcluster_node.decode_node(labels, annotations, npu_cores, info).cards
