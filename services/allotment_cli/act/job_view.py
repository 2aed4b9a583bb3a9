"""`allot job view`: one Job, its PodGroup and what was said of both."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from allotment.adapters.service.moments import moment_text
from allotment.answers.cluster import GROUPS, JOBS, Access, Cluster, path_of
from allotment.answers.names import meant
from allotment.core.errors import AllotError
from allotment.core.jobs.model import Job, PodGroup
from allotment_cli.options.source import open_cluster
from allotment_cli.show.output import heading, note, table

EVENTS_SHOWN = 20


class RoleView(msgspec.Struct, frozen=True, rename="camel"):
    """One role of the Job; `counts` are its pods by phase."""

    name: str
    replicas: int
    min: int
    counts: dict[str, int]


class EventView(msgspec.Struct, frozen=True):
    """An Event about the Job or its PodGroup."""

    time: str
    type: str
    reason: str
    about: str
    message: str


class GroupView(msgspec.Struct, frozen=True):
    """Where the PodGroup stands, and the last thing said about it."""

    name: str
    phase: str
    condition: str
    message: str


class JobView(msgspec.Struct, frozen=True, rename="camel"):
    """The whole screen, and the JSON."""

    schema: str
    namespace: str
    name: str
    uid: str
    created: str
    labels: dict[str, str]
    scheduler: str
    queue: str
    priority_class: str
    phase: str
    reason: str
    message: str
    replicas: int
    min: int
    counts: dict[str, int]
    retry_count: int
    max_retry: int | None
    plugins: dict[str, list[str]]
    policies: list[str]
    roles: list[RoleView]
    group: str
    pod_group: GroupView | None
    conditions: list[dict[str, Any]]
    events: list[EventView]


class _Source(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    reason: str = ""
    message: str | None = None
    involved_object: _Source = msgspec.field(default_factory=_Source)
    event_time: str | None = None
    last_timestamp: str | None = None

    @property
    def time(self) -> str:
        return self.last_timestamp or self.event_time or ""


async def read_job(access: Access, namespace: str, name: str) -> JobView:
    """Ask for the Job and all that belongs on the screen. Raises `AllotError`."""
    async with open_cluster(access) as cluster:
        job = await _job(cluster, namespace, name)
        group = await _group_of(cluster, job)
        events = await _events(cluster, namespace, job.metadata.uid)
        if group is not None:
            events += await _events(cluster, namespace, group.metadata.uid)
    return job_view(job, group, events)


async def _job(cluster: Cluster, namespace: str, name: str) -> Job:
    """The Job; asked for as a list of one, because who may list Jobs need not be allowed to get."""
    wanted = {"fieldSelector": f"metadata.name={name}"}
    found = await cluster.list(path_of(JOBS, namespace), "jobs", Job, wanted)
    if not found:
        others = await cluster.list(path_of(JOBS, namespace), "jobs", Job)
        known = [each.metadata.name for each in others]
        remedy = meant(name, known, "see: allot job list")
        raise AllotError(f"job {namespace}/{name} does not exist", remedy)
    return found[0]


async def _group_of(cluster: Cluster, job: Job) -> PodGroup | None:
    """The PodGroup that the controller made for the Job."""
    wanted = {"fieldSelector": f"metadata.name={job.metadata.name}-{job.metadata.uid}"}
    path = path_of(GROUPS, job.metadata.namespace)
    return next(iter(await cluster.list(path, "podgroups", PodGroup, wanted)), None)


async def _events(cluster: Cluster, namespace: str, uid: str) -> list[_Event]:
    """Events about an object; none, and a note on stderr, without the right to see them."""
    wanted = {"fieldSelector": f"involvedObject.uid={uid}"}
    path = f"/api/v1/namespaces/{namespace}/events"
    try:
        return await cluster.list(path, "events", _Event, wanted)
    except AllotError as error:
        note(f"without Events: {error.message}")
        return []


def job_view(job: Job, group: PodGroup | None, events: list[_Event]) -> JobView:
    meta, spec, status = job.metadata, job.spec, job.status
    counted = status.task_status_count or {}
    return JobView(
        schema="allotment.dev/job/v1",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp or "",
        labels=meta.labels or {},
        scheduler=spec.scheduler_name,
        queue=spec.queue or "default",
        priority_class=spec.priority_class_name,
        phase=job.phase,
        reason=status.state.reason,
        message=status.state.message,
        replicas=spec.replicas,
        min=spec.minimum,
        counts={
            name: getattr(status, name) or 0
            for name in ("pending", "running", "succeeded", "failed", "terminating", "unknown")
        },
        retry_count=job.retry_count,
        max_retry=spec.max_retry,
        plugins={name: arguments or [] for name, arguments in (spec.plugins or {}).items()},
        policies=[
            f"{', '.join(filter(None, (p.event, *(p.events or ())))) or f'exit {p.exit_code}'}"
            f" -> {p.action}"
            for p in spec.policies or ()
        ],
        roles=[
            RoleView(task.name, task.replicas, task.minimum, _phases(counted.get(task.name)))
            for task in spec.roles
        ],
        group=group.metadata.name if group is not None else "",
        pod_group=None if group is None else _group_view(group),
        conditions=status.conditions or [],
        events=sorted(
            (
                EventView(e.time, e.type, e.reason, e.involved_object.kind, e.message or "")
                for e in events
            ),
            key=lambda event: event.time,
        ),
    )


def _phases(found: dict[str, Any] | None) -> dict[str, int]:
    return {str(phase): int(n) for phase, n in ((found or {}).get("phase") or {}).items()}


def _group_view(group: PodGroup) -> GroupView:
    said = (group.status.conditions or [])[-1:]
    condition = f"{said[0].type}={said[0].status} ({said[0].reason})" if said else ""
    return GroupView(
        group.metadata.name, group.status.phase, condition, said[0].message if said else ""
    )


def view_lines(found: JobView) -> list[str]:
    """The screen: labelled lines as YAML has them, then tables."""
    lines = [f"{label + ':':<16}{text}" for label, text in _head(found) if text]
    roles = [
        [role.name, str(role.replicas), str(role.min), _counts(role.counts)] for role in found.roles
    ]
    lines += ["", heading("Tasks:")]
    lines += table(
        ("Name", "Replicas", "Min", "Pods"), roles, right=("Replicas", "Min"), indent="  "
    )
    if found.pod_group is not None:
        lines += ["", heading("PodGroup:"), *_group_lines(found.pod_group)]
    if found.conditions:
        lines += ["", heading("Phases:")]
        lines += [
            f"  {_local(str(each.get('lastTransitionTime', '-')))}  {each.get('status', '-')}"
            for each in found.conditions
        ]
    if found.events:
        shown = found.events[-EVENTS_SHOWN:]
        rows = [[_local(e.time), e.type, e.reason, e.about, e.message] for e in shown]
        hidden = len(found.events) - len(shown)
        lines += ["", heading(f"Events:{f' ({hidden} earlier in -o json)' * bool(hidden)}")]
        lines += table(
            ("Time", "Type", "Reason", "About", "Message"), rows, right=("Time",), indent="  "
        )
    else:
        lines += ["", "Events:         <none>"]
    return lines


def _local(time: str) -> str:
    """A Kubernetes timestamp as on all other screens: local, to the second."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return time
    return moment_text(int(then.timestamp() * 1000)) if then.tzinfo is not None else time


def _head(found: JobView) -> Iterator[tuple[str, str]]:
    yield "Name", found.name
    yield "Namespace", found.namespace
    yield "Labels", ", ".join(f"{name}={value}" for name, value in sorted(found.labels.items()))
    yield "Created", _local(found.created)
    yield "Phase", found.phase + (f" ({found.reason})" if found.reason else "")
    yield "Message", found.message
    yield "Queue", found.queue
    yield "Scheduler", found.scheduler
    yield "Priority Class", found.priority_class
    yield "Min Available", f"{found.min} of {found.replicas}"
    yield "Pods", _counts(found.counts)
    most = "" if found.max_retry is None else f" of {found.max_retry}"
    yield "Retries", f"{found.retry_count}{most}"
    plugins = (f"{name} {' '.join(words)}".strip() for name, words in found.plugins.items())
    yield "Plugins", ", ".join(plugins)
    yield "Policies", "; ".join(found.policies)


def _group_lines(group: GroupView) -> list[str]:
    lines = [f"  {group.name}   {group.phase or 'not looked at yet'}"]
    if group.condition:
        lines.append(f"  {group.condition}{f': {group.message}' * bool(group.message)}")
    return lines


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
