"""Kubernetes objects as JSON, read as the watcher reads them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from allotment.core.placement.devices.base import NOTHING
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import (
    Policy,
)
from allotment_watcher import objects
from allotment_watcher.normalise import BUILT_IN, node_fact, pod_fact

Json = dict[str, Any]
POLICY = Policy()
GIB = 1 << 30


def container(name: str = "main", limits: Any = None, requests: Any = None, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": limits, "requests": requests}, **more}


def pod_json(*containers: Json, annotations: Any = None, **spec: Any) -> Json:
    return {
        "metadata": {
            "name": "p",
            "namespace": "team-a",
            "uid": "uid-p",
            "resourceVersion": "77",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": annotations,
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"containers": list(containers), "schedulerName": "allotment", **spec},
        "status": {"phase": "Pending"},
    }


def seen(document: Json, policy: Policy = POLICY, config: DeviceConfig = BUILT_IN) -> PodObserved:
    pod = msgspec.json.decode(json.dumps(document), type=objects.PodObject)
    return pod_fact(pod, policy, config)


def asks(limits: Any = None, requests: Any = None, **annotations: str) -> PodObserved:
    return seen(pod_json(container(limits=limits, requests=requests), annotations=annotations))


def annotated(annotations: dict[str, str], limits: Any = None) -> PodObserved:
    limits = {"volcano.sh/vgpu-number": 1} if limits is None else limits
    return seen(pod_json(container(limits=limits), annotations=annotations))


def refused(fact: PodObserved, *words: str) -> None:
    assert fact.problem is not None
    said = f"{fact.problem.code}: {fact.problem.place} {fact.problem.message}"
    assert all(word in said for word in words), said


def node_json(annotations: Any = None, allocatable: Any = None, **changes: Any) -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **(allocatable or {})}
    return {
        "metadata": {
            "name": "n.example",
            "uid": "uid-n",
            "resourceVersion": "5",
            "annotations": annotations,
            "labels": {"zone": "a", "arch": "amd64"},
        },
        "spec": changes.get("spec", {}),
        "status": {
            "capacity": changes.get("capacity", amounts),
            "allocatable": amounts,
            "conditions": changes.get("conditions"),
        },
    }


def node(
    document: Json, config: DeviceConfig = BUILT_IN, device_info: Mapping[str, str] = NOTHING
) -> NodeObserved:
    found = msgspec.json.decode(json.dumps(document), type=objects.NodeObject)
    return node_fact(found, config, device_info)


VGPU_AMOUNTS = {
    "volcano.sh/vgpu-number": "20",
    "volcano.sh/vgpu-memory": "32000",
    "volcano.sh/vgpu-cores": "200",
}
REGISTER = "volcano.sh/node-vgpu-register"
TWO_CARDS = (
    "GPU-a,10,16000,NVIDIA-Tesla T4,true,hami-core:GPU-b,10,16000,NVIDIA-Tesla T4,false,hami-core:"
)
