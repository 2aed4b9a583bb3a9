"""Pods as the controller reads them, and the paths of everything it asks for."""

from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from allotment.adapters.kube.objects import PodSpecGlimpse
from allotment.core.jobs import keys
from allotment.core.jobs.groups import Members
from allotment.core.jobs.model import JsonObject, Meta, Owner, PodView
from allotment.core.jobs.seats import index_of
from allotment.core.units import natural
from allotment_proto.volcano.exclusive import group_name

JOBS = f"/apis/{keys.BATCH}/jobs"
GROUPS = f"/apis/{keys.SCHEDULING}/podgroups"
QUEUES = f"/apis/{keys.SCHEDULING}/queues"
COMMANDS = f"/apis/{keys.BUS}/commands"
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMES = {
    ("v1", "Pod"): "pods",
    ("v1", "Service"): "services",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Secret"): "secrets",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("batch/v1", "Job"): "jobs",
    (keys.BATCH, "Job"): "jobs",
    (keys.SCHEDULING, "PodGroup"): "podgroups",
    (keys.SCHEDULING, "Queue"): "queues",
    (keys.BUS, "Command"): "commands",
}
"""Resource names by (apiVersion, kind)."""


def collection(api_version: str, kind: str, namespace: str) -> str:
    """The path of a collection; of a cluster-wide one with namespace ""."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{inside}/{NAMES[(api_version, kind)]}"


def path_of(api_version: str, kind: str, namespace: str, name: str) -> str:
    """The path of one object."""
    return f"{collection(api_version, kind, namespace)}/{quote(name, safe='')}"


class Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(msgspec.Struct):
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    restart_count: int = 0
    state: ContainerState | None = None


class Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(msgspec.Struct):
    """A pod; its spec is read in full only where a PodGroup is made for it."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def glimpse(self) -> PodSpecGlimpse:
        return msgspec.json.decode(self.spec, type=PodSpecGlimpse)

    def whole_spec(self) -> JsonObject:
        return msgspec.json.decode(self.spec, type=JsonObject)


class PartialObject(msgspec.Struct):
    """An object of which only the metadata is read: a Namespace, an owner, what is owned."""

    metadata: Meta


class PriorityClass(msgspec.Struct):
    metadata: Meta
    value: int = 0


class Pod(msgspec.Struct, frozen=True):
    """What is kept of a pod."""

    metadata: Meta
    view: PodView
    job_uid: str
    """Of the Job that made it; empty for other pods."""
    job_name: str

    @property
    def group(self) -> str:
        return group_name(self.metadata.annotations or {})


def seconds(text: str | None) -> int:
    """A time as Kubernetes writes it, in seconds since 1970; 0 for none, or one that is not."""
    try:
        return int(datetime.fromisoformat(text).timestamp()) if text else 0
    except ValueError:
        return 0


def shown(time_s: float) -> str:
    """A time as Kubernetes reads it."""
    return f"{datetime.fromtimestamp(int(time_s), UTC):%Y-%m-%dT%H:%M:%SZ}"


def is_of_interest(pod: Meta) -> bool:
    """Whether a pod belongs to a Job or to a PodGroup."""
    return bool(group_name(pod.annotations or {})) or _job_of(pod) is not None


def _job_of(pod: Meta) -> Owner | None:
    owner = pod.controller()
    if owner is None or (owner.api_version, owner.kind) != (keys.BATCH, "Job"):
        return None
    return owner


def kept(pod: PodObject) -> Pod:
    """What to keep of a pod."""
    metadata = pod.metadata
    job = _job_of(metadata)
    index = natural(metadata.annotation(keys.TASK_INDEX))
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    ended = [s.state.terminated for s in statuses if s.state and s.state.terminated]
    view = PodView(
        name=metadata.name,
        uid=metadata.uid,
        role=metadata.annotation(keys.TASK_SPEC),
        index=index_of(metadata.name) if index is None else index,
        version=natural(metadata.annotation(keys.JOB_VERSION)) or 0,
        phase=pod.status.phase or "Pending",
        is_ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
        is_deleting=metadata.deletion_timestamp is not None,
        is_marked=bool(metadata.annotation(keys.OUT_OF_SYNC)),
        is_placed=bool(pod.glimpse().node_name),
        exit_code=next((t.exit_code for t in ended if t.exit_code), 0),
        restarts=sum(status.restart_count for status in statuses),
        created_s=seconds(metadata.creation_timestamp),
        changed_s=_changed_s(pod, ended),
    )
    return Pod(_slim(metadata), view, job.uid if job else "", job.name if job else "")


def _slim(metadata: Meta) -> Meta:
    """Without what a large cluster need not hold."""
    group = group_name(metadata.annotations or {})
    return msgspec.structs.replace(
        metadata,
        labels=None,
        annotations={keys.GROUP_NAME: group} if group else None,
        owner_references=None,
    )


def _changed_s(pod: PodObject, ended: list[Terminated]) -> int:
    """When the pod came into its phase, as well as its status tells."""
    created_s = seconds(pod.metadata.creation_timestamp)
    if pod.status.phase in ("", "Pending"):
        return created_s
    if pod.status.phase == "Running":
        return seconds(pod.status.start_time) or created_s
    ends_s = [seconds(terminated.finished_at) for terminated in ended]
    turned_s = [seconds(c.last_transition_time) for c in pod.status.conditions or ()]
    return max(ends_s, default=0) or max(turned_s, default=0) or created_s


def members_of(pods: list[Pod]) -> Members:
    """A PodGroup's pods by what they do."""
    running = succeeded = failed = bound = 0
    for pod in pods:
        view = pod.view
        if view.phase == "Succeeded":
            succeeded += 1
        elif view.phase == "Failed":
            failed += 1
        elif view.is_placed and (view.is_deleting or view.phase != "Running"):
            bound += 1
        elif view.phase == "Running":
            running += 1
    return Members(running=running, succeeded=succeeded, failed=failed, bound=bound)
