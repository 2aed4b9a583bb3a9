"""Which pods a Job should have: a seat for each index of each role, taken or free.

name of a seat: <job>-<role>-<index>, the same one after a restart
"""

from collections.abc import Sequence

import msgspec

from allotment.core.jobs.machine import state_of
from allotment.core.jobs.model import JobSpec, PodView, Task
from allotment.core.units import natural


class Seat(msgspec.Struct, frozen=True, order=True):
    """A place for a pod."""

    role: str
    index: int


def pod_name(job: str, role: str, index: int) -> str:
    return f"{pod_prefix(job, role)}{index}"


def pod_prefix(job: str, role: str) -> str:
    """The prefix of the names of a role's pods: all but their index."""
    return f"{job}-{role}-"


def index_of(name: str) -> int:
    """The index in a pod's name; 0 if it has none."""
    return natural(name.rpartition("-")[2]) or 0


def free_seats(spec: JobSpec, pods: Sequence[PodView]) -> list[Seat]:
    """Free seats of roles that may start. A pod that is being deleted still has its seat."""
    taken = {Seat(pod.role, pod.index) for pod in pods}
    return [
        seat
        for task in spec.roles
        if _may_start(spec, task, pods)
        for index in range(task.replicas)
        if (seat := Seat(task.name, index)) not in taken
    ]


def surplus(spec: JobSpec, pods: Sequence[PodView]) -> list[PodView]:
    """Pods beyond their role's replicas, or of a role that no longer exists, the highest index
    first.
    """
    replicas = {task.name: task.replicas for task in spec.roles}
    beyond = [pod for pod in pods if pod.index >= replicas.get(pod.role, 0)]
    return sorted(beyond, key=lambda pod: (pod.role, -pod.index))


def _may_start(spec: JobSpec, task: Task, pods: Sequence[PodView]) -> bool:
    """Whether the roles that this one depends on are ready: any of them, or all."""
    if task.depends_on is None or not task.depends_on.name:
        return True
    there = [_is_there(spec, name, pods) for name in task.depends_on.name]
    return any(there) if task.depends_on.iteration == "any" else all(there)


def _is_there(spec: JobSpec, role: str, pods: Sequence[PodView]) -> bool:
    task = spec.role(role)
    if task is None:
        return False
    arrived = sum(
        state_of(pod) == "Succeeded" or (state_of(pod) == "Running" and pod.is_ready)
        for pod in pods
        if pod.role == role
    )
    return arrived >= task.minimum
