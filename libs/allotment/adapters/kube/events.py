"""What Kubernetes users see of a decision, as request bodies: PodScheduled and events.

Pure builders: clock and random names are arguments. `create_event` and `refuse_pod` send them.
"""

from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

from allotment.adapters.kube.client import STRATEGIC_PATCH, KubeClient, pod_path
from allotment.adapters.kube.result import KubeResult

NOTE_BYTES_MAX = 1024
SCHEDULER = "allotment.dev/scheduler"
"""Who reports, in Events about scheduling."""
_NAME_CHARS_MAX = 253


def micro_time(time_ns: int) -> str:
    """RFC 3339 in UTC with exactly six digits: what a MicroTime field takes (fewer give a 400)."""
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1000:06d}Z"


def pod_event(
    *,
    namespace: str,
    pod: str,
    uid: str,
    kind: Literal["Normal", "Warning"],
    reason: str,
    action: str,
    note: str,
    time_ns: int,
    unique: int,
    controller: str,
    instance: str,
) -> dict[str, Any]:
    """An `events.k8s.io/v1` Event about a pod.

    `unique` becomes the hex at the end of its name; a note over 1 kB is cut.
    """
    suffix = f".{unique:016x}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": pod[: _NAME_CHARS_MAX - len(suffix)] + suffix, "namespace": namespace},
        "eventTime": micro_time(time_ns),
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "type": kind,
        "reason": reason,
        "action": action,
        "note": cut(note, NOTE_BYTES_MAX),
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": pod,
            "uid": uid,
        },
    }


async def create_event(client: KubeClient, event: dict[str, Any]) -> KubeResult:
    """Send an event. Its fate is for counting; it must never fail what it reports."""
    namespace = quote(event["metadata"]["namespace"], safe="")
    return await client.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)


def unschedulable_patch(
    uid: str,
    reason: str,
    message: str,
    transition_ns: int | None = None,
    observed_generation: int | None = None,
) -> dict[str, Any]:
    """The strategic merge patch that sets PodScheduled=False and leaves other conditions alone.

    The uid makes it refuse (409) a pod recreated under the same name. `transition_ns` is given when
    the condition was not False before; without it the server keeps the time it has.
    """
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
    }
    if transition_ns is not None:
        # A plain Time field: whole seconds.
        condition["lastTransitionTime"] = micro_time(transition_ns)[:19] + "Z"
    if observed_generation is not None:
        condition["observedGeneration"] = observed_generation
    return {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}


def withdrawing_patch(uid: str, version: str) -> dict[str, Any]:
    """The strategic merge patch that removes PodScheduled from the pod, unless it has changed since
    this resource version.
    """
    condition = {"type": "PodScheduled", "$patch": "delete"}
    metadata = {"uid": uid, "resourceVersion": version}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


async def refuse_pod(
    client: KubeClient, namespace: str, pod: str, patch: dict[str, Any]
) -> KubeResult:
    """Send an `unschedulable_patch` or `withdrawing_patch`. Only when its text changed: each
    is a write for etcd.
    """
    return await client.patch(pod_path(namespace, pod, "status"), patch, STRATEGIC_PATCH)


def cut(text: str, bytes_max: int) -> str:
    """`text` in at most `bytes_max` bytes of UTF-8, ending in … if it was cut."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    return data[: bytes_max - len("…".encode())].decode(errors="ignore") + "…"
