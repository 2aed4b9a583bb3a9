"""Configuration files, read by the code that reads them in a cluster."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from allotment.core.config import policy as policy_file
from allotment_proto.device_config import AscendChip, DeviceConfig, Nvidia
from allotment_proto.facts import Policy
from allotment_proto.volcano import device_config
from allotment_watcher.normalise import Lens
from tests.compat.file import Vector
from tests.compat.runners.base import CannotRun, Fields, compared
from tests.compat.runners.world import SCHEDULER, policy_of

COUNTED = ("nvidia.com/gpu", "example.com/other")
"""Resources that are counted whatever is configured."""


def arguments(given: dict[str, Any]) -> Policy:
    """The policy of a scheduler configuration with these arguments of `deviceshare`."""
    plugin = {"name": "deviceshare", "arguments": given}
    text = yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": [plugin]}]})
    return policy_file.parse(text, "vector", (SCHEDULER,)).policy


def plugin_arguments(vector: Vector) -> Fields:
    policy = arguments(vector.input)
    said = {
        "schedule_policy": "" if policy.device_policy == "none" else policy.device_policy,
        "schedule_weight": policy.device_weight,
    }
    return compared(vector.expected, said)


def ignored_resources(vector: Vector) -> Fields:
    """Resources that are not counted, by a configuration that lists them for its devices."""
    given = vector.input
    lists = given.get("lists") or [given.get("initial") or (), given.get("append") or ()]
    names = [name for listed in lists for name in listed]
    chips = tuple(_chip_with(name, number) for number, name in enumerate(names) if name)
    lens = Lens(policy_of(None), DeviceConfig(ascend=chips))
    candidates = dict.fromkeys((*names, *COUNTED))
    ignored = [name for name in candidates if name and not lens.is_counted(name)]
    return compared(vector.expected, {"result": ignored})


def _chip_with(memory_name: str, number: int) -> AscendChip:
    """A chip whose memory is asked for by this name."""
    return AscendChip(
        common_word=f"Chip{number}",
        chip_name="",
        resource_name=f"example.com/chip{number}",
        resource_memory_name=memory_name,
        memory_allocatable_mib=1,
        memory_capacity_mib=1,
        ai_core=1,
        ai_cpu=1,
    )


def parse_device_config(vector: Vector) -> Fields:
    """A device configuration, read."""
    given = _with_tables(vector.input, vector.constants)
    parsed = device_config.parse(yaml.safe_dump(given), "vector")
    error = vector.expected.get("error")
    if parsed.config is None:
        said = "; ".join(f"{p.place} {p.message}" for p in parsed.problems)
        return compared(vector.expected, {"error": error or said, "parsed_equal": False})
    return compared(_models_once(vector.expected), _shown(parsed.config, given))


def _shown(config: DeviceConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was read, by the names of the expectation; of chips the first."""
    said: dict[str, Any] = {
        "error": None,
        "parsed_equal": _says_the_same(config.nvidia, given.get("nvidia") or {}),
        "geometry_lists": len(config.nvidia.mig),
        "hamiVnpuCore": config.ascend_soft_slicing,
        "configs": len(config.ascend),
        "chipNames": [chip.chip_name for chip in config.ascend],
        "commonWords": [chip.common_word for chip in config.ascend],
    }
    for number, entry in enumerate(config.nvidia.mig, start=1):
        said[f"models_list_{number}"] = list(entry.models)
        said[f"groups_list_{number}"] = [geometry.name for geometry in entry.geometries]
    said |= _nvidia(config.nvidia)
    return {**said, **(_chip(config.ascend[0]) if config.ascend else {})}


def _chip(chip: AscendChip) -> dict[str, Any]:
    return {
        "chipName": chip.chip_name,
        "commonWord": chip.common_word,
        "resourceName": chip.resource_name,
        "resourceMemoryName": chip.resource_memory_name,
        "memoryAllocatable": chip.memory_allocatable_mib,
        "memoryCapacity": chip.memory_capacity_mib,
        "aiCore": chip.ai_core,
        "aiCPU": chip.ai_cpu,
        "templates": [template.name for template in chip.templates],
    }


def _nvidia(nvidia: Nvidia) -> dict[str, Any]:
    """The section as it was read, by the names of the file."""
    return {
        "resourceCountName": nvidia.count_name,
        "resourceMemoryName": nvidia.memory_name,
        "resourceMemoryPercentageName": nvidia.memory_percentage_name,
        "resourceCoreName": nvidia.cores_name,
        "defaultMemory": nvidia.default_memory,
        "defaultCores": nvidia.default_cores_pct,
        "defaultGPUNum": nvidia.default_count,
        "deviceSplitCount": nvidia.split_count,
        "deviceMemoryScaling": nvidia.memory_scaling_milli / 1000,
        "deviceCoreScaling": nvidia.cores_scaling_milli / 1000,
        "disableCoreLimit": nvidia.disable_core_limit,
        "gpuMemoryFactor": nvidia.memory_factor,
        "knownMigGeometries": [
            {
                "models": list(entry.models),
                "allowedGeometries": [
                    {
                        "group": geometry.name,
                        "geometries": [
                            {"name": p.name, "memory": p.memory_mib, "count": p.count}
                            for p in geometry.profiles
                        ],
                    }
                    for geometry in entry.geometries
                ],
            }
            for entry in nvidia.mig
        ],
    }


def _says_the_same(nvidia: Nvidia, given: Mapping[str, Any]) -> bool:
    """Whether everything that was read is what was written. What has no effect is not read."""
    read = _nvidia(nvidia)
    wanted = {key: _tables_once(value) for key, value in given.items() if key in read}
    return all(read[key] == value for key, value in wanted.items())


def _tables_once(value: Any) -> Any:
    """Tables with every model named once: to name one twice says nothing more."""
    if not isinstance(value, list):
        return value
    return [{**entry, "models": list(dict.fromkeys(entry["models"]))} for entry in value]


def _models_once(expected: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: list(dict.fromkeys(value)) if key.startswith("models_list_") else value
        for key, value in expected.items()
    }


_GROUP = re.compile(r"(group\w+) ((?:[\w.]+ \d+x\d+)(?: \+ [\w.]+ \d+x\d+)*)")
_PROFILE = re.compile(r"([\w.]+) (\d+)x(\d+)")
_VARIANT = re.compile(r"(\S+) variant")


def _with_tables(given: Mapping[str, Any], constants: Mapping[str, str]) -> dict[str, Any]:
    """The configuration; tables that are only told of in words are put in.

    Words mean the tables of the file's constants, with the groups that they spell out in place of
    those for the models of which they name a variant.
    """
    nvidia = given.get("nvidia")
    words = nvidia.get("knownMigGeometries") if isinstance(nvidia, dict) else None
    if nvidia is None or not isinstance(words, str):
        return dict(given)
    tables = next(filter(None, map(_tables, constants.values())), None)
    if tables is None:
        raise CannotRun("tells of tables in words, and no constant has tables")
    groups = [
        {
            "group": name,
            "geometries": [
                {"name": profile, "memory": int(memory), "count": int(count)}
                for profile, memory, count in _PROFILE.findall(text)
            ],
        }
        for name, text in _GROUP.findall(words)
    ]
    variant = _VARIANT.search(words)
    if groups and variant is not None:
        tables = [
            {**entry, "allowedGeometries": groups}
            if any(variant[1] in model for model in entry["models"])
            else entry
            for entry in tables
        ]
    return {**given, "nvidia": {**nvidia, "knownMigGeometries": tables}}


def _tables(text: str) -> Sequence[dict[str, Any]] | None:
    document = yaml.safe_load(text)
    nvidia = document.get("nvidia") if isinstance(document, dict) else None
    return nvidia.get("knownMigGeometries") if isinstance(nvidia, dict) else None
