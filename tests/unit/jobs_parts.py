"""Builders of Jobs, their pods and PodGroups, and one look of the controller at them."""

from typing import Any

import msgspec

from allotment.core.jobs.admission import defaulted
from allotment.core.jobs.groups import name_of
from allotment.core.jobs.model import Job, JobSpec, PodGroup, PodView
from allotment.core.jobs.seats import index_of
from allotment.core.jobs.status import Moment
from allotment.core.jobs.sync import Look, Plan, plan

Json = dict[str, Any]
NOW = Moment(1_000, "2026-11-20T14:00:00Z")


def template(requests: Json | None = None, **more: Any) -> Json:
    container = {"name": "main", "image": "i:1", "resources": {"requests": requests or {}}}
    return {"spec": {"containers": [container], "restartPolicy": "Never", **more}}


def task(name: str = "worker", replicas: int = 1, **fields: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": template(), **fields}


def spec(*tasks: Json, **fields: Any) -> JobSpec:
    body = {"tasks": list(tasks), **fields}
    return defaulted(msgspec.convert(body, JobSpec), "volcano")


def job(*tasks: Json, status: Json | None = None, meta: Json | None = None, **fields: Any) -> Job:
    """A Job named j in namespace n, uid u, with its defaults."""
    metadata = {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1", **(meta or {})}
    body = {"metadata": metadata, "spec": {"tasks": list(tasks), **fields}, "status": status or {}}
    made = msgspec.convert(body, Job)
    return msgspec.structs.replace(made, spec=defaulted(made.spec, "volcano"))


def at(phase: str, **status: Any) -> Json:
    """The status of a Job in a phase."""
    return {"state": {"phase": phase}, **status}


def pod(name: str, phase: str = "Running", **fields: Any) -> PodView:
    """A pod by its short name, such as worker-0."""
    told = {"role": name.rpartition("-")[0], "index": index_of(name), "is_ready": True, **fields}
    return PodView(name=f"j-{name}", uid=f"uid-{name}", phase=phase, **told)


def group(of: Job, phase: str = "Inqueue", **fields: Any) -> PodGroup:
    metadata = {
        "name": name_of(of),
        "namespace": "n",
        "uid": "g",
        "annotations": {"volcano.sh/job-version": str(of.version)},
    }
    body = {"metadata": metadata, "status": {"phase": phase, **fields}}
    return msgspec.convert(body, PodGroup)


def look(of: Job, *pods: PodView, **fields: Any) -> Plan:
    """The plan for a Job with these pods; its PodGroup is Inqueue unless another is given."""
    with_group = {"group": group(of), **fields}
    return plan(Look(job=of, pods=pods, now=NOW, **with_group), {})


def phase_in(made: Plan, before: Job) -> str:
    """The phase that a plan writes, or the present one."""
    return str(made.status.get("state", {}).get("phase", before.phase))
