"""`env`: a pod's index in its role, in every container."""

from collections.abc import Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.templates import add_env, every_container

INDEX = "VC_TASK_INDEX"
_LEGACY_INDEX = "VK_TASK_INDEX"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    for container in every_container(pod["spec"]):
        add_env(container, {_LEGACY_INDEX: str(index), INDEX: str(index)})
