"""Creating over HTTP: what is filled in, what is refused, in whose words."""

import pytest
from tests.contract.local_apiserver import node, pod, running

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_new_pod_is_identified_and_defaulted() -> None:
    async with running() as api:
        created = await api.post(PODS, pod("p"))
        assert created["kind"] == "Pod"
        metadata = created["metadata"]
        assert metadata["namespace"] == "default"
        assert metadata["creationTimestamp"] == "2026-03-01T12:00:00Z"
        assert metadata["uid"].startswith("uid-")
        assert int(metadata["resourceVersion"]) == api.store.resource_version
        spec = created["spec"]
        assert spec["schedulerName"] == "default-scheduler"
        assert spec["priority"] == 0
        assert spec["preemptionPolicy"] == "PreemptLowerPriority"
        assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_names_can_be_generated() -> None:
    async with running() as api:
        body = {**pod(), "metadata": {"generateName": "web-"}}
        names = {(await api.post(PODS, body))["metadata"]["name"] for _ in range(5)}
        assert len(names) == 5
        assert all(name.startswith("web-") and len(name) == 9 for name in names)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (PODS, b"{", 400, "not JSON"),
        (PODS, b"[]", 400, "not an object"),
        (PODS, {**pod(), "kind": "Node"}, 400, "cannot be handled as a Pod"),
        (PODS, {**pod(), "apiVersion": "v2"}, 400, "does not match the expected API version (v1)"),
        (PODS, {**pod(), "metadata": 3}, 400, "metadata: 3 is not an object"),
        (PODS, {**pod(), "metadata": {"name": "x", "labels": {"a": 1}}}, 400, "metadata.labels[a]"),
        (PODS, {"metadata": {"name": "x", "namespace": "other"}}, 400, "does not match"),
        (PODS, {**pod(), "metadata": {}}, 422, "name or generateName is required"),
        (PODS, pod("Upper"), 422, 'metadata.name: Invalid value: "Upper"'),
        (PODS, {"metadata": {"name": "x"}}, 422, "spec.containers: Required value"),
        (PODS, {"metadata": {"name": "x"}, "spec": {"containers": [3]}}, 400, "spec.containers[0]"),
        (PODS, pod(containers=[{"image": "i"}]), 422, "spec.containers[0].name: Required value"),
        ("/api/v1/namespaces/absent/pods", pod(), 404, 'namespaces "absent" not found'),
        ("/api/v1/namespaces/default/nothing", pod(), 404, "could not find the requested resource"),
        ("/api/v1/pods", pod(), 400, "is namespaced"),
        (PODS, pod(resources={"limits": {"x.io/y": 1}}), 422, "spec.resources.limits[x.io/y]"),
        (
            PODS,
            pod(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
            422,
            "less than or equal to cpu limit",
        ),
        (NODES, node(cpu="much"), 422, "status.capacity[cpu]"),
    ],
)
async def test_bad_bodies_are_refused_with_a_status(
    path: str, body: object, status: int, words: str
) -> None:
    async with running() as api:
        refusal = await api.post(path, body, status=status)
        assert refusal["kind"] == "Status"
        assert refusal["status"] == "Failure"
        assert refusal["code"] == status
        assert words in refusal["message"]


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        ({"cpu": "-1"}, {}, 'limits[cpu]: Invalid value: "-1": must be greater than or equal'),
        ({"memory": "lots"}, {}, 'limits[memory]: Invalid value: "lots": quantities must match'),
        ({"a.io/gpu": "1.5"}, {}, 'limits[a.io/gpu]: Invalid value: "1.5": must be an integer'),
        ({"a.io/gpu": "500m"}, {}, "must be an integer"),
        ({"a.io/gpu": "2"}, {"a.io/gpu": "1"}, "must be equal to a.io/gpu limit of 2"),
        ({}, {"a.io/gpu": "1"}, "Limit must be set for non overcommitable resources: a.io/gpu"),
        ({"cpu": "1"}, {"cpu": "2"}, "must be less than or equal to cpu limit of 1"),
        ({"gpu": "1"}, {}, "must be a standard resource type or fully qualified"),
    ],
)
async def test_amounts_are_checked_and_the_field_is_named(
    limits: dict[str, str], requests: dict[str, str], words: str
) -> None:
    resources = {"limits": limits, "requests": requests}
    body = pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    async with running() as api:
        refusal = await api.post(PODS, body, status=422)
        assert words in refusal["message"]
        assert refusal["details"]["causes"][0]["field"].startswith("spec.containers[0].resources.")


async def test_requests_default_to_limits_and_numbers_become_quantities() -> None:
    resources = {"limits": {"cpu": 0.5, "volcano.sh/vgpu-number": 1}, "requests": {"memory": "1Gi"}}
    async with running() as api:
        body = pod(containers=[{"name": "c", "image": "i", "resources": resources}])
        created = await api.post(PODS, body)
        stored = created["spec"]["containers"][0]["resources"]
        assert stored["limits"] == {"cpu": "500m", "volcano.sh/vgpu-number": "1"}
        assert stored["requests"] == {**stored["limits"], "memory": "1Gi"}
        same = await api.call("PUT", f"{PODS}/p", {**created, "spec": body["spec"]})
        assert same == created


async def test_the_priority_class_decides_the_priority() -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    async with running() as api:
        await api.post(classes, {"metadata": {"name": "high"}, "value": 1000})
        created = await api.post(PODS, pod("a", priorityClassName="high"))
        assert created["spec"]["priority"] == 1000
        refusal = await api.post(PODS, pod("b", priorityClassName="absent"), status=403)
        assert "no PriorityClass with name absent was found" in refusal["message"]
        refusal = await api.post(PODS, pod("b", priority=7), status=403)
        assert "must not be provided in pod spec" in refusal["message"]
        await api.post(classes, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
        assert (await api.post(PODS, pod("b")))["spec"]["priorityClassName"] == "usual"
        refusal = await api.patch(f"{classes}/high", {"value": 2}, status=422)
        assert "may not be changed" in refusal["message"]


async def test_creating_twice_conflicts() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        refusal = await api.post(PODS, pod("p"), status=409)
        assert refusal["reason"] == "AlreadyExists"
        assert refusal["details"] == {"name": "p", "group": "", "kind": "pods"}


async def test_a_dry_run_changes_nothing() -> None:
    async with running() as api:
        before = api.store.resource_version
        assert (await api.post(PODS, pod("p"), dryRun="All"))["metadata"]["uid"]
        await api.get(f"{PODS}/p", status=404)
        await api.post(PODS, {"metadata": {"name": "x"}}, status=422, dryRun="All")
        await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
        changed = await api.patch(f"{CONFIG_MAPS}/c", {"data": {"a": "b"}}, dryRun="All")
        assert changed["data"] == {"a": "b"}
        assert "data" not in await api.get(f"{CONFIG_MAPS}/c")
        await api.call("DELETE", f"{CONFIG_MAPS}/c", dryRun="All")
        assert api.store.resource_version == before + 1
        await api.post(PODS, pod("p"), status=400, dryRun="Some")


async def test_times_with_microseconds_need_all_six_digits() -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    async with running() as api:
        for bad in ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00+00:00", "now", 5):
            body = {"metadata": {"name": "l"}, "spec": {"renewTime": bad}}
            assert "spec.renewTime" in (await api.post(leases, body, status=400))["message"]
        good = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-03-01T12:00:00.000000Z"}}
        created = await api.post(leases, good)
        assert "generation" not in created["metadata"]
        stale = {**created, "spec": {"renewTime": "2026-03-01T12:00:01.000000Z"}}
        await api.call("PUT", f"{leases}/l", stale)
        await api.call("PUT", f"{leases}/l", stale, status=409)


async def test_events_have_two_faces_and_rules() -> None:
    new_face = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        "metadata": {"name": "p.1"},
        "eventTime": "2026-03-01T12:00:00.000001Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "type": "Warning",
        "note": "0/1 nodes are available",
        "reportingController": "allotment",
        "reportingInstance": "allotment-0",
    }
    async with running() as api:
        created = await api.post(new_face, event)
        assert created["apiVersion"] == "events.k8s.io/v1"
        assert created["note"] == event["note"]
        old = await api.get("/api/v1/namespaces/default/events/p.1")
        assert old["apiVersion"] == "v1"
        assert old["message"] == event["note"]
        assert old["involvedObject"] == event["regarding"]
        series = {"series": {"count": 2, "lastObservedTime": "2026-03-01T12:00:01.000000Z"}}
        patched = await api.patch(f"{new_face}/p.1", series)
        assert patched["series"]["count"] == 2
        assert patched["note"] == event["note"]
        chosen = await api.get(new_face, fieldSelector="regarding.name=p,reason=FailedScheduling")
        assert len(chosen["items"]) == 1
        for change, field in (
            ({"type": "Bad"}, "type"),
            ({"note": "x" * 1025}, "note"),
            ({"action": ""}, "action"),
            ({"regarding": {"namespace": "other"}}, "involvedObject.namespace"),
        ):
            body = {**event, **change, "metadata": {"name": "p.2"}}
            refusal = await api.post(new_face, body, status=422)
            assert [cause["field"] for cause in refusal["details"]["causes"]] == [field]
        async with api.watch(new_face) as events:
            type_, seen = await events.next()
            assert (type_, seen["apiVersion"]) == ("ADDED", "events.k8s.io/v1")


async def test_secrets_keep_plain_strings_encoded() -> None:
    async with running() as api:
        body = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}
        created = await api.post("/api/v1/namespaces/default/secrets", body)
        assert created["data"] == {"a": "Yg==", "c": "ZA=="}
        assert created["type"] == "Opaque"
        assert "stringData" not in created
