"""What a vector exercises of cards that are cut into MIG instances."""

from collections.abc import Mapping
from typing import Any

from allotment_proto.facts import Geometry
from allotment_proto.volcano import device_config, keys, mig, vgpu
from allotment_proto.volcano.mig import MigId
from tests.compat import configs
from tests.compat.exercises import (
    containers,
    has_mig_cards,
    instances,
    new_pods,
    register,
    steps,
    there,
)
from tests.compat.file import Vector


def gives_instances(vector: Vector) -> bool:
    """A MIG instance is given to a pod, or two containers ask for one."""
    if not has_mig_cards(vector):
        return False
    return any(step["op"] == "allocate" for step in steps(vector)) or any(
        len(pod.get("containers") or ()) > 1 for pod in new_pods(vector)
    )


def holds_an_instance_twice(vector: Vector) -> bool:
    held = [one for pod in there(vector) for one in instances(pod) if "[" in one]
    return has_mig_cards(vector) and len(held) != len(set(held))


def uses_part_of_a_geometry(vector: Vector) -> bool:
    """A geometry of several profiles is in use, or comes into use."""
    if vector.function.startswith("mig_"):
        return _has_unused_profile(vector.input)
    if not has_mig_cards(vector):
        return False
    held = [mig.parse_id(one, "") for pod in there(vector) for one in instances(pod)]
    groups = {one.group for one in held if isinstance(one, MigId)}
    is_given = any(step["op"] == "allocate" for step in steps(vector))
    return any(
        len(geometry.profiles) > 1 and (is_given or geometry.name in groups)
        for geometry in _configured(vector)
    )


def _has_unused_profile(given: Mapping[str, Any]) -> bool:
    usage = given.get("usage") or {}
    chosen, geometries = usage.get("index", -1), given.get("geometries") or ()
    if not 0 <= chosen < len(geometries) or not usage.get("list"):
        return False
    used = {entry["name"] for entry in usage["list"]}
    return any(profile["name"] not in used for profile in geometries[chosen]["instances"])


def _configured(vector: Vector) -> tuple[Geometry, ...]:
    """The geometries that are configured for the vector's cards."""
    text = vector.input.get("config")
    parsed = configs.parse(text) if text else None
    config = parsed.config if parsed is not None else device_config.default()
    if config is None:
        return ()
    cards = vgpu.decode_register(register(vector)).cards
    return tuple(
        geometry for card in cards for geometry in device_config.geometries_for(config, card.model)
    )


def keeps_a_geometry(vector: Vector) -> bool:
    """A geometry is chosen of which nothing is used."""
    usage = vector.input.get("usage") or {}
    used = [one for entry in usage.get("list") or () for one in entry.get("used_index") or ()]
    return has_mig_cards(vector) and usage.get("index", -1) >= 0 and not used


def names_no_instance(vector: Vector) -> bool:
    """A pod on MIG cards holds what is no instance of theirs."""
    if not has_mig_cards(vector):
        return False
    if (identity := vector.input.get("device_id")) is not None:
        groups = {entry["group"] for entry in vector.input.get("geometries") or ()}
        found = mig.parse_id(identity, "")
        return not isinstance(found, MigId) or found.group not in groups
    table = _configured(vector)
    for pod in there(vector):
        for one in instances(pod):
            found = mig.parse_id(one, "")
            if not isinstance(found, MigId) or mig.profile_of(table, found.instance) is None:
                return True
    return False


def asks_for_a_whole_mig_card(vector: Vector) -> bool:
    """Asks for all memory of a card that is cut."""
    return has_mig_cards(vector) and any(
        _is_whole(container.get("limits") or {})
        for pod in new_pods(vector)
        for container in containers(pod)
    )


def _is_whole(limits: Mapping[str, str]) -> bool:
    percent = limits.get(keys.VGPU_MEMORY_PERCENTAGE)
    if percent is not None:
        return percent == "100"
    return bool(limits) and limits.get(keys.VGPU_MEMORY, "0") == "0"


def gives_back(vector: Vector) -> bool:
    return any(step["op"] in ("sub", "release") for step in steps(vector))


def fails_to_allocate(vector: Vector) -> bool:
    found = vector.expected.get("steps") or ()
    return any(step.get("op") == "allocate" and step.get("error") for step in found)
