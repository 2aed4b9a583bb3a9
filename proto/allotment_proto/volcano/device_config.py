"""Volcano's device ConfigMaps → `DeviceConfig`.

* `volcano-vgpu-device-config`, key `device-config.yaml`: sections `nvidia` and `vnpus` (deviceshare
  8.2); `vnpus` is a list of chips, or a mapping with `hamiVnpuCore` and the list as `configs`
* `volcano-vgpu-node-config`, key `config.json`: what differs on single nodes (8.4)

A present file stands alone: what it does not say is not taken from the built-in configuration.
Except where Volcano's reading of an absent key cannot be meant: absent names are the usual ones, a
factor, scaling or default count of 0 is 1. A file with a fault is refused whole, with all its
faults named; half a configuration would place pods where the device plugin refuses them.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import yaml

from allotment_proto.device_config import (
    AscendChip,
    AscendTemplate,
    DeviceConfig,
    NodeConfig,
    Nvidia,
)
from allotment_proto.facts import Geometry, Problem, Profile
from allotment_proto.volcano import keys, mig_tables, nvidia_config
from allotment_proto.volcano.ascend_config import read_vnpus
from allotment_proto.volcano.reading import Reading

INVALID = "InvalidDeviceConfig"
MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)


class Parsed(NamedTuple):
    """A configuration, or the problems because of which there is none; warnings in any case."""

    config: DeviceConfig | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class ParsedNodes(NamedTuple):
    """The nodes' configurations, or the problems because of which there are none."""

    nodes: tuple[NodeConfig, ...] | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def default() -> DeviceConfig:
    """What holds without a ConfigMap: Volcano's built-in values, and MIG tables that it lacks.

    Percentages can be asked for, which Volcano's own default forgets to name.
    """
    chip = AscendChip(
        common_word="Ascend310P",
        chip_name="310P3",
        resource_name="huawei.com/Ascend310P",
        resource_memory_name="huawei.com/Ascend310P-memory",
        memory_allocatable_mib=21527,
        memory_capacity_mib=24576,
        ai_core=8,
        ai_cpu=7,
        templates=(
            AscendTemplate("vir01", 3072, 1, 1),
            AscendTemplate("vir02", 6144, 2, 2),
            AscendTemplate("vir04", 12288, 4, 4),
        ),
    )
    return DeviceConfig(nvidia=Nvidia(mig=mig_tables.DEFAULT), ascend=(chip,))


def geometries_for(config: DeviceConfig, model: str) -> tuple[Geometry, ...]:
    """The geometries of a card by its registered type, memory in units of the register string.

    An entry matches when one of its `models` is a part of the type. Of all that match, the longest
    part decides (so ``NVIDIA H200`` wins over ``NVIDIA H20``); of equals, the first configured.
    Volcano takes the first configured in any case.
    """
    best = 0
    geometries: tuple[Geometry, ...] = ()
    for entry in config.nvidia.mig:
        length = max((len(part) for part in entry.models if part in model), default=0)
        if length > best:
            best, geometries = length, entry.geometries
    factor = config.nvidia.memory_factor
    return tuple(
        Geometry(
            geometry.name,
            tuple(
                Profile(profile.name, profile.memory_mib // factor, profile.count)
                for profile in geometry.profiles
            ),
        )
        for geometry in geometries
    )


def parse_config_maps(device: Mapping[str, str] | None, node: Mapping[str, str] | None) -> Parsed:
    """The configuration by the data of both ConfigMaps, None for one that does not exist."""
    parsed = Parsed(default())
    if device is not None:
        text = device.get(keys.DEVICE_CONFIG_KEY)
        if text is None:
            parsed = Parsed(None, (_no_key(keys.DEVICE_CONFIG_MAP, keys.DEVICE_CONFIG_KEY),))
        else:
            parsed = parse(text, f"{keys.DEVICE_CONFIG_MAP}/{keys.DEVICE_CONFIG_KEY}")
    nodes = ParsedNodes(())
    if node is not None:
        text = node.get(keys.NODE_CONFIG_KEY)
        if text is None:
            nodes = ParsedNodes(None, (_no_key(keys.NODE_CONFIG_MAP, keys.NODE_CONFIG_KEY),))
        else:
            nodes = parse_nodes(text, f"{keys.NODE_CONFIG_MAP}/{keys.NODE_CONFIG_KEY}")
    config = None
    if parsed.config is not None and nodes.nodes is not None:
        config = msgspec.structs.replace(parsed.config, nodes=nodes.nodes)
    return Parsed(config, (*parsed.problems, *nodes.problems), (*parsed.warnings, *nodes.warnings))


def parse(text: str, source: str) -> Parsed:
    """The text of `device-config.yaml`; `source` names it in messages."""
    reading = Reading(source, INVALID)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reading.say(place, f"is not YAML: {getattr(error, 'problem', None) or error}")
        return Parsed(None, tuple(reading.problems))
    except (ValueError, RecursionError) as error:  # a date that is none; brackets without end
        reading.say("", f"cannot be read: {error}")
        return Parsed(None, tuple(reading.problems))
    sections = reading.mapping(document, "")
    reading.known(sections, "", ("nvidia", "vnpus"))
    nvidia = nvidia_config.read(reading, reading.mapping(sections.get("nvidia"), "nvidia"))
    chips, soft = read_vnpus(reading, sections.get("vnpus"))
    config = DeviceConfig(nvidia=nvidia, ascend=chips, ascend_soft_slicing=soft)
    return Parsed(
        None if reading.problems else config, tuple(reading.problems), tuple(reading.warnings)
    )


def parse_nodes(text: str, source: str) -> ParsedNodes:
    """The text of `config.json`. Case does not matter in its keys, as in Go's."""
    reading = Reading(source, INVALID)
    try:
        document = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, ArithmeticError, RecursionError) as error:
        reading.say("", f"is not JSON: {error}")
        return ParsedNodes(None, tuple(reading.problems))
    top = _lowered(reading.mapping(document, ""))
    reading.known(top, "", ("nodeconfig",))
    nodes: list[NodeConfig] = []
    for number, value in enumerate(reading.items(top.get("nodeconfig"), "nodeconfig")):
        place = f"nodeconfig[{number}]"
        node = _node(reading, _lowered(reading.mapping(value, place)), place)
        if any(node.name == other.name for other in nodes):
            reading.say(f"{place}.name", f"{node.name!r} occurs twice")
        nodes.append(node)
    return ParsedNodes(
        None if reading.problems else tuple(nodes),
        tuple(reading.problems),
        tuple(reading.warnings),
    )


_NODE_KEYS = (
    "name",
    "operatingmode",
    "devicememoryscaling",
    "devicecorescaling",
    "devicesplitcount",
    "migstrategy",
    "filterdevices",
)


def _node(reading: Reading, entry: Mapping[str, Any], place: str) -> NodeConfig:
    reading.known(entry, place, _NODE_KEYS)
    name = reading.text(entry, place, "name")
    if not name:
        reading.fail(f"{place}.name", entry.get("name"), "the name of a node")
    mode = reading.text(entry, place, "operatingmode")
    if mode and mode not in MODES:
        reading.fail(f"{place}.operatingmode", mode, "one of " + ", ".join(MODES))
    if reading.text(entry, place, "migstrategy") not in ("", "none"):
        reading.warn("NoEffect", f"{place}.migstrategy", "has no effect in the device plugin")
    hidden = reading.mapping(entry.get("filterdevices"), f"{place}.filterdevices")
    ids, indexes = _filter(reading, _lowered(hidden), f"{place}.filterdevices")
    return NodeConfig(
        name=name,
        mode=mode,
        split_count=reading.whole(entry, place, "devicesplitcount"),
        memory_scaling_milli=reading.milli(entry, place, "devicememoryscaling", 0),
        cores_scaling_milli=reading.milli(entry, place, "devicecorescaling", 0),
        hidden_ids=ids,
        hidden_indexes=indexes,
    )


def _filter(
    reading: Reading, entry: Mapping[str, Any], place: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    reading.known(entry, place, ("uuid", "index"))
    ids: set[str] = set()
    for number, value in enumerate(reading.items(entry.get("uuid"), f"{place}.uuid")):
        ids.add(reading.text({f"uuid[{number}]": value}, place, f"uuid[{number}]"))
    indexes: set[int] = set()
    for number, value in enumerate(reading.items(entry.get("index"), f"{place}.index")):
        indexes.add(reading.whole({f"index[{number}]": value}, place, f"index[{number}]"))
    return tuple(sorted(ids - {""})), tuple(sorted(indexes))


def _lowered(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in mapping.items()}


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _no_key(config_map: str, key: str) -> Problem:
    return Problem(INVALID, f"ConfigMap {config_map}", f"has no key {key}")
