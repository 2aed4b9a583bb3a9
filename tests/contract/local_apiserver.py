"""The local API server for tests: in process on a free port, or as a process for kubectl."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from tests.forking import Forked

from allotment_local.apiserver.app import build_app
from allotment_local.apiserver.errors import JsonObject
from allotment_local.apiserver.store import Store

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PROCESS_TIMEOUT_S = 20


class Clock:
    """A clock that stands still until told otherwise."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def counting_ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"uid-{next(numbers)}"


def new_store(clock: Clock | None = None, *, history_limit: int = 1000) -> Store:
    return Store(clock=clock or Clock(), ids=counting_ids(), history_limit=history_limit)


def pod(name: str = "p", **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "busybox:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def node(name: str = "n", **amounts: str) -> JsonObject:
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name},
        "status": {"capacity": allocatable, "allocatable": allocatable, "conditions": [ready]},
    }


class Api:
    """The server and a session to it; paths are short: `pods/x` is in namespace default."""

    def __init__(self, store: Store, session: aiohttp.ClientSession, url: str) -> None:
        self.store = store
        self.session = session
        self.url = url

    async def call(
        self, method: str, path: str, body: object = None, *, status: int = 200, **options: Any
    ) -> Any:
        """The decoded reply, whose status must be as expected."""
        media = options.pop("media", "application/json")
        headers = {**options.pop("headers", {}), "Content-Type": media}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        async with self.session.request(
            method, self.url + path, data=data, headers=headers, params=options
        ) as response:
            text = await response.text()
            assert response.status == status, f"{method} {path}: {response.status} {text}"
            return json.loads(text) if text.startswith("{") else text

    async def get(self, path: str, **options: Any) -> Any:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: object, *, status: int = 201, **options: Any) -> Any:
        return await self.call("POST", path, body, status=status, **options)

    async def patch(self, path: str, body: object, kind: str = "merge", **options: Any) -> Any:
        return await self.call(
            "PATCH", path, body, media=f"application/{kind}-patch+json", **options
        )

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **options: Any) -> AsyncIterator["Events"]:
        headers = options.pop("headers", {})
        params = {"watch": "true", **options}
        async with self.session.get(self.url + path, params=params, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


class Events:
    """A watch being read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, JsonObject]:
        line = await self._response.content.readline()
        assert line, "the watch ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        read = [await self.next() for _ in range(count)]
        return [(type_, obj["metadata"]["name"]) for type_, obj in read]

    async def rest(self) -> list[tuple[str, JsonObject]]:
        lines = (await self._response.content.read()).splitlines()
        return [(event["type"], event["object"]) for event in map(json.loads, lines)]


@contextlib.asynccontextmanager
async def running(store: Store | None = None, **options: Any) -> AsyncIterator[Api]:
    """The real application on a free loopback port."""
    store = store or new_store()
    app = build_app(store, clock=Clock(), ids=counting_ids(), **options)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield Api(store, session, url)
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def process() -> Iterator[str]:
    """`python -m allotment_local.apiserver` until the block ends; its URL."""
    server = Forked(["allotment_local.apiserver", "--port", "0"])
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(PROCESS_TIMEOUT_S)
        server.stdout.close()
    assert code == 0


class Kubectl:
    """kubectl with a home of its own. Calls return what it printed; a failure shows its words."""

    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._config = home / "kubeconfig"
        self._config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("kubectl") is not None

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--cache-dir", str(self._home / "cache"), *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self._config), "HOME": str(self._home)}

    def __call__(self, *arguments: str, manifest: object = None, code: int = 0) -> str:
        if isinstance(manifest, list):
            manifest = {"apiVersion": "v1", "kind": "List", "items": manifest}
        done = subprocess.run(
            self.command(*arguments),
            input=None if manifest is None else json.dumps(manifest),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr
