"""The log of a real cluster: NATS as shipped, reached only through an API server.

The server here answers as Kubernetes does and carries bytes of `pods/portforward` over WebSockets
to a real nats-server, which takes nobody without a key.
"""

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from aiohttp import WSMsgType, web
from click.testing import CliRunner, Result
from tests.contract.nats_shipped import SINGLE, admit, credentials_of, on_loopback, running
from tests.recording import Recorder, busy_cluster

from allotment.adapters.kube.portforward import PROTOCOL
from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_users import SERVICES, inbox_of, seed_file
from allotment.answers.in_cluster import NATS, PORT
from allotment_cli.main import main
from allotment_proto import subjects

SYSTEM = "allotment-system"
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
TOKEN = "a-token"


class ApiServer:
    """Pods and a Secret of the services' namespace, and their ports."""

    def __init__(self, nats_port: int, seed: str | None) -> None:
        self.nats_port = nats_port
        self.seed = seed
        self.pods = {"allotment-nats-0": True}
        self.services: dict[str, int] = {}
        """Pods of services, and where on this machine their HTTP port is."""
        self.elsewhere: dict[str, str] = {}
        """Pods of other namespaces with the same labels, and where they are."""
        self.forbidden: set[str] = set()
        self.unreachable: set[str] = set()
        self.forwarded: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.url = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """In a thread of its own, because the command has an event loop for itself."""
        loop = asyncio.new_event_loop()
        started, ended = threading.Event(), asyncio.Event()

        async def serve() -> None:
            app = web.Application()
            app.router.add_get("/{path:.*}", self.answer)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            started.set()
            await ended.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        started.wait()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _refused(401, "Unauthorized", "who are you?")
        path = request.path
        if path in self.forbidden:
            return _refused(403, "Forbidden", f"User cannot get {path}")
        if path.endswith("/portforward"):
            return await self.forward(request)
        if path == PODS:
            self.queries.append(dict(request.query))
            of_nats = "name=nats" in request.query["labelSelector"]
            names = self.pods if of_nats else self.services
            return web.json_response({"items": [self._pod(name) for name in names]})
        if path == "/api/v1/pods":
            items = [self._pod(name, space) for name, space in self.elsewhere.items()]
            return web.json_response({"items": items})
        if path.endswith("/secrets/allotment-nats-reader") and self.seed is not None:
            return web.json_response(
                {"data": {"nats.nk": base64.b64encode(self.seed.encode()).decode()}}
            )
        return _refused(404, "NotFound", f"{path} not found")

    def _pod(self, name: str, namespace: str = SYSTEM) -> dict[str, Any]:
        ready = "True" if self.pods.get(name, True) else "False"
        return {
            "metadata": {"name": name, "namespace": namespace},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The kubelet's side: a port number on each channel, then bytes."""
        name = request.path.split("/")[-2]
        self.forwarded.append(name)
        port = int(request.query["ports"])
        target = self.nats_port if port == PORT else self.services[name]
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        if name in self.unreachable:
            await socket.send_bytes(b"\x01connection refused")
            await socket.close()
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", target)

        async def down() -> None:
            while chunk := await reader.read(65_536):
                await socket.send_bytes(b"\x00" + chunk)
            await socket.close()

        task = asyncio.create_task(down())
        try:
            async for message in socket:
                assert message.type is WSMsgType.BINARY
                assert message.data[0] == 0
                writer.write(message.data[1:])
                await writer.drain()
        finally:
            task.cancel()
            writer.close()
        return socket


def _refused(code: int, reason: str, message: str) -> web.Response:
    status = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return web.json_response(status, status=code)


class Scene:
    """A cluster with a log, and the kubeconfig of somebody who may read it."""

    def __init__(self, api: ApiServer, kubeconfig: Path, url: str, seeds: Path) -> None:
        self.api, self.kubeconfig, self.url, self.seeds = api, kubeconfig, url, seeds

    def allot(self, *words: str, **environment: str) -> Result:
        env = {
            "ALLOT_HOME": str(self.kubeconfig.parent / "home"),
            "ALLOT_NATS_URL": None,
            "ALLOT_NATS_NKEY": None,
            "KUBERNETES_SERVICE_HOST": None,
            "KUBECONFIG": str(self.kubeconfig),
            "XDG_CACHE_HOME": str(self.kubeconfig.parent / "cache"),
            **environment,
        }
        return CliRunner(env=env).invoke(main, words)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    seeds = admit(tmp_path)
    with running([on_loopback(SINGLE.read_text(), tmp_path / "data")], tmp_path) as [(url, _)]:
        anyio.run(fill, url, tmp_path, busy_cluster())
        seed = seed_file(seeds, "reader").read_text()
        api = ApiServer(int(url.rpartition(":")[2]), seed)
        with api.serving():
            yield Scene(api, written(tmp_path / "kubeconfig", api.url), url, seeds)


async def fill(url: str, folder: Path, log: Recorder) -> None:
    """Each record by the service that may append it."""
    writers = {}
    async with contextlib.AsyncExitStack() as stack:
        for user in ("watcher", "binder"):
            key = credentials_of(folder, user)
            connection = await stack.enter_async_context(
                connect(url, user, credentials=key, inbox_prefix=inbox_of(user))
            )
            writers[user] = await JetStreamLog.open(connection)
        for record in log.records:
            is_binders = record.subject in (subjects.DECISION, subjects.OUTCOME)
            writer = writers["binder" if is_binders else "watcher"]
            await writer.append(record.subject, record.payload, msg_id=record.msg_id)


def written(path: Path, server: str) -> Path:
    context = {"cluster": "c", "user": "u", "namespace": "research"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server}},
            {"name": "d", "cluster": {"server": "http://127.0.0.1:1"}},
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [
            {"name": "x", "context": context},
            {"name": "nowhere", "context": {"cluster": "d", "user": "u"}},
        ],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_log_is_read_through_the_api_server_with_the_readers_key(
    scene: Scene, tmp_path: Path
) -> None:
    exported = busy_cluster().write(tmp_path / "same.jsonl")
    for words in (("get", "pods", "-A", "-o", "wide"), ("ledger",), ("get", "cards")):
        through = scene.allot(*words)
        assert through.exit_code == 0, through.output
        assert through.stdout == scene.allot(*words, "--file", str(exported)).stdout
        assert f"by way of pod {SYSTEM}/allotment-nats-0" in through.stderr
    assert scene.api.queries[0]["labelSelector"] == NATS


def test_names_are_those_of_the_contexts_namespace(scene: Scene) -> None:
    assert "Pod        research/llama" in scene.allot("explain", "pod", "llama").stdout
    named = ("--kubeconfig", str(scene.kubeconfig), "--context", "x")
    assert "Pod        research/llama" in scene.allot("explain", "llama", *named).stdout
    assert scene.allot("explain", "big").exit_code == 2
    assert scene.allot("explain", "big", "-n", "default").exit_code == 0
    listed = scene.allot("get", "pods", "-o", "name").stdout.split()
    assert "pod/llama" in listed
    assert "pod/big" not in listed


def test_a_pod_that_cannot_be_reached_is_passed_over(scene: Scene) -> None:
    scene.api.pods = {"allotment-nats-0": True, "allotment-nats-1": True, "a-late-one": False}
    scene.api.unreachable = {"allotment-nats-0"}
    result = scene.allot("get", "nodes")
    assert result.exit_code == 0, result.output
    assert scene.api.forwarded == ["allotment-nats-0", "allotment-nats-1"]


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        (PODS, "pods of NATS: the API server says: User cannot get"),
        (f"/api/v1/namespaces/{SYSTEM}/secrets/allotment-nats-reader", "secret allotment-system/"),
        (f"{PODS}/allotment-nats-0/portforward", "pod allotment-nats-0: HTTP 403"),
    ],
)
def test_what_is_not_allowed_is_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, forbidden: str, said: str
) -> None:
    monkeypatch.setattr("allotment.answers.source.CONNECT_WITHIN_S", 1.0)
    scene.api.forbidden = {forbidden}
    result = scene.allot("get", "nodes")
    assert result.exit_code == 2
    assert said in result.stderr


def test_of_several_namespaces_none_is_taken_for_the_log(scene: Scene) -> None:
    """Whoever may make a pod may give it the labels of our NATS servers."""
    scene.api.pods = {}
    scene.api.elsewhere = {"aaa": "a-tenant", "allotment-nats-0": "scheduling"}
    result = scene.allot("get", "nodes")
    assert result.exit_code == 2
    assert "run in several namespaces: a-tenant, scheduling" in result.stderr
    assert scene.api.forwarded == []


def test_a_cluster_without_the_services_and_one_that_does_not_answer(scene: Scene) -> None:
    scene.api.pods = {}
    nothing = scene.allot("get", "nodes")
    assert nothing.exit_code == 2
    assert f"no NATS of Allotment in the cluster at {scene.api.url}" in nothing.stderr
    unanswered = scene.allot("get", "nodes", "--context", "nowhere")
    assert unanswered.exit_code == 2
    assert "the API server gave no answer" in unanswered.stderr
    unknown = scene.allot("get", "nodes", "--context", "nope")
    assert unknown.exit_code == 2
    assert "nope" in unknown.stderr


@pytest.mark.parametrize("user", SERVICES)
def test_in_a_services_own_pod_its_key_reads_the_log(scene: Scene, user: str) -> None:
    key = str(seed_file(scene.seeds, user))
    ca = credentials_of(scene.seeds.parent, user).tls_ca_file
    result = scene.allot(
        "get", "nodes", ALLOT_NATS_URL=scene.url, ALLOT_NATS_NKEY=key, ALLOT_NATS_CA=ca or ""
    )
    assert result.exit_code == 0, result.output
    assert "gpu-01" in result.stdout


class Unready(BaseHTTPRequestHandler):
    """A service that is not ready, as with a full disk."""

    def do_GET(self) -> None:
        body = {"ready": False, "reasons": {"nats writes": "no space left"}, "figures": {}}
        self.send_response(503)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_doctor_asks_the_services_of_the_cluster(scene: Scene) -> None:
    """It said "no problems found" while no service was ready."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        scene.api.services = {"allotment-binder-x": server.server_port, "allotment-watcher-y": 1}
        said = scene.allot("doctor")
    finally:
        server.shutdown()
        server.server_close()
    assert said.exit_code == 1, said.output
    assert "service allotment-binder-x" in said.output
    assert "nats writes: no space left" in said.output
    assert "kubectl -n allotment-system logs allotment-binder-x" in said.output
    assert "service allotment-watcher-y" in said.output
