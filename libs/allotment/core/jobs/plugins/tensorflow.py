"""`tensorflow`: TF_CONFIG, by which TensorFlow's distribution strategies find each other.

Arguments: `--ps`, `--worker`, `--chief` and `--evaluator` name the roles (default: the same words),
`--port` the port (2222). A Job of one pod needs none of it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.plugins.svc import host
from allotment.core.jobs.templates import add_env, containers

_CONFIG = "TF_CONFIG"
_PORT = 2222
_TYPES = ("ps", "worker", "chief", "evaluator")


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    if len(job.spec.roles) == 1 and job.spec.replicas == 1:
        return
    text = msgspec.json.encode(_config(job, role, index, flags.read(arguments))).decode()
    for container in containers(pod["spec"]):
        add_env(container, {_CONFIG: text})


def _config(job: Job, role: Task, index: int, given: Mapping[str, str]) -> JsonObject:
    """The hosts of the cluster by TensorFlow's task types, and which of them this pod is."""
    type_of = {given.get(kind, kind): kind for kind in _TYPES}
    port = flags.port(given, "port", _PORT)
    cluster = {
        type_of[task.name]: [f"{host(job, task, n)}:{port}" for n in range(task.replicas)]
        for task in job.spec.roles
        if task.name in type_of and task.replicas
    }
    ordered = {kind: cluster[kind] for kind in _TYPES if kind in cluster}
    return {"cluster": ordered, "task": {"type": type_of.get(role.name, role.name), "index": index}}
