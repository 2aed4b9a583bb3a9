"""Defaults of a Job, and what is wrong with one: by field path, as an API server would say it.

Without a webhook the API server accepts every Job: the controller computes defaults each time and
creates nothing for a Job that has problems. The message of its state lists them.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import msgspec

from allotment.core.jobs import keys
from allotment.core.jobs.durations import parse_ms
from allotment.core.jobs.model import DependsOn, JobSpec, Policy, Queue, Task
from allotment.core.jobs.plugins import NAMES, NEEDS, needed_roles
from allotment.core.jobs.policies import ACTIONS, ANY, EVENTS, POD_PENDING

_MAX_RETRY = 3
_NAME_CHARS_MAX = 63
_REPLICAS_MAX = 100_000
"""Pods of one Job: more than a cluster can hold. Without a limit, one Job of two billion pods would
take all the controller's time and memory, and stop all other Jobs.
"""
_QUEUES_SHOWN = 5
_TAKES_JOBS = ("", "Open")
"""States of a Queue."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_ITERATIONS = ("", "any", "all")
_CHANGEABLE = ("min_available", "priority_class_name")
_CHANGEABLE_OF_ROLE = ("replicas", "min_available")


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a field, and what would be right."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def defaulted(spec: JobSpec, scheduler_name: str) -> JobSpec:
    """The spec with everything filled in that may be left out."""
    roles = [
        msgspec.structs.replace(
            task,
            name=task.name or f"default{index}",
            min_available=task.minimum,
            max_retry=_MAX_RETRY if task.max_retry is None else task.max_retry,
        )
        for index, task in enumerate(spec.roles)
    ]
    return msgspec.structs.replace(
        spec,
        tasks=roles,
        scheduler_name=spec.scheduler_name or scheduler_name,
        queue=spec.queue or keys.DEFAULT_QUEUE,
        max_retry=_MAX_RETRY if spec.max_retry is None else spec.max_retry,
        min_available=spec.minimum,
        plugins=_with_needed_plugins(spec.plugins or {}),
    )


def _with_needed_plugins(plugins: dict[str, list[str] | None]) -> dict[str, list[str] | None]:
    brought = {other: None for name in plugins for other in NEEDS.get(name, ())}
    return {**brought, **plugins}


def problems_of(name: str, spec: JobSpec) -> list[Problem]:
    """Everything that is wrong with a Job, after its defaults; empty when it is sound."""
    found = [*_of_name(name), *_of_amounts(spec), *_of_plugins(spec), *_of_volumes(spec)]
    found += _of_policies(spec.policies or [], "spec.policies")
    names: set[str] = set()
    for index, task in enumerate(spec.roles):
        field = f"spec.tasks[{index}]"
        found += _of_role(task, field, name, "svc" in (spec.plugins or {}))
        if task.name in names:
            found.append(Problem(f"{field}.name", f"{task.name!r} is there twice"))
        names.add(task.name)
    return found + list(_of_dependencies(spec))


def queue_problem(name: str, queues: dict[str, Queue]) -> Problem | None:
    """Why a new Job may not use this queue; None if it may."""
    queue = queues.get(name)
    if name == keys.ROOT_QUEUE:
        return Problem("spec.queue", "root takes no Jobs: name a queue below it")
    if queue is None:
        return Problem("spec.queue", f"there is no queue {name!r}; {_meant(name, queues)}")
    if queue.status.state not in _TAKES_JOBS:
        return Problem(
            "spec.queue", f"queue {name!r} is {queue.status.state} and takes no new Jobs"
        )
    if any(other.spec.parent == name for other in queues.values()):
        return Problem("spec.queue", f"queue {name!r} has queues below it: name one of those")
    return None


def _meant(name: str, queues: Mapping[str, Queue]) -> str:
    """Which queue was meant, or which there are."""
    parents = {queue.spec.parent for queue in queues.values()}
    usable = sorted(
        name
        for name, queue in queues.items()
        if name not in parents and name != keys.ROOT_QUEUE and queue.status.state in _TAKES_JOBS
    )
    if close := get_close_matches(name, usable, n=1):
        return f"did you mean {close[0]}?"
    shown = ", ".join(usable[:_QUEUES_SHOWN])
    more = len(usable) - _QUEUES_SHOWN
    return f"queues that take Jobs: {shown}" + (f" and {more} more" if more > 0 else "")


def self_waiting(spec: JobSpec) -> str:
    """A warning if the gang needs pods that are created only once others of it run; else empty.

    Such a Job is valid, but a scheduler that starts gangs whole never starts it.
    """
    first = sum(task.replicas for task in spec.roles if not (task.depends_on or DependsOn()).name)
    if first >= spec.minimum:
        return ""
    return (
        f"minAvailable is {spec.minimum}, but only {first} pods come before those of tasks with"
        f" dependsOn: set minAvailable to at most {first}"
    )


def without_effect(spec: JobSpec) -> str:
    """A warning that names the fields which have no effect, or less than their names suggest; else
    empty.

    Partitions are placed whole; nothing keeps their pods on nearby nodes.
    """
    found = ["spec.networkTopology has no effect"] if spec.network_topology else []
    for index, task in enumerate(spec.roles):
        policy, field = task.partition_policy, f"spec.tasks[{index}].partitionPolicy"
        if policy is None:
            continue
        if policy.network_topology:
            found.append(f"{field}.networkTopology has no effect")
    return "; ".join(found)


def update_problems(old: JobSpec, new: JobSpec) -> list[Problem]:
    """Changes that a running Job cannot follow: only amounts and the priority class may change."""
    found = [
        Problem(f"spec.{_camel(name)}", "may not be changed")
        for name in JobSpec.__struct_fields__
        if name not in (*_CHANGEABLE, "tasks") and getattr(old, name) != getattr(new, name)
    ]
    if len(old.roles) != len(new.roles):
        return [*found, Problem("spec.tasks", "roles may not be added or removed")]
    for index, (before, after) in enumerate(zip(old.roles, new.roles, strict=True)):
        found += [
            Problem(f"spec.tasks[{index}].{_camel(name)}", "may not be changed")
            for name in Task.__struct_fields__
            if name not in _CHANGEABLE_OF_ROLE and getattr(before, name) != getattr(after, name)
        ]
    return found


def _of_name(name: str) -> Iterator[Problem]:
    if len(name) > _NAME_CHARS_MAX:
        yield Problem(
            "metadata.name",
            f"has {len(name)} characters; at most {_NAME_CHARS_MAX}, as it becomes a label",
        )


def _of_amounts(spec: JobSpec) -> Iterator[Problem]:
    if not spec.roles:
        yield Problem("spec.tasks", "at least one task is needed")
    if spec.minimum < 0:
        yield Problem("spec.minAvailable", f"{spec.minimum} is less than 0")
    elif spec.minimum > spec.replicas:
        yield Problem(
            "spec.minAvailable", f"{spec.minimum} is more than all replicas ({spec.replicas})"
        )
    if spec.replicas > _REPLICAS_MAX:
        yield Problem(
            "spec.tasks", f"{spec.replicas} replicas in all are too many (at most {_REPLICAS_MAX})"
        )
    if (spec.max_retry or 0) < 0:
        yield Problem("spec.maxRetry", f"{spec.max_retry} is less than 0")
    if spec.min_success is not None and spec.min_success < 1:
        yield Problem("spec.minSuccess", f"{spec.min_success} is less than 1")
    ttl_s = spec.ttl_seconds_after_finished
    if ttl_s is not None and ttl_s < 0:
        yield Problem("spec.ttlSecondsAfterFinished", f"{ttl_s} is less than 0")


def _of_role(task: Task, field: str, job: str, has_hosts: bool) -> Iterator[Problem]:
    if len(task.name) > _NAME_CHARS_MAX or not _LABEL.fullmatch(task.name):
        yield Problem(
            f"{field}.name",
            f"{task.name!r} must be lower-case letters, digits and '-', at most {_NAME_CHARS_MAX}",
        )
    if task.replicas < 0:
        yield Problem(f"{field}.replicas", f"{task.replicas} is less than 0")
    elif task.minimum > task.replicas:
        yield Problem(
            f"{field}.minAvailable", f"{task.minimum} is more than the replicas ({task.replicas})"
        )
    if task.minimum < 0:
        yield Problem(f"{field}.minAvailable", f"{task.minimum} is less than 0")
    if (task.max_retry or 0) < -1:
        yield Problem(f"{field}.maxRetry", f"{task.max_retry} is less than -1 (unlimited)")
    last = f"{job}-{task.name}-{max(0, task.replicas - 1)}"
    if has_hosts and len(last) > _NAME_CHARS_MAX:
        yield Problem(
            f"{field}.name", f"{last!r} is too long for a host name ({_NAME_CHARS_MAX} characters)"
        )
    pod_spec = task.template.get("spec")
    containers = pod_spec.get("containers") if isinstance(pod_spec, dict) else None
    if not isinstance(containers, list) or not containers:
        yield Problem(f"{field}.template.spec.containers", "at least one container is needed")
    elif any(not isinstance(container, dict) for container in containers):
        yield Problem(f"{field}.template.spec.containers", "every entry must be a container")
    yield from _of_policies(task.policies or [], f"{field}.policies")


def _of_policies(policies: list[Policy], field: str) -> Iterator[Problem]:
    seen: set[str | int] = set()
    for index, policy in enumerate(policies):
        here = f"{field}[{index}]"
        if policy.action not in ACTIONS:
            yield Problem(
                f"{here}.action", f"{policy.action!r} is none of {', '.join(sorted(ACTIONS))}"
            )
        events = [*([policy.event] if policy.event else []), *(policy.events or ())]
        triggers: list[str | int] = [*events]
        if policy.exit_code is not None:
            triggers.append(policy.exit_code)
            if events:
                yield Problem(here, "event and exitCode exclude each other")
            if policy.exit_code == 0:
                yield Problem(f"{here}.exitCode", "0 is not an error")
        elif not events:
            yield Problem(here, "either an event or an exitCode is needed")
        for event in events:
            if event not in EVENTS:
                yield Problem(f"{here}.event", f"{event!r} is none of {', '.join(EVENTS)}")
            if event == POD_PENDING and policy.timeout is None:
                yield Problem(f"{here}.timeout", f"{POD_PENDING} needs one")
        if policy.timeout is not None and parse_ms(policy.timeout) is None:
            yield Problem(
                f"{here}.timeout", f"{policy.timeout!r} is not a duration such as 30s or 1h10m"
            )
        for trigger in triggers:
            if trigger in seen:
                yield Problem(here, f"{trigger} is there twice")
            seen.add(trigger)
    if ANY in seen and len([trigger for trigger in seen if isinstance(trigger, str)]) > 1:
        yield Problem(field, "'*' covers every event: remove the other events")


def _of_plugins(spec: JobSpec) -> Iterator[Problem]:
    for name, arguments in (spec.plugins or {}).items():
        field = f"spec.plugins[{name}]"
        if name not in NAMES:
            yield Problem(field, f"there is no such plugin; known are {', '.join(NAMES)}")
        for argument, role in needed_roles(name, arguments or ()).items():
            if spec.role(role) is None:
                text = f"there is no task {role!r}: name the {argument} with --{argument}=TASK"
                yield Problem(field, text)


def _of_volumes(spec: JobSpec) -> Iterator[Problem]:
    paths: set[str] = set()
    for index, volume in enumerate(spec.volumes or ()):
        field = f"spec.volumes[{index}]"
        if not volume.mount_path:
            yield Problem(f"{field}.mountPath", "is missing")
        elif volume.mount_path in paths:
            yield Problem(f"{field}.mountPath", f"{volume.mount_path!r} is there twice")
        paths.add(volume.mount_path)
        if bool(volume.volume_claim_name) == bool(volume.volume_claim):
            yield Problem(field, "either volumeClaimName or volumeClaim is needed")


def _of_dependencies(spec: JobSpec) -> Iterator[Problem]:
    """Dependencies must exist, and must not lead back to where they began."""
    needs = {
        task.name: list(task.depends_on.name or ()) if task.depends_on else []
        for task in spec.roles
    }
    for index, task in enumerate(spec.roles):
        field = f"spec.tasks[{index}].dependsOn"
        if task.depends_on and task.depends_on.iteration not in _ITERATIONS:
            yield Problem(f"{field}.iteration", f"{task.depends_on.iteration!r} is not any or all")
        for other in needs[task.name]:
            if other not in needs:
                yield Problem(f"{field}.name", f"there is no task {other!r}")
    settled: set[str] = set()
    while ready := {
        name
        for name, others in needs.items()
        if name not in settled and all(o in settled or o not in needs for o in others)
    }:
        settled |= ready
    if circle := [name for name in needs if name not in settled]:
        yield Problem("spec.tasks", f"dependsOn goes in a circle: {', '.join(circle)}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
