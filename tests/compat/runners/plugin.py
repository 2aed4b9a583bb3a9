"""What a vector says of the device plugin on the node, asked of the fake one of local mode."""

from collections.abc import Mapping
from typing import Any

from allotment_local.apiserver.resources import NODES, ResourceKey
from allotment_local.nodes import plugin_env
from allotment_local.nodes.books import Books
from allotment_local.nodes.inventory import Hardware
from allotment_local.nodes.pending import Pending, Waiting
from allotment_local.nodes.plugin_vgpu import NO_VALID_POD
from allotment_local.nodes.plugins import Plugins
from allotment_proto.facts import CardFact
from allotment_proto.volcano import keys, vgpu
from tests.compat.file import Vector
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.world import NODE

CDI_KIND = "nvidia.com/gpu"
"""The kind that the recorded answers were given with."""
CACHE_ID = "<uuid>"
LOCKS = (keys.LOCK_VGPU, keys.LOCK_GPUSHARE, keys.LOCK_ASCEND)


def select_pending_pod(vector: Vector) -> Fields:
    """Which of the waiting pods the plugin believes that it is serving."""
    given = vector.input
    pending = Pending()
    for number, pod in enumerate(given["pods"]):
        annotations = {f"volcano.sh/{key}": str(v) for key, v in pod.items() if key != "name"}
        pending.observe(
            {
                "metadata": {
                    "uid": f"{number}",
                    "name": pod["name"],
                    "namespace": f"{number:09}",  # pods are listed in the order of the vector
                    "annotations": annotations,
                },
                "spec": {"containers": []},
            }
        )
    found = pending.pick_vgpu(given["node"], given["gpu_amount"])
    said = {
        "pod": found.name if found is not None else None,
        "error": None if found is not None else NO_VALID_POD,
    }
    return compared(vector.expected, said)


class OnePod:
    """The pod that the plugin picked and its node, in place of the store and of who waits."""

    def __init__(self, devices: str) -> None:
        self.annotations = {keys.DEVICES_TO_ALLOCATE: devices}
        self.locks = dict.fromkeys(LOCKS, "2026-01-31T12:00:00Z")

    def pick_vgpu(self, node: str, amount: int) -> Waiting:
        return Waiting("default", "p", "p", (amount,), 1)

    def get(self, resource: ResourceKey, namespace: str, name: str) -> dict[str, Any]:
        annotations = self.locks if resource == NODES else self.annotations
        return {"metadata": {"annotations": annotations}}

    def merge_patch(
        self, resource: ResourceKey, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> None:
        annotations = self.locks if resource == NODES else self.annotations
        for key, text in patch["metadata"]["annotations"].items():
            if text is None:
                annotations.pop(key, None)
            else:
                annotations[key] = text


def _served(devices: str) -> OnePod:
    """The pod and its node after the fake plugin has served its first group of devices."""
    cards = {entry.card for group in vgpu.decode_assignment(devices)[0] for entry in group}
    facts = tuple(
        CardFact(card, number, vgpu.ENTRY_TYPE, 10, 10**6, 100, True, keys.MODE_HAMI_CORE)
        for number, card in enumerate(sorted(cards))
    )
    pod: Any = OnePod(devices)
    plugins = Plugins(NODE, Hardware(vgpu=facts), pod, pod, Books())
    own = f",{vgpu.ENTRY_TYPE},"
    groups = [group for group in devices.split(";") if "," in group]
    first = next((group for group in groups if own in group), groups[0] if groups else "")
    plugins.allocate(keys.VGPU_NUMBER, sum("," in piece for piece in first.split(":")))
    served: OnePod = pod
    return served


def erase_next_device_request(vector: Vector) -> Fields:
    """What is left of the work list after a container was served."""
    left = _served(vector.input["text"]).annotations[keys.DEVICES_TO_ALLOCATE]
    return compared(vector.expected, {"text": left})


def mark(vector: Vector) -> Fields:
    """What the plugin writes on a pod when it is done, or when it gives up."""
    entry_type = vgpu.ENTRY_TYPE if vector.function == "mark_success" else "OTHER"
    pod = _served(f"GPU-a,{entry_type},1,0:")
    wanted = vector.expected.get("annotations") or {}
    said = {
        "annotations": {key: pod.annotations.get(key) for key in wanted},
        "node_annotation_removed": next((name for name in LOCKS if name not in pod.locks), None),
    }
    return compared(vector.expected, said)


def allocation_complete(vector: Vector) -> Fields:
    """The text is what remains: it follows a group that is served now."""
    pod = _served("GPU-z,NVIDIA,1,0:" + vector.input["devices-to-allocate"])
    is_complete = pod.annotations.get(keys.BIND_PHASE) == keys.PHASE_SUCCESS
    return compared(vector.expected, {"complete": is_complete})


def cdi_annotations(vector: Vector) -> Fields:
    """How container runtimes are told of devices; other strategies tell them otherwise."""
    given = vector.input
    found: Mapping[str, str] = {}
    if plugin_env.CDI_ANNOTATIONS in given.get("strategy", (plugin_env.CDI_ANNOTATIONS,)):
        devices = plugin_env.cdi_devices(given.get("device_ids") or (), CDI_KIND)
        found = plugin_env.cdi_annotations(
            [*devices, *(given.get("extra") or ())],
            given["response_id"],
            given.get("prefix", plugin_env.CDI_PREFIX),
        )
    return compared(vector.expected, {"annotations": found or None})


def visible_devices_env(vector: Vector) -> Fields:
    given = vector.input
    strategy = given.get("device_list_strategy", plugin_env.ENVVAR)
    strategies = [strategy] if isinstance(strategy, str) else strategy
    env = plugin_env.visible_devices_env(given["device_ids"], strategies)
    return compared(vector.expected, {plugin_env.VISIBLE_DEVICES: None, **env})


def container_env(vector: Vector) -> Fields:
    """The environment, all of it: nothing that was not expected may be there."""
    given = vector.input
    shares = [
        plugin_env.Share(d["uuid"], d.get("mem", 0), d.get("core", 0)) for d in given["devices"]
    ]
    env = plugin_env.container_env(
        given.get("mode", keys.MODE_HAMI_CORE),
        shares,
        CACHE_ID,
        memory_factor=given.get("gpu_memory_factor") or 1,
        cores_scaling_milli=_milli(given),
        cores_unlimited=bool(given.get("disable_core_limit", False)),
    )
    return {"env": (vector.expected, env)}


def _milli(given: Mapping[str, Any]) -> int:
    """The scaling of cores, however it is spelled."""
    spelled = ("device_cores_scaling", "device_core_scaling", "deviceCoreScaling")
    scaling = next((given[name] for name in spelled if given.get(name)), 1)
    return round(1000 * float(scaling))


def memory_entry_limit(vector: Vector) -> Fields:
    """Whether kubelet can be told of so many pseudo-devices."""
    error: str | None = None
    try:
        plugin_env.check_entries(vector.input["entries"], vector.input["factor"])
    except plugin_env.EntriesError as found:
        error = str(found)
    text = vector.expected.get("error_contains")
    said = {
        "error": error,
        "error_contains": text if text is not None and error and text in error else error,
    }
    return compared(vector.expected, said)
