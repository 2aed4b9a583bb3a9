"""What the kubelet writes into a Pod's status, and the Events it reports. Pure documents."""

from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
REPORTER = "kubelet"


def running(pod: JsonObject, *, ip: str, host_ip: str, started: str, now: str) -> JsonObject:
    """The status of a pod whose containers all run."""
    spec, uid = pod["spec"], pod["metadata"]["uid"]
    status: JsonObject = {
        "phase": "Running",
        "startTime": started,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, now, ready=True),
        "containerStatuses": [
            _container(uid, container, {"running": {"startedAt": now}}, ready=True)
            for container in spec["containers"]
        ],
    }
    if inits := spec.get("initContainers"):
        done = _terminated(started, now)
        status["initContainerStatuses"] = [
            _container(uid, container, done, ready=True) for container in inits
        ]
    return status


def succeeded(pod: JsonObject, now: str) -> JsonObject:
    """The status of a running pod whose containers have all exited with 0."""
    return _ended(pod, now, "Succeeded", "PodCompleted", _terminated)


def failed(pod: JsonObject, now: str) -> JsonObject:
    """The status of a running pod whose containers have all exited with 1."""
    return _ended(pod, now, "Failed", "PodFailed", _crashed)


def _ended(
    pod: JsonObject,
    now: str,
    phase: str,
    reason: str,
    state: Callable[[str, str], JsonObject],
) -> JsonObject:
    uid = pod["metadata"]["uid"]
    started = (pod.get("status") or {}).get("startTime", now)
    return {
        "phase": phase,
        "conditions": _conditions(pod, now, ready=False, reason=reason),
        "containerStatuses": [
            _container(uid, container, state(started, now), ready=False)
            for container in pod["spec"]["containers"]
        ],
    }


def rejected(reason: str, message: str, now: str) -> JsonObject:
    """The status of a pod that the kubelet did not admit."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def event(
    about: JsonObject, name: str, reason: str, message: str, node: str, now: str
) -> JsonObject:
    """A Warning about a Pod or a Node, as a kubelet reports it."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace") or ""
    return {
        "metadata": {"name": name, "namespace": namespace or "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            **({"namespace": namespace} if namespace else {}),
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": REPORTER, "host": node},
        "reportingComponent": REPORTER,
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _conditions(pod: JsonObject, now: str, *, ready: bool, reason: str = "") -> list[JsonObject]:
    """The pod's conditions with the kubelet's own replaced; others' (PodScheduled) are kept."""
    made = {"PodReadyToStartContainers": ready, "Initialized": True}
    made |= {"Ready": ready, "ContainersReady": ready}
    before = (pod.get("status") or {}).get("conditions") or ()
    kept = [condition for condition in before if condition.get("type") not in made]
    for name, holds in made.items():
        condition: JsonObject = {
            "type": name,
            "status": "True" if holds else "False",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        if reason and name != "PodReadyToStartContainers":
            condition["reason"] = reason
        kept.append(condition)
    return kept


def _container(uid: str, container: JsonObject, state: JsonObject, *, ready: bool) -> JsonObject:
    name = container["name"]
    return {
        "name": name,
        "image": container["image"],
        "imageID": f"fake://{container['image']}",
        "containerID": f"fake://{uid}/{name}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _terminated(started: str, now: str, code: int = 0, reason: str = "Completed") -> JsonObject:
    ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
    return {"terminated": ended}


def _crashed(started: str, now: str) -> JsonObject:
    return _terminated(started, now, 1, "Error")
