"""Evicting a Pod: a delete that first asks the PodDisruptionBudgets."""

from allotment.core.ledger.model import ENDED
from allotment_local.apiserver.budgets import budget_status, budgets_of, is_healthy
from allotment_local.apiserver.errors import JsonObject, too_many_requests
from allotment_local.apiserver.resources import PODS
from allotment_local.apiserver.shapes import EVICTION, shaped
from allotment_local.apiserver.store import Store


def _refuse_if_protected(store: Store, pod: JsonObject) -> None:
    """ApiError 429 when a budget forbids taking this Pod now."""
    if not is_healthy(pod):  # it does not count as available
        return
    namespace = pod["metadata"]["namespace"]
    for budget in budgets_of(store, namespace, pod):
        status = budget_status(store, namespace, budget)
        if status["disruptionsAllowed"] <= 0:
            needs, has = status["desiredHealthy"], status["currentHealthy"]
            name = budget["metadata"]["name"]
            text = (
                f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
            )
            raise too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                [{"reason": "DisruptionBudget", "message": text}],
            )


def evict(
    store: Store, namespace: str, name: str, eviction: JsonObject, *, dry_run: bool = False
) -> None:
    """Delete the Pod gracefully. ApiError 429 when a budget forbids it, 409 on a precondition."""
    store.check_namespace_open(store.registry.stored(PODS), namespace, name)
    pod = store.get(PODS, namespace, name)
    options = shaped(EVICTION, eviction, "").get("deleteOptions") or {}
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

    Written before the deletion, as Kubernetes does, so that a reader of the one sees the other.
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
