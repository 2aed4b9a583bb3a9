"""Names that other schedulers and device plugins use, and what to write here instead.

Manifests come from HAMi, NVIDIA's device plugin, Koordinator, Run:ai and others. No node here
offers the resources that they request, and nothing reads their annotations. The table below is the
only place with these names: rejections, explanations, the doctor and the warning about annotations
translate with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec

from allotment.core.jobs import keys as job_keys
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import (
    MIB,
    ContainerSource,
    Family,
    PodSource,
    Sense,
    counted_in,
    in_other_unit,
)
from allotment.core.placement.rules import card_names
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import DeviceRequest, PodRequest
from allotment_proto.volcano import keys


class Foreign(NamedTuple):
    """A foreign name: whose it is, what it counts, and the bytes of one unit if that is memory.
    `key`: the annotation that has the same value here.
    """

    whose: str
    senses: tuple[Sense, ...] = ()
    unit_bytes: int = MIB
    key: str = ""
    is_fraction: bool = False
    """Whether 1 means all of a card, not 1 percent."""
    is_label: bool = False


def _label(whose: str, key: str) -> Foreign:
    return Foreign(whose, key=key, is_label=True)


_CARDS, _MEMORY = (Sense.CARDS,), (Sense.MEMORY,)
_MEMORY_PCT, _COMPUTE = (Sense.MEMORY_PCT,), (Sense.COMPUTE_PCT,)
_BOTH_PCT = (Sense.MEMORY_PCT, Sense.COMPUTE_PCT)
_GIB = 1 << 30
_WHOLE_CARDS = keys.NVIDIA_COUNTED[0]

RESOURCES: Mapping[str, Foreign] = {
    _WHOLE_CARDS: Foreign("NVIDIA", _CARDS),
    "nvidia.com/gpu.shared": Foreign("NVIDIA", _CARDS),
    "nvidia.com/gpumem": Foreign("HAMi", _MEMORY),
    "nvidia.com/gpumem-percentage": Foreign("HAMi", _MEMORY_PCT),
    "nvidia.com/gpucores": Foreign("HAMi", _COMPUTE),
    "nvidia.com/vgpu": Foreign("HAMi", _CARDS),
    "koordinator.sh/gpu": Foreign("Koordinator", _BOTH_PCT),
    "koordinator.sh/gpu.shared": Foreign("Koordinator", _CARDS),
    "koordinator.sh/gpu-core": Foreign("Koordinator", _COMPUTE),
    "koordinator.sh/gpu-memory": Foreign("Koordinator", _MEMORY, 1),
    "koordinator.sh/gpu-memory-ratio": Foreign("Koordinator", _MEMORY_PCT),
    "aliyun.com/gpu-count": Foreign("Aliyun", _CARDS),
    "aliyun.com/gpu-mem": Foreign("Aliyun", _MEMORY, _GIB),
    "aliyun.com/gpu-core.percentage": Foreign("Aliyun", _COMPUTE),
    "tencent.com/vcuda-core": Foreign("Tencent", _COMPUTE),
    "tencent.com/vcuda-memory": Foreign("Tencent", _MEMORY, 256 * MIB),
    keys.GPU_NUMBER: Foreign("Volcano GPU sharing", _CARDS),
    keys.GPU_MEMORY: Foreign("Volcano GPU sharing", _MEMORY),
    keys.VGPU_NUMBER: Foreign("Volcano vGPU", _CARDS),
    keys.VGPU_MEMORY: Foreign("Volcano vGPU", _MEMORY),
    keys.VGPU_MEMORY_PERCENTAGE: Foreign("Volcano vGPU", _MEMORY_PCT),
    keys.VGPU_CORES: Foreign("Volcano vGPU", _COMPUTE),
}
"""Resources by name. Those that a cluster offers need no translation."""

ANNOTATIONS: Mapping[str, Foreign] = {
    "nvidia.com/use-gpuuuid": Foreign("HAMi", key=keys.USE_GPUUUID),
    "nvidia.com/nouse-gpuuuid": Foreign("HAMi", key=keys.NOUSE_GPUUUID),
    "nvidia.com/vgpu-mode": Foreign("HAMi", key=keys.VGPU_MODE),
    "gpu-fraction": Foreign("Run:ai", _MEMORY_PCT, is_fraction=True),
    "gpu-memory": Foreign("Run:ai", _MEMORY),
    "gpu-fraction-num-devices": Foreign("Run:ai", _CARDS),
    "kai.scheduler/queue": _label("KAI", job_keys.POD_QUEUE),
    "runai/queue": _label("Run:ai", job_keys.POD_QUEUE),
    "scheduling.x-k8s.io/pod-group": _label("Kubernetes", job_keys.GROUP_NAME),
    "pod-group.scheduling.sigs.k8s.io": _label("Kubernetes", job_keys.GROUP_NAME),
    "pod-group.scheduling.sigs.k8s.io/name": _label("Kubernetes", job_keys.GROUP_NAME),
}
"""Annotations and labels of pods by key."""


def _translated(
    amounts: Mapping[str, int], family: Family, config: DeviceConfig
) -> dict[str, int] | None:
    """How to request from a family what foreign resources request, by our resource, the count
    first; None if the family cannot express it. Names that are not in the table are ignored.
    """
    asked: dict[Sense, int] = {}
    for name, amount in amounts.items():
        foreign = RESOURCES.get(name)
        for sense in foreign.senses if foreign is not None else ():
            is_bytes = foreign is not None and sense is Sense.MEMORY
            unit = foreign.unit_bytes if foreign is not None and is_bytes else 1
            asked[sense] = amount * unit
    return _asked_of(asked, family, config)


def _asked_of(
    asked: Mapping[Sense, int], family: Family, config: DeviceConfig
) -> dict[str, int] | None:
    """The same by sense; memory is in bytes here."""
    names = family.senses(config)
    percent = max((asked.get(sense, 0) for sense in _BOTH_PCT), default=0)
    count = asked.get(Sense.CARDS) or max(-(-percent // 100), 1)
    each = max(-(-percent // 100), 1)
    said = {Sense.CARDS: count}
    if Sense.MEMORY in asked:
        said[Sense.MEMORY] = -(-asked[Sense.MEMORY] // family.memory_unit_bytes(config))
    for sense in _BOTH_PCT:
        if sense in asked and not (sense is Sense.MEMORY_PCT and Sense.MEMORY in said):
            said[sense] = asked[sense] // each
    if Sense.CARDS in said and Sense.COMPUTE_PCT not in names and Sense.MEMORY in said:
        del said[Sense.CARDS]  # a share by memory alone is one card
    if not said.keys() <= names.keys():
        return None
    return {names[sense]: amount for sense, amount in said.items()}


def _family_here(state: ClusterState) -> Family | None:
    """The family that shares NVIDIA cards on most nodes; None if no node does."""
    nodes = [node for node in state.nodes.values() if node.fact is not None]
    numbers = {
        name: sum(name in node.ledgers for node in nodes)
        for name, family in FAMILIES.items()
        if name in state.policy.families and family.senses(state.devices)
    }
    most = max(numbers, key=lambda name: numbers[name], default="")
    return FAMILIES[most] if numbers.get(most) else None


class Meant(NamedTuple):
    """What a request probably meant: resources to remove, limits to write instead, and a sentence
    without a full stop that describes it.
    """

    removed: tuple[str, ...]
    lines: Mapping[str, int]
    text: str


def meant_in_units(state: ClusterState, wanted: DeviceRequest) -> Meant | None:
    """The memory that a device request probably meant, if it requests so much that the unit must be
    wrong: bytes, mostly, by a suffix such as 4Gi. None if the amount is plausible.
    """
    family = FAMILIES.get(wanted.family)
    if family is None:
        return None
    unit_bytes = family.memory_unit_bytes(state.devices)
    amount = in_other_unit(wanted.memory_mib, unit_bytes)
    if not amount:
        return None
    ledgers = (node.ledgers.get(wanted.family) for node in state.nodes.values())
    cards = [card for ledger in ledgers if ledger is not None for card in ledger.cards]
    largest = max((card.fact.memory_mib for card in cards), default=0)
    if wanted.memory_mib <= largest:
        return None
    none = family.amounts(msgspec.structs.replace(wanted, memory_mib=0), state.devices)
    named = family.amounts(wanted, state.devices)
    resource = next((name for name, n in named.items() if n != none.get(name)), "")
    if not resource:
        return None
    text = f"{resource} {counted_in(resource, wanted.memory_mib, unit_bytes)}"
    return Meant((), {resource: amount}, text)


def meant_by_others(
    state: ClusterState, request: PodRequest, absent: Iterable[str]
) -> Meant | None:
    """What foreign names meant, if some of those that no node offers are in the table; None if
    nodes here cannot provide it.
    """
    family = _family_here(state)
    own = frozenset[str]() if family is None else family.resources(state.devices)
    unknown = [name for name in absent if name in RESOURCES and name not in own]
    if not unknown:
        return None
    amounts = {n: a for n, a in request.extended if n in RESOURCES and n not in own}
    whose = dict.fromkeys(RESOURCES[n].whose for n in unknown if RESOURCES[n].whose != "NVIDIA")
    said = f"no node offers {names_text(unknown)}" + "".join(f" ({one})" for one in whose)
    if family is not None:
        lines = _translated(amounts, family, state.devices)
        if lines is None:
            return None
        if any(wanted.family == family.name for wanted in request.devices):
            lines.pop(family.count_resource(state.devices), None)
        return Meant(tuple(amounts), lines, f"{said}; write {lines_text(lines)} instead")
    if any(_WHOLE_CARDS in node.extended_free for node in state.nodes.values()):
        cards = max((a for n, a in amounts.items() if RESOURCES[n].senses == _CARDS), default=1)
        text = f"{said}; nodes here give whole cards only: write {_WHOLE_CARDS}: {cards} instead"
        return Meant(tuple(amounts), {_WHOLE_CARDS: cards}, text)
    return None


def corrected(
    state: ClusterState, request: PodRequest, meant: Sequence[Meant]
) -> PodRequest | None:
    """The request as it was meant; None if that depends on its containers."""
    removed = {name for each in meant for name in each.removed}
    stays = [
        d for d in request.devices if d.family not in FAMILIES or not removed & _names(state, d)
    ]
    if len(stays) > 1:
        return None
    lines = {name: amount for each in meant for name, amount in each.lines.items()}
    left = {name: amount for name, amount in request.extended if name not in removed}
    family = next((f for f in FAMILIES.values() if f.resources(state.devices) & {*lines}), None)
    if family is None:
        selection = request.selection
        if selection.use_types is not None or selection.nouse_types is not None:
            counted = tuple(sorted({*selection.counted, *filter(card_names.is_card, lines)}))
            selection = msgspec.structs.replace(selection, counted=counted)
        return msgspec.structs.replace(
            request,
            devices=tuple(stays),
            extended=_sorted({**left, **lines}),
            selection=selection,
        )
    limits, name = dict(lines), ""
    for wanted in stays:
        if wanted.family != family.name:
            return None
        limits, name = {**_limits_of(wanted, family, state.devices), **lines}, wanted.container_name
    texts = {key: str(amount) for key, amount in limits.items() if amount}
    source = PodSource({}, [ContainerSource(name, texts, texts)], [], config=state.devices)
    devices, problem = family.requests(source)
    if problem is not None or len(devices) != 1:
        return None
    ours = family.amounts(devices[0], state.devices)
    kept = {n: a for n, a in left.items() if n not in family.resources(state.devices)}
    return msgspec.structs.replace(
        request, devices=devices, extended=_sorted({**kept, **{n: a for n, a in ours.items() if a}})
    )


def _names(state: ClusterState, wanted: DeviceRequest) -> frozenset[str]:
    return FAMILIES[wanted.family].resources(state.devices)


def _limits_of(wanted: DeviceRequest, family: Family, config: DeviceConfig) -> dict[str, int]:
    """The limits with which a container requests this from a family."""
    limits = {name: amount for name, amount in family.amounts(wanted, config).items() if amount}
    percent = family.senses(config).get(Sense.MEMORY_PCT)
    if percent and 0 < wanted.memory_pct < 100:
        limits[percent] = wanted.memory_pct
    return limits


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))


def lines_text(lines: Mapping[str, int]) -> str:
    """``volcano.sh/vgpu-number: 1 and volcano.sh/vgpu-memory: 4096``."""
    return names_text(f"{name}: {amount}" for name, amount in lines.items())


def names_text(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    found = list(names)
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)


def meant_by(key: str, value: str, families: Iterable[str], config: DeviceConfig) -> str:
    """What to write in place of a foreign annotation or label: the key that has the same value
    here, or the limits that request as much; empty for one that is not in the table.
    """
    foreign = ANNOTATIONS.get(key)
    if foreign is None:
        return ""
    if foreign.key:
        return foreign.key
    asking = [FAMILIES[name] for name in families if name in FAMILIES]
    family = next((one for one in asking if one.senses(config)), FAMILIES["vgpu"])
    amount = _number(value, foreign)
    asked = dict.fromkeys(foreign.senses, amount)
    lines = _asked_of(asked, family, config) if amount else None
    return f"limits {lines_text(lines)}" if lines else f"limits {family.count_resource(config)}"


def _number(value: str, foreign: Foreign) -> int:
    """A value of an annotation in the table's unit; 0 if it is not a number."""
    try:
        number = Decimal(value.strip())
    except InvalidOperation:
        return 0
    if not number.is_finite() or not 0 < number < 1 << 40:
        return 0
    is_memory = foreign.senses == _MEMORY
    return int(number * (100 if foreign.is_fraction else foreign.unit_bytes if is_memory else 1))
