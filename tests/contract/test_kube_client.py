"""The Kubernetes client against a server that refuses, throttles, breaks and lies."""

import asyncio
import json
import socket
import stat
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from tests.contract.kube_server import (
    client_of,
    hang_up,
    kubeconfig,
    refuse,
    reply,
    scripted,
    slow,
)

from allotment.adapters.kube.client import MERGE_PATCH, STRATEGIC_PATCH, connect
from allotment.adapters.kube.config import Credentials, KubeConfigError, load_access
from allotment.adapters.kube.events import (
    create_event,
    cut,
    micro_time,
    pod_event,
    refuse_pod,
    unschedulable_patch,
)
from allotment.adapters.kube.result import Ok, Refused, Unknown

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
PODS = "/api/v1/namespaces/default/pods"


async def test_verbs_send_what_kubernetes_expects(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = reply({"ok": 1})
        answer = await client.get(PODS, {"labelSelector": "a=b"})
        assert isinstance(answer, Ok)
        assert json.loads(answer.body) == {"ok": 1}
        await client.create(PODS, {"kind": "Pod"})
        await client.patch(PODS + "/a", {"x": None})
        await client.delete(PODS + "/a", uid="u1", grace_s=0)
        await client.replace(PODS + "/a", {})
    methods = [request.method for request in script.requests]
    assert methods == ["GET", "POST", "PATCH", "DELETE", "PUT"]
    assert script.requests[0].query["labelSelector"] == "a=b"
    assert script.requests[2].content_type == MERGE_PATCH
    assert script.bodies[2] == {"x": None}
    assert script.bodies[3]["preconditions"] == {"uid": "u1"}
    assert script.bodies[3]["gracePeriodSeconds"] == 0
    assert "Authorization" not in script.requests[0].headers


async def test_bind_is_one_post_with_uid_and_annotations(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply({"kind": "Status", "status": "Success"}, 201))
        answer = await client.bind("default", "a", "u1", "node.1", {"volcano.sh/vgpu-node": "n"})
    assert answer == Ok(201, b'{"kind": "Status", "status": "Success"}')
    assert script.requests[0].path == PODS + "/a/binding"
    assert script.bodies[0]["metadata"] == {
        "name": "a",
        "namespace": "default",
        "uid": "u1",
        "annotations": {"volcano.sh/vgpu-node": "n"},
    }
    assert script.bodies[0]["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node.1"}


async def test_who_comes_after_a_quiet_while_waits_for_no_connection(tmp_path: Path) -> None:
    """However the request ended that keeps one open."""
    ports: list[int] = []

    async def refused(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return await refuse(403, "Forbidden")(request)

    async with (
        scripted() as script,
        client_of(script, tmp_path) as client,
        anyio.create_task_group() as group,
    ):
        script.otherwise = refused
        group.start_soon(client.keep_open)
        while not ports:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        await client.bind("default", "a", "u1", "n1", {})
        group.cancel_scope.cancel()
    assert [request.path for request in script.requests] == ["/version", PODS + "/a/binding"]
    assert len(set(ports)) == 1


async def test_a_no_is_refused_with_the_servers_reason(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(refuse(409, "Conflict", "already assigned"), reply("plain page", 404))
        first = await client.get(PODS)
        second = await client.get(PODS)
    assert first == Refused(409, "Conflict", "already assigned", {})
    assert isinstance(second, Refused)
    assert (second.status, second.reason) == (404, "Not Found")
    assert "plain page" in second.message


async def test_what_nobody_knows_is_unknown_and_is_not_repeated(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path, timeout_s=0.3) as client:
        script.then(refuse(500, "InternalError", "etcd"), hang_up, slow(5, reply({})))
        server = await client.create(PODS, {})
        broken = await client.create(PODS, {})
        late = await client.create(PODS, {})
        assert len(script.requests) == 3
        assert client.unknown == 3
    assert isinstance(server, Unknown)
    assert (server.cause, server.status, server.message) == ("server", 500, "etcd")
    assert isinstance(broken, Unknown)
    assert broken.cause == "connection"
    assert isinstance(late, Unknown)
    assert late.cause == "timeout"
    assert "no answer within 0.3 s" in late.message


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        async with connect(config) as client, anyio.create_task_group() as group:
            answer = await client.get("/version")
            group.start_soon(client.keep_open)
            while client.unknown < 2:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()  # which only ends here: it goes on trying
    assert isinstance(answer, Unknown)
    assert answer.cause == "unreachable"
    assert str(port) in answer.message


async def test_retry_after_is_honoured_for_a_bounded_time(tmp_path: Path) -> None:
    throttle = refuse(429, "TooManyRequests", "slow down", Retry_After="0")
    async with scripted() as script:
        async with client_of(script, tmp_path) as client:
            script.then(throttle, throttle, reply({}))
            assert isinstance(await client.create(PODS, {}), Ok)
            assert client.throttled == 2
        async with client_of(script, tmp_path, throttle_wait_s_max=1.0) as client:
            script.then(refuse(429, "TooManyRequests", "slow down", Retry_After="60"))
            answer = await client.create(PODS, {})
        assert answer == Unknown("throttled", "slow down", 429, 60.0)
        async with client_of(script, tmp_path) as client:
            script.then(refuse(429, "TooManyRequests", "disruption budget"))
            answer = await client.create(PODS + "/a/eviction", {})
        assert answer == Refused(429, "TooManyRequests", "disruption budget", {})


async def test_requests_in_flight_are_limited(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path, concurrency=3) as client:
        script.otherwise = slow(0.02, reply({}))
        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(client.get, PODS)
    assert len(script.requests) == 12
    assert script.in_flight_max <= 3


async def test_a_refused_token_is_read_anew_and_tried_once_more(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"p = pathlib.Path({str(counter)!r})\n"
        "n = int(p.read_text()) + 1 if p.exists() else 1\n"
        "p.write_text(str(n))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': {'token': f'token-{n}'}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}
    async with scripted() as script, client_of(script, tmp_path, user) as client:
        script.then(reply({}), refuse(401, "Unauthorized"), reply({}))
        assert isinstance(await client.get(PODS), Ok)
        assert isinstance(await client.get(PODS), Ok)
        script.then(refuse(401, "Unauthorized"), refuse(401, "Unauthorized"))
        answer = await client.get(PODS)
        tokens = [request.headers["Authorization"] for request in script.requests]
    assert isinstance(answer, Refused)
    assert answer.status == 401
    assert tokens[:2] == ["Bearer token-1"] * 2
    assert tokens[2] == "Bearer token-2"
    assert tokens[3:] == ["Bearer token-2", "Bearer token-3"]


async def test_credentials_are_cached_and_read_once_for_many() -> None:
    now_s = 0.0
    reads: list[bool] = []

    def read(reload: bool) -> str:
        reads.append(reload)
        return f"Bearer {len(reads)}"

    credentials = Credentials(read, clock=lambda: now_s, cache_s=30)
    got = await asyncio.gather(*(credentials.header() for _ in range(5)))
    assert set(got) == {"Bearer 1"}
    now_s = 31.0
    assert await credentials.header() == "Bearer 2"
    credentials.drop("Bearer 1")  # a late 401 for a token that was replaced already
    assert await credentials.header() == "Bearer 2"
    credentials.drop("Bearer 2")
    assert await credentials.header() == "Bearer 3"
    assert reads == [False, False, True]


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (None, None, "no such file; give --kubeconfig"),
        ("{", None, "kubeconfig"),
        ("{}", None, "kubeconfig"),
        ("clusters: []", "nope", "context 'nope'"),
    ],
)
async def test_a_bad_kubeconfig_is_named(
    tmp_path: Path, text: str | None, context: str | None, words: str
) -> None:
    path = tmp_path / "broken"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KubeConfigError) as caught:
        await load_access(path, context)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


async def test_in_cluster_only_without_a_kubeconfig(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeConfigError, match="the pod's service account"):
        await load_access(None, None, environ)
    config = kubeconfig(tmp_path / "c", "http://127.0.0.1:1/")
    address, _ = await load_access(None, None, {**environ, "KUBECONFIG": str(config)})
    assert address.url == "http://127.0.0.1:1"
    with pytest.raises(KubeConfigError, match="no such file"):
        await load_access(None, None, {"HOME": str(tmp_path)})
    config = kubeconfig(tmp_path / "d", "ftp://x")
    with pytest.raises(KubeConfigError, match="expected http"):
        await load_access(config, None, environ)


async def test_a_pods_condition_and_event(tmp_path: Path) -> None:
    time_ns = 1_700_000_000_000_001_999
    event = pod_event(
        namespace="default",
        pod="a",
        uid="u1",
        kind="Warning",
        reason="FailedScheduling",
        action="Scheduling",
        note="é" * 2000,
        time_ns=time_ns,
        unique=0xABC,
        controller="allotment",
        instance="binder-0",
    )
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = reply({})
        await create_event(client, event)
        patch = unschedulable_patch("u1", "Unschedulable", "0/3 nodes are available", time_ns, 4)
        await refuse_pod(client, "default", "a", patch)
    assert script.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
    sent = script.bodies[0]
    assert sent["metadata"]["name"] == "a.0000000000000abc"
    assert sent["eventTime"] == "2023-11-14T22:13:20.000001Z"
    assert len(sent["note"].encode()) <= 1024
    required = {"reportingController", "reportingInstance", "action", "reason", "type", "regarding"}
    assert required <= set(sent)
    assert script.requests[1].path == PODS + "/a/status"
    assert script.requests[1].content_type == STRATEGIC_PATCH
    assert script.bodies[1]["metadata"] == {"uid": "u1"}
    [condition] = script.bodies[1]["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["observedGeneration"] == 4


async def test_times_have_six_digits_and_texts_are_cut_between_characters() -> None:
    assert micro_time(0) == "1970-01-01T00:00:00.000000Z"
    assert cut("short", 10) == "short"
    assert cut("ééééé", 8) == "éé…"


async def test_the_environments_proxy_is_not_for_near_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    for server, proxy in [
        ("http://127.0.0.1:1", None),
        ("http://near.example:1", None),
        ("http://far.example:1", "http://proxy:3128"),
    ]:
        address, _ = await load_access(kubeconfig(tmp_path / "c", server))
        assert address.proxy == proxy
