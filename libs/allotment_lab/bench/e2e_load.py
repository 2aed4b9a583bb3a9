"""The load of `allot bench e2e`, and its eyes: a client that sends, and a watch that takes times.

The client is bare on purpose: bodies are ready, connections are kept, an answer is a status. What
it reaches with Bindings alone is what the API server can do on this machine.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import anyio
import anyio.lowlevel
import msgspec
from yarl import URL

from allotment.adapters.kube.client import MERGE_PATCH, KubeClient
from allotment.adapters.kube.config import load_access
from allotment.adapters.kube.objects import PlacedPod
from allotment.adapters.kube.result import ByteStream, Ok, StreamBroken, text_of
from allotment_cli.errors import CliError
from allotment_lab.bench.e2e_pods import Body
from allotment_proto.volcano import keys

T = TypeVar("T")

SENDERS = 32
READ_BUFFER_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 60.0
WATCH_IDLE_S = 600.0
_ACKNOWLEDGED = msgspec.json.encode(
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


class BareClient:
    """POSTs, PATCHes and DELETEs, `SENDERS` at a time. Any answer but a good one is a CliError."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
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
        try:
            sending = self._session.request(method, url, data=data, headers=headers)
            async with sending as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CliError(f"{method} {url}: {text_of(error)}") from error
        if response.status not in good:
            said = body[:300].decode(errors="replace")
            raise CliError(f"{method} {url}: {response.status} {said}")
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

    async def bind_all(self, pods: str, bindings: Sequence[Body]) -> float:
        """Bind everything; wall seconds."""

        async def bind(body: Body) -> None:
            await self.send("POST", f"{pods}/{body.name}/binding", body.data, (201,))

        return await self._all(bindings, bind)

    async def acknowledge(self, pod: str) -> None:
        """What a device plugin writes when it has handed out a pod's devices."""
        await self.send("PATCH", pod, _ACKNOWLEDGED, (200, 404), {"Content-Type": MERGE_PATCH})

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
async def bare_client(kubeconfig: Path) -> AsyncIterator[BareClient]:
    """A client for the cluster of a kubeconfig; its credentials are read once."""
    address, credentials = await load_access(kubeconfig)
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if (token := await credentials.header()) is not None:
        headers["Authorization"] = token
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=address.ssl or True),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        auto_decompress=False,
    ) as session:
        yield BareClient(session, address.url)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_pod = msgspec.json.Decoder(PlacedPod).decode


class Eyes:
    """Sees pods being bound. Times are of the monotonic clock, in seconds.

    `acknowledge`: also play the device plugins of nodes that have none, so that pods which wait for
    another one's devices to be handed out are not held up for ever.
    """

    def __init__(
        self, client: KubeClient, bare: BareClient, pods: str, *, acknowledge: bool
    ) -> None:
        self.sent_s: dict[str, float] = {}
        self.bound_s: dict[str, float] = {}
        self.double = 0
        """Pods that changed their node: there must be none."""
        self._nodes: dict[str, str] = {}
        self._client = client
        self._bare = bare
        self._pods = pods
        self._acknowledge = acknowledge
        self._acknowledged: set[str] = set()
        self._stirred = anyio.Event()

    def sent(self, name: str) -> None:
        self.sent_s[name] = time.monotonic()

    async def wait_bound(self, names: Sequence[str], within_s: float) -> None:
        """Until all of these are bound. Raises CliError when that takes longer than `within_s`."""
        with anyio.move_on_after(within_s):
            for name in names:
                while name not in self.bound_s:
                    self._stirred = anyio.Event()
                    await self._stirred.wait()
            return
        bound = sum(name in self.bound_s for name in names)
        raise CliError(f"only {bound} of {len(names)} pods were bound within {within_s:.0f} s")

    def latencies_us(self, names: Sequence[str]) -> list[int]:
        """From sent to seen bound, in order of size."""
        return sorted(round(1e6 * (self.bound_s[name] - self.sent_s[name])) for name in names)

    def bound_per_second(self, names: Sequence[str]) -> float:
        """From the first one seen bound to the last."""
        times = sorted(self.bound_s[name] for name in names)
        return (len(times) - 1) / (times[-1] - times[0])

    async def look(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Watch until cancelled; started when nothing that happens from now on is missed."""
        answer = await self._client.list(self._pods, {"limit": "1"})
        if not isinstance(answer, Ok):
            raise CliError(f"{self._pods}: {answer.message}")
        version = msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]
        params = {"watch": "1", "resourceVersion": version}
        async with (
            anyio.create_task_group() as plugins,
            self._client.watch(self._pods, params, WATCH_IDLE_S) as stream,
        ):
            if not isinstance(stream, ByteStream):
                raise CliError(f"{self._pods} cannot be watched: {stream.message}")
            task_status.started()
            try:
                async for lines in stream.lines():
                    now_s = time.monotonic()
                    for line in lines:
                        pod = self._see(line, now_s)
                        if pod is not None:
                            plugins.start_soon(self._mark, pod)
                    self._stirred.set()
            except StreamBroken as error:
                raise CliError(f"the watch of {self._pods} broke: {error}") from error
        raise CliError("the API server ended the watch before the bench was through")

    def _see(self, line: bytes, now_s: float) -> str | None:
        """Take a watch line in; the name of a pod that its device plugin has to acknowledge."""
        event = _decode_line(line)
        if event.type not in ("ADDED", "MODIFIED"):
            if event.type == "ERROR":
                raise CliError(f"the watch broke: {bytes(event.object).decode()}")
            return None
        pod = _decode_pod(event.object)
        name, node = pod.metadata.name, pod.spec.node_name
        if not node:
            return None
        self.double += self._nodes.setdefault(name, node) != node
        self.bound_s.setdefault(name, now_s)
        if not self._acknowledge or name in self._acknowledged:
            return None
        phase = (pod.metadata.annotations or {}).get(keys.BIND_PHASE)
        if phase != keys.PHASE_ALLOCATING:
            return None
        self._acknowledged.add(name)
        return name

    async def _mark(self, name: str) -> None:
        await self._bare.acknowledge(f"{self._pods}/{name}")
