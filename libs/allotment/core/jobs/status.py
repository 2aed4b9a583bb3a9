"""The status of a Job, from its pods and its last step, as a merge patch."""

from collections.abc import Iterable
from typing import Any

import msgspec

from allotment.core.jobs import done
from allotment.core.jobs.durations import show_s
from allotment.core.jobs.machine import count, is_final, state_of
from allotment.core.jobs.model import Job, JsonObject, PodView

_CONDITIONS_MAX = 50
"""How many phases a status keeps: the status of a Job that flaps must not grow without limit."""

_PASSING = ("Unschedulable", "NotAdmitted")
"""Reasons that hold only while their cause is observed."""


class Standing(msgspec.Struct, frozen=True):
    """Where a Job stands after a step, and why."""

    phase: str
    retry_count: int
    version: int
    reason: str = ""
    message: str = ""


class Moment(msgspec.Struct, frozen=True):
    """A time, in seconds since 1970 and as Kubernetes writes it."""

    s: int
    text: str


def patch(
    job: Job,
    standing: Standing,
    pods: Iterable[PodView],
    doomed: frozenset[str],
    now: Moment,
    started_s: int,
) -> JsonObject:
    """What to change in the status; empty when it is up to date.

    `started_s`: when the Job first ran, 0 if it never did.
    """
    known = list(pods)
    counts = count(known, doomed)
    enters = standing.phase != job.phase
    wanted: JsonObject = {
        "state": _state(job, standing, now),
        "minAvailable": job.spec.minimum,
        "version": standing.version,
        "retryCount": standing.retry_count,
        "pending": counts.pending,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "terminating": counts.terminating,
        "unknown": counts.unknown,
        "taskStatusCount": _by_role(known, doomed),
        "controlledResources": {
            **_controlled(job),
            **done.controlled(known, standing.version, doomed),
        },
    }
    if enters:
        entered = {"status": standing.phase, "lastTransitionTime": now.text}
        wanted["conditions"] = [*(job.status.conditions or ()), entered][-_CONDITIONS_MAX:]
        if is_final(standing.phase) and started_s:
            wanted["runningDuration"] = show_s(now.s - started_s)
    return difference(msgspec.to_builtins(job.status), wanted)


def _controlled(job: Job) -> JsonObject:
    """What the Job's plugins control. An entry for `ssh` is kept: it is written once, when the name
    of the Secret was found to be free.
    """
    known = job.status.controlled_resources or {}
    named = {f"plugin-{name}": name for name in sorted(job.spec.plugins or {})}
    return {key: name for key, name in named.items() if name != "ssh" or key in known}


def _state(job: Job, standing: Standing, now: Moment) -> JsonObject:
    """A reason stays as long as the phase does, unless it is a passing one."""
    before = job.status.state
    enters = standing.phase != before.phase
    reason, message = standing.reason, standing.message
    if not enters and not reason and before.reason not in _PASSING:
        reason, message = before.reason, before.message
    state = {"phase": standing.phase, "reason": reason, "message": message}
    shown = {name: text or None for name, text in state.items()}
    shown["lastTransitionTime"] = now.text if enters else before.last_transition_time
    return shown


def _by_role(pods: Iterable[PodView], doomed: frozenset[str]) -> JsonObject:
    """Pods by role and what they do, as `status.taskStatusCount` has it."""
    found: dict[str, dict[str, int]] = {}
    for pod in pods:
        of_role = found.setdefault(pod.role, {})
        phase = state_of(pod, doomed)
        of_role[phase] = of_role.get(phase, 0) + 1
    return {role: {"phase": dict(sorted(found[role].items()))} for role in sorted(found)}


def difference(old: Any, new: JsonObject) -> JsonObject:
    """The merge patch that turns what `old` says of the fields of `new` into them.

    Below the first level what only `old` has is taken away.
    """
    return _difference(old if isinstance(old, dict) else {}, new, is_top=True)


def _difference(old: JsonObject, new: JsonObject, *, is_top: bool) -> JsonObject:
    changed: JsonObject = {}
    for name, want in new.items():
        has = old.get(name)
        if isinstance(want, dict) and isinstance(has, dict):
            if below := _difference(has, want, is_top=False):
                changed[name] = below
        elif has != want and not (want == {} and has is None):
            changed[name] = want
    if not is_top:
        changed |= {name: None for name in old if name not in new}
    return changed
