"""`pytorch`: the variables that torch.distributed reads.

Arguments: `--master` and `--worker` name the roles (default master, worker), `--port` the port.
Ranks: the master has 0, workers follow in the order of their index.
"""

from collections.abc import Mapping, Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.plugins.svc import host
from allotment.core.jobs.templates import add_env, add_port, containers, every_container

_MASTER = "master"
_WORKER = "worker"
_PORT = 23456
_PORT_NAME = "pytorchjob-port"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    given = flags.read(arguments)
    variables = _variables_of(job, role, index, given)
    port = flags.port(given, "port", _PORT)
    for container in every_container(pod["spec"]):
        add_env(container, variables)
    for container in containers(pod["spec"]):
        add_port(container, _PORT_NAME, port)


def _variables_of(job: Job, role: Task, index: int, given: Mapping[str, str]) -> dict[str, str]:
    """Where the master is, and, for masters and workers, which of how many this pod is."""
    master = job.spec.role(given.get("master", _MASTER))
    worker = job.spec.role(given.get("worker", _WORKER))
    members = [task for task in (master, worker) if task is not None]
    if not members:
        return {}
    variables = {
        "MASTER_ADDR": host(job, members[0], 0),
        "MASTER_PORT": str(flags.port(given, "port", _PORT)),
    }
    if role.name in [task.name for task in members]:
        before = master.replicas if master is not None and role.name != master.name else 0
        variables["WORLD_SIZE"] = str(sum(task.replicas for task in members))
        variables["RANK"] = str(index + before)
    return variables
