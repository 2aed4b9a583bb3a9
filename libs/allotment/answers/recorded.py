"""Lines of Volcano's Jobs and Queues, as the log knows them; `allot job` and `allot queue` fill the
same from the API server.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from allotment.core.jobs import keys
from allotment.core.jobs.groups import made_name
from allotment.core.jobs.model import Meta, PodGroup
from allotment.core.ledger.model import ClusterState
from allotment.core.units import rfc3339


class JobRow(msgspec.Struct, frozen=True, rename="camel"):
    """A line of `allot job list`. The log knows a Job by its PodGroup and pods: neither its type,
    nor how often it was tried.
    """

    namespace: str
    name: str
    created: str
    phase: str
    job_type: str
    replicas: int
    min: int
    pending: int
    running: int
    succeeded: int
    failed: int
    unknown: int
    retry_count: int | None


def recorded_jobs(state: ClusterState) -> list[tuple[JobRow, str, str]]:
    """The Jobs whose PodGroups a log knows, each with its queue and its pods' scheduler. How many
    pods it wants is not recorded: those count that it has.
    """
    found = []
    for key, group in sorted(state.groups.items()):
        fact = group.fact
        if fact is None or not fact.owner or not key.endswith(f"-{fact.owner}"):
            continue
        pods = [state.pods[uid].fact for uid in group.members if uid in state.pods]
        if fact.name == made_name("", fact.owner) and not any(pod.role for pod in pods):
            continue  # the controller made it for another owner's pods
        phases = Counter(pod.phase for pod in pods)
        row = JobRow(
            namespace=fact.namespace,
            name=fact.name.removesuffix(f"-{fact.owner}"),
            created=rfc3339(fact.created_ms)[:10],
            phase="Pending" if fact.phase in ("", "Inqueue") else fact.phase,
            job_type="",
            replicas=len(pods),
            min=fact.min_member,
            pending=phases["Pending"],
            running=phases["Running"],
            succeeded=phases["Succeeded"],
            failed=phases["Failed"],
            unknown=phases["Unknown"],
            retry_count=None,
        )
        found.append((row, fact.queue, next((pod.scheduler for pod in pods), "")))
    return found


class QueueSpec(msgspec.Struct):
    """What the columns need of a queue's spec."""

    weight: int | None = None
    parent: str | None = None


class QueueStatus(msgspec.Struct):
    state: str | None = None


class ShownQueue(msgspec.Struct):
    """A Queue, as far as it is shown."""

    metadata: Meta
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class QueueRow(msgspec.Struct, frozen=True):
    """A line of `allot queue list`: counts are of PodGroups."""

    name: str
    weight: int
    state: str
    parent: str
    inqueue: int
    pending: int
    running: int
    unknown: int
    completed: int


def recorded_queues(state: ClusterState) -> list[QueueRow]:
    """The lines of all queues that a log knows."""
    counts = _counted((g.fact.queue, g.fact.phase) for g in state.groups.values() if g.fact)
    return [
        _row(
            ShownQueue(
                Meta(name=name), QueueSpec(fact.weight, fact.parent), QueueStatus(fact.state)
            ),
            counts.get(name, Counter()),
        )
        for name, fact in sorted(state.queues.items())
    ]


def queue_rows(queues: Iterable[ShownQueue], groups: Iterable[PodGroup]) -> list[QueueRow]:
    """The lines of all queues; a group that was not considered yet counts as pending."""
    counts = _counted((group.spec.queue, group.status.phase) for group in groups)
    return [_row(found, counts.get(found.metadata.name, Counter())) for found in queues]


def _counted(groups: Iterable[tuple[str | None, str | None]]) -> dict[str, Counter[str]]:
    """By queue how many groups are in which phase, of groups with queue and phase."""
    counts: dict[str, Counter[str]] = {}
    for queue_name, phase in groups:
        phases = counts.setdefault(queue_name or keys.DEFAULT_QUEUE, Counter())
        phases[(phase or "Pending").lower()] += 1
    return counts


def _row(found: ShownQueue, counts: Counter[str]) -> QueueRow:
    name = found.metadata.name
    parent = "" if name == keys.ROOT_QUEUE else found.spec.parent or keys.ROOT_QUEUE
    return QueueRow(
        name=name,
        weight=found.spec.weight or 1,
        state=found.status.state or "",
        parent=parent,
        inqueue=counts["inqueue"],
        pending=counts["pending"],
        running=counts["running"],
        unknown=counts["unknown"],
        completed=counts["completed"],
    )
