"""Section `nvidia` of the device configuration: names, defaults, over-commit, MIG tables."""

import re
from collections.abc import Mapping
from typing import Any

from allotment_proto.device_config import MigModel, Nvidia
from allotment_proto.facts import Geometry, Profile
from allotment_proto.volcano import keys, mig
from allotment_proto.volcano.reading import Reading, is_text, shown

PLACE = "nvidia"
CORES_WHOLE_PCT = 100
VGPU_PREFIX = "volcano.sh/"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME_LENGTH_MAX = 253
_WITHOUT_EFFECT = ("resourcePriorityName", "overwriteEnv", "passDeviceSpecs")
KNOWN = (
    "resourceCountName",
    "resourceMemoryName",
    "resourceCoreName",
    "resourceMemoryPercentageName",
    "defaultMemory",
    "defaultCores",
    "defaultGPUNum",
    "deviceSplitCount",
    "deviceMemoryScaling",
    "deviceCoreScaling",
    "disableCoreLimit",
    "knownMigGeometries",
    "gpuMemoryFactor",
    *_WITHOUT_EFFECT,
)


def read(reading: Reading, section: Mapping[str, Any]) -> Nvidia:
    """The section; an absent one is an empty one."""
    reading.known(section, PLACE, KNOWN)
    for key in _WITHOUT_EFFECT:
        if section.get(key):
            reading.warn("NoEffect", f"{PLACE}.{key}", "has no effect")
    factor = reading.whole(section, PLACE, "gpuMemoryFactor") or 1
    nvidia = Nvidia(
        count_name=_name(reading, section, "resourceCountName", keys.VGPU_NUMBER),
        memory_name=_name(reading, section, "resourceMemoryName", keys.VGPU_MEMORY),
        memory_percentage_name=_name(
            reading, section, "resourceMemoryPercentageName", keys.VGPU_MEMORY_PERCENTAGE
        ),
        cores_name=_name(reading, section, "resourceCoreName", keys.VGPU_CORES),
        memory_factor=factor,
        default_memory=reading.whole(section, PLACE, "defaultMemory"),
        default_cores_pct=reading.whole(section, PLACE, "defaultCores", most=CORES_WHOLE_PCT),
        default_count=reading.whole(section, PLACE, "defaultGPUNum") or 1,
        split_count=reading.whole(section, PLACE, "deviceSplitCount"),
        memory_scaling_milli=reading.milli(section, PLACE, "deviceMemoryScaling", 1000) or 1000,
        cores_scaling_milli=reading.milli(section, PLACE, "deviceCoreScaling", 1000) or 1000,
        disable_core_limit=reading.boolean(section, PLACE, "disableCoreLimit"),
        mig=_models(reading, section.get("knownMigGeometries"), factor),
    )
    _check_names(reading, nvidia)
    return nvidia


def _name(reading: Reading, section: Mapping[str, Any], key: str, default: str) -> str:
    name = reading.text(section, PLACE, key, default)
    if name:
        check_resource_name(reading, f"{PLACE}.{key}", name)
    else:
        reading.warn("EmptyName", f"{PLACE}.{key}", "is empty: no pod can request it")
    if name and not name.startswith(VGPU_PREFIX) and key != "resourceMemoryPercentageName":
        reading.warn(
            "ForeignName",
            f"{PLACE}.{key}",
            f"is {shown(name)}; the device plugin puts {VGPU_PREFIX!r} in front of names that do "
            "not begin with it: look whether nodes list this name in status.allocatable",
        )
    return name


def check_resource_name(reading: Reading, place: str, name: str) -> None:
    """Reports a name that Kubernetes does not take for an extended resource."""
    if len(name) > _NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        reading.fail(place, name, f"a resource name like {keys.VGPU_NUMBER}")


def _check_names(reading: Reading, nvidia: Nvidia) -> None:
    seen: dict[str, str] = {}
    for key, name in (
        ("resourceCountName", nvidia.count_name),
        ("resourceMemoryName", nvidia.memory_name),
        ("resourceMemoryPercentageName", nvidia.memory_percentage_name),
        ("resourceCoreName", nvidia.cores_name),
    ):
        if name and name in seen:
            reading.say(f"{PLACE}.{key}", f"is {shown(name)}, which is {seen[name]} already")
        seen.setdefault(name, key)


def _models(reading: Reading, value: Any, factor: int) -> tuple[MigModel, ...]:
    place = f"{PLACE}.knownMigGeometries"
    found: list[MigModel] = []
    seen: set[str] = set()
    for number, item in enumerate(reading.items(value, place)):
        where = f"{place}[{number}]"
        entry = reading.mapping(item, where)
        reading.known(entry, where, ("models", "allowedGeometries"))
        model = MigModel(
            _model_names(reading, entry, where),
            _geometries(reading, entry.get("allowedGeometries"), f"{where}.allowedGeometries"),
        )
        for name in model.models:
            if name in seen:
                reading.warn(
                    "RepeatedModel",
                    f"{where}.models",
                    f"{shown(name)} has geometries already; these are not used for it",
                )
        seen.update(model.models)
        reading.problems.extend(
            mig.check_table(model.geometries, reading.at(f"{where}.allowedGeometries"))
        )
        for geometry in model.geometries:
            for profile in geometry.profiles:
                if 0 < profile.memory_mib < factor:
                    reading.say(
                        f"{where}.allowedGeometries",
                        f"{geometry.name}, {profile.name}: memory {profile.memory_mib} is less "
                        f"than one unit (gpuMemoryFactor {factor})",
                    )
        found.append(model)
    return tuple(found)


def _model_names(reading: Reading, entry: Mapping[str, Any], place: str) -> tuple[str, ...]:
    values = reading.items(entry.get("models"), f"{place}.models")
    names = [value for value in values if is_text(value) and value]
    if not values or len(names) < len(values):
        reading.fail(f"{place}.models", entry.get("models"), "a list of parts of product names")
    return tuple(dict.fromkeys(names))


def _geometries(reading: Reading, value: Any, place: str) -> tuple[Geometry, ...]:
    out: list[Geometry] = []
    for number, item in enumerate(reading.items(value, place)):
        where = f"{place}[{number}]"
        if isinstance(item, list):  # as HAMi's own configuration has it
            reading.fail(where, item, "a mapping with group and geometries")
            continue
        entry = reading.mapping(item, where)
        reading.known(entry, where, ("group", "geometries"))
        profiles: list[Profile] = []
        for index, piece in enumerate(
            reading.items(entry.get("geometries"), f"{where}.geometries")
        ):
            spot = f"{where}.geometries[{index}]"
            fields = reading.mapping(piece, spot)
            reading.known(fields, spot, ("name", "memory", "count"))
            profiles.append(
                Profile(
                    reading.text(fields, spot, "name"),
                    reading.whole(fields, spot, "memory"),
                    reading.whole(fields, spot, "count", most=mig.INSTANCES_MAX),
                )
            )
        out.append(Geometry(reading.text(entry, where, "group"), tuple(profiles)))
    return tuple(out)
