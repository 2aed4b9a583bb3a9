"""What a vector exercises of pods that ask for NVIDIA cards, and of how they ask."""

from collections.abc import Iterable, Mapping
from typing import Any

from allotment.core import units
from allotment_proto.volcano import keys
from tests.compat.exercises import annotations_of, limits, new_pods
from tests.compat.file import Vector

SHARES = (keys.GPU_MEMORY, keys.GPU_NUMBER)
AMOUNTS = (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_MEMORY_PERCENTAGE, keys.VGPU_CORES)
COUNT_MAX = 64
MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)


def has_bad_request(vector: Vector) -> bool:
    """Asks for memory, percentage or cores without a number, or for what is no sane amount."""
    for pod in new_pods(vector):
        for container in pod.get("containers") or ():
            if _is_bad(container):
                return True
    return False


def asks_in_init(vector: Vector) -> bool:
    """An init container asks, which no device plugin serves."""
    return any(_mentions(pod.get("initContainers") or ()) for pod in new_pods(vector))


def _mentions(found: Iterable[Mapping[str, Any]]) -> bool:
    return any(name in (c.get("limits") or {}) for c in found for name in (*AMOUNTS, *SHARES))


def has_bad_share(vector: Vector) -> bool:
    """Asks for memory and for whole cards at once, for the one that is not served, or for what is
    no amount."""
    served = {"memory": keys.GPU_MEMORY, "number": keys.GPU_NUMBER}.get(
        str(vector.input.get("strategy"))
    )
    for pod in new_pods(vector):
        asked = [name for name in SHARES if any(True for _ in limits(pod, name))]
        if len(asked) > 1 or (served is not None and asked not in ([], [served])):
            return True
        for name in asked:
            for text in limits(pod, name):
                try:
                    units.count(text)
                except units.QuantityError:
                    return True
    return False


def _is_bad(container: Mapping[str, Any]) -> bool:
    asked = container.get("limits") or {}
    both = {**(container.get("requests") or {}), **asked}
    is_none = asked.get(keys.VGPU_NUMBER, "0") == "0"
    if is_none and any(both.get(name, "0") != "0" for name in AMOUNTS):
        return True
    try:
        amounts = {name: units.count(both[name]) for name in AMOUNTS if name in both}
    except units.QuantityError:
        return True
    return (
        not 1 <= amounts.get(keys.VGPU_MEMORY_PERCENTAGE, 1) <= 100
        or amounts.get(keys.VGPU_CORES, 0) > 100
        or amounts.get(keys.VGPU_NUMBER, 0) > COUNT_MAX
    )


def has_bad_selection(vector: Vector) -> bool:
    """An empty list of card types, or a mode that there is not."""
    for annotations in annotations_of(new_pods(vector)):
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            if key in annotations and not annotations[key].replace(",", "").strip():
                return True
        if annotations.get(keys.VGPU_MODE, keys.MODE_MIG) not in MODES:
            return True
    return False


def asks_for_zero_cards(vector: Vector) -> bool:
    return any("0" in limits(pod, keys.VGPU_NUMBER) for pod in new_pods(vector))


def types_need_trimming(vector: Vector) -> bool:
    for annotations in annotations_of(new_pods(vector)):
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            items = annotations.get(key, "").split(",")
            if any(item != item.strip() for item in items):
                return True
    return False


def asks_for_no_card(vector: Vector) -> bool:
    """The question is about a card without an id."""
    return vector.function == "gpu_uuid_allowed" and not vector.input.get("device_uuid")
