"""Tasks that have succeeded stay done, even after their pods are removed.

A finished pod is removed with its node or by pod garbage collection, but its work remains done. A
Job's status therefore lists the seats that have succeeded, in `controlledResources`, the one field
of Volcano's Job that takes texts: ``done-<role>: "0-3,7"``. Such a seat counts without its pod.
Restarting the Job, a role or a pod clears its seats.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from allotment.core.jobs.model import Job, PodView
from allotment.core.jobs.seats import Seat, pod_name
from allotment.core.units import natural

_KEY = "done-"
_GONE = "gone/"
"""The prefix of the uid of a placeholder for a removed pod."""


def remembered(job: Job, pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """For each seat that is done and no longer has a pod, a placeholder for its pod."""
    taken = {Seat(pod.role, pod.index) for pod in pods}
    replicas = {task.name: task.replicas for task in job.spec.roles}
    return tuple(
        PodView(
            name=pod_name(job.metadata.name, seat.role, seat.index),
            uid=f"{_GONE}{seat.role}/{seat.index}",
            role=seat.role,
            index=seat.index,
            version=job.version,
            phase="Succeeded",
        )
        for seat in sorted(_seats(job))
        if seat not in taken and seat.index < replicas.get(seat.role, 0)
    )


def is_there(pod: PodView) -> bool:
    """Whether it is a pod, and not the placeholder for a removed one."""
    return not pod.uid.startswith(_GONE)


def gone(pods: Iterable[PodView]) -> Mapping[str, int]:
    """How many of these are placeholders for removed pods, by role."""
    return Counter(pod.role for pod in pods if not is_there(pod))


def controlled(pods: Iterable[PodView], version: int, doomed: Collection[str]) -> dict[str, str]:
    """Which seats the status lists as done: those that succeeded in this life of the Job and that
    this step does not end.
    """
    found: dict[str, list[int]] = {}
    for pod in pods:
        is_of_life = pod.version == version and not pod.is_marked and pod.uid not in doomed
        if pod.phase == "Succeeded" and is_of_life:
            found.setdefault(pod.role, []).append(pod.index)
    return {f"{_KEY}{role}": _ranges(sorted(found[role])) for role in sorted(found)}


def _seats(job: Job) -> set[Seat]:
    found: set[Seat] = set()
    for key, text in (job.status.controlled_resources or {}).items():
        if key.startswith(_KEY):
            role = key.removeprefix(_KEY)
            task = job.spec.role(role)
            for part in text.split(",") if task is not None else ():
                first, _, last = part.partition("-")
                begin, end = natural(first), natural(last or first)
                if task is not None and begin is not None and end is not None:
                    indexes = range(begin, min(end + 1, task.replicas))
                    found.update(Seat(role, index) for index in indexes)
    return found


def _ranges(numbers: list[int]) -> str:
    """``0-3,7`` of sorted numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
