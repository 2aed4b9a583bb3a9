"""Kubernetes objects as device plugins and users write them, from the settings of a script's line.

They are read by the same code as in a cluster, so a fact is what the watcher would say.
"""

import json
from typing import Any, NamedTuple, TypeVar

import msgspec

from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import (
    GroupObserved,
    NodeObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import CardFact, Policy
from allotment_proto.volcano import ascend, keys, vgpu
from allotment_watcher import objects
from allotment_watcher.batch_objects import GroupObject, PriorityClassObject, QueueObject
from allotment_watcher.normalise import node_fact, pod_fact
from allotment_watcher.normalise.batch import class_fact, group_fact, queue_fact
from tests import build

T = TypeVar("T")
Json = dict[str, Any]
Settings = dict[str, str]

NPU = "npu"
NPU_KIND = "Ascend310P"
NPU_CORES = 8
ASCEND_SLOTS = 7
VGPU_MODES = ("hami-core", "mig", "mps")


def pairs(text: str) -> dict[str, str]:
    """``cpu:2,volcano.sh/vgpu-number:4`` as a mapping."""
    return dict(item.split(":", 1) for item in text.split(",") if item)


def _meta(name: str, rv: int, **more: Any) -> Json:
    return {"name": name, "uid": name, "resourceVersion": str(rv), **more}


# Nodes


class Node(NamedTuple):
    """A node and what ConfigMaps say of its devices."""

    manifest: objects.NodeObject
    device_info: dict[str, str]

    def read(self, config: DeviceConfig) -> NodeObserved:
        return node_fact(self.manifest, config, self.device_info)


def node(name: str, flags: list[str], settings: Settings, rv: int, config: DeviceConfig) -> Node:
    """A node of 8 CPUs, 32 GiB and room for 20 pods, with cards of the kind that is named."""
    kind, number = settings["kind"], int(settings.get("cards", "1"))
    labels = pairs(settings.get("labels", ""))
    sick = {int(one) for one in settings.get("unhealthy", "").split(",") if one}
    device_info: dict[str, str] = {}
    if kind in VGPU_MODES:
        annotations, allocatable = _vgpu(name, kind, number, sick, settings, config)
    elif kind == NPU:
        annotations, allocatable = {}, {keys.NPU_CORE: str(number * NPU_CORES)}
        labels |= {
            keys.LABEL_SERVER_TYPE: f"{NPU_KIND}-{NPU_CORES}",
            keys.LABEL_ACCELERATOR: f"huawei-{NPU_KIND}",
            keys.LABEL_CHIP_NAME: "310P3",
        }
        device_info = _device_info(name, number, sick)
    else:
        annotations, allocatable = _ascend(name, kind, number, sick, settings, config)
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", **allocatable}
    found = objects.NodeObject(
        metadata=_as(
            objects.Meta, {**_meta(name, rv), "labels": labels, "annotations": annotations}
        ),
        spec=objects.NodeSpec(unschedulable="cordoned" in flags),
        status=_as(objects.NodeStatus, {"capacity": amounts, "allocatable": amounts}),
    )
    return Node(found, device_info)


def _vgpu(
    name: str, mode: str, number: int, sick: set[int], settings: Settings, config: DeviceConfig
) -> tuple[dict[str, str], dict[str, str]]:
    """What a device plugin registers, and what kubelet lists: `scaling` is the plugin's own."""
    memory, slots = int(settings.get("memory", "16000")), int(settings.get("slots", "10"))
    cards = tuple(
        CardFact(
            id=f"{name}-{index}",
            index=index,
            model=settings.get("model", build.MODEL),
            slots=slots,
            memory_mib=memory,
            cores_pct=100,
            healthy=index not in sick,
            mode=mode,
        )
        for index in range(number)
    )
    nvidia, well = config.nvidia, number - len(sick)
    memory_listed = well * int(memory * float(settings.get("scaling", "1")))
    allocatable = {
        nvidia.count_name: well * slots,
        nvidia.memory_name: memory_listed,
        nvidia.cores_name: well * 100,
    }
    return (
        {keys.NODE_VGPU_REGISTER: vgpu.encode_register(cards)},
        {resource: str(amount) for resource, amount in allocatable.items()},
    )


def _ascend(
    name: str, word: str, number: int, sick: set[int], settings: Settings, config: DeviceConfig
) -> tuple[dict[str, str], dict[str, str]]:
    chip = next(chip for chip in config.ascend if chip.common_word == word)
    networks = settings.get("networks", "").split(",") if "networks" in settings else []
    cards = [
        CardFact(
            id=f"{name}-{index}",
            index=index,
            model=word,
            slots=ASCEND_SLOTS,
            memory_mib=chip.memory_allocatable_mib,
            cores_pct=chip.ai_core,
            healthy=index not in sick,
            mode="",
            network=int(networks[index]) if networks else -1,
        )
        for index in range(number)
    ]
    register = {keys.hami_register(word): ascend.encode_register(cards)}
    return register, {chip.resource_name: str(number * ASCEND_SLOTS)}


def _device_info(name: str, number: int, sick: set[int]) -> dict[str, str]:
    """What Huawei's components say of a node's chips."""

    def listed(indexes: Any) -> str:
        return ",".join(f"{NPU_KIND}-{index}" for index in indexes)

    config_map = f"{keys.CLUSTER_INFO_DEVICE_PREFIX}0"
    chips = {
        keys.npu_healthy(NPU_KIND): listed(i for i in range(number) if i not in sick),
        keys.npu_unhealthy(NPU_KIND): listed(sorted(sick)),
    }
    info = {f"{keys.DEVICE_INFO_PREFIX}{name}": {"DeviceList": chips, "UpdateTime": 1}}
    return {f"{keys.MINDX_NAMESPACE}/{config_map}/{config_map}": json.dumps(info)}


# Pods


def pod_json(name: str, settings: Settings, config: DeviceConfig) -> Json:
    """A pod that asks for cards: ``asks=number:1,memory:4000``, containers parted by ``;``."""
    kind = settings.get("kind", vgpu.FAMILY)
    annotations = pairs(settings.get("annotations", ""))
    labels = pairs(settings.get("labels", ""))
    for key, setting in ((keys.VGPU_MODE, "mode"), (keys.GROUP_NAME, "group")):
        if setting in settings:
            annotations[key] = settings[setting]
    if "apart" in settings:
        annotations[keys.PODGROUP_POLICY] = settings["apart"]
    for key, setting in ((keys.LABEL_VNPU_LEVEL, "level"), (keys.LABEL_VNPU_DVPP, "dvpp")):
        if setting in settings:
            labels[key] = settings[setting]
    owner = settings.get("owner", "")
    containers = [
        {
            "name": f"c{number}",
            "resources": {
                "limits": {
                    _resource(kind, word, config): amount for word, amount in pairs(one).items()
                },
                "requests": {"cpu": "100m", "memory": "1Gi"},
            },
        }
        for number, one in enumerate(settings["asks"].split(";"))
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        },
        "spec": {
            "containers": containers,
            "schedulerName": settings.get("scheduler", "allotment"),
            "priority": int(settings.get("priority", "0")),
        },
        "status": {"phase": "Pending"},
    }


def _resource(kind: str, word: str, config: DeviceConfig) -> str:
    """The resource that a word means for a kind of cards; a full name is itself."""
    if "/" in word or word == "cpu":
        return word
    if kind == NPU:
        return {"cores": keys.NPU_CORE}[word]
    if kind == vgpu.FAMILY:
        nvidia = config.nvidia
        return {
            "number": nvidia.count_name,
            "memory": nvidia.memory_name,
            "percentage": nvidia.memory_percentage_name,
            "cores": nvidia.cores_name,
        }[word]
    chip = next(chip for chip in config.ascend if chip.common_word == kind)
    return {
        "number": chip.resource_name,
        "memory": chip.resource_memory_name,
        "core": chip.resource_core_name,
    }[word]


def read_pod(document: Json, policy: Policy, config: DeviceConfig) -> PodObserved:
    return pod_fact(_as(objects.PodObject, document), policy, config)


# Groups, queues, priority classes


def group(name: str, settings: Settings, rv: int) -> GroupObserved:
    spec = {
        "minMember": int(settings.get("min", "1")),
        "queue": settings.get("queue", "default"),
        "priorityClassName": settings.get("class", ""),
        "minResources": pairs(settings["needs"]) if "needs" in settings else None,
    }
    status = {"phase": settings.get("phase", "Inqueue")}
    document = {"metadata": _meta(name, rv, namespace="default"), "spec": spec, "status": status}
    return group_fact(_as(GroupObject, document))


def queue(name: str, flags: list[str], settings: Settings, rv: int) -> QueueObserved:
    spec = {
        "weight": int(settings.get("weight", "1")),
        "capability": pairs(settings.get("capability", "")),
        "deserved": pairs(settings.get("deserved", "")),
        "priority": int(settings.get("priority", "0")),
        "parent": settings.get("parent", "root"),
        "reclaimable": "kept" not in flags,
    }
    status = {"state": settings.get("state", "Open")}
    return queue_fact(
        _as(QueueObject, {"metadata": _meta(name, rv), "spec": spec, "status": status})
    )


def priority_class(name: str, settings: Settings, rv: int) -> PriorityClassObserved:
    document: Json = {"metadata": _meta(name, rv), "value": int(settings["value"])}
    document["preemptionPolicy"] = settings.get("preemption")
    return class_fact(_as(PriorityClassObject, document))


def _as(type_: type[T], document: Json) -> T:
    return msgspec.convert(document, type_)
