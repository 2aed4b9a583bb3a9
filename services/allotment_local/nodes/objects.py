"""Node shapes → Node objects, as a kubelet and the device plugins would have made them."""

import uuid
from collections.abc import Iterable
from typing import Any

from allotment.core.placement.rules import card_names
from allotment_local.nodes import npu_objects
from allotment_local.nodes.annotations import ALLOCATE_TIME
from allotment_local.nodes.shapes import GPUSHARE, VGPU, WHOLE, Cards, NodeShape
from allotment_proto.facts import CardFact
from allotment_proto.volcano import keys, vgpu

PODS_MAX = 110
CORES_PCT = 100
KUBELET_VERSION = "v1.32.0-allotment"
_CARD_NAMES = uuid.UUID("5f1e7a52-3c53-5c0e-9a35-7d3a4a6f2c11")
"""Card ids are derived from this and the node's name: the same in every run."""
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def card_id(node: str, index: int) -> str:
    """An id like NVML's, the same for the same node and index in every run."""
    return f"GPU-{uuid.uuid5(_CARD_NAMES, f'{node}/{index}')}"


def node_objects(shapes: Iterable[NodeShape], now: str) -> list[dict[str, Any]]:
    """The Node objects of a cluster; `now` is the time of their conditions."""
    return [_node(shape, number, now) for number, shape in enumerate(shapes, 1)]


def _node(shape: NodeShape, number: int, now: str) -> dict[str, Any]:
    amounts = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "ephemeral-storage": "100Gi",
        "pods": str(PODS_MAX),
        **_offered(shape),
    }
    metadata: dict[str, Any] = {"name": shape.name, "labels": _labels(shape)}
    annotations = npu_objects.annotations(shape)
    if shape.kind == VGPU and shape.cards is not None:
        register = vgpu.encode_register(_register(shape.name, shape.cards))
        annotations[keys.NODE_VGPU_REGISTER] = register
    if shape.allocate_ms is not None:
        annotations[ALLOCATE_TIME] = f"{shape.allocate_ms}ms"
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {}
    if shape.taints:
        spec["taints"] = [
            {"key": key, "effect": effect, **({"value": value} if value else {})}
            for key, value, effect in shape.taints
        ]
    status = {
        "capacity": amounts,
        "allocatable": dict(amounts),
        "conditions": _conditions(now),
        "addresses": [
            {"type": "InternalIP", "address": f"10.0.{number >> 8 & 255}.{number & 255}"},
            {"type": "Hostname", "address": shape.name},
        ],
        "nodeInfo": {
            "machineID": shape.name,
            "systemUUID": shape.name,
            "bootID": shape.name,
            "kernelVersion": "fake",
            "osImage": "Allotment local mode",
            "containerRuntimeVersion": "fake://1",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": KUBELET_VERSION,
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def _register(node: str, cards: Cards) -> tuple[CardFact, ...]:
    return tuple(
        CardFact(
            id=card_id(node, index),
            index=index,
            model=f"{vgpu.ENTRY_TYPE}-{cards.model}",
            slots=cards.slots,
            memory_mib=cards.memory_mib,
            cores_pct=CORES_PCT,
            healthy=True,
            mode=cards.mode,
        )
        for index in range(cards.count)
    )


def _offered(shape: NodeShape) -> dict[str, str]:
    cards = shape.cards
    if cards is None:
        return npu_objects.offered(shape)
    if shape.kind == VGPU:
        return {
            keys.VGPU_NUMBER: str(cards.count * cards.slots),
            keys.VGPU_MEMORY: str(cards.count * cards.memory_mib),
            keys.VGPU_CORES: str(cards.count * CORES_PCT),
        }
    if shape.kind == GPUSHARE:
        return {
            keys.GPU_MEMORY: str(cards.count * cards.memory_mib),
            keys.GPU_NUMBER: str(cards.count),
        }
    assert shape.kind == WHOLE, shape.kind
    return {cards.resource: str(cards.count)}


def _labels(shape: NodeShape) -> dict[str, str]:
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    }
    if shape.cards is not None:
        labels["nvidia.com/gpu.product"] = _label_value(shape.cards.model)
        labels["nvidia.com/gpu.count"] = str(shape.cards.count)
        labels["nvidia.com/gpu.memory"] = str(shape.cards.memory_mib)
    return labels | npu_objects.labels(shape) | dict(shape.labels)


def _label_value(model: str) -> str:
    """The model as GPU feature discovery spells it: what a label cannot hold becomes a dash."""
    return card_names.label_value(model)[:63].strip("-_.")


def _conditions(now: str) -> list[dict[str, str]]:
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    pressures = [
        {
            "type": name,
            "status": "False",
            "reason": f"KubeletHasNo{name}",
            "message": f"kubelet has no {name}",
            **times,
        }
        for name in _PRESSURES
    ]
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        **times,
    }
    return [*pressures, ready]
