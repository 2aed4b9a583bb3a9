"""The load of `allot bench e2e`, and its eyes: a client that sends, and a watch that takes times.

The client is bare on purpose: bodies are ready, connections are kept, an answer is a status. What
it reaches with Bindings alone is what the API server can do on this machine.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import anyio
import anyio.lowlevel
import msgspec
from yarl import URL

from allotment.adapters.kube.client import MERGE_PATCH, KubeClient
from allotment.adapters.kube.config import load_access
from allotment.adapters.kube.objects import PlacedPod
from allotment.adapters.kube.result import ByteStream, Ok, StreamBroken
from allotment.adapters.telemetry.log import error_text
from allotment.core.errors import AllotError
from allotment_lab.bench.e2e.pods import Body
from allotment_proto.volcano import keys

T = TypeVar("T")

SENDERS = 32
REQUEST_TIMEOUT_S = 60.0
WATCH_IDLE_S = 600.0
REWATCH_S = 0.05
ACKNOWLEDGEMENT = msgspec.json.encode(
    {
        "metadata": {
            "annotations": {
                keys.BIND_PHASE: keys.PHASE_SUCCESS,
                keys.VGPU_TIME: keys.VGPU_TIME_DONE,
                keys.DEVICES_TO_ALLOCATE: "",
            }
        }
    }
)
"""What a vGPU device plugin writes when it has handed out a pod's devices."""


class BareClient:
    """POSTs, PATCHes and DELETEs, `SENDERS` at a time. Raises AllotError for a refusal."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.sent: Counter[str] = Counter()
        """How often it asked for what, as `POST pods/binding`."""
        self._session = session
        self._url = url

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        good: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """One request; the body of the answer."""
        url = URL(self._url + path, encoded=True)
        self.sent[_kind(method, path)] += 1
        try:
            sending = self._session.request(method, url, data=data, headers=headers)
            async with sending as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AllotError(f"{method} {url}: {error_text(error)}") from error
        if response.status not in good:
            said = body[:300].decode(errors="replace")
            raise AllotError(f"{method} {url}: {response.status} {said}")
        return body

    async def create_all(
        self,
        path: str,
        bodies: Sequence[Body],
        sent: Callable[[str], None] = lambda _: None,
    ) -> float:
        """Create everything; wall seconds. `sent` hears each name right before it is sent."""

        async def create(body: Body) -> None:
            sent(body.name)
            await self.send("POST", path, body.data, (201,))

        return await self._all(bodies, create)

    async def create_and_bind_all(
        self, pods: str, pairs: Sequence[tuple[Body, bytes]], sent: Callable[[str], None]
    ) -> None:
        """Create pods and bind each as soon as it exists, without waiting for the others."""

        async def place(pair: tuple[Body, bytes]) -> None:
            body, binding = pair
            sent(body.name)
            await self.send("POST", pods, body.data, (201,))
            await self.send("POST", f"{pods}/{body.name}/binding", binding, (201,))

        await self._all(pairs, place)

    async def merge(self, path: str, patch: bytes) -> None:
        """A merge patch of what may be gone by now."""
        await self.send("PATCH", path, patch, (200, 404), {"Content-Type": MERGE_PATCH})

    async def delete_all(self, path: str, names: Sequence[str]) -> None:
        async def delete(name: str) -> None:
            await self.send("DELETE", f"{path}/{name}?gracePeriodSeconds=0", None, (200, 202, 404))

        await self._all(names, delete)

    async def _all(self, items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> float:
        left = iter(items)

        async def work() -> None:
            for item in left:
                await act(item)

        start = time.monotonic()
        async with anyio.create_task_group() as senders:
            for _ in range(min(SENDERS, len(items))):
                senders.start_soon(work)
        return time.monotonic() - start


@asynccontextmanager
async def bare_client(kubeconfig: Path, context: str | None = None) -> AsyncIterator[BareClient]:
    """A client for the cluster of a kubeconfig; its credentials are read once."""
    address, credentials = await load_access(kubeconfig, context)
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",  # else a kube-apiserver compresses what is large
        "Content-Type": "application/json",
    }
    if (token := await credentials.header()) is not None:
        headers["Authorization"] = token
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=address.ssl or True),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        auto_decompress=False,
    ) as session:
        yield BareClient(session, address.url)


def _kind(method: str, path: str) -> str:
    """What a request of this client is counted as by the API server."""
    parts = path.partition("?")[0].strip("/").split("/")
    after = parts[4:] if parts[:3:2] == ["api", "namespaces"] and len(parts) > 4 else parts[2:]
    return f"{method} {'/'.join((*after[:1], *after[2:]))}"


class _Status(msgspec.Struct):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None


class _SeenPod(PlacedPod):
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_pod = msgspec.json.Decoder(_SeenPod).decode
_STARTED = ("Running", "Succeeded")


class Eyes:
    """Sees pods being bound and started. Times are of the monotonic clock, in seconds.

    `heard`, where there is one, is given every event of the watch with its whole pod.
    """

    def __init__(self, client: KubeClient, pods: str) -> None:
        self.sent_s: dict[str, float] = {}
        self.bound_s: dict[str, float] = {}
        self.running_s: dict[str, float] = {}
        self.uids: dict[str, str] = {}
        """By name, of pods that were bound."""
        self.failed: dict[str, str] = {}
        """Pods that their node refused, with the reason: nothing that is measured may be."""
        self.double = 0
        """Pods that changed their node: there must be none."""
        self.heard: Callable[[str, dict[str, Any]], None] | None = None
        self._nodes: dict[str, str] = {}
        self._client = client
        self._pods = pods
        self._stirred = anyio.Event()
        self._version = ""

    def sent(self, name: str) -> None:
        self.sent_s[name] = time.monotonic()

    async def wait_running(self, names: Sequence[str], within_s: float) -> None:
        """Until all of these run. Raises AllotError after `within_s`, and if one was refused."""
        with anyio.move_on_after(within_s):
            for name in names:
                while name not in self.running_s:
                    if name in self.failed:
                        raise AllotError(f"pod {name} was refused by its node: {self.failed[name]}")
                    self._stirred = anyio.Event()
                    await self._stirred.wait()
            return
        done = sum(name in self.running_s for name in names)
        raise AllotError(f"only {done} of {len(names)} pods were running within {within_s:.0f} s")

    def latencies_us(self, names: Sequence[str], until_s: Mapping[str, float]) -> list[int]:
        """From sent until then, in order of size."""
        return sorted(round(1e6 * (until_s[name] - self.sent_s[name])) for name in names)

    def per_second(self, names: Sequence[str], until_s: Mapping[str, float]) -> float:
        """Pods a second from the first one sent to the last one until then."""
        begun_s = min(self.sent_s[name] for name in names)
        return len(names) / (max(until_s[name] for name in names) - begun_s)

    async def look(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Watch until cancelled; started when nothing that happens from now on is missed."""
        answer = await self._client.list(self._pods, {"limit": "1"})
        if not isinstance(answer, Ok):
            raise AllotError(f"{self._pods}: {answer.message}")
        self._version = msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]
        await self._watch(task_status.started)
        while True:  # an API server may end a watch when it likes, and a busy one does
            await anyio.sleep(REWATCH_S)
            await self._watch()

    async def _watch(self, started: Callable[[], None] = lambda: None) -> None:
        """See what comes after the version last seen, until the API server ends the watch."""
        params = {"watch": "1", "resourceVersion": self._version}
        async with self._client.watch(self._pods, params, WATCH_IDLE_S) as stream:
            if not isinstance(stream, ByteStream):
                raise AllotError(f"{self._pods} cannot be watched: {stream.message}")
            started()
            try:
                async for lines in stream.lines():
                    now_s = time.monotonic()
                    for line in lines:
                        self._see(line, now_s)
                    self._stirred.set()
            except StreamBroken as error:
                raise AllotError(f"the watch of {self._pods} broke: {error}") from error

    def _see(self, line: bytes, now_s: float) -> None:
        event = _decode_line(line)
        if event.type == "ERROR":
            raise AllotError(f"the watch broke: {bytes(event.object).decode()}")
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            return
        if self.heard is not None:
            self.heard(event.type, msgspec.json.decode(event.object))
        pod = _decode_pod(event.object)
        self._version = pod.metadata.resource_version
        name, node = pod.metadata.name, pod.spec.node_name
        if not node or event.type == "DELETED":
            return
        self.double += self._nodes.setdefault(name, node) != node
        self.bound_s.setdefault(name, now_s)
        self.uids[name] = pod.metadata.uid
        if pod.status.phase in _STARTED:
            self.running_s.setdefault(name, now_s)
        elif pod.status.phase == "Failed":
            self.failed[name] = f"{pod.status.reason}: {pod.status.message}"
