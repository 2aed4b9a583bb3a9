"""Objects of scenarios → Kubernetes objects → facts, by the code that reads them in a cluster."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from allotment.core.jobs.keys import POD_QUEUE, TASK_SPEC
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import (
    GroupObserved,
    NodeObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import CardFact
from allotment_proto.volcano import keys, vgpu
from allotment_watcher import objects
from allotment_watcher.batch_objects import GroupObject, PriorityClassObject, QueueObject
from allotment_watcher.normalise import Lens, node_fact, pod_through
from allotment_watcher.normalise.batch import class_fact, group_fact, queue_fact
from tests.build import MODEL

Given = Mapping[str, Any]
T = TypeVar("T")
NAMES_OF_SCHEDULERS = ("volcano", "allotment")
CARD_MIB = 16_000
PLUGINS = ("priority gang conformance", "predicates proportion")
CONFIGURATION = {
    "actions": "enqueue, allocate, backfill, preempt, reclaim",
    "tiers": [{"plugins": [{"name": one} for one in tier.split()]} for tier in PLUGINS],
}


def conf_text(configuration: Any) -> str:
    """The configuration as the text of a volcano-scheduler.conf."""
    return yaml.safe_dump(configuration)


def _meta(name: str, rv: int, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "resourceVersion": str(rv),
        **{key: value for key, value in more.items() if value},
    }


def _texts(amounts: Given) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _as(type_: type[T], document: Given) -> T:
    return msgspec.convert(document, type_)


def node(name: str, given: Given, rv: int) -> NodeObserved:
    """A node of 8 CPUs and 32 GiB for 20 pods; its cards are T4 of 16,000 MiB."""
    number, memory = given.get("cards", 1), given.get("memory", CARD_MIB)
    cards = tuple(
        CardFact(
            id=f"{name}-{index}",
            index=index,
            model=given.get("model", MODEL),
            slots=10,
            memory_mib=memory,
            cores_pct=100,
            healthy=True,
            mode=given.get("mode", keys.MODE_HAMI_CORE),
        )
        for index in range(number)
    )
    offered = {keys.VGPU_NUMBER: number * 10, keys.VGPU_MEMORY: number * memory}
    amounts = _texts(
        {
            "cpu": given.get("cpu", 8),
            "memory": given.get("host_memory", "32Gi"),
            "pods": given.get("pods", 20),
            **({**offered, keys.VGPU_CORES: number * 100} if cards else {}),
            **given.get("offers", {}),
        }
    )
    ready = {"type": "Ready", "status": "True" if given.get("ready", True) else "False"}
    document = {
        "metadata": _meta(
            name,
            rv,
            labels={"kubernetes.io/hostname": name, **given.get("labels", {})},
            annotations={keys.NODE_VGPU_REGISTER: vgpu.encode_register(cards)} if cards else {},
        ),
        "spec": {"unschedulable": given.get("cordoned", False), "taints": given.get("taints")},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }
    return node_fact(_as(objects.NodeObject, document))


def queue(name: str, given: Given, rv: int) -> QueueObserved:
    spec = {key: value for key, value in given.items() if key in _OF_QUEUES}
    if "guarantee" in given:
        spec["guarantee"] = {"resource": _texts(given["guarantee"])}
    if "node_groups" in given:
        spec["affinity"] = given["node_groups"]
    status = {"state": given.get("state", "Open")}
    return queue_fact(
        _as(QueueObject, {"metadata": _meta(name, rv), "spec": spec, "status": status})
    )


_OF_QUEUES = ("weight", "priority", "parent", "capability", "deserved", "reclaimable")


def priority_class(name: str, given: Given, rv: int) -> PriorityClassObserved:
    document = {
        "metadata": _meta(name, rv),
        "value": given.get("value", 0),
        "globalDefault": given.get("default", False),
        "preemptionPolicy": "Never" if given.get("never_preempts") else None,
    }
    return class_fact(_as(PriorityClassObject, document))


def group(name: str, given: Given, rv: int) -> GroupObserved:
    """A PodGroup of a Job that was let in; it starts with all of its pods."""
    spec = {
        "minMember": given.get("min", given.get("pods", 1)),
        "minTaskMember": given.get("roles"),
        "queue": given.get("queue"),
        "priorityClassName": given.get("class"),
        "minResources": given.get("needs"),
        "subGroupPolicy": [given["parts"]] if "parts" in given else None,
    }
    owner = given.get("owner", "job")
    owners = [{"uid": owner, "controller": True}] if owner != "none" else []
    meta = _meta(
        name,
        rv,
        given.get("namespace", "default"),
        ownerReferences=owners,
        annotations=given.get("annotations"),
    )
    status = {"phase": given.get("phase", "Inqueue")}
    fact = group_fact(_as(GroupObject, {"metadata": meta, "spec": spec, "status": status}))
    # A minimum of 0 is none: its owner wants what there is, and all may be evicted.
    return msgspec.structs.replace(fact, min_member=spec["minMember"])


def pod(name: str, given: Given, rv: int, lens: Lens, config: DeviceConfig) -> PodObserved:
    """A pod that waits, and asks for one whole card."""
    number, nvidia = given.get("cards", 0 if "asks" in given else 1), config.nvidia
    limits: dict[str, Any] = {**given.get("asks", {})}
    if number:
        limits[nvidia.count_name] = number
        limits[nvidia.memory_name] = given.get("memory", CARD_MIB)
        if given.get("cores"):
            limits[nvidia.cores_name] = given["cores"]
    requests = {"cpu": given.get("cpu", "100m"), "memory": given.get("host_memory", "1Gi")}
    annotations, owner = dict(given.get("annotations", {})), given.get("owner", "")
    for key, field in (
        (keys.GROUP_NAME, "group"),
        (POD_QUEUE, "queue"),
        (TASK_SPEC, "role"),
    ):
        if given.get(field):
            annotations[key] = given[field]
    document = {
        "metadata": _meta(
            name,
            rv,
            given.get("namespace", "default"),
            labels=given.get("labels"),
            annotations=annotations,
            ownerReferences=[{"uid": owner, "controller": True}] if owner else [],
        ),
        "spec": {
            "schedulerName": given.get("scheduler", "volcano"),
            "nodeName": given.get("node"),
            "priorityClassName": given.get("class"),
            "priority": given.get("priority", 0),
            "preemptionPolicy": "Never" if given.get("never_preempts") else None,
            "schedulingGates": [{"name": "wait"}] if given.get("gated") else [],
            "containers": [
                {
                    "name": "main",
                    "resources": {"limits": _texts(limits), "requests": _texts(requests)},
                }
            ],
            **given.get("spec", {}),
        },
        "status": {"phase": given.get("phase", "Pending")},
    }
    return pod_through(lens, _as(objects.PodObject, document))
