"""`ray`: one pod is the head of a Ray cluster, the workers join it.

The commands of the head's and the workers' containers are set; a Service JOB-head-svc leads to the
head from elsewhere. Arguments: `--head` and `--worker` name the roles, `--headContainer` and
`--workerContainer` their containers (default: the role's word), `--port` (6379), `--dashboardPort`
(8265) and `--clientPort` (10001) the head's ports.
"""

from collections.abc import Mapping, Sequence

from allotment.core.jobs import keys
from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.owners import owned
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.plugins.svc import host, selector
from allotment.core.jobs.templates import add_port, containers

_HEAD = "head"
_WORKER = "worker"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    given = flags.read(arguments)
    ports = _ports(given)
    head = job.spec.role(given.get("head", _HEAD))
    for container in containers(pod["spec"]):
        name = container.get("name")
        if head is role and name == given.get("headContainer", _HEAD):
            for port_name, port in ports.items():
                add_port(container, port_name, port)
            container["command"] = _shell(
                "ray start --head --block --dashboard-host=0.0.0.0"
                f" --port={ports['gcs']} --dashboard-port={ports['dashboard']}"
                f" --ray-client-server-port={ports['client-server']}"
            )
        is_worker = role.name == given.get("worker", _WORKER)
        if is_worker and head is not None and name == given.get("workerContainer", _WORKER):
            address = f"{host(job, head, 0)}:{ports['gcs']}"
            container["command"] = _shell(f"ray start --block --address={address}")


def roles(arguments: Sequence[str]) -> dict[str, str]:
    """The roles that the Job must have, by the argument that names them."""
    return {"head": flags.read(arguments).get("head", _HEAD)}


def service(job: Job, arguments: Sequence[str]) -> JsonObject:
    """The Service of the head."""
    given = flags.read(arguments)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(job, f"{job.metadata.name}-head-svc"),
        "spec": {
            "selector": {**selector(job), keys.TASK_SPEC: given.get("head", _HEAD)},
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
                for name, port in _ports(given).items()
            ],
        },
    }


def _ports(given: Mapping[str, str]) -> dict[str, int]:
    return {
        "gcs": flags.port(given, "port", 6379),
        "dashboard": flags.port(given, "dashboardPort", 8265),
        "client-server": flags.port(given, "clientPort", 10001),
    }


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]
