"""`mpi`: the master knows its workers' hosts and reaches them by ssh.

Arguments: `--master` and `--worker` name the roles (default: the same words), `--port` the port of
sshd (22). Brings the plugins `svc` (names) and `ssh` (keys) with it.
"""

from collections.abc import Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.plugins.svc import hosts
from allotment.core.jobs.templates import add_env, add_port, every_container

_MASTER = "master"
_WORKER = "worker"
_PORT = 22
_HOSTS = "MPI_HOST"
_PORT_NAME = "mpijob-port"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    given = flags.read(arguments)
    worker = job.spec.role(given.get("worker", _WORKER))
    for container in every_container(pod["spec"]):
        add_port(container, _PORT_NAME, flags.port(given, "port", _PORT))
        if role.name == given.get("master", _MASTER) and worker is not None:
            add_env(container, {_HOSTS: ",".join(hosts(job, worker))})


def roles(arguments: Sequence[str]) -> dict[str, str]:
    """The roles that the Job must have, by the argument that names them."""
    given = flags.read(arguments)
    return {"master": given.get("master", _MASTER), "worker": given.get("worker", _WORKER)}
