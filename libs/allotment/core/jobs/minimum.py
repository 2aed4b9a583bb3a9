"""The least that a gang needs: `minResources` of the PodGroup of a Job or of pods.

A pod's request is written like a resource quota's usage: every name as it is, and again as
`requests.…` and `limits.…`, and `pods` and `count/pods`. Amounts are Kubernetes' canonical
quantities, with binary suffixes where the first pod spec that asks for any has one. Shared GPUs
count as the pod asks for them: amounts per card are not multiplied by the number of cards.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from allotment.core import pod_totals
from allotment.core.jobs.model import JobSpec, JsonObject, Priorities, Task
from allotment.core.jobs.templates import as_dict
from allotment.core.units import QuantityError, canonical_text, is_binary, milli

_Amounts = dict[str, int]
"""Thousandths of the unit (cores, bytes, things) by name."""

_NATIVE = ("cpu", "memory", "ephemeral-storage")


def of_job(spec: JobSpec, priorities: Priorities) -> dict[str, str]:
    """The resources of the pods that a Job's gang consists of, at least.

    Fewer than all roles' minima: the first pods by the roles' priority, each role up to its
    replicas. Else every role's minimum first (in the order of priority, up to the gang's), then
    what is left of the roles, by priority.
    """
    taken = pods_counted(spec, priorities)
    total: _Amounts = {}
    for task in spec.roles:
        _add(total, _of_pod(task.template.get("spec") or {}), taken[task.name])
    counted = [task.template.get("spec") or {} for task in spec.roles if taken[task.name]]
    return _shown(total, counted)


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
    total: _Amounts = {}
    _add(total, _of_pod(spec), pods)
    return _shown(total, [spec])


def _of_pod(spec: Mapping[str, Any]) -> _Amounts:
    """One pod's request as a quota counts it. An amount that cannot be read counts as none."""
    own, overhead = spec.get("resources"), _read(spec.get("overhead"))
    said = own if isinstance(own, dict) else {}
    own_limits = _read(said.get("limits"))
    containers = _of_containers(spec, "requests")
    own_requests = pod_totals.own_requests(_read(said.get("requests")), own_limits, containers)
    requests = pod_totals.in_all(containers, own_requests, overhead)
    limits = pod_totals.in_all(_of_containers(spec, "limits"), own_limits, {})
    for name in overhead.keys() & limits.keys():
        limits[name] += overhead[name]
    found: _Amounts = {"pods": 1000, "count/pods": 1000}
    for name, amount in requests.items():
        found[name] = found[f"requests.{name}"] = amount
    for name, amount in limits.items():
        if name in _NATIVE:
            found[f"limits.{name}"] = amount
    return found


def _of_containers(spec: Mapping[str, Any], kind: str) -> pod_totals.Amounts:
    return pod_totals.of_containers(
        [_of_container(container, kind) for container in _dicts(spec.get("containers"))],
        [
            (_of_container(container, kind), container.get("restartPolicy") == "Always")
            for container in _dicts(spec.get("initContainers"))
        ],
    )


def _of_container(container: Mapping[str, Any], kind: str) -> _Amounts:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return {}
    limits = _read(resources.get("limits"))
    if kind == "limits":
        return limits
    return {**limits, **_read(resources.get("requests"))}  # as the API server defaults requests


def _read(amounts: object) -> _Amounts:
    found: _Amounts = {}
    if isinstance(amounts, dict):
        for name, value in amounts.items():
            try:
                found[str(name)] = milli(str(value))
            except QuantityError:
                continue  # the API server rejects such a pod and says why
    return found


def _shown(amounts: Mapping[str, int], specs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Amounts as quantities, spelled as the pod specs spell theirs."""
    binary: dict[str, bool] = {}
    for spec in specs:
        for name, text in _texts(spec):
            binary.setdefault(name, is_binary(text))
    return {
        name: canonical_text(value, binary=binary.get(name, False))
        for name, value in sorted(amounts.items())
        if value
    }


def _texts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All amounts above 0 of a pod spec, by the names that they add to."""
    holders = [*_dicts(spec.get("containers")), *_dicts(spec.get("initContainers")), spec]
    for holder in holders:
        resources = as_dict(holder.get("resources"))
        limits, requests = as_dict(resources.get("limits")), as_dict(resources.get("requests"))
        overhead = as_dict(holder.get("overhead"))
        for name, text in _positive({**limits, **requests, **overhead}):
            yield from ((name, text), (f"requests.{name}", text))
        for name, text in _positive({**limits, **overhead}):
            yield f"limits.{name}", text


def _positive(amounts: JsonObject) -> Iterator[tuple[str, str]]:
    for name, amount in _read(amounts).items():
        if amount:
            yield name, str(amounts[name])


def _add(total: _Amounts, amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


def _dicts(items: object) -> Iterable[JsonObject]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _priority(task: Task, priorities: Priorities) -> int:
    spec = task.template.get("spec") or {}
    return priorities.get(spec.get("priorityClassName") or "", 0)
