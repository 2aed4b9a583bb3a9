"""The parts `gpus` and `npus` of a node's shape: cards and chips that the fakes can stand for."""

import re
from collections.abc import Mapping
from typing import Any

from allotment_local.nodes.shape_values import Field, Values
from allotment_local.nodes.shapes import (
    ASCEND,
    DEFAULT_MODE,
    DEFAULT_SLOTS,
    MODES,
    VGPU,
    WHOLE,
    WHOLE_RESOURCE,
    Cards,
    Npus,
)
from allotment_proto.volcano import device_config, keys
from allotment_proto.volcano.mindcluster_node import AI_CPU

CARDS_MAX = 64
MEMORY_MIB_MAX = 1 << 24
SLOTS_MAX = 1000
CORES_MAX = 100
RESOURCE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_./]{0,250})?[A-Za-z0-9]")
ASCEND_CORES = 20
ASCEND_SLOTS = 4
NPU_CORES = 8
_CHIP = re.compile(r"Ascend[A-Za-z0-9]{1,20}", re.ASCII)
_GPU_FIELDS = ("model", "count", "memory_mib", "slots", "mode", "resource")
_ASCEND_FIELDS = ("chip", "count", "memory_mib", "cores", "slots", "networks", "soft")
_NPU_FIELDS = ("chip", "count", "cores")


def read_cards(values: Values, field: Field, item: Any, kind: str) -> Cards | None:
    """The NVIDIA cards of a node; None for something that is no mapping."""
    gpus = values.mapping(field, item, _GPU_FIELDS)
    if gpus is None:
        return None
    model = values.text(field, gpus, "model", _is_model, "a card's name, without , : or ;")
    mode = values.choice(field, gpus, "mode", MODES, default=DEFAULT_MODE)
    if "mode" in gpus and kind != VGPU:
        values.wrong(field / "mode", mode, f"no mode on a node of kind {kind}")
    elif mode == keys.MODE_MIG and model and not _can_be_cut(model):
        known = ", ".join(entry.models[0] for entry in device_config.default().nvidia.mig)
        wanted = f"with mode mig a model that has a table in the device configuration: {known}"
        values.wrong(field / "model", model, wanted)
    return Cards(
        model=model.removeprefix("NVIDIA-"),
        count=values.whole(field, gpus, "count", 1, CARDS_MAX),
        memory_mib=values.whole(field, gpus, "memory_mib", 1, MEMORY_MIB_MAX),
        slots=values.whole(field, gpus, "slots", 1, SLOTS_MAX, default=DEFAULT_SLOTS),
        mode=mode,
        resource=_resource(values, field, gpus, kind),
    )


def _resource(values: Values, field: Field, gpus: Mapping[str, Any], kind: str) -> str:
    if "resource" not in gpus:
        return WHOLE_RESOURCE
    wanted = "a resource like nvidia.com/gpu, with kind whole"
    check = RESOURCE.fullmatch if kind == WHOLE else _never
    resource = values.text(field, gpus, "resource", check, wanted)
    if kind == WHOLE and "/" not in resource:
        values.wrong(field / "resource", resource, wanted)
    return resource


def read_npus(values: Values, field: Field, item: Any, kind: str) -> Npus | None:
    """The Ascend chips of a node; None for something that is no mapping."""
    npus = values.mapping(field, item, _ASCEND_FIELDS if kind == ASCEND else _NPU_FIELDS)
    if npus is None:
        return None
    chip = values.text(field, npus, "chip", _CHIP.fullmatch, "a chip like Ascend910B3")
    count = values.whole(field, npus, "count", 1, CARDS_MAX)
    if kind != ASCEND:
        cores = values.whole(field, npus, "cores", 1, CORES_MAX, default=NPU_CORES)
        if chip and (chip.removeprefix("Ascend"), cores) not in AI_CPU:
            known = ", ".join(f"Ascend{name} with {n} cores" for name, n in AI_CPU)
            values.wrong(field / "chip", f"{chip} with {cores} cores", known)
        return Npus(chip, count, cores)
    networks = values.whole(field, npus, "networks", 0, CARDS_MAX, default=0)
    if networks and count % networks:
        values.wrong(field / "networks", networks, f"as many chips in each: a divisor of {count}")
    return Npus(
        chip=chip,
        count=count,
        cores=values.whole(field, npus, "cores", 1, CORES_MAX, default=ASCEND_CORES),
        memory_mib=values.whole(field, npus, "memory_mib", 1, MEMORY_MIB_MAX),
        slots=values.whole(field, npus, "slots", 1, SLOTS_MAX, default=ASCEND_SLOTS),
        networks=networks,
        soft=values.switch(field, npus, "soft"),
    )


def _can_be_cut(model: str) -> bool:
    return bool(device_config.geometries_for(device_config.default(), model))


def _is_model(text: str) -> bool:
    return bool(text.strip()) and not set(text) & set(",:;")


def _never(_text: str) -> None:
    return None
