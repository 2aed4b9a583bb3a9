"""Whatever a client sends, the answer is a Status that says what is wrong, never a 500.

A valid request is damaged in one place; the server may take it or refuse it, but must know why.
"""

import asyncio
import io
import json
import random
from typing import Any

import pytest
from tests.contract.local_apiserver import Api, node, pod, running

pytestmark = pytest.mark.anyio

JUNK: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", "é/..", [], [None], [{}], {}, {"x": None})
ROUNDS = 40
NOT_OURS = (
    "evil.example",
    "localhost.evil.example",
    "",
    "[evil.example]",
    "127.0.0.1.evil.example",
)
API = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _rich_pod() -> dict[str, Any]:
    body = pod(
        "p",
        priorityClassName="system-node-critical",
        tolerations=[{"key": "a", "operator": "Exists"}],
        schedulingGates=[{"name": "g"}],
        nodeSelector={"a": "b"},
        initContainers=[{"name": "i", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
    )
    reference = {"kind": "Pod", "name": "o", "uid": "u", "apiVersion": "v1"}
    body["metadata"].update(
        labels={"a": "b"}, annotations={"c": "d"}, ownerReferences=[reference], finalizers=["x/y"]
    )
    return body


def _definition() -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
        "selectableFields": [{"jsonPath": ".spec.a"}],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "required": ["a"],
                        "properties": {"a": {"type": "string", "pattern": "^x", "default": "x"}},
                    }
                },
            }
        },
    }
    names = {"kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"]}
    spec = {"group": "t.dev", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.t.dev"}, "spec": spec}


_EVENT = {
    "metadata": {"name": "e"},
    "eventTime": "2026-03-01T12:00:00.000000Z",
    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    "reason": "r",
    "action": "a",
    "type": "Normal",
    "reportingComponent": "c",
    "reportingInstance": "i",
    "series": {"count": 1, "lastObservedTime": "2026-03-01T12:00:00.000000Z"},
    "source": {"component": "c"},
}
_BUDGET = {
    "metadata": {"name": "b"},
    "spec": {
        "minAvailable": 1,
        "selector": {
            "matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}],
        },
    },
}
_LEASE = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-03-01T12:00:00.000000Z"}}
_CREATED: list[tuple[str, Any]] = [
    (f"{API}/pods", _rich_pod()),
    ("/api/v1/nodes", node("n")),
    (f"{API}/events", _EVENT),
    (f"{API}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}}),
    (
        f"{API}/secrets",
        {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}},
    ),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", _LEASE),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", _BUDGET),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "pc"}, "value": 1, "globalDefault": True},
    ),
    (DEFINITIONS, _definition()),
    (
        f"{API}/services",
        {
            "metadata": {"name": "sv"},
            "spec": {"ports": [{"port": 1}], "externalIPs": ["1.1.1.1"], "clusterIP": "1.1.1.1"},
        },
    ),
    (f"{API}/serviceaccounts", {"metadata": {"name": "sa"}, "secrets": [{"name": "x"}]}),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "metadata": {"name": "d"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": []}}},
            "status": {"readyReplicas": 1},
        },
    ),
    ("/api/v1/namespaces", {"metadata": {"name": "ns"}, "spec": {}}),
]


def _damaged(value: Any, dice: random.Random) -> Any:
    """A copy with one place replaced by junk."""
    places: list[tuple[Any, Any]] = []
    copy = {"root": json.loads(json.dumps(value))}

    def visit(holder: Any) -> None:
        for key in list(holder if isinstance(holder, dict) else range(len(holder))):
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                visit(holder[key])

    visit(copy)
    holder, key = dice.choice(places)
    holder[key] = dice.choice(JUNK)
    return copy["root"]


async def _send(
    api: Api, method: str, path: str, body: Any, media: str = "json", **query: str
) -> None:
    data = json.dumps(body).encode()
    headers = {"Content-Type": f"application/{media}"}
    async with api.session.request(
        method, api.url + path, data=data, headers=headers, params=query
    ) as response:
        reply = await response.json()
        assert response.status < 500, f"{method} {path} {body}: {reply}"
        if response.status >= 400:
            assert reply["kind"] == "Status"
            assert len(reply["message"]) > 5


def _nested(levels: int) -> bytes:
    return b'{"metadata":{"name":"deep"},"data":' + b'{"a":' * levels + b"1" + b"}" * (levels + 1)


@pytest.mark.parametrize("levels", [250, 900, 5_000, 100_000])
async def test_what_is_nested_too_deeply_is_refused_and_said(levels: int) -> None:
    path = DEPLOYMENTS
    lists = b"[" * levels + b"]" * levels
    sent = [
        ("POST", path, "application/json", _nested(levels)),
        ("POST", path, "application/json", lists),
        ("POST", f"{API}/pods", "application/json", _nested(levels)),
        ("PATCH", f"{path}/d", "application/merge-patch+json", _nested(levels)),
        ("PATCH", f"{API}/pods/p", "application/strategic-merge-patch+json", _nested(levels)),
        ("DELETE", f"{path}/d", "application/json", _nested(levels)),
    ]
    async with running() as api:
        await api.post(f"{API}/pods", pod("p"))
        await api.post(path, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
        for method, where, media, body in sent:
            headers = {"Content-Type": media}
            async with api.session.request(
                method, api.url + where, data=io.BytesIO(body), headers=headers
            ) as response:
                reply = await response.json()
            assert response.status == 400, (method, where, media, reply)
            assert "levels deep; this server takes at most 200" in reply["message"], reply
        await api.get(path)


async def test_patches_do_not_nest_an_object_deeper_and_deeper() -> None:
    async with running() as api:
        await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
        value = json.loads(b'{"a":' * 150 + b"1" + b"}" * 150)
        headers = {"Content-Type": "application/json-patch+json"}
        url, at, seen = f"{api.url}{DEPLOYMENTS}/d", "/spec/template", list[int]()
        for _ in range(3):
            body = json.dumps([{"op": "add", "path": at, "value": value}])
            async with api.session.patch(url, data=body, headers=headers) as response:
                seen.append(response.status)
            at += "/a" * 150
        assert seen == [200, 400, 422]
        await api.get(DEPLOYMENTS)


async def _readable(api: Api) -> None:
    """What was let in can be shown in every form."""
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for path, _ in _CREATED:
        await api.get(path)
        await api.get(path, headers=table)
    for path in ("/openapi/v3/api/v1", "/apis", "/openapi/v3"):
        await api.get(path)


@pytest.mark.parametrize("seed", range(6))
async def test_damaged_bodies_of_every_kind(seed: int) -> None:
    dice = random.Random(seed)
    async with running() as api:
        for path, body in _CREATED:
            for _ in range(ROUNDS):
                await _send(api, "POST", path, _damaged(body, dice))
        await _readable(api)
        for path, body in _CREATED:
            name = body["metadata"]["name"]
            await _send(api, "POST", path, body)
            for _ in range(ROUNDS // 4):
                damaged = _damaged(body, dice)
                await _send(api, "PUT", f"{path}/{name}", damaged)
                for kind in ("merge-patch+json", "strategic-merge-patch+json"):
                    await _send(api, "PATCH", f"{path}/{name}", damaged, kind)
                    await _send(api, "PATCH", f"{path}/{name}/status", damaged, kind)
        await _readable(api)


@pytest.mark.parametrize("seed", range(3))
async def test_damaged_bindings_evictions_options_and_operations(seed: int) -> None:
    dice = random.Random(seed)
    binding = {"kind": "Binding", "metadata": {"name": "p", "uid": "u", "annotations": {"a": "b"}}}
    options = {
        "gracePeriodSeconds": 1,
        "preconditions": {"uid": "x"},
        "propagationPolicy": "Orphan",
    }
    operations = [{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]
    url = f"{API}/pods/p"
    async with running() as api:
        for _ in range(ROUNDS * 2):
            await _send(api, "POST", f"{API}/pods", pod("p"))
            target = {**binding, "target": {"kind": "Node", "name": "n"}}
            await _send(api, "POST", f"{url}/binding", _damaged(target, dice))
            await _send(api, "POST", f"{API}/bindings", _damaged(target, dice))
            await _send(api, "PATCH", url, _damaged(operations, dice), "json-patch+json")
            eviction = {"metadata": {"name": "p"}, "deleteOptions": options}
            await _send(api, "POST", f"{url}/eviction", _damaged(eviction, dice))
            await _send(api, "DELETE", url, _damaged(options, dice))


async def test_damaged_queries() -> None:
    names = ("limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector")
    more = ("fieldSelector", "watch", "timeoutSeconds", "sendInitialEvents", "includeObject")
    async with running() as api:
        for name in (*names, *more, "dryRun", "fieldValidation", "gracePeriodSeconds"):
            for value in ("-1", "x", "1e9", "%00", "☃", "(", "a in (", "!", "9" * 40):
                query = {name: value, "timeoutSeconds": "1"} | {name: value}
                async with asyncio.timeout(5):
                    await _send(api, "GET", f"{API}/pods", {}, **query)
                await _send(api, "DELETE", f"{API}/pods", {}, **query)
        for path in (
            "//",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/%2e%2e/pods",
            "/api/v1/a/b/c/d",
        ):
            await _send(api, "GET", path, {})


@pytest.mark.parametrize("host", NOT_OURS)
async def test_a_host_name_that_leads_here_gets_no_answer(host: str) -> None:
    """A browser sends it when an enemy's name was made to lead to this machine."""
    async with running() as api:
        for path in ("/api/v1/pods", "/version", "/metrics", "/api", "/openapi/v2"):
            async with api.session.get(api.url + path, headers={"Host": host}) as response:
                body = await response.json()
            assert (response.status, body["reason"]) == (421, "MisdirectedRequest")


@pytest.mark.parametrize("host", ["localhost", "localhost:6443", "127.0.0.1", "[::1]:80"])
async def test_its_own_address_does(host: str) -> None:
    async with (
        running() as api,
        api.session.get(api.url + "/version", headers={"Host": host}) as response,
    ):
        assert response.status == 200


async def test_a_name_that_it_was_given_does() -> None:
    """As the containers of Compose call it."""
    async with running(names=["cluster"]) as api:
        for host, status in (("cluster:18001", 200), ("other", 421)):
            async with api.session.get(api.url + "/version", headers={"Host": host}) as response:
                assert response.status == status
