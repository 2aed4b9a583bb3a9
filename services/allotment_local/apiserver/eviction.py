"""Evicting a Pod: a delete that first asks the PodDisruptionBudgets.

No disruption controller runs here, so the budget is counted when it is asked for.
"""

from typing import Any

from allotment.core.units import natural
from allotment_local.apiserver.errors import JsonObject, bad_request, too_many_requests
from allotment_local.apiserver.resources import POD_DISRUPTION_BUDGETS, PODS
from allotment_local.apiserver.selectors import matches_label_selector
from allotment_local.apiserver.shapes import EVICTION
from allotment_local.apiserver.store import Store

RETRY_AFTER_S = 10


def _amount(value: Any, total: int) -> int:
    """A number of Pods, or a percentage of `total` rounded up."""
    percent = natural(value[:-1]) if isinstance(value, str) and value.endswith("%") else None
    if percent is not None:
        return -(-total * percent // 100)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise bad_request(f"{value!r} is neither a number of Pods nor a percentage")


def _is_healthy(pod: JsonObject) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _disruptions_allowed(budget: JsonObject, pods: list[JsonObject]) -> int:
    spec = budget.get("spec") or {}
    healthy = sum(1 for pod in pods if _is_healthy(pod))
    if spec.get("maxUnavailable") is not None:
        needed = len(pods) - _amount(spec["maxUnavailable"], len(pods))
    else:
        needed = _amount(spec.get("minAvailable", 1), len(pods))
    return healthy - needed


def _refuse_if_protected(store: Store, pod: JsonObject) -> None:
    """ApiError 429 when a budget forbids taking this Pod now."""
    if not _is_healthy(pod):  # nobody counts on it
        return
    labels = pod["metadata"].get("labels") or {}
    namespace = pod["metadata"]["namespace"]
    budgets, _ = store.list(POD_DISRUPTION_BUDGETS, namespace)
    for budget in budgets:
        selector = (budget.get("spec") or {}).get("selector")
        if not matches_label_selector(selector, labels):
            continue
        covered = [
            other
            for other in store.list(PODS, namespace)[0]
            if matches_label_selector(selector, other["metadata"].get("labels") or {})
        ]
        if _disruptions_allowed(budget, covered) <= 0:
            name = budget["metadata"]["name"]
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {name} does not allow another disruption now",
            }
            raise too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                RETRY_AFTER_S,
                [cause],
            )


def evict(
    store: Store, namespace: str, name: str, eviction: JsonObject, *, dry_run: bool = False
) -> None:
    """Delete the Pod gracefully. ApiError 429 when a budget forbids it, 409 on a precondition."""
    pod = store.get(PODS, namespace, name)
    options = EVICTION.take(eviction, "").get("deleteOptions") or {}
    _refuse_if_protected(store, pod)
    store.remove(
        PODS,
        namespace,
        name,
        grace_seconds=options.get("gracePeriodSeconds"),
        preconditions=options.get("preconditions"),
        dry_run=dry_run or bool(options.get("dryRun")),
    )
