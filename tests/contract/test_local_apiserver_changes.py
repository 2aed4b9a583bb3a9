"""Changing over HTTP: versions, patches of every kind, and what may not be changed."""

import pytest
from tests.contract.local_apiserver import node, pod, running

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


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
        assert freed["status"] == created["status"]  # whoever schedules it replaces the condition


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
        for kind in ("application/magic-patch+json", "application/apply-patch+yaml"):
            refusal = await api.call("PATCH", url, {}, media=kind, status=415)
            assert "application/merge-patch+json" in refusal["message"]
        cleared = await api.patch(url, {"metadata": {"labels": None}})
        assert "labels" not in cleared["metadata"]


async def test_methods_and_media_that_do_not_fit() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        for method, path in (("PUT", PODS), ("POST", f"{PODS}/p"), ("DELETE", f"{PODS}/p/status")):
            assert (await api.call(method, path, {}, status=405))["reason"] == "MethodNotAllowed"
        await api.call("POST", PODS, b"<pod/>", media="text/xml", status=415)
        for media in ("application/yaml", "application/vnd.kubernetes.protobuf"):
            refusal = await api.call("POST", PODS, b"k8s", media=media, status=415)
            assert "use 'kubectl create -f'" in refusal["message"]
        for access in ("log", "exec", "attach", "portforward"):
            refusal = await api.get(f"{PODS}/p/{access}", status=501)
            assert "runs no containers" in refusal["message"]
        await api.get(PODS, headers={"Accept": "text/html"}, status=406)


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
