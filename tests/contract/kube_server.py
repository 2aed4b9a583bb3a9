"""A scripted API server: each request gets the next answer of the script, and all are kept.

It misbehaves on purpose and on cue, which a real server or a good emulator will not.
"""

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from allotment.adapters.kube.client import KubeClient, connect

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Script:
    """What the server will answer, and what it was asked."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self.otherwise: Answer | None = None
        self.url = ""

    def then(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        self.requests.append(request)
        self.bodies.append(json.loads(data) if data else None)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        try:
            answer = self.answers.popleft() if self.answers else self.otherwise
            assert answer is not None, f"unexpected {request.method} {request.path_qs}"
            return await answer(request)
        finally:
            self.in_flight -= 1


def reply(body: object = None, status: int = 200, **headers: str) -> Answer:
    """An ordinary answer; `Retry_After=…` becomes the header Retry-After."""

    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def refuse(code: int, reason: str, message: str = "because", **headers: str) -> Answer:
    status = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return reply(status, code, **headers)


def slow(seconds: float, answer: Answer) -> Answer:
    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await answer(request)

    return late


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def listing(*objects: dict[str, Any], version: str = "10", more: str = "") -> Answer:
    metadata = {"resourceVersion": version, "continue": more}
    return reply({"kind": "PodList", "metadata": metadata, "items": list(objects)})


def stream(
    *events: tuple[str, dict[str, Any]] | bytes, cut: bool = False, hold: bool = False
) -> Answer:
    """A watch: these events, then an orderly end; or a cut connection; or silence for ever."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            data = event
            if isinstance(event, tuple):
                data = json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
            assert isinstance(data, bytes)
            await response.write(data)
        if cut:
            assert request.transport is not None
            await asyncio.sleep(0.05)
            request.transport.abort()
        if hold:
            await asyncio.sleep(3600)
        return response

    return answer


def pod(name: str, version: int, uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, "spec": spec}


def gone(message: str = "too old resource version") -> tuple[str, dict[str, Any]]:
    return "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": message}


@contextlib.asynccontextmanager
async def scripted(tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        script.url = f"http{'s' * (tls is not None)}://127.0.0.1:{runner.addresses[0][1]}"
        yield script
    finally:
        await runner.cleanup()


def kubeconfig(
    path: Path, server: str, user: dict[str, Any] | None = None, authority: Path | None = None
) -> Path:
    cluster = {"server": server}
    if authority is not None:
        cluster["certificate-authority"] = str(authority)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@contextlib.asynccontextmanager
async def client_of(
    script: Script, tmp_path: Path, user: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[KubeClient]:
    config = kubeconfig(tmp_path / "kubeconfig", script.url, user)
    async with connect(config, **options) as client:
        yield client


def queries(script: Script) -> Sequence[dict[str, str]]:
    return [dict(request.query) for request in script.requests]
