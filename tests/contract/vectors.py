"""Volcano's compatibility vectors: where they are, which are for later, where we deviate and why.

Deviations are declared by the number of the quirk (deviceshare specification, section 10) or by the
rule "bad input is refused", and apply to what a vector *exercises*, never to a vector by name: a
new vector that exercises the same quirk deviates without anybody touching this table.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from allotment.core import quantities
from allotment_proto.volcano import keys

Vector = dict[str, Any]
FILE = Path(__file__).parents[3] / "shared" / "spec" / "deviceshare-vectors.json"
DEFAULT_CONFIG = "$DEVICE_CONFIG_YAML_FACTOR_1"
BAD_INPUT = "bad input is refused"


def load() -> list[Vector]:
    """All vectors; none when the file is not there."""
    if not FILE.exists():
        return []
    found: list[Vector] = json.loads(FILE.read_text(encoding="utf-8"))
    return [vector for vector in found if vector["id"] != "_constants"]


class Deviation(NamedTuple):
    """`fields` are the last parts of the compared fields that come out otherwise."""

    rule: str
    reason: str
    applies: Callable[[Vector], bool]
    fields: frozenset[str]
    may_be_unseen: bool = False
    """The published sample of the vectors may hold none; the full set does."""


def later(vector: Vector) -> str | None:
    """The later issue that this vector belongs to; None when it concerns what exists."""
    given, function = vector["input"], vector["function"]
    if "ascend" in function or str(given.get("type", "")).startswith("Ascend"):
        return "Ascend (HAMi vNPU)"
    if "mindcluster" in function:
        return "MindCluster"
    if "exclusive" in function:
        return "GPU exclusivity"
    if vector["kind"] == "mig" or "mig" in function or ",mig:" in _register(vector):
        return "MIG"
    if vector["kind"] == "lock":
        return "node lock"
    if function in ("pod_group_key", "device_has_same_group_pod") or any(
        "volcano.sh/vgpu-podgroup-policy" in (pod.get("annotations") or {}) for pod in pods(vector)
    ):
        return "spreading a pod group over cards"
    if function in ("parse_device_config", "ignored_resources_set", "ignored_resources_append"):
        return "device ConfigMap"
    if given.get("config", DEFAULT_CONFIG) != DEFAULT_CONFIG:
        return "device ConfigMap"
    if function in (
        "cdi_annotations",
        "visible_devices_env",
        "container_env",
        "memory_entry_limit",
    ):
        return "inside the device plugin on the node; nothing that a scheduler writes or reads"
    return None


def pods(vector: Vector) -> Iterator[dict[str, Any]]:
    """Every pod that a vector mentions, however its kind spells it."""
    given = vector["input"]
    if isinstance(given.get("pod"), dict):
        yield given["pod"]
    yield from (pod for pod in given.get("pods", ()) if isinstance(pod, dict))
    yield from given.get("existing", ())
    yield from (step["pod"] for step in given.get("steps", ()))
    if "containers" in given:
        yield given


def new_pods(vector: Vector) -> Iterator[dict[str, Any]]:
    """The pods that are asked about, without those that are there already."""
    existing = vector["input"].get("existing", ())
    yield from (pod for pod in pods(vector) if pod not in existing)


def _register(vector: Vector) -> str:
    node = vector["input"].get("node")
    annotations = node.get("annotations") if isinstance(node, dict) else None
    return str((annotations or {}).get(keys.NODE_VGPU_REGISTER, ""))


def _amounts(pod: dict[str, Any], key: str) -> Iterator[str]:
    for container in pod.get("containers", ()):
        for part in ("limits", "requests"):
            text = (container.get(part) or {}).get(key)
            if text is not None:
                yield text


def _has_bad_request(vector: Vector) -> bool:
    """Asks for memory, percentage or cores without a number, or for what is no sane amount."""
    names = (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_MEMORY_PERCENTAGE, keys.VGPU_CORES)
    for pod in new_pods(vector):
        for container in pod.get("containers", ()):
            limits = container.get("limits") or {}
            both = {**(container.get("requests") or {}), **limits}
            if keys.VGPU_NUMBER not in limits and any(name in both for name in names):
                return True
            try:
                amounts = {name: quantities.count(both[name]) for name in names if name in both}
            except quantities.QuantityError:
                return True
            if not 1 <= amounts.get(keys.VGPU_MEMORY_PERCENTAGE, 1) <= 100:
                return True
            if amounts.get(keys.VGPU_CORES, 0) > 100 or amounts.get(keys.VGPU_NUMBER, 0) > 64:
                return True
    return False


def _has_bad_selection(vector: Vector) -> bool:
    for pod in new_pods(vector):
        annotations = pod.get("annotations") or {}
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            if key in annotations and not annotations[key].replace(",", "").strip():
                return True
        if annotations.get(keys.VGPU_MODE, "mig") not in ("hami-core", "mig"):
            return True
    return False


def _asks_for_zero_cards(vector: Vector) -> bool:
    return any("0" in _amounts(pod, keys.VGPU_NUMBER) for pod in new_pods(vector))


def _holds_one_card_twice(vector: Vector) -> bool:
    texts = [(pod.get("annotations") or {}).get(keys.VGPU_IDS, "") for pod in pods(vector)] + [
        (step.get("annotations") or {}).get(keys.VGPU_IDS, "")
        for step in vector["expected"].get("steps", ())
    ]
    for text in texts:
        cards = [piece.split(",")[0] for piece in text.replace(";", ":").split(":") if piece]
        if len(cards) != len(set(cards)):
            return True
    return False


def _types_need_trimming(vector: Vector) -> bool:
    for pod in new_pods(vector):
        annotations = pod.get("annotations") or {}
        for key in (keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE):
            items = annotations.get(key, "").split(",")
            if any(item != item.strip() for item in items):
                return True
    return False


def _unhealthy_ids_need_trimming(vector: Vector) -> bool:
    node = vector["input"].get("node")
    annotations = (node.get("annotations") if isinstance(node, dict) else None) or {}
    text = annotations.get(keys.GPU_UNHEALTHY_IDS, "")
    return any(item != item.strip() for item in text.split(","))


def _releases_what_it_allocated(vector: Vector) -> bool:
    allocated: set[str] = set()
    for step in vector["input"].get("steps", ()):
        if step["op"] == "allocate":
            allocated.add(step["pod"]["uid"])
        elif step["op"] == "release" and step["pod"]["uid"] in allocated:
            return True
    return False


DECISION = frozenset(("code", "wouldAllocate", "score", "hasRequest", "annotations", "state"))
DEVIATIONS = (
    Deviation(
        "Q7",
        "spread scores an idle card with 100 points; upstream tests idleness after taking the slot",
        lambda v: v["input"].get("policy") == "spread",
        frozenset(("score",)),
    ),
    Deviation(
        "Q8",
        "a failed or discarded allocation gives back all that was reserved",
        _releases_what_it_allocated,
        frozenset(("state",)),
    ),
    Deviation(
        "Q10",
        "no node lock is ever taken (one write binds pod and devices), so none is removed",
        lambda v: v["function"] in ("mark_success", "mark_failed"),
        frozenset(("node_annotation_removed",)),
    ),
    Deviation(
        "Q11",
        "every container of a pod is charged on a card, not only the first",
        _holds_one_card_twice,
        frozenset(("state", "stateAfterExisting")),
    ),
    Deviation(
        "Q12",
        "a request for 0 cards is no request: it reserves nothing and writes nothing",
        _asks_for_zero_cards,
        frozenset(("state", "hasRequest", "annotations")),
    ),
    Deviation(
        "Q15",
        "unhealthy cards are skipped",
        lambda v: ",false," in _register(v),
        DECISION,
    ),
    Deviation(
        "Q17",
        "whole cards by number are taken lowest index first, not at random",
        lambda v: bool(v.get("nondeterministic")),
        DECISION,
        may_be_unseen=True,
    ),
    Deviation(
        "Q21",
        "a hole in the register string is no card; upstream dereferences nil",
        lambda v: "::" in _register(v),
        DECISION | {"panic"},
        may_be_unseen=True,
    ),
    Deviation(
        "Q22",
        "lists are trimmed, and ids match exactly",
        lambda v: _types_need_trimming(v) or _unhealthy_ids_need_trimming(v),
        DECISION | {"devices"},
    ),
    Deviation(
        "Q27",
        "a Binding carries our own annotations only: nothing of the pod's is merged or rewritten",
        lambda v: v["function"] in ("binding_object", "task_annotations"),
        frozenset(("binding_annotations", "result")),
    ),
    Deviation(
        BAD_INPUT,
        "amounts without a number, fractions, absurd values: the pod's problem, said in words",
        _has_bad_request,
        DECISION,
    ),
    Deviation(
        BAD_INPUT,
        "an empty list of types means neither all nor none, and an unknown mode matches nothing",
        _has_bad_selection,
        DECISION,
        may_be_unseen=True,
    ),
)
