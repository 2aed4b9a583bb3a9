"""`allot get queues|gangs|jobs`: what the log knows of queues and of groups of pods."""

from typing import Any

import click
import msgspec

from allotment.answers.recorded import recorded_jobs, recorded_queues
from allotment.answers.source import Origin
from allotment.core.explain.rows.pod_views import gang_views
from allotment.core.explain.rows.views import GONE
from allotment_cli.options import completion
from allotment_cli.options.params import namespaces_options
from allotment_cli.read.get import (
    ANYWHERE,
    created,
    list_options,
    scope_of,
    without_kind,
)
from allotment_cli.read.listing import Column, Kind, Wanted, count, show

QUEUES = (
    Column("NAME", lambda v: v.name),
    count("WEIGHT", lambda v: v.weight),
    Column("STATE", lambda v: v.state),
    Column("PARENT", lambda v: v.parent),
    count("INQUEUE", lambda v: v.inqueue),
    count("PENDING", lambda v: v.pending),
    count("RUNNING", lambda v: v.running),
    count("UNKNOWN", lambda v: v.unknown, optional=1),
    count("COMPLETED", lambda v: v.completed, optional=2),
)
GANGS = (
    Column("PHASE", lambda v: v.phase),
    Column("CAUSE", lambda v: v.cause),
    Column("QUEUE", lambda v: v.queue),
    count("MINIMUM", lambda v: v.min_member),
    count("PODS", lambda v: v.pods),
    count("RUNNING", lambda v: v.running),
    Column("CREATED", created, lambda v: v.created_ms, wide=True),
    Column("UID", lambda v: v.uid, wide=True),
)
JOBS = (
    Column("PHASE", lambda v: v.phase),
    count("MINIMUM", lambda v: v.min),
    count("PODS", lambda v: v.replicas),
    count("PENDING", lambda v: v.pending),
    count("RUNNING", lambda v: v.running),
    count("SUCCEEDED", lambda v: v.succeeded),
    count("FAILED", lambda v: v.failed),
    Column("CREATED", lambda v: v.created, wide=True),
)


@click.command()
@list_options(completion.queues, QUEUES)
def queues(origin: Origin, names: tuple[str, ...], **asked: Any) -> None:
    """Queues: weight, state, and how many of their groups are in which phase."""
    kind = Kind(
        "queues",
        QUEUES,
        recorded_queues,
        lambda view: str(view.name),
        lambda view: (view.name,),
        lambda view: msgspec.structs.replace(view, state=GONE),
    )
    bare = tuple(map(without_kind, names))
    show(kind, Wanted(origin, names=bare, **asked))


@click.command()
@list_options(completion.groups, (*ANYWHERE, *GANGS))
@namespaces_options
def gangs(
    origin: Origin,
    namespace: str | None,
    all_namespaces: bool,
    names: tuple[str, ...],
    **asked: Any,
) -> None:
    """PodGroups of one namespace, or with -A of all: phase, minimum, pods, and why others wait."""
    scope = scope_of(names, "group", namespace, all_namespaces)
    kind = scope.kind(
        "gangs",
        GANGS,
        gang_views,
        lambda view: msgspec.structs.replace(view, phase=GONE, cause=""),
    )
    show(kind, Wanted(origin, names=scope.names, **asked))


@click.command()
@list_options(completion.jobs, (*ANYWHERE, *JOBS))
@namespaces_options
def jobs(
    origin: Origin,
    namespace: str | None,
    all_namespaces: bool,
    names: tuple[str, ...],
    **asked: Any,
) -> None:
    """Volcano's Jobs of one namespace, or with -A of all, as their PodGroups and pods in the log
    tell; `allot job list` asks the cluster.
    """
    scope = scope_of(names, "group", namespace, all_namespaces)
    kind = scope.kind(
        "jobs",
        JOBS,
        lambda state: [row for row, _, _ in recorded_jobs(state)],
        lambda view: msgspec.structs.replace(view, phase=GONE),
    )
    show(kind, Wanted(origin, names=scope.names, **asked))
