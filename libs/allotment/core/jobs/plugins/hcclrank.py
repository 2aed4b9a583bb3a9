"""`hcclrank`: a pod's rank among all, as the annotation that Ascend's tools read.

Arguments: `--master` and `--worker` name the roles (default: the same words). A rank that the pod
has already counts: in the annotation, or in the variable RANK of a container. Else the masters come
first and the workers after them, by their index.
"""

from collections.abc import Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.templates import as_dict, as_list, containers

_RANK_INDEX = "hccl/rankIndex"
_MASTER = "master"
_WORKER = "worker"
_VARIABLE = "RANK"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    annotations = pod["metadata"]["annotations"]
    rank = _given(pod["spec"]) or _rank(job, role, index, arguments)
    if rank and not annotations.get(_RANK_INDEX):
        annotations[_RANK_INDEX] = rank


def _given(spec: JsonObject) -> str:
    """The rank in a container's variable, from the template or another plugin."""
    for container in containers(spec):
        for entry in map(as_dict, as_list(container.get("env"))):
            if entry.get("name") == _VARIABLE and entry.get("value"):
                return str(entry["value"])
    return ""


def _rank(job: Job, role: Task, index: int, arguments: Sequence[str]) -> str:
    given = flags.read(arguments)
    if role.name == given.get("master", _MASTER):
        return str(index)
    if role.name == given.get("worker", _WORKER):
        master = job.spec.role(given.get("master", _MASTER))
        return str(index + (master.replicas if master is not None else 0))
    return ""
