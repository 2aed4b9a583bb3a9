"""A Job's pod as the controller sends it to the API server: the role's template with the fields
that every pod gets.
"""

from collections.abc import Mapping
from typing import Any

from allotment.core.jobs import keys
from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.owners import owned, owner_of
from allotment.core.jobs.plugins import dress
from allotment.core.jobs.seats import pod_name
from allotment.core.jobs.templates import as_dict, as_list, copied, every_container


def build(job: Job, role: Task, index: int, group: str) -> JsonObject:
    """The pod for one seat, in the PodGroup `group`. The job's spec has its defaults."""
    spec = job.spec
    template = as_dict(role.template)
    metadata = as_dict(template.get("metadata"))
    name = pod_name(job.metadata.name, role.name, index)
    marks = {
        keys.TASK_INDEX: str(index),
        keys.TASK_SPEC: role.name,
        keys.JOB_NAME: job.metadata.name,
        keys.QUEUE_NAME: spec.queue,
    }
    partition = role.partition(index)
    pod: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {
                **as_dict(metadata.get("labels")),
                **marks,
                keys.JOB_NAMESPACE: job.metadata.namespace,
                **_inherited(job.metadata.labels),
                **({} if partition is None else {keys.PARTITION_ID: str(partition)}),
            },
            "annotations": {
                **as_dict(metadata.get("annotations")),
                **marks,
                keys.GROUP_NAME: group,
                keys.JOB_VERSION: str(job.version),
                keys.JOB_RETRY_COUNT: str(job.retry_count),
                keys.TEMPLATE_UID: f"{job.metadata.name}-{role.name}",
                **_inherited(job.metadata.annotations),
            },
            "ownerReferences": [owner_of(job)],
        },
        "spec": copied(as_dict(template.get("spec"))),
    }
    _fill(pod["spec"], job)
    dress(pod, job, role, index)
    return pod


def _claim_name(job: Job, index: int) -> str:
    """The claim behind the Job's volume at `index`: the one named, or one made for the Job."""
    volume = (job.spec.volumes or [])[index]
    return volume.volume_claim_name or f"{job.metadata.name}-volume-{index}"


def claims(job: Job) -> list[JsonObject]:
    """The PersistentVolumeClaims that a Job's claim templates ask for."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": owned(job, _claim_name(job, index)),
            "spec": volume.volume_claim,
        }
        for index, volume in enumerate(job.spec.volumes or ())
        if volume.volume_claim and not volume.volume_claim_name
    ]


def _fill(spec: JsonObject, job: Job) -> None:
    """The Job's settings for all its pods, where the template does not set them."""
    spec["schedulerName"] = spec.get("schedulerName") or job.spec.scheduler_name
    if job.spec.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job.spec.priority_class_name
    volumes = as_list(spec.get("volumes"))
    for index, volume in enumerate(job.spec.volumes or ()):
        name = f"job-volume-{index}"
        claim = {"claimName": _claim_name(job, index)}
        volumes.append({"name": name, "persistentVolumeClaim": claim})
        for container in every_container(spec):
            mounts = as_list(container.get("volumeMounts"))
            container["volumeMounts"] = [*mounts, {"name": name, "mountPath": volume.mount_path}]
    if volumes:
        spec["volumes"] = volumes


def _inherited(given: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (given or {}).items() if key in keys.INHERITED}
