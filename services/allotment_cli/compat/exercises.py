"""What a vector exercises: the questions that decide about deviations. Never who it is."""

from collections.abc import Iterator, Mapping
from typing import Any

from allotment.core import quantities
from allotment.core.state import ENDED
from allotment_cli.compat.file import Vector
from allotment_proto.volcano import keys, vgpu

Pod = Mapping[str, Any]
SHARES = (keys.GPU_MEMORY, keys.GPU_NUMBER)
AMOUNTS = (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_MEMORY_PERCENTAGE, keys.VGPU_CORES)
COUNT_MAX = 64
NUMBER_MAX = 10**9
"""No card has a PiB of memory."""
MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)


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


def has_bad_request(vector: Vector) -> bool:
    """Asks for memory, percentage or cores without a number, or for what is no sane amount."""
    for pod in new_pods(vector):
        for container in pod.get("containers") or ():
            if _is_bad(container):
                return True
    return False


def has_bad_share(vector: Vector) -> bool:
    """Asks for memory and for whole cards at once, or for what is no amount."""
    for pod in new_pods(vector):
        asked = [name for name in SHARES if any(True for _ in limits(pod, name))]
        if len(asked) > 1:
            return True
        for name in asked:
            for text in limits(pod, name):
                try:
                    quantities.count(text)
                except quantities.QuantityError:
                    return True
    return False


def _is_bad(container: Mapping[str, Any]) -> bool:
    asked = container.get("limits") or {}
    both = {**(container.get("requests") or {}), **asked}
    if keys.VGPU_NUMBER not in asked and any(name in both for name in AMOUNTS):
        return True
    try:
        amounts = {name: quantities.count(both[name]) for name in AMOUNTS if name in both}
    except quantities.QuantityError:
        return True
    return (
        not 1 <= amounts.get(keys.VGPU_MEMORY_PERCENTAGE, 1) <= 100
        or amounts.get(keys.VGPU_CORES, 0) > 100
        or amounts.get(keys.VGPU_NUMBER, 0) > COUNT_MAX
    )


def has_bad_selection(vector: Vector) -> bool:
    """An empty list of card types, or a mode that there is not."""
    for annotations in _annotations(new_pods(vector)):
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            if key in annotations and not annotations[key].replace(",", "").strip():
                return True
        if annotations.get(keys.VGPU_MODE, keys.MODE_MIG) not in MODES:
            return True
    return False


def asks_for_zero_cards(vector: Vector) -> bool:
    return any("0" in limits(pod, keys.VGPU_NUMBER) for pod in new_pods(vector))


def holds_one_card_twice(vector: Vector) -> bool:
    """Containers of one pod share a card, now or after a step."""
    texts = [annotations.get(keys.VGPU_IDS, "") for annotations in _annotations(pods(vector))]
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


def types_need_trimming(vector: Vector) -> bool:
    for annotations in _annotations(new_pods(vector)):
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            items = annotations.get(key, "").split(",")
            if any(item != item.strip() for item in items):
                return True
    return False


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


def asks_for_no_card(vector: Vector) -> bool:
    """The question is about a card without an id."""
    return vector.function == "gpu_uuid_allowed" and not vector.input.get("device_uuid")


def mixes_modes(vector: Vector) -> bool:
    """Cards of one node register different modes, and the last, which counts, is not mig."""
    modes = [
        fields[5] for piece in register(vector).split(":") if len(fields := piece.split(",")) > 5
    ]
    return len(set(modes)) > 1 and modes[-1] != keys.MODE_MIG


def has_broken_holder(vector: Vector) -> bool:
    """A pod that is there has an annotation of its cards that cannot be read."""
    return any(vgpu.decode_assignment(text)[1] for text in _held_texts(vector))


def _held_texts(vector: Vector) -> Iterator[str]:
    for annotations in _annotations(iter(there(vector))):
        for key, text in annotations.items():
            if key == keys.VGPU_IDS or key.endswith("-devices-allocated"):
                yield text


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
        for annotations in _annotations(new_pods(vector))
    )


def _annotations(found: Iterator[Pod]) -> Iterator[Mapping[str, str]]:
    for pod in found:
        yield pod.get("annotations") or {}
