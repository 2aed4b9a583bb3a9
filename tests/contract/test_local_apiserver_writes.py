"""Creating, changing and deleting over HTTP: what is filled in, what is refused, in whose words."""

import json

import pytest
from tests.contract.local_apiserver import Api, node, pod, running

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


async def test_a_stale_writer_is_told_so_and_a_write_of_nothing_is_none() -> None:
    async with running() as api:
        first = await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
        second = await api.call("PUT", f"{CONFIG_MAPS}/c", {**first, "data": {"a": "2"}})
        refusal = await api.call("PUT", f"{CONFIG_MAPS}/c", {**first, "data": {}}, status=409)
        assert refusal["reason"] == "Conflict"
        assert "the object has been modified" in refusal["message"]
        stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}}
        await api.patch(f"{CONFIG_MAPS}/c", stale, status=409)
        again = await api.call("PUT", f"{CONFIG_MAPS}/c", second)
        assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        other = {**second, "metadata": {**second["metadata"], "uid": "another"}}
        refusal = await api.call("PUT", f"{CONFIG_MAPS}/c", other, status=409)
        assert "UID in precondition" in refusal["message"]


async def test_status_and_spec_are_written_at_their_own_doors() -> None:
    async with running() as api:
        created = await api.post(PODS, pod("p"))
        claimed = {**created, "status": {"phase": "Failed"}}
        assert (await api.call("PUT", f"{PODS}/p", claimed))["status"] == created["status"]
        sneaky = {**claimed, "spec": {**created["spec"], "schedulerName": "other"}}
        changed = await api.call("PUT", f"{PODS}/p/status", sneaky)
        assert changed["status"] == {"phase": "Failed"}
        assert changed["spec"] == created["spec"]
        assert (await api.get(f"{PODS}/p/status"))["status"] == {"phase": "Failed"}
        await api.post(NODES, node("n"))
        assert (await api.get(f"{NODES}/n"))["status"]["capacity"]["cpu"] == "8"


async def test_what_is_fixed_about_a_pod() -> None:
    async with running() as api:
        created = await api.post(PODS, pod("p"))
        for spec in ({"nodeName": "n"}, {"schedulerName": "other"}, {"nodeSelector": {"a": "b"}}):
            refusal = await api.patch(f"{PODS}/p", {"spec": spec}, status=422)
            assert "pod updates may not change fields other than" in refusal["message"]
        changed = await api.patch(
            f"{PODS}/p",
            {"spec": {"containers": [{"name": "c", "image": "i:2"}]}},
            "strategic-merge",
        )
        assert changed["spec"]["containers"][0]["image"] == "i:2"
        assert changed["metadata"]["generation"] == created["metadata"]["generation"] + 1
        gate = {"spec": {"schedulingGates": [{"name": "late"}]}}
        assert "only deletion" in (await api.patch(f"{PODS}/p", gate, status=422))["message"]


async def test_a_gated_pod_says_so_until_the_gate_is_gone() -> None:
    async with running() as api:
        created = await api.post(PODS, pod("p", schedulingGates=[{"name": "wait"}]))
        assert created["status"]["conditions"][0]["reason"] == "SchedulingGated"
        narrowed = await api.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}})
        assert narrowed["spec"]["nodeSelector"] == {"a": "b"}
        freed = await api.patch(f"{PODS}/p", {"spec": {"schedulingGates": None}})
        assert freed["status"]["conditions"] == []


async def test_patches_of_every_kind() -> None:
    async with running() as api:
        await api.post(NODES, node("n"))
        url = f"{NODES}/n"
        taints = [{"key": "a", "effect": "NoSchedule"}]
        await api.patch(url, {"spec": {"taints": taints}}, "strategic-merge")
        changed = await api.patch(url, {"spec": {"taints": [{"key": "b"}]}}, "strategic-merge")
        assert changed["spec"]["taints"] == [{"key": "b"}]
        condition = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        changed = await api.patch(f"{url}/status", condition, "strategic-merge")
        assert changed["status"]["conditions"] == [
            {"type": "Ready", "status": "False", "reason": "KubeletReady"}
        ]
        operations = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
        assert (await api.patch(url, operations, "json"))["metadata"]["labels"] == {"x": "y"}
        failing = [{"op": "test", "path": "/metadata/labels/x", "value": "z"}]
        assert (await api.patch(url, failing, "json", status=422))["reason"] == "Invalid"
        await api.patch(url, [{"op": "remove", "path": "/no/such"}], "json", status=422)
        await api.patch(url, [{"op": "leap"}], "json", status=400)
        await api.patch(url, {"a": 1}, "json", status=400)
        await api.patch(url, [1], "merge", status=400)
        refusal = await api.patch(url, {}, "magic", status=415)
        assert "application/merge-patch+json" in refusal["message"]
        cleared = await api.patch(url, {"metadata": {"labels": None}})
        assert "labels" not in cleared["metadata"]


async def test_server_side_apply_creates_merges_and_takes_back() -> None:
    async with running() as api:
        url = f"{CONFIG_MAPS}/c"

        async def apply(manager: str, data: dict[str, str], *, status: int = 200) -> object:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
            options = {"fieldManager": manager} if manager else {}
            media = "application/apply-patch+yaml"
            return await api.call(
                "PATCH", url, json.dumps(body).encode(), media=media, status=status, **options
            )

        await apply("", {}, status=422)
        await apply("one", {"a": "1", "b": "2"}, status=201)
        await apply("two", {"c": "3"})
        await apply("one", {"a": "4"})
        assert (await api.get(url))["data"] == {"a": "4", "c": "3"}


async def test_deleting_waits_for_grace_only_on_a_node() -> None:
    async with running() as api:
        await api.post(PODS, pod("free"))
        await api.call("DELETE", f"{PODS}/free")
        await api.get(f"{PODS}/free", status=404)
        await _bound(api, "held")
        ending = await api.call("DELETE", f"{PODS}/held", {"gracePeriodSeconds": 5})
        assert ending["metadata"]["deletionTimestamp"] == "2026-03-01T12:00:05Z"
        assert ending["metadata"]["deletionGracePeriodSeconds"] == 5
        again = await api.call("DELETE", f"{PODS}/held")
        assert again["metadata"] == ending["metadata"]
        await api.call("DELETE", f"{PODS}/held", {"gracePeriodSeconds": 0})
        await api.get(f"{PODS}/held", status=404)
        await api.call("DELETE", f"{PODS}/held", status=404)


async def test_preconditions_and_options_of_a_delete() -> None:
    async with running() as api:
        created = await api.post(PODS, pod("p"))
        wrong = {"preconditions": {"uid": "another"}}
        assert (await api.call("DELETE", f"{PODS}/p", wrong, status=409))["reason"] == "Conflict"
        await api.call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": -1}, status=400)
        await api.call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": "soon"}, status=400)
        await api.call("DELETE", f"{PODS}/p", {"propagationPolicy": "Up"}, status=400)
        right = {"preconditions": {"uid": created["metadata"]["uid"]}}
        await api.call("DELETE", f"{PODS}/p", right)


async def test_finalizers_hold_an_object() -> None:
    async with running() as api:
        body = {"metadata": {"name": "c", "finalizers": ["test/hold"]}}
        await api.post(CONFIG_MAPS, body)
        ending = await api.call("DELETE", f"{CONFIG_MAPS}/c")
        assert ending["metadata"]["deletionTimestamp"]
        more = {"metadata": {"finalizers": ["test/hold", "test/more"]}}
        assert (
            "no new finalizers"
            in (await api.patch(f"{CONFIG_MAPS}/c", more, status=422))["message"]
        )
        await api.patch(f"{CONFIG_MAPS}/c", {"metadata": {"finalizers": None}})
        await api.get(f"{CONFIG_MAPS}/c", status=404)


async def test_dependents_go_with_their_owner_unless_orphaned() -> None:
    async with running() as api:
        for name, propagation, left in (("one", "Background", 0), ("two", "Orphan", 1)):
            owner = await api.post(CONFIG_MAPS, {"metadata": {"name": name}})
            reference = {"kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
            body = pod(f"of-{name}")
            body["metadata"]["ownerReferences"] = [reference]
            await api.post(PODS, body)
            await api.call("DELETE", f"{CONFIG_MAPS}/{name}", propagationPolicy=propagation)
            pods = await api.get(PODS)
            assert len(pods["items"]) == left
        assert pods["items"][0]["metadata"]["ownerReferences"] == []


async def test_a_namespace_goes_when_its_last_object_has_gone() -> None:
    async with running() as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        await api.post("/api/v1/namespaces/team/pods", pod("free"))
        await _bound(api, "held", namespace="team")
        ending = await api.call("DELETE", "/api/v1/namespaces/team")
        assert ending["status"]["phase"] == "Terminating"
        refusal = await api.post("/api/v1/namespaces/team/pods", pod("late"), status=403)
        assert "being terminated" in refusal["message"]
        names = [p["metadata"]["name"] for p in (await api.get("/api/v1/pods"))["items"]]
        assert names == ["held"]
        await api.call("DELETE", "/api/v1/namespaces/team/pods/held", {"gracePeriodSeconds": 0})
        await api.get("/api/v1/namespaces/team", status=404)
        await api.call("DELETE", "/api/v1/namespaces/default", status=403)


async def test_a_collection_can_be_deleted_by_label() -> None:
    async with running() as api:
        for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
            body = pod(name)
            body["metadata"]["labels"] = {"l": label}
            await api.post(PODS, body)
        deleted = await api.call("DELETE", PODS, labelSelector="l=x")
        assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "b"]
        assert [p["metadata"]["name"] for p in (await api.get(PODS))["items"]] == ["c"]


async def test_methods_and_media_that_do_not_fit() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        for method, path in (("PUT", PODS), ("POST", f"{PODS}/p"), ("DELETE", f"{PODS}/p/status")):
            assert (await api.call(method, path, {}, status=405))["reason"] == "MethodNotAllowed"
        await api.call("POST", PODS, b"<pod/>", media="text/xml", status=415)
        created = await api.call(
            "POST",
            PODS,
            b"metadata: {name: y}\nspec: {containers: [{name: c, image: i}]}",
            media="application/yaml",
            status=201,
        )
        assert created["metadata"]["name"] == "y"
        assert (await api.get(f"{PODS}/p/log", status=501))["reason"] == "NotImplemented"
        await api.get(PODS, headers={"Accept": "text/html"}, status=406)


async def _bound(api: Api, name: str, namespace: str = "default") -> None:
    url = f"/api/v1/namespaces/{namespace}/pods"
    await api.post(url, pod(name))
    await api.post(f"{url}/{name}/binding", {"target": {"name": "n"}})


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


async def test_a_custom_resource_in_two_versions() -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"served": True, "schema": schema, "subresources": {"status": {}}}
    definition = {
        "metadata": {"name": "things.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {**version, "name": "v1", "storage": True},
                {**version, "name": "v1beta1", "storage": False},
            ],
        },
    }
    new, old = (f"/apis/test.dev/{v}/namespaces/default/things" for v in ("v1", "v1beta1"))
    async with running() as api:
        broken = {**definition, "metadata": {"name": "other.test.dev"}}
        refusal = await api.post(definitions, broken, status=422)
        assert "must be spec.names.plural" in refusal["message"]
        await api.post(definitions, definition)
        body = {"apiVersion": "test.dev/v1beta1", "kind": "Thing", "metadata": {"name": "t"}}
        created = await api.post(old, {**body, "spec": {"a": 1}})
        assert created["apiVersion"] == "test.dev/v1beta1"
        assert created["metadata"]["generation"] == 1
        assert (await api.get(f"{new}/t"))["apiVersion"] == "test.dev/v1"
        await api.patch(f"{new}/t", {"spec": {"a": 2}}, "strategic-merge", status=415)
        changed = await api.patch(f"{new}/t", {"spec": {"a": 2}, "status": {"b": 1}})
        assert changed["metadata"]["generation"] == 2
        assert "status" not in changed
        status = await api.patch(f"{new}/t/status", {"spec": {"a": 3}, "status": {"b": 1}})
        assert (status["spec"], status["status"]) == ({"a": 2}, {"b": 1})
        refusal = await api.call("PUT", f"{new}/t", {"metadata": {"name": "t"}}, status=422)
        assert "metadata.resourceVersion" in refusal["message"]
        async with api.watch(new) as events:
            assert await events.names(1) == [("ADDED", "t")]
            await api.call("DELETE", f"{definitions}/things.test.dev")
            assert [(type_, o["metadata"]["name"]) for type_, o in await events.rest()] == [
                ("DELETED", "t")
            ]
        await api.get(new, status=404)
