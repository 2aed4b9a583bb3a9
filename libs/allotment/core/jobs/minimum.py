"""What a gang needs at least: `minResources` of the PodGroup of a Job or of pods.

A pod's request is written like a resource quota's usage: every name as it is, and again as
`requests.…` and `limits.…`, and `pods`. Shared GPUs count as the pod asks for them: amounts per
card are not multiplied by the number of cards.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from allotment.core.jobs.model import JobSpec, JsonObject, Priorities, Task
from allotment.core.quantities import QuantityError, milli

Amounts = dict[str, int]
"""Thousandths of the unit (cores, bytes, things) by name."""

_NATIVE = ("cpu", "memory", "ephemeral-storage")


def of_job(spec: JobSpec, priorities: Priorities) -> dict[str, str]:
    """The resources of the pods that a Job's gang consists of, at least.

    Fewer than all roles' minima: the first pods by the roles' priority, each role up to its
    replicas. Else every role's minimum first (in the order of priority, up to the gang's), then
    what is left of the roles, by priority.
    """
    taken = pods_counted(spec, priorities)
    total: Amounts = {}
    for task in spec.roles:
        _add(total, of_pod(task.template.get("spec") or {}), taken[task.name])
    return shown(total)


def pods_counted(spec: JobSpec, priorities: Priorities) -> dict[str, int]:
    """How many pods of each role the gang's minimum is counted from."""
    roles = sorted(spec.roles, key=lambda task: -_priority(task, priorities))
    left = spec.minimum
    taken = {task.name: 0 for task in roles}
    if spec.minimum >= sum(task.minimum for task in roles):
        for task in roles:
            taken[task.name] = min(left, task.minimum)
            left -= taken[task.name]
    for task in roles:
        more = min(left, task.replicas - taken[task.name])
        taken[task.name] += more
        left -= more
    return taken


def of_pods(spec: Mapping[str, Any], pods: int) -> dict[str, str]:
    """The resources of so many pods of one spec."""
    total: Amounts = {}
    _add(total, of_pod(spec), pods)
    return shown(total)


def of_pod(spec: Mapping[str, Any]) -> Amounts:
    """One pod's request as a quota counts it. An amount that cannot be read counts as none."""
    requests = _sum_up(spec, "requests")
    limits = _sum_up(spec, "limits")
    for name, amount in _read(spec.get("overhead")).items():
        requests[name] = requests.get(name, 0) + amount
        if name in limits:
            limits[name] += amount
    found: Amounts = {"pods": 1000}
    for name, amount in requests.items():
        found[name] = found[f"requests.{name}"] = amount
    for name, amount in limits.items():
        if name in _NATIVE:
            found[f"limits.{name}"] = amount
    return found


def _sum_up(spec: Mapping[str, Any], kind: str) -> Amounts:
    """Containers run together with the sidecars; init containers one after the other before."""
    total: Amounts = {}
    for container in _dicts(spec.get("containers")):
        _add(total, _of_container(container, kind), 1)
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in _dicts(spec.get("initContainers")):
        amounts = _of_container(container, kind)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, amounts, 1)
            amounts = {}
        for name in {*amounts, *sidecars}:
            at_once = amounts.get(name, 0) + sidecars.get(name, 0)
            highest[name] = max(highest.get(name, 0), at_once)
    _add(total, sidecars, 1)
    return {
        name: max(total.get(name, 0), highest.get(name, 0)) for name in sorted({*total, *highest})
    }


def _of_container(container: Mapping[str, Any], kind: str) -> Amounts:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return {}
    limits = _read(resources.get("limits"))
    if kind == "limits":
        return limits
    return {**limits, **_read(resources.get("requests"))}  # as the server fills requests in


def _read(amounts: object) -> Amounts:
    found: Amounts = {}
    if isinstance(amounts, dict):
        for name, value in amounts.items():
            try:
                found[str(name)] = milli(str(value))
            except QuantityError:
                continue  # the API server refuses such a pod and says why
    return found


def shown(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as quantities."""
    return {
        name: str(value // 1000) if value % 1000 == 0 else f"{value}m"
        for name, value in sorted(amounts.items())
        if value
    }


def _add(total: Amounts, amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


def _dicts(items: object) -> Iterable[JsonObject]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _priority(task: Task, priorities: Priorities) -> int:
    spec = task.template.get("spec") or {}
    return priorities.get(spec.get("priorityClassName") or "", 0)
