"""A node's NVIDIA cards, checked against the configuration.

Three sources must agree: the device configuration, the device plugin's registration, and what
kubelet lists as allocatable. Otherwise kubelet would reject pods that fit by one of them
(`UnexpectedAdmissionError`), so the node gets a problem before any pod is sent there.
"""

from collections.abc import Iterator, Mapping

import msgspec

from allotment.core import units
from allotment.core.ledger.partitions.mig import most_mib
from allotment.core.placement.devices.base import CORES_MOST_PCT, NodeSource
from allotment_proto.device_config import DeviceConfig, NodeConfig
from allotment_proto.facts import NO_TABLE, CardFact, Geometry, Inventory, Problem
from allotment_proto.volcano import device_config, gpushare, keys
from allotment_proto.volcano import vgpu as wire

_MILLI = 1000
_MISMATCH = "DeviceConfigMismatch"
_Tables = tuple[tuple[Geometry, ...], ...]


def registered(family: str, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
    """The node's cards. A node counts when kubelet lists number, memory and cores above 0.

    If the device plugin fails, kubelet sets these to 0: that is the liveness signal.
    """
    text = node.annotations.get(keys.NODE_VGPU_REGISTER)
    if text is None:
        return None, _half_deployed(node)
    register = wire.decode_register(text)
    if not register.cards:
        return None, register.problems
    problem = _not_listed(node)
    if problem is not None:
        return None, (*register.problems, problem)
    own = _node_config(node)
    ill, found = _named_unhealthy(node, register.cards)
    cards = [_configured(card, node.config, own, is_ill=card.id in ill) for card in register.cards]
    problems = [*register.problems, *found, *_hidden(register.cards, own)]
    mode = register.mode
    tables: _Tables = ()
    if mode == keys.MODE_MIG:
        cards, tables, found = _with_tables(cards, node.config)
        problems += found
        if not tables:
            mode = keys.MODE_HAMI_CORE  # as Volcano reads it, without a message
    problems += _disagreements(node, register, own)
    return Inventory(family, mode, tuple(cards), tables), tuple(problems)


def _half_deployed(node: NodeSource) -> tuple[Problem, ...]:
    """The problem of a node with resources of the device plugin but without registered cards.

    The configured names may be those of whole cards (`nvidia.com/gpu`), which another plugin lists,
    so only names that no other plugin uses count.
    """
    nvidia = node.config.nvidia
    names = (nvidia.count_name, nvidia.memory_name, nvidia.cores_name)
    listed = [name for name in names if name and _amount(node.allocatable, name)]
    own = [name for name in listed if name.startswith("volcano.sh/") or name != nvidia.count_name]
    if not own:
        return ()
    message = (
        f"is missing although kubelet lists {', '.join(listed)}: does the device plugin register "
        "the node's cards?"
    )
    return (Problem("NotRegistered", f"annotation {keys.NODE_VGPU_REGISTER}", message),)


def _node_config(node: NodeSource) -> NodeConfig:
    """The per-node configuration of this node; the last entry of its name counts."""
    found = [entry for entry in node.config.nodes if entry.name == node.name]
    return found[-1] if found else NodeConfig(node.name)


def _not_listed(node: NodeSource) -> Problem | None:
    nvidia = node.config.nvidia
    names = (nvidia.count_name, nvidia.memory_name, nvidia.cores_name)
    missing = [name for name in names if name and not _amount(node.allocatable, name)]
    if not missing:
        return None
    return Problem(
        "NotAllocatable",
        "status.allocatable",
        f"{', '.join(missing)} missing or 0 although cards are registered: "
        "is the device plugin running?",
    )


def _named_unhealthy(
    node: NodeSource, cards: tuple[CardFact, ...]
) -> tuple[frozenset[str], list[Problem]]:
    """The ids of cards that an annotation names as unhealthy, by index or UUID, in addition to the
    health that the device plugin reports.
    """
    indexes, ids = gpushare.decode_unhealthy(node.annotations.get(keys.GPU_UNHEALTHY_IDS, ""))
    known = frozenset(card.id for card in cards)
    strange = [*ids, *map(str, sorted(indexes - {card.index for card in cards}))]
    place = f"annotation {keys.GPU_UNHEALTHY_IDS}"
    problems = [
        Problem(
            "UnhealthyCardUnknown",
            place,
            f"names {name[:80]!r}, which is neither the UUID nor the index of a registered card",
        )
        for name in strange
        if name not in known
    ]
    return known.intersection(ids) | {c.id for c in cards if c.index in indexes}, problems


def _configured(card: CardFact, config: DeviceConfig, own: NodeConfig, *, is_ill: bool) -> CardFact:
    """The card with its sizes scaled for over-commit, and unhealthy if it is hidden or named as
    unhealthy.
    """
    nvidia = config.nvidia
    memory_milli = own.memory_scaling_milli or nvidia.memory_scaling_milli
    cores_milli = own.cores_scaling_milli or nvidia.cores_scaling_milli
    is_hidden = card.id in own.hidden_ids  # hidden indexes are the plugin's, not the register's
    by = ""
    if card.healthy and (is_ill or is_hidden):
        by = f"annotation {keys.GPU_UNHEALTHY_IDS}" if is_ill else "the device configuration"
    return msgspec.structs.replace(
        card,
        unhealthy_by=by,
        memory_mib=card.memory_mib * memory_milli // _MILLI,
        cores_pct=min(card.cores_pct * cores_milli // _MILLI, CORES_MOST_PCT),
        # the whole of nothing would fit on a card without memory, and fail there
        healthy=card.healthy and card.memory_mib > 0 and not is_hidden and not is_ill,
    )


def _with_tables(
    cards: list[CardFact], config: DeviceConfig
) -> tuple[list[CardFact], _Tables, list[Problem]]:
    """The cards in mode mig, with the geometries of their models.

    A card without geometries takes nothing, unless no card has any: then all are shared by amounts.
    """
    by_model = {
        card.model: device_config.geometries_for(config, card.model)
        for card in cards
        if card.mode == keys.MODE_MIG
    }
    has_any = any(by_model.values())
    tables: list[tuple[Geometry, ...]] = []
    out: list[CardFact] = []
    problems: list[Problem] = []
    for card in cards:
        if card.mode != keys.MODE_MIG:  # the register's own problem names the mixed modes
            out.append(msgspec.structs.replace(card, table=NO_TABLE if has_any else card.table))
            continue
        table = by_model[card.model]
        if not table:
            outcome = "it takes nothing" if has_any else "the node counts as hami-core"
            problems.append(
                Problem(
                    "NoMigTable",
                    f"card {card.id}",
                    f"is registered in mode mig, but no model in knownMigGeometries is part of "
                    f"{card.model!r}: {outcome}; add its model to the device configuration",
                )
            )
            out.append(msgspec.structs.replace(card, table=NO_TABLE if has_any else card.table))
            continue
        if table not in tables:
            tables.append(table)
        # a table may name rounded sizes, and pods are charged by the table
        memory_mib = max(card.memory_mib, most_mib(table))
        changed = msgspec.structs.replace(card, table=tables.index(table), memory_mib=memory_mib)
        out.append(changed)
    return out, tuple(tables), problems


def _hidden(cards: tuple[CardFact, ...], own: NodeConfig) -> Iterator[Problem]:
    for card in cards:
        if card.id in own.hidden_ids:
            yield _mismatch(
                f"card {card.id}", "is registered although filterdevices hides it; it takes nothing"
            )


def _disagreements(node: NodeSource, register: wire.Register, own: NodeConfig) -> Iterator[Problem]:
    """Where configuration, registration and allocatable disagree."""
    nvidia, cards = node.config.nvidia, register.cards
    if own.mode and own.mode != register.mode:
        yield _mismatch(
            "operatingmode",
            f"is {own.mode} in the node's configuration, {register.mode} on the node",
        )
    split = own.split_count or nvidia.split_count
    if split and any(card.slots != split for card in cards):
        counts = sorted({card.slots for card in cards})
        yield _mismatch(
            "deviceSplitCount", f"is {split} in the configuration, {counts} as registered"
        )
    cores_milli = own.cores_scaling_milli or nvidia.cores_scaling_milli
    memory_milli = own.memory_scaling_milli or nvidia.memory_scaling_milli
    usable = [card for card in cards if card.healthy]
    for name, wanted in (
        (nvidia.count_name, sum(card.slots for card in usable)),
        (nvidia.memory_name, sum(card.memory_mib * memory_milli // _MILLI for card in usable)),
        (nvidia.cores_name, sum(card.cores_pct * cores_milli // _MILLI for card in usable)),
    ):
        listed = _amount(node.allocatable, name)
        if name and listed < wanted:
            yield _mismatch(
                f"status.allocatable {name}",
                f"is {listed}, but the healthy cards as registered and configured have {wanted}: "
                "kubelet admits no more than it lists",
            )


def _amount(amounts: Mapping[str, str], name: str) -> int:
    """A whole amount; 0 if it is missing or no quantity."""
    try:
        return units.whole_up(amounts.get(name, "0"))
    except units.QuantityError:
        return 0


def _mismatch(place: str, message: str) -> Problem:
    return Problem(_MISMATCH, place, message)
