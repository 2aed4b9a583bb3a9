"""Deleting over HTTP: grace, finalizers, preconditions, and what goes along."""

from datetime import datetime, timedelta

import pytest
from tests.contract.local_apiserver import Api, pod, running

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


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


async def test_a_shorter_grace_period_counts_from_the_deletion() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
        first = await api.call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 900})
        begun = datetime.fromisoformat(first["metadata"]["deletionTimestamp"])
        shorter = await api.call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 300})
        ends = datetime.fromisoformat(shorter["metadata"]["deletionTimestamp"])
        assert begun - ends == timedelta(seconds=600)


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


async def _bound(api: Api, name: str, namespace: str = "default") -> None:
    url = f"/api/v1/namespaces/{namespace}/pods"
    await api.post(url, pod(name))
    await api.post(f"{url}/{name}/binding", {"target": {"name": "n"}})


async def test_what_is_made_after_its_owner_went_goes_as_well() -> None:
    async with running() as api:
        owner = await api.post(CONFIG_MAPS, {"metadata": {"name": "owner"}})
        kind = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        right = {**kind, "uid": owner["metadata"]["uid"]}
        earlier, foreign = {**kind, "uid": "of-an-earlier-one"}, {"kind": "Unheard", "uid": "u"}
        for name, owners, status in (
            ("kept", [right], 200),
            ("late", [earlier], 404),
            ("shared", [earlier, right], 200),
            ("unknown", [{**foreign, "apiVersion": "example.com/v1", "name": "x"}], 200),
        ):
            body = pod(name)
            body["metadata"]["ownerReferences"] = owners
            await api.post(PODS, body)
            await api.get(f"{PODS}/{name}", status=status)
