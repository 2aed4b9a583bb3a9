"""PodDisruptionBudgets: what each allows now, kept in its status as the disruption controller does.

The status follows each write to a Pod or a budget at once, so an eviction need not be noted in it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from allotment.core.units import natural
from allotment_local.apiserver.collection import Collection, Entry, Event
from allotment_local.apiserver.errors import ApiError, JsonObject, bad_request
from allotment_local.apiserver.resources import POD_DISRUPTION_BUDGETS, PODS, ResourceKey
from allotment_local.apiserver.selectors import matches_label_selector


class _Objects(Protocol):
    """What is needed of the store (`store.Store`)."""

    def collection(self, resource: ResourceKey) -> Collection: ...

    def replace(self, resource: ResourceKey, old: Entry, new: JsonObject) -> Entry: ...


def is_healthy(pod: JsonObject) -> bool:
    """Whether a budget counts on the Pod."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def budgets_of(objects: _Objects, namespace: str, pod: JsonObject) -> Iterator[JsonObject]:
    """The budgets of its namespace that select the Pod."""
    for entry in objects.collection(POD_DISRUPTION_BUDGETS).entries(namespace):
        if _selects(entry.obj, pod):
            yield entry.obj


def budget_status(objects: _Objects, namespace: str, budget: JsonObject) -> dict[str, int]:
    """What the disruption controller would write. ApiError 400 for what is no amount."""
    spec = budget.get("spec") or {}
    pods = [e.obj for e in objects.collection(PODS).entries(namespace) if _selects(budget, e.obj)]
    healthy = sum(map(is_healthy, pods))
    if spec.get("maxUnavailable") is not None:
        desired = max(len(pods) - _amount(spec["maxUnavailable"], len(pods)), 0)
    else:
        desired = _amount(spec.get("minAvailable", 1), len(pods))
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(healthy - desired, 0),
        "expectedPods": len(pods),
    }


def follow(objects: _Objects, resource: ResourceKey, event: Event) -> None:
    """Called after each write: bring the status of the budgets that it concerns up to date."""
    if resource == POD_DISRUPTION_BUDGETS and event.type != "DELETED":
        _bring_up_to_date(objects, event.entry)
    elif resource == PODS:
        versions = [each.obj for each in (event.entry, event.previous) if each is not None]
        for entry in objects.collection(POD_DISRUPTION_BUDGETS).entries(event.entry.namespace):
            _bring_up_to_date(objects, entry, versions)


def _bring_up_to_date(
    objects: _Objects, entry: Entry, about: Sequence[JsonObject] | None = None
) -> None:
    """Write a budget's status if it changed; `about` these Pods only."""
    try:
        if about is not None and not any(_selects(entry.obj, pod) for pod in about):
            return
        status = budget_status(objects, entry.namespace, entry.obj)
    except ApiError:
        return  # the eviction reports what is wrong with the budget
    if status != entry.obj.get("status"):
        objects.replace(POD_DISRUPTION_BUDGETS, entry, {**entry.obj, "status": status})


def _selects(budget: JsonObject, pod: JsonObject) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return matches_label_selector((budget.get("spec") or {}).get("selector"), labels)


def _amount(value: Any, total: int) -> int:
    """A number of Pods, or a percentage of `total` rounded up."""
    percent = natural(value[:-1]) if isinstance(value, str) and value.endswith("%") else None
    if percent is not None:
        return -(-total * percent // 100)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise bad_request(f"{value!r} is neither a number of Pods nor a percentage")
