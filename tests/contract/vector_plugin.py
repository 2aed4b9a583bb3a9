"""What a vector says of the node device plugin, asked of the fake one of local mode."""

from typing import Any

from tests import build
from tests.contract.vector_scene import NODE, Fields
from tests.contract.vectors import Vector

from allotment_local.nodes.books import Books
from allotment_local.nodes.inventory import Hardware
from allotment_local.nodes.pending import Pending, Waiting
from allotment_local.nodes.plugins import Plugins
from allotment_proto.volcano import keys, vgpu


def select_pending_pod(vector: Vector) -> Fields:
    given = vector["input"]
    pending = Pending()
    for pod in given["pods"]:
        annotations = {f"volcano.sh/{key}": value for key, value in pod.items() if key != "name"}
        pending.observe(
            {
                "metadata": {
                    "uid": pod["name"],
                    "name": pod["name"],
                    "namespace": "default",
                    "annotations": annotations,
                },
                "spec": {"containers": []},
            }
        )
    found = pending.pick_vgpu(given["node"], given["gpu_amount"])
    return {"pod": (vector["expected"]["pod"], found.name if found else None)}


class OnePod:
    """The pod that the plugin picked, in place of the store and of the list of waiting pods."""

    def __init__(self, devices: str) -> None:
        self.annotations = {keys.DEVICES_TO_ALLOCATE: devices}

    def pick_vgpu(self, node: str, amount: int) -> Waiting:
        return Waiting("default", "p", "p", (amount,), 1)

    def get(self, *place: Any) -> dict[str, Any]:
        return {"metadata": {"annotations": self.annotations}}

    def merge_patch(self, *place_and_patch: Any) -> None:
        self.annotations.update(place_and_patch[-1]["metadata"]["annotations"])


def allocated(devices: str) -> dict[str, str]:
    """The pod's annotations after the fake plugin has served its first group of devices."""
    cards = {entry.card for group in vgpu.decode_assignment(devices)[0] for entry in group}
    facts = tuple(build.card(i, id=card) for i, card in enumerate(sorted(cards)))
    pod: Any = OnePod(devices)
    plugins = Plugins(NODE, Hardware(vgpu=facts), pod, pod, Books())
    plugins.allocate(keys.VGPU_NUMBER, devices.split(";")[0].count(":"))
    annotations: dict[str, str] = pod.annotations
    return annotations


def erase_next_device_request(vector: Vector) -> Fields:
    got = allocated(vector["input"]["text"])[keys.DEVICES_TO_ALLOCATE]
    return {"text": (vector["expected"]["text"], got)}


def mark(vector: Vector) -> Fields:
    entry_type = "NVIDIA" if vector["function"] == "mark_success" else "OTHER"
    annotations = allocated(f"GPU-a,{entry_type},1,0:")
    wanted = vector["expected"]["annotations"]
    return {
        "annotations": (wanted, {key: annotations.get(key) for key in wanted}),
        "node_annotation_removed": (vector["expected"]["node_annotation_removed"], None),
    }


def allocation_complete(vector: Vector) -> Fields:
    """The text is what remains: it follows a group that is served now."""
    annotations = allocated("GPU-z,NVIDIA,1,0:" + vector["input"]["devices-to-allocate"])
    is_complete = annotations.get(keys.BIND_PHASE) == keys.PHASE_SUCCESS
    return {"complete": (vector["expected"]["complete"], is_complete)}
