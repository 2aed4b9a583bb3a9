"""PodGroups: the one of a Job, those of pods without one, and their fields."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from allotment.core.jobs import keys, minimum
from allotment.core.jobs.model import (
    GROUP_COMPLETED,
    GROUP_INQUEUE,
    GROUP_PENDING,
    GROUP_RUNNING,
    GROUP_UNKNOWN,
    Job,
    JsonObject,
    Meta,
    Owner,
    PartitionPolicy,
    PodGroup,
    Priorities,
    Queue,
    Task,
)
from allotment.core.jobs.owners import BLOCKED_OWNERS, owner_of
from allotment.core.units import natural
from allotment_proto.volcano.exclusive import group_name

WAITING = ("", GROUP_PENDING)
"""Phases of a PodGroup that may not have pods yet."""


# The PodGroup of a Job


def name_of(job: Job) -> str:
    return f"{job.metadata.name}-{job.metadata.uid}"


def of_job(job: Job, priorities: Priorities, of_namespace: str = "") -> JsonObject:
    """The PodGroup of a Job whose spec has its defaults; `of_namespace`: as `queue_of` has it."""
    labels = dict(job.metadata.labels or {})
    annotations = {
        key: value
        for key, value in (job.metadata.annotations or {}).items()
        if key != keys.LAST_APPLIED
    }
    return {
        "apiVersion": keys.SCHEDULING,
        "kind": "PodGroup",
        "metadata": {
            "name": name_of(job),
            "namespace": job.metadata.namespace,
            "labels": {**labels, keys.JOB_NAME: job.metadata.name},
            "annotations": {**annotations, keys.JOB_VERSION: str(job.version)},
            "ownerReferences": [owner_of(job)],
        },
        "spec": {
            **_spec_of_job(job, priorities),
            "queue": queue_of(job.spec.queue, of_namespace=of_namespace),
        },
    }


def _spec_of_job(
    job: Job, priorities: Priorities, gone: Mapping[str, int] | None = None
) -> JsonObject:
    """`gone` are tasks that are done and no longer have pods, by role: the gang does not wait for
    them.
    """
    spec, gone = job.spec, gone or {}
    wanted: JsonObject = {
        "minMember": max(spec.minimum - sum(gone.values()), min(spec.minimum, 1)),
        "minTaskMember": {
            task.name: max(task.minimum - gone.get(task.name, 0), 0) for task in spec.roles
        },
        "minResources": minimum.of_job(spec, priorities),
    }
    if spec.priority_class_name:
        wanted["priorityClassName"] = spec.priority_class_name
    if spec.network_topology:
        wanted["networkTopology"] = spec.network_topology
    if policies := [_sub_groups(task) for task in spec.roles if task.partition_policy]:
        wanted["subGroupPolicy"] = policies
    return wanted


def _sub_groups(task: Task) -> JsonObject:
    """A role's partitions, as sub-groups of its PodGroup."""
    policy = task.partition_policy or PartitionPolicy()
    found: JsonObject = {
        "name": task.name,
        "subGroupSize": policy.partition_size,
        "minSubGroups": policy.min_partitions,
        "labelSelector": {"matchLabels": {keys.TASK_SPEC: task.name}},
        "matchLabelKeys": [keys.PARTITION_ID],
    }
    if policy.network_topology:
        found["networkTopology"] = policy.network_topology
    return found


def without_effect(group: PodGroup) -> str:
    """Which fields of a PodGroup have no effect here; empty if all have one."""
    spec = group.spec
    fields = ["spec.networkTopology"] if spec.network_topology else []
    fields += [
        f"spec.subGroupPolicy[{place}].networkTopology"
        for place, policy in enumerate(spec.sub_group_policy or ())
        if policy.get("networkTopology")
    ]
    return f"{' and '.join(fields)}: no effect here; the network is not looked at" if fields else ""


def is_stale(group: PodGroup, job: Job) -> bool:
    """Whether the PodGroup is from an earlier life of the Job, or is being deleted: the controller
    must create a new one after it.
    """
    version = natural(group.metadata.annotation(keys.JOB_VERSION))
    is_old = version is not None and version < job.version
    return is_old or group.metadata.deletion_timestamp is not None


def spec_changes(
    group: PodGroup, job: Job, priorities: Priorities, gone: Mapping[str, int] | None = None
) -> JsonObject:
    """The merge patch that brings a PodGroup in line with its Job; empty when it is.

    Only what a Job may change while it lives: the amounts and the priority class.
    """
    has: JsonObject = {
        **_amounts(group),
        "minTaskMember": group.spec.min_task_member or {},
        "subGroupPolicy": group.spec.sub_group_policy or [],
    }
    return _changes(has, _spec_of_job(job, priorities, gone))


def _amounts(group: PodGroup) -> JsonObject:
    return {
        "minMember": group.spec.min_member,
        "minResources": {
            name: str(value) for name, value in (group.spec.min_resources or {}).items()
        },
        "priorityClassName": group.spec.priority_class_name,
    }


def _changes(has: JsonObject, wanted: JsonObject) -> JsonObject:
    """The merge patch of these fields; empty if all are as they are wanted."""
    changed: JsonObject = {}
    for field, value in has.items():
        want = wanted.get(field, type(value)())
        if value != want:
            changed[field] = _replacing(value, want)
    return changed


def _replacing(old: object, new: object) -> object:
    """`new` as a merge patch that also takes away what only `old` has."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**dict.fromkeys(old), **new}
    return new


# PodGroups for pods that have none


def made_name(uid: str, owner_uid: str) -> str:
    """The name of the PodGroup made for a pod; pods with one owner share it."""
    return f"{keys.MADE_GROUP}{owner_uid or uid}"


def name_for_pod(pod: Meta) -> str:
    """The same from the metadata of a pod."""
    owner = pod.controller()
    return made_name(pod.uid, owner.uid if owner else "")


def queue_name(annotations: Mapping[str, str]) -> str:
    """The queue that annotations name, under either of Volcano's keys; empty for none."""
    return annotations.get(keys.POD_QUEUE) or annotations.get(keys.QUEUE_NAME) or ""


def queue_of(*named: str, of_namespace: str) -> str:
    """The queue of a PodGroup, or of a pod without one: the first that is named (by the pod itself,
    then by its owner). Where that is none, or `default`, it is the one that the namespace names.
    """
    queue = next(filter(None, named), keys.DEFAULT_QUEUE)
    return of_namespace or queue if queue == keys.DEFAULT_QUEUE else queue


def is_lone(
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    is_owned: bool,
    of_namespace: str = "",
) -> bool:
    """Whether the PodGroup made for a pod would add nothing to what the pod says itself: no owner's
    annotations, no queue, and no inherited keys. Such a pod is judged as that PodGroup would be,
    and need not wait for it.
    """
    return (
        not is_owned
        and not queue_name(annotations)
        and queue_of(of_namespace=of_namespace) == keys.DEFAULT_QUEUE
        and not any(key in annotations or key in labels for key in keys.INHERITED)
    )


def is_wanting(pod: Meta, phase: str) -> bool:
    """Whether a pod needs a PodGroup made for it."""
    return (
        not group_name(pod.annotations or {})
        and pod.deletion_timestamp is None
        and phase not in ("Succeeded", "Failed")
    )


def for_pod(
    pod: Meta, spec: Mapping[str, Any], owner: Meta | None, of_namespace: str = ""
) -> JsonObject:
    """The PodGroup for a pod; `owner`: the metadata of the pod's owner, if it could be read;
    `of_namespace`: as `queue_of` has it.

    All pods of a ReplicaSet share one PodGroup, and so one queue and one priority.
    """
    members = min_member((owner.annotations if owner else None) or {})
    handed_down = {
        key: value
        for key, value in ((owner.annotations if owner else None) or {}).items()
        if key.startswith(keys.VOLCANO_PREFIX)
    }
    handed_down |= {
        key: value for key in keys.INHERITED if (value := pod.annotation(key) or _label(pod, key))
    }
    wanted: JsonObject = {
        "minMember": members,
        "queue": queue_of(
            queue_name(pod.annotations or {}),
            queue_name((owner.annotations if owner else None) or {}),
            of_namespace=of_namespace,
        ),
        "minResources": minimum.of_pods(spec, members),
    }
    if priority_class := spec.get("priorityClassName"):
        wanted["priorityClassName"] = priority_class
    return {
        "apiVersion": keys.SCHEDULING,
        "kind": "PodGroup",
        "metadata": {
            "name": name_for_pod(pod),
            "namespace": pod.namespace,
            "annotations": handed_down,
            "ownerReferences": [_reference(pod)],
        },
        "spec": wanted,
    }


def made_changes(group: PodGroup, wanted: JsonObject) -> JsonObject:
    """The merge patch that brings a PodGroup made for pods in line with what would be made for the
    newest of them: its owner's template may be another one by now. Empty when it is.
    """
    has = {**_amounts(group), "queue": group.spec.queue}
    annotations = {
        key: value
        for key, value in wanted["metadata"]["annotations"].items()
        if group.metadata.annotation(key) != value
    }
    changed: JsonObject = {}
    if spec := _changes(has, wanted["spec"]):
        changed["spec"] = spec
    if annotations:
        changed["metadata"] = {"annotations": annotations}
    return changed


def min_member(annotations: Mapping[str, str]) -> int:
    """How many pods start together, from its annotation; 1 if the value is not a valid number."""
    return natural(annotations.get(keys.GROUP_MIN_MEMBER, "")) or 1


def _reference(pod: Meta) -> JsonObject:
    owner = pod.controller() or Owner("v1", "Pod", pod.name, pod.uid)
    reference: JsonObject = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    if (owner.api_version, owner.kind) in BLOCKED_OWNERS:
        reference["blockOwnerDeletion"] = True
    return reference


def _label(pod: Meta, key: str) -> str:
    return (pod.labels or {}).get(key, "")


# The fields of a PodGroup


class Members(msgspec.Struct, frozen=True):
    """A PodGroup's pods by what they do. Scheduled: on a node, running or finished."""

    running: int = 0
    succeeded: int = 0
    failed: int = 0
    bound: int = 0
    """On a node, not yet running, or going while still on one."""

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed

    @property
    def scheduled(self) -> int:
        return self.running + self.bound + self.finished


def phase_of(before: str, min_member: int, members: Members, *, is_unschedulable: bool) -> str:
    """The phase that its pods give a PodGroup; `is_unschedulable`: as of this very look."""
    if members.running and is_unschedulable:
        return GROUP_UNKNOWN
    if members.scheduled >= min_member:
        is_over = members.scheduled == members.finished
        return GROUP_COMPLETED if members.scheduled and is_over else GROUP_RUNNING
    return GROUP_INQUEUE if before == GROUP_INQUEUE else GROUP_PENDING


def may_enqueue(phase: str, queue: Queue | None) -> bool:
    """Whether a PodGroup may have its pods created, quotas aside: the queue is Open.

    This is the answer for a cluster without a queue plugin. If a queue plugin is active, its votes
    decide, and the service that counts them writes the phase.
    """
    return phase in WAITING and queue is not None and queue.status.state in ("", "Open")


def unschedulable_message(group: PodGroup) -> str:
    """Why the scheduler does not place the gang; empty when it gives no reason."""
    for condition in group.status.conditions or ():
        if condition.type == "Unschedulable" and condition.status == "True":
            return condition.message or condition.reason
    return ""


def counted(groups: Iterable[PodGroup]) -> dict[str, dict[str, int]]:
    """PodGroups by queue and phase."""
    found: dict[str, dict[str, int]] = {}
    for group in groups:
        of_queue = found.setdefault(group.spec.queue or keys.DEFAULT_QUEUE, {})
        phase = group.status.phase or GROUP_PENDING
        of_queue[phase] = of_queue.get(phase, 0) + 1
    return found
