"""What the binder writes about pods: Bindings, conditions, evictions and Events."""

from typing import Any

import pytest
from tests.apiserver.servers import NAMESPACES, Api, Json, done, pod, refused

from allotment.adapters.kube.client import STRATEGIC_PATCH, pod_path
from allotment.adapters.kube.events import (
    create_event,
    pod_event,
    refuse_pod,
    unschedulable_patch,
    withdrawing_patch,
)
from allotment.adapters.kube.result import KubeResult

pytestmark = pytest.mark.anyio
TIME_NS = 1_790_000_000_123_456_789
POLICY = "policy/v1"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def condition_of(pod: Json, kind: str) -> Json:
    """The pod's condition of this kind, or an empty one."""
    found: Json = next((c for c in pod["status"].get("conditions", ()) if c["type"] == kind), {})
    return {key: value for key, value in found.items() if value is not None}


async def set_status(api: Api, name: str, status: Json) -> Json:
    path = pod_path(api.namespace, name, "status")
    return done(await api.client.patch(path, {"status": status}, STRATEGIC_PATCH))


async def test_a_binding_writes_node_annotations_and_condition_at_once(api: Api) -> None:
    made = await api.pod("a")
    await set_status(api, "a", {"nominatedNodeName": "n", "conditions": [READY]})
    notes = {"volcano.sh/vgpu-node": "n", "x.y/z": "1"}
    before = await api.read(api.at("pods", "a"))
    answer = done(await api.client.bind(api.namespace, "a", uid_of(made), "n", notes))
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    bound = await api.read(api.at("pods", "a"))
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["annotations"] == notes
    assert bound["metadata"]["generation"] == before["metadata"]["generation"]
    assert "nominatedNodeName" not in bound["status"]
    scheduled = condition_of(bound, "PodScheduled")
    assert (scheduled["status"], set(scheduled)) == (
        "True",
        {"type", "status", "lastTransitionTime"},
    )
    assert condition_of(bound, "Ready")["status"] == "True"


async def test_a_second_binding_or_another_pod_is_refused(api: Api) -> None:
    made = await api.pod("a")

    async def bind(uid: str, node: str = "n", pod: str = "a") -> KubeResult:
        return await api.client.bind(api.namespace, pod, uid, node, {})

    another = refused(await bind("another"), 409, "Conflict")
    assert "Precondition failed: UID in precondition: another" in another.message
    refused(await bind(uid_of(made), pod="absent"), 404, "NotFound")
    done(await bind(uid_of(made)))
    for node in ("n", "m"):
        again = refused(await bind(uid_of(made), node), 409, "Conflict")
        assert 'pod a is already assigned to node "n"' in again.message
    done(await api.client.delete(api.at("pods", "a")))
    assert "deletionTimestamp" in (await api.read(api.at("pods", "a")))["metadata"]
    ending = refused(await bind(uid_of(made)), 409, "Conflict")
    assert "pod a is being deleted, cannot be assigned to a host" in ending.message
    done(await api.client.delete(api.at("pods", "a"), grace_s=0))
    refused(await api.client.get(api.at("pods", "a")), 404, "NotFound")


async def test_a_gated_pod_is_not_bound(api: Api) -> None:
    made = await api.pod("a", schedulingGates=[{"name": "x.y/gate"}])
    condition = condition_of(made, "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    answer = await api.client.bind(api.namespace, "a", uid_of(made), "n", {})
    assert "pod a has non-empty .spec.schedulingGates" in refused(answer, 409, "Conflict").message
    freed = done(await api.client.patch(api.at("pods", "a"), {"spec": {"schedulingGates": None}}))
    assert "schedulingGates" not in freed["spec"]
    assert condition_of(freed, "PodScheduled") == condition  # whoever schedules it replaces it
    done(await api.client.bind(api.namespace, "a", uid_of(made), "n", {}))


async def test_a_refused_pod_says_why_and_keeps_its_other_conditions(api: Api) -> None:
    made = await api.pod("a")
    await set_status(api, "a", {"conditions": [READY]})

    async def refuse(patch: Json) -> KubeResult:
        return await refuse_pod(api.client, api.namespace, "a", patch)

    patch = unschedulable_patch(uid_of(made), "Unschedulable", "no room", TIME_NS, 1)
    first = done(await refuse(patch))
    assert condition_of(first, "PodScheduled") == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
        "lastTransitionTime": "2026-09-21T14:13:20Z",
        "observedGeneration": 1,
    }
    assert condition_of(first, "Ready")["status"] == "True"
    second = done(await refuse(unschedulable_patch(uid_of(made), "Unschedulable", "less room")))
    assert condition_of(second, "PodScheduled") == {
        **condition_of(first, "PodScheduled"),
        "message": "less room",
    }
    unchanged = done(await refuse(unschedulable_patch(uid_of(made), "Unschedulable", "less room")))
    assert unchanged["metadata"] == second["metadata"]
    another = await refuse(unschedulable_patch("another", "Unschedulable", "no"))
    assert "field is immutable" in refused(another, 409, "Conflict").message
    old = withdrawing_patch(uid_of(made), first["metadata"]["resourceVersion"])
    refused(await refuse(old), 409, "Conflict")
    newest = withdrawing_patch(uid_of(made), second["metadata"]["resourceVersion"])
    withdrawn = done(await refuse(newest))
    assert condition_of(withdrawn, "PodScheduled") == {}
    assert condition_of(withdrawn, "Ready")["status"] == "True"


async def test_status_is_written_at_its_own_place_only(api: Api) -> None:
    made = await api.pod("a")
    path = api.at("pods", "a")
    status = {"status": {"phase": "Running"}, "metadata": {"labels": {"new": "1"}}}
    ignored = done(await api.client.patch(path, {"status": status["status"]}))
    assert ignored["status"]["phase"] == "Pending"
    assert ignored["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    running = done(await api.client.patch(f"{path}/status", {**status, "spec": {"nodeName": "n"}}))
    assert running["status"]["phase"] == "Running"
    assert "nodeName" not in running["spec"]
    assert running["metadata"]["labels"] == {"app": "a", "new": "1"}


async def test_what_is_fixed_about_a_pod_stays(api: Api) -> None:
    await api.pod("a")
    path = api.at("pods", "a")
    changed: list[Json] = [
        {"nodeName": "n"},
        {"schedulerName": "other"},
        {"nodeSelector": {"a": "b"}},
        {"schedulingGates": [{"name": "x.y/late"}]},
    ]
    for spec in changed:
        refused(await api.client.patch(path, {"spec": spec}, STRATEGIC_PATCH), 422, "Invalid")
    notes = {"metadata": {"annotations": {"x.y/z": "1"}}}
    assert done(await api.client.patch(path, notes))["metadata"]["annotations"] == {"x.y/z": "1"}


async def test_an_eviction_asks_the_budget(api: Api) -> None:
    budget = {
        "apiVersion": POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guarded": "yes"}}},
    }
    await api.create("poddisruptionbudgets", budget, POLICY)
    pods = []
    for name in ("a", "b"):
        made = await api.pod(name)
        labels = {"metadata": {"labels": {"guarded": "yes"}}}
        done(await api.client.patch(api.at("pods", name), labels))
        done(await api.client.bind(api.namespace, name, uid_of(made), "n", {}))
        pods.append(made)
    await _ready(api, "a", of=2, healthy=1)
    protected = refused(await _evict(api, pods[0]), 429, "TooManyRequests")
    (cause,) = protected.details["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert protected.message.startswith("Cannot evict pod as it would violate")
    assert api.client.throttled == 1
    await _ready(api, "b", of=2, healthy=2)
    done(await _evict(api, pods[0]))
    ending = await api.read(api.at("pods", "a"))
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
    target = condition_of(ending, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    refused(await _evict(api, {"metadata": {"name": "absent", "uid": "u"}}), 404, "NotFound")


async def _evict(api: Api, pod: Json) -> KubeResult:
    """As the binder does."""
    name = pod["metadata"]["name"]
    body: dict[str, Any] = {
        "apiVersion": POLICY,
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": api.namespace},
        "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
    }
    return await api.client.create(pod_path(api.namespace, name, "eviction"), body)


async def _ready(api: Api, name: str, *, of: int, healthy: int) -> None:
    """Let a pod be ready, and the budget know; the real server alone has no controller for that."""
    await set_status(api, name, {"phase": "Running", "conditions": [READY]})
    status = {
        "observedGeneration": 1,
        "currentHealthy": healthy,
        "desiredHealthy": 1,
        "disruptionsAllowed": healthy - 1,
        "expectedPods": of,
    }
    path = api.at("poddisruptionbudgets", "b/status", POLICY)
    done(await api.client.patch(path, {"status": status}))


async def test_an_event_is_seen_under_both_groups(api: Api) -> None:
    made = await api.pod("a")
    event = pod_event(
        namespace=api.namespace,
        pod="a",
        uid=uid_of(made),
        kind="Warning",
        reason="FailedScheduling",
        action="Scheduling",
        note="no room",
        time_ns=TIME_NS,
        unique=7,
        controller="allotment.dev/scheduler",
        instance="allotment-binder-0",
    )
    done(await create_event(api.client, event))
    refused(await create_event(api.client, event), 409, "AlreadyExists")
    fields = {"fieldSelector": f"involvedObject.name=a,involvedObject.uid={uid_of(made)}"}
    (seen,) = done(await api.client.list(api.at("events"), fields))["items"]
    assert (seen["message"], seen["reason"], seen["type"]) == (
        "no room",
        "FailedScheduling",
        "Warning",
    )
    assert seen["involvedObject"]["uid"] == uid_of(made)
    assert seen["eventTime"] == "2026-09-21T14:13:20.123456Z"
    assert (seen["reportingComponent"], seen["reportingInstance"]) == (
        "allotment.dev/scheduler",
        "allotment-binder-0",
    )
    for field, value in (
        ("note", "x" * 1025),
        ("reportingInstance", ""),
        ("action", ""),
        ("reportingController", ""),
        ("type", "Other"),
    ):
        other = {**event, "metadata": {**event["metadata"], "name": f"a.{field.lower()}"}}
        refused(await create_event(api.client, {**other, field: value}), 422, "Invalid")
    short = {**event, "eventTime": "2026-09-21T14:13:20.12Z"}
    refused(await create_event(api.client, short), 400, "BadRequest")


async def test_a_namespace_that_ends_takes_nothing_new(api: Api) -> None:
    """Neither a Binding nor an eviction nor an Event; what is there can still be changed."""
    held = ["allotment.dev/held"]
    body = pod("a")
    body["metadata"]["finalizers"] = held
    made = await api.create("pods", body)
    done(await api.client.delete(f"{NAMESPACES}/{api.namespace}"))
    event = pod_event(
        namespace=api.namespace,
        pod="a",
        uid=uid_of(made),
        kind="Normal",
        reason="Waiting",
        action="Scheduling",
        note="no room",
        time_ns=TIME_NS,
        unique=8,
        controller="allotment.dev/scheduler",
        instance="allotment-binder-0",
    )
    for answer in (
        await api.client.bind(api.namespace, "a", uid_of(made), "n", {}),
        await _evict(api, made),
        await create_event(api.client, event),
        await api.client.create(api.at("pods"), pod("b")),
    ):
        said = refused(answer, 403, "Forbidden")
        assert f"namespace {api.namespace} because it is being terminated" in said.message
        assert [cause["reason"] for cause in said.details["causes"]] == ["NamespaceTerminating"]
    await set_status(api, "a", {"phase": "Running"})
    done(await api.client.patch(api.at("pods", "a"), {"metadata": {"finalizers": None}}))
