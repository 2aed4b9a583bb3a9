"""What a vector exercises of Ascend chips, through HAMi and through MindCluster."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from allotment.core import units
from allotment_proto.device_config import AscendChip
from allotment_proto.volcano import ascend, keys, mindcluster
from tests.compat import configs
from tests.compat.exercises import (
    containers,
    limits,
    new_pods,
    node_annotations,
    steps,
    there,
)
from tests.compat.file import Vector

ALLOCATED = "-devices-allocated"
CORES_MAX = 100


def chips(vector: Vector) -> tuple[AscendChip, ...]:
    """The chips that the vector's scheduler is configured for."""
    config = vector.input.get("config")
    if isinstance(config, dict):
        config = yaml.safe_dump({"vnpus": [config]})
    if not isinstance(config, str):
        return ()
    parsed = configs.parse(config).config
    return parsed.ascend if parsed is not None else ()


def asks_for_more_than_a_chip(vector: Vector) -> bool:
    """Asks for more memory than a chip has."""
    asked = vector.input.get("memory", vector.input.get("mem"))
    for chip in chips(vector):
        amounts = [int(asked)] if isinstance(asked, int) else []
        for pod in new_pods(vector):
            amounts += _whole(limits(pod, chip.resource_memory_name))
        if any(amount > chip.memory_capacity_mib for amount in amounts):
            return True
    return False


def _whole(texts: Iterator[str]) -> Iterator[int]:
    for text in texts:
        try:
            yield units.count(text)
        except units.QuantityError:
            continue


def has_bad_request(vector: Vector) -> bool:
    """Asks for memory or cores without a number, or for what is no sane amount."""
    return any(
        _is_bad(container, chip)
        for chip in chips(vector)
        for pod in new_pods(vector)
        for container in containers(pod)
    )


def _is_bad(container: Mapping[str, Any], chip: AscendChip) -> bool:
    asked = container.get("limits") or {}
    both = {**(container.get("requests") or {}), **asked}
    count, memory, core = chip.resource_name, chip.resource_memory_name, chip.resource_core_name
    if count not in asked and any(name in both for name in (count, memory, core)):
        return True
    try:
        amounts = {name: units.count(both[name]) for name in (count, core) if name in both}
        units.count(both.get(memory, "0"))
    except units.QuantityError:
        return True
    return amounts.get(core, 0) > CORES_MAX


def asks_for_parts_beside_others(vector: Vector) -> bool:
    """One of several containers asks for parts of several chips."""
    return any(
        len(containers(pod)) > 1 and any(_asks_for_parts(c, chip) for c in containers(pod))
        for chip in chips(vector)
        for pod in new_pods(vector)
    )


def _asks_for_parts(container: Mapping[str, Any], chip: AscendChip) -> bool:
    asked = container.get("limits") or {}
    several = asked.get(chip.resource_name, "1") not in ("0", "1")
    memory = next(_whole(iter((str(asked.get(chip.resource_memory_name, "0")),))), 0)
    return several and 0 < memory < chip.memory_allocatable_mib


def asks_for_zero_chips(vector: Vector) -> bool:
    if is_mindcluster(vector):
        return any(step.get("cores") == 0 for step in steps(vector))
    return any(
        "0" in limits(pod, chip.resource_name) for chip in chips(vector) for pod in new_pods(vector)
    )


def has_unhealthy_chips(vector: Vector) -> bool:
    return any(chip.get("health") is False for chip in _registered(vector))


def has_bad_chips(vector: Vector) -> bool:
    """Chips without an id, or with one that occurs twice."""
    if not vector.input.get("type") or vector.function.startswith("ascend_"):
        return False
    ids = [chip.get("id") for chip in _registered(vector)]
    return not all(ids) or len(set(ids)) < len(ids)


def has_chips_without_memory(vector: Vector) -> bool:
    """A chip that has no memory, or nothing that says so."""
    if vector.function == "ascend_device_score":
        return not vector.input.get("devmem")
    return any(not chip.get("devmem") for chip in _registered(vector))


def _registered(vector: Vector) -> Iterator[Mapping[str, Any]]:
    devices = vector.input.get("devices")
    if vector.function.startswith("ascend_") and isinstance(devices, dict):
        yield from (device for device in devices.values() if isinstance(device, dict))
    for key, text in node_annotations(vector).items():
        if key.startswith(keys.hami_register("")):
            try:
                found = json.loads(text)
            except ValueError:
                continue
            yield from (chip for chip in found if isinstance(chip, dict))


def holds_for_several_containers(vector: Vector) -> bool:
    """More than one container of a pod holds chips, now or after a step."""
    pods = [*there(vector), *(vector.expected.get("steps") or ())]
    texts = [
        text
        for pod in pods
        for key, text in (pod.get("annotations") or {}).items()
        if key.endswith(ALLOCATED)
    ]
    texts.append(vector.input.get("annotation_devices-allocated") or "")
    return any(len(ascend.decode_assignment(text, "")[0]) > 1 for text in texts)


def adds_a_pod_again(vector: Vector) -> bool:
    return vector.function == "ascend_add_pod_usage" and vector.input.get("times", 1) > 1


# MindCluster


def is_mindcluster(vector: Vector) -> bool:
    return vector.function == "mindcluster_scenario"


def asks_for_no_template(vector: Vector) -> bool:
    """Asks for a number of cores that is neither whole chips nor a template's."""
    if not is_mindcluster(vector):
        return False
    per_chip = vector.input["per_chip"]["aicore"]
    return any(
        step.get("cores", 0) % per_chip
        and not mindcluster.templates_for(step.get("cores", 0), step.get("labels") or {})[0]
        for step in steps(vector)
    )


def mixes_templates(vector: Vector) -> bool:
    """Pods of a node want different templates, or whole chips beside others."""
    if not is_mindcluster(vector):
        return False
    per_chip = vector.input["per_chip"]["aicore"]
    wanted = {
        (step["pod"], mindcluster.templates_for(step.get("cores", 0), step.get("labels") or {})[0])
        for step in steps(vector)
    }
    is_whole = any(step.get("cores", 0) % per_chip == 0 for step in steps(vector))
    pods = {pod for pod, _ in wanted}
    return len(pods) > 1 and (is_whole or len({templates for _, templates in wanted}) > 1)


def may_be_downgraded(vector: Vector) -> bool:
    """Asks for a template that has a smaller one to fall back to, where something is used."""
    return is_mindcluster(vector) and any(
        len(mindcluster.templates_for(step.get("cores", 0), step.get("labels") or {})[0]) > 1
        for step in steps(vector)
    )


def fails_late(vector: Vector) -> bool:
    """Volcano's filter takes what its allocation then refuses."""
    found = vector.expected.get("steps") or ()
    passed = any(step.get("op") == "filter" and step.get("code") == 0 for step in found)
    return (
        is_mindcluster(vector)
        and passed
        and any(step.get("op") == "allocate" and step.get("error") for step in found)
    )


def passes_where_pieces_are(vector: Vector) -> bool:
    """Volcano's filter accepts a pod on a node of which something is used, whether or not there is
    room."""
    if not is_mindcluster(vector):
        return False
    is_used = False
    for step in vector.expected.get("steps") or ():
        if step.get("op") == "filter" and step.get("code") == 0 and is_used:
            return True
        is_used = is_used or bool(step.get("npu-core"))
    return False


def gives_back(vector: Vector) -> bool:
    return is_mindcluster(vector) and any(s["op"] in ("release", "sub") for s in steps(vector))
