"""Job plugins: what each adds to every pod of a Job, and which other objects it needs.

A plugin is two functions of one module: `dress(pod, job, role, index, arguments)` changes a pod
that is being built, `objects(job, arguments)` lists what must exist. Only `ssh` needs more: a pair
of keys, which the caller creates once and passes in.
"""

from collections.abc import Callable, Mapping, Sequence

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.plugins import env, hcclrank, mpi, pytorch, ray, ssh, svc, tensorflow

_Dress = Callable[[JsonObject, Job, Task, int, Sequence[str]], None]
_DRESS: dict[str, _Dress] = {
    "env": env.dress,
    "svc": svc.dress,
    "ssh": ssh.dress,
    "pytorch": pytorch.dress,
    "tensorflow": tensorflow.dress,
    "mpi": mpi.dress,
    "ray": ray.dress,
    "hcclrank": hcclrank.dress,  # after pytorch, whose rank it reads
}
NAMES = tuple(_DRESS)
"""Job plugins that exist; other names are rejected."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("svc",),
    "tensorflow": ("svc",),
    "mpi": ("svc", "ssh"),
    "ray": ("svc",),
}
"""Plugins that a plugin enables too: `svc` gives pods the names by which others find them."""
_ROLES: dict[str, Callable[[Sequence[str]], Mapping[str, str]]] = {
    "mpi": mpi.roles,
    "ray": ray.roles,
}


def dress(pod: JsonObject, job: Job, role: Task, index: int) -> None:
    """Let every plugin of the Job add its part."""
    plugins = job.spec.plugins or {}
    for name, change in _DRESS.items():
        if name in plugins:
            change(pod, job, role, index, plugins[name] or ())


def objects(job: Job) -> list[JsonObject]:
    """The objects that must exist in addition to the pods and that contain no secret."""
    plugins = job.spec.plugins or {}
    found = svc.objects(job, plugins["svc"] or ()) if "svc" in plugins else []
    return [*found, ray.service(job, plugins["ray"] or ())] if "ray" in plugins else found


def needed_roles(name: str, arguments: Sequence[str]) -> Mapping[str, str]:
    """The roles without which a plugin has no effect, by the argument that names them."""
    return _ROLES[name](arguments) if name in _ROLES else {}
