"""Binding and eviction: one atomic write, and every reason there is to refuse it."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.contract.local_apiserver import pod, running

from allotment_local.apiserver.resources import PODS as POD_KEY

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"


def _binding(node: str = "n", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"kind": "Node", "name": node},
    }


async def test_node_annotations_labels_and_condition_land_in_one_write() -> None:
    async with running() as api:
        body = pod("p")
        body["metadata"]["annotations"] = {"kept": "1", "changed": "old"}
        created = await api.post(PODS, body)
        nominated = {"status": {"nominatedNodeName": "elsewhere"}}
        await api.patch(f"{PODS}/p/status", nominated)
        seen: list[tuple[str, Any]] = []
        unsubscribe = api.store.subscribe(POD_KEY, lambda *event: seen.append(event))
        reply = await api.post(
            f"{PODS}/p/binding",
            _binding(
                name="p",
                uid=created["metadata"]["uid"],
                annotations={"changed": "new", "devices": "GPU-0"},
                labels={"l": "x"},
            ),
        )
        unsubscribe()
        assert (reply["kind"], reply["status"]) == ("Status", "Success")
        ((type_, bound),) = seen
        assert type_ == "MODIFIED"
        assert bound == await api.get(f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n"
        assert bound["metadata"]["annotations"] == {
            "kept": "1",
            "changed": "new",
            "devices": "GPU-0",
        }
        assert bound["metadata"]["labels"] == {"l": "x"}
        assert "nominatedNodeName" not in bound["status"]
        (condition,) = bound["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_the_other_door_of_binding() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        await api.post("/api/v1/namespaces/default/bindings", _binding(name="p"))
        assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"
        await api.post("/api/v1/namespaces/default/bindings", _binding(), status=400)


async def test_every_conflict_is_409_and_says_which() -> None:
    async with running() as api:
        gated = pod("gated", schedulingGates=[{"name": "wait"}])
        ending = pod("ending")
        ending["metadata"]["finalizers"] = ["test/hold"]
        for body in (pod("p"), gated, ending):
            await api.post(PODS, body)
        await api.call("DELETE", f"{PODS}/ending")
        for name, metadata, words in (
            ("p", {"uid": "another"}, "UID in precondition: another"),
            ("p", {"resourceVersion": "1"}, "ResourceVersion in precondition: 1"),
            ("gated", {}, "non-empty .spec.schedulingGates"),
            ("ending", {}, "is being deleted"),
        ):
            refusal = await api.post(f"{PODS}/{name}/binding", _binding(**metadata), status=409)
            assert refusal["reason"] == "Conflict"
            assert words in refusal["message"]
            assert refusal["details"]["kind"] == "pods/binding"
        await api.post(f"{PODS}/p/binding", _binding())
        refusal = await api.post(f"{PODS}/p/binding", _binding("m"), status=409)
        assert 'is already assigned to node "n"' in refusal["message"]


async def test_bad_bindings() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        url = f"{PODS}/p/binding"
        await api.post(f"{PODS}/absent/binding", _binding(), status=404)
        await api.post(url, {"target": "n"}, status=400)
        await api.post(url, {**_binding(), "kind": "Pod"}, status=400)
        await api.post(url, _binding(name="other"), status=400)
        await api.post(url, _binding(namespace="other"), status=400)
        await api.post(url, _binding(annotations={"a": 1}), status=400)
        refusal = await api.post(url, {"target": {"kind": "Pod", "name": ""}}, status=422)
        fields = [cause["field"] for cause in refusal["details"]["causes"]]
        assert fields == ["target.kind", "target.name"]
        await api.post(url, _binding(), dryRun="All")
        assert "nodeName" not in (await api.get(f"{PODS}/p"))["spec"]
        await api.get(url, status=405)


async def test_an_eviction_asks_the_disruption_budget() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    async with running() as api:
        for name in ("a", "b"):
            body = pod(name)
            body["metadata"]["labels"] = {"app": "x"}
            await api.post(PODS, body)
            await api.patch(f"{PODS}/{name}/status", ready)
        budget = {
            "metadata": {"name": "one-stays"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}},
        }
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await api.post(budgets, budget)

        async def counts() -> tuple[int, int, int, int]:
            status = (await api.get(f"{budgets}/one-stays"))["status"]
            names = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
            return tuple(status[name] for name in names)

        assert await counts() == (2, 1, 1, 2)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        wrong = {**eviction, "deleteOptions": {"preconditions": {"uid": "another"}}}
        await api.post(f"{PODS}/a/eviction", wrong, status=409)
        await api.post(f"{PODS}/a/eviction", eviction)
        await api.get(f"{PODS}/a", status=404)
        assert await counts() == (1, 1, 0, 1)
        refusal = await api.post(f"{PODS}/b/eviction", {}, status=429)
        assert "one-stays" in refusal["details"]["causes"][0]["message"]
        assert refusal["details"].keys() == {"causes"}


async def test_requests_are_counted_by_kind_as_a_kube_apiserver_counts_them() -> None:
    async with running() as api:
        await api.post(PODS, pod("p"))
        await api.post(PODS, pod("p"), status=409)
        await api.post(f"{PODS}/p/binding", _binding())
        await api.get(PODS)
        page = await api.get("/metrics")
    (family,) = text_string_to_metric_families(page)
    found = {
        tuple(sample.labels[label] for label in ("verb", "resource", "subresource", "code")): (
            sample.value
        )
        for sample in family.samples
    }
    assert found == {
        ("POST", "pods", "", "201"): 1,
        ("POST", "pods", "", "409"): 1,
        ("POST", "pods", "binding", "201"): 1,
        ("LIST", "pods", "", "200"): 1,
    }
