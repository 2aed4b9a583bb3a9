"""Job plugins: what each adds to every pod of a Job, and which objects it needs beside them.

A plugin is two functions of one module: `dress(pod, job, role, index, arguments)` changes a pod
that is being built, `objects(job, arguments)` lists what must exist. Only `ssh` needs more: a pair
of keys, which is made once and handed in.
"""

from collections.abc import Callable, Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import env, pytorch, ssh, svc

_Dress = Callable[[JsonObject, Job, Task, int, Sequence[str]], None]
_DRESS: dict[str, _Dress] = {
    "env": env.dress,
    "svc": svc.dress,
    "ssh": ssh.dress,
    "pytorch": pytorch.dress,
}


def dress(pod: JsonObject, job: Job, role: Task, index: int) -> None:
    """Let every plugin of the Job add its part, in the order of their names."""
    for name, arguments in sorted((job.spec.plugins or {}).items()):
        if name in _DRESS:
            _DRESS[name](pod, job, role, index, arguments or ())


def objects(job: Job) -> list[JsonObject]:
    """What must exist beside the pods and can be written down without a secret."""
    plugins = job.spec.plugins or {}
    return svc.objects(job, plugins["svc"] or ()) if "svc" in plugins else []
