"""What a vector exercises: the questions that decide about deviations. Never who it is."""

from collections.abc import Iterator, Mapping
from typing import Any

from allotment.core.ledger.model import ENDED
from allotment_proto.volcano import gpushare, keys, vgpu
from tests.compat.file import Vector

Pod = Mapping[str, Any]
NUMBER_MAX = 10**9
"""No card has a PiB of memory."""


def pods(vector: Vector) -> Iterator[Pod]:
    """Every pod that a vector mentions, however its kind spells it."""
    given = vector.input
    for pod in (given.get("pod"), *_listed(given, "pods"), *_listed(given, "existing")):
        if isinstance(pod, dict):
            yield pod
    yield from (step["pod"] for step in steps(vector) if isinstance(step["pod"], dict))
    if "containers" in given or "limits" in given:
        yield given
    if isinstance(given.get("pod_annotations"), dict):
        yield {"annotations": given["pod_annotations"]}


def new_pods(vector: Vector) -> Iterator[Pod]:
    """The pods that are asked about, without those that are there already."""
    old = there(vector)
    yield from (pod for pod in pods(vector) if pod not in old)


def there(vector: Vector) -> list[Pod]:
    """The pods that are there already."""
    return [pod for pod in _listed(vector.input, "existing") if isinstance(pod, dict)]


def steps(vector: Vector) -> list[dict[str, Any]]:
    return [step for step in _listed(vector.input, "steps") if isinstance(step, dict)]


def _listed(given: Mapping[str, Any], key: str) -> list[Any]:
    found = given.get(key)
    return found if isinstance(found, list) else []


def node_annotations(vector: Vector) -> Mapping[str, str]:
    node = vector.input.get("node")
    return (node.get("annotations") if isinstance(node, dict) else None) or {}


def register(vector: Vector) -> str:
    return str(node_annotations(vector).get(keys.NODE_VGPU_REGISTER, ""))


def limits(pod: Pod, key: str) -> Iterator[str]:
    """What the containers ask for of one resource, as texts."""
    for container in containers(pod):
        for part in ("limits", "requests"):
            text = (container.get(part) or {}).get(key)
            if text is not None:
                yield str(text)


def containers(pod: Pod) -> list[Mapping[str, Any]]:
    """All containers, also the only one of a pod of which a vector gives just the limits."""
    found = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    return found or ([{"limits": pod["limits"]}] if pod.get("limits") else [])


def holds_one_card_twice(vector: Vector) -> bool:
    """Containers of one pod share a card, now or after a step."""
    texts = [annotations.get(keys.VGPU_IDS, "") for annotations in annotations_of(pods(vector))]
    texts += [
        (step.get("annotations") or {}).get(keys.VGPU_IDS, "")
        for step in vector.expected.get("steps") or ()
    ]
    for text in texts:
        cards = [
            piece.split(",")[0].split("[")[0]
            for piece in text.replace(";", ":").split(":")
            if piece
        ]
        if len(cards) != len(set(cards)):
            return True
    return False


def spreads_over_cards(vector: Vector) -> bool:
    """vGPU pods are placed under the policy spread."""
    is_placed = vector.function == "vgpu_filter" or bool(register(vector))
    return is_placed and vector.input.get("policy") == "spread"


def unhealthy_ids_need_trimming(vector: Vector) -> bool:
    text = node_annotations(vector).get(keys.GPU_UNHEALTHY_IDS, "")
    return any(item != item.strip() for item in text.split(","))


def ids_match_in_part(vector: Vector) -> bool:
    """A pod holds an id of which a card's id is a part, and no more."""
    cards = [card.id for card in vgpu.decode_register(register(vector)).cards]
    return any(
        card in one and card != one.split("[")[0]
        for pod in pods(vector)
        for one in instances(pod)
        for card in cards
    )


def has_bad_register(vector: Vector) -> bool:
    """Cards without an id, with one that occurs twice, or without memory or room for pods."""
    fields = [piece.split(",") for piece in register(vector).split(":") if "," in piece]
    ids = [entry[0] for entry in fields]
    numbers = [number for entry in fields for number in entry[1:3]]
    return (
        "" in ids
        or len(set(ids)) < len(ids)
        or any(not (number.isdigit() and 0 < int(number) < NUMBER_MAX) for number in numbers)
    )


def mixes_modes(vector: Vector) -> bool:
    """Cards of one node register different modes, and the last, which counts, is not mig."""
    modes = [
        fields[5] for piece in register(vector).split(":") if len(fields := piece.split(",")) > 5
    ]
    return len(set(modes)) > 1 and modes[-1] != keys.MODE_MIG


def has_broken_holder(vector: Vector) -> bool:
    """A pod that is there has an annotation of its cards that cannot be read."""
    for annotations in annotations_of(iter(there(vector))):
        for key, text in annotations.items():
            if key == keys.VGPU_IDS or key.endswith("-devices-allocated"):
                problems = vgpu.decode_assignment(text)[1]
            elif key == keys.GPU_INDEX:
                problems = gpushare.decode_indexes(text, key)[1]
            else:
                continue
            if problems:
                return True
    return False


def has_unhealthy_cards(vector: Vector) -> bool:
    return any(not card.healthy for card in vgpu.decode_register(register(vector)).cards)


def has_leaving_pods(vector: Vector) -> bool:
    return any(pod.get("deletionTimestamp") for pod in pods(vector))


def has_finished_pods(vector: Vector) -> bool:
    return any(pod.get("phase") in ENDED for pod in pods(vector))


def tells_of_a_pod_again(vector: Vector) -> bool:
    """A pod that is there is added once more, or one that was allocated."""
    known = {pod.get("uid") for pod in there(vector)}
    for step in steps(vector):
        uid = step["pod"].get("uid") if isinstance(step["pod"], dict) else step["pod"]
        if step["op"] == "add" and uid in known:
            return True
        if step["op"] in ("add", "allocate"):
            known.add(uid)
    return False


def measures_allocations(vector: Vector) -> bool:
    """Metrics are looked at once something was allocated."""
    found = vector.expected.get("steps") or ()
    is_measured = any("metrics" in step for step in found)
    return is_measured and any(step["op"] == "allocate" for step in steps(vector))


def goes_on(vector: Vector) -> bool:
    """Something depends on what was chosen before."""
    return any(step["op"] == "allocate" for step in steps(vector)[:-1]) or any(
        len(containers(pod)) > 1 for pod in new_pods(vector)
    )


def releases_what_it_allocated(vector: Vector) -> bool:
    allocated: set[str] = set()
    for step in steps(vector):
        pod = step["pod"]
        uid = pod.get("uid") if isinstance(pod, dict) else pod
        if step["op"] == "allocate":
            allocated.add(str(uid))
        elif step["op"] in ("release", "sub") and str(uid) in allocated:
            return True
    return False


def instances(pod: Pod) -> Iterator[str]:
    """The device ids that a pod holds."""
    text = (pod.get("annotations") or {}).get(keys.VGPU_IDS, "")
    yield from (piece.split(",")[0] for piece in text.replace(";", ":").split(":") if piece)


def has_mig_cards(vector: Vector) -> bool:
    return ",mig:" in f"{register(vector)}:" or vector.function.startswith("mig_")


# Configuration


def has_no_config_map(vector: Vector) -> bool:
    """The scheduler runs with what is built in, and the vector needs what Volcano lacks there."""
    if "config" not in vector.input or vector.input["config"] is not None:
        return False
    return has_mig_cards(vector) or any(
        True for pod in new_pods(vector) for _ in limits(pod, keys.VGPU_MEMORY_PERCENTAGE)
    )


def concerns_mps(vector: Vector) -> bool:
    return f",{keys.MODE_MPS}:" in f"{register(vector)}:" or any(
        annotations.get(keys.VGPU_MODE) == keys.MODE_MPS
        for annotations in annotations_of(new_pods(vector))
    )


def annotations_of(found: Iterator[Pod]) -> Iterator[Mapping[str, str]]:
    for pod in found:
        yield pod.get("annotations") or {}
