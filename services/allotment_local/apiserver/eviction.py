"""Evicting a Pod: a delete that first asks the PodDisruptionBudgets.

No disruption controller runs here, so the budget is counted when it is asked for.
"""

from typing import Any

from allotment.core.ledger.model import ENDED
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
    grace_s, preconditions = options.get("gracePeriodSeconds"), options.get("preconditions")
    store.remove(
        PODS, namespace, name, grace_seconds=grace_s, preconditions=preconditions, dry_run=True
    )
    if dry_run or options.get("dryRun"):
        return
    _say_why(store, pod)
    store.remove(PODS, namespace, name, grace_seconds=grace_s)


def _say_why(store: Store, pod: JsonObject) -> None:
    """The condition by which a Pod's owner knows what ended it; of one that ended it says nothing.

    Written before the deletion, as Kubernetes does, so that whoever sees the one sees the other.
    """
    metadata, status = pod["metadata"], pod.get("status") or {}
    if "deletionTimestamp" in metadata or status.get("phase") in ENDED:
        return
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": store.now(),
    }
    others = [c for c in status.get("conditions") or () if c.get("type") != condition["type"]]
    patch = {"status": {"conditions": [*others, condition]}}
    store.merge_patch(PODS, metadata["namespace"], metadata["name"], patch, subresource="status")
