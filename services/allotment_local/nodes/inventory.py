"""The cards a Node object says it has, and what of the object a broken card or plugin changes.

Every Node in the cluster gets a fake plugin, whoever created it: the cards are read from the
register annotation and from the capacity, as a scheduler reads them. What they were at first is
the hardware; faults change what the Node shows of it, and nothing else.
"""

from typing import Any, NamedTuple

from allotment_local.nodes.amounts import amounts, is_extended
from allotment_local.nodes.annotations import NodeFaults
from allotment_proto.facts import CardFact
from allotment_proto.volcano import gpushare, keys, vgpu

VGPU = vgpu.FAMILY
GPUSHARE = gpushare.FAMILY
_FAMILY_RESOURCES = frozenset(
    (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_CORES, keys.GPU_MEMORY, keys.GPU_NUMBER)
)


class Hardware(NamedTuple):
    """A node's cards by family, and what its plugins offer when all is well."""

    vgpu: tuple[CardFact, ...] = ()
    gpushare: tuple[CardFact, ...] = ()
    whole: tuple[tuple[str, int], ...] = ()
    """Other extended resources: name and how many there are."""
    offered: tuple[tuple[str, int], ...] = ()
    """Allocatable extended resources."""

    def card_ids(self) -> tuple[str, ...]:
        """The names by which faults mean cards; an index is a position in here."""
        ids = [card.id for card in self.vgpu] or [card.id for card in self.gpushare]
        if not ids:
            ids = [str(index) for index in range(max((n for _, n in self.whole), default=0))]
        return tuple(ids)


def read_hardware(node: dict[str, Any]) -> Hardware:
    """The cards as the Node object lists them."""
    annotations = node["metadata"].get("annotations") or {}
    status = node.get("status") or {}
    capacity, allocatable = amounts(status.get("capacity")), amounts(status.get("allocatable"))
    register = annotations.get(keys.NODE_VGPU_REGISTER)
    shared: tuple[CardFact, ...] = ()
    if keys.GPU_MEMORY in capacity and keys.GPU_NUMBER in capacity:
        shared = gpushare.cards_from_capacity(
            capacity[keys.GPU_MEMORY], capacity[keys.GPU_NUMBER], frozenset()
        )
    return Hardware(
        vgpu=() if register is None else vgpu.decode_register(register).cards,
        gpushare=shared,
        whole=tuple(
            (name, count)
            for name, count in sorted(allocatable.items())
            if is_extended(name) and name not in _FAMILY_RESOURCES
        ),
        offered=tuple((name, n) for name, n in sorted(allocatable.items()) if is_extended(name)),
    )


def shown(hardware: Hardware, faults: NodeFaults) -> tuple[dict[str, str | None], dict[str, str]]:
    """Node annotations and allocatable amounts as they are under these faults; None: no such one.

    A plugin that died keeps its annotation; the kubelet offers nothing of it any more.
    """
    annotations: dict[str, str | None] = {}
    offered = dict(hardware.offered)
    broken = faults.unhealthy
    if hardware.vgpu:
        cards = tuple(_with_health(card, card.id not in broken) for card in hardware.vgpu)
        annotations[keys.NODE_VGPU_REGISTER] = vgpu.encode_register(cards)
        for card in hardware.vgpu:
            if card.id in broken:
                _lower(offered, keys.VGPU_NUMBER, card.slots)
                _lower(offered, keys.VGPU_MEMORY, card.memory_mib)
                _lower(offered, keys.VGPU_CORES, card.cores_pct)
    if hardware.gpushare:
        lost = [card for card in hardware.gpushare if card.id in broken]
        listed = ",".join(str(card.index) for card in lost)
        annotations[keys.GPU_UNHEALTHY_IDS] = listed or None
        for card in lost:
            _lower(offered, keys.GPU_MEMORY, card.memory_mib)
            _lower(offered, keys.GPU_NUMBER, 1)
    for name, count in hardware.whole:
        _lower(offered, name, sum(str(index) in broken for index in range(count)))
    if faults.plugin_dead:
        offered = dict.fromkeys(offered, 0)
    return annotations, {name: str(count) for name, count in offered.items()}


def _lower(offered: dict[str, int], name: str, by: int) -> None:
    if name in offered:
        offered[name] = max(0, offered[name] - by)


def _with_health(card: CardFact, healthy: bool) -> CardFact:
    return CardFact(
        id=card.id,
        index=card.index,
        model=card.model,
        slots=card.slots,
        memory_mib=card.memory_mib,
        cores_pct=card.cores_pct,
        healthy=healthy and card.healthy,
        mode=card.mode,
    )
