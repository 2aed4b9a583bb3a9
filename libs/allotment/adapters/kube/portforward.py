"""A port of a pod, reached through the API server: what `kubectl port-forward` does.

The API server carries each TCP connection over a WebSocket of its own. Every message begins with
the number of a channel: channel 0 has the bytes, channel 1 says why there are none. The first
message of each channel is the number of the port, and no part of what is carried.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

import aiohttp

from allotment.adapters.kube.client import KubeClient, pod_path
from allotment.adapters.kube.result import Refused, Unknown

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16


class Forward:
    """A port on loopback. `problem` is why the last connection to it could not be carried."""

    def __init__(self, client: KubeClient, namespace: str, pods: Sequence[str], port: int) -> None:
        self.local_port = 0
        self.problem = ""
        self._client = client
        self._namespace = namespace
        self._pods = deque(pods)
        self._port = port
        self._carrying: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it, in a task of its own."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, writer)
        except (aiohttp.ClientError, OSError) as error:
            self.problem = str(error)
        finally:
            writer.close()

    async def end(self) -> None:
        """Drop the connections that are carried."""
        for task in self._carrying:
            task.cancel()
        if self._carrying:
            await asyncio.wait(self._carrying)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """To the first pod that takes it; one that does not is asked last the next time."""
        for _ in range(len(self._pods)):
            pod = self._pods[0]
            path = pod_path(self._namespace, pod, "portforward")
            async with self._client.websocket(path, {"ports": str(self._port)}, PROTOCOL) as socket:
                if not isinstance(socket, Refused | Unknown):
                    error = await _pump(socket, reader, writer)
                    if error:
                        self.problem = f"pod {pod}: {error}"
                        self._pods.rotate(-1)
                    return
                self.problem = f"pod {pod}: {socket.message}"
            self._pods.rotate(-1)


@contextlib.asynccontextmanager
async def forwarded(
    client: KubeClient, namespace: str, pods: Sequence[str], port: int
) -> AsyncIterator[Forward]:
    """A port on loopback for the length of the block; what connects to it speaks to a pod's port.

    The pods are alike: any of them will do.
    """
    forward = Forward(client, namespace, pods, port)
    server = await asyncio.start_server(forward.accept, LOOPBACK, 0)
    forward.local_port = server.sockets[0].getsockname()[1]
    try:
        yield forward
    finally:
        server.close()
        await forward.end()


async def _pump(
    socket: aiohttp.ClientWebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    """Both ways at once; returns what the error channel said."""
    up = asyncio.create_task(_up(socket, reader))
    try:
        return await _down(socket, writer)
    finally:
        up.cancel()
        await asyncio.wait([up])


async def _up(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError):  # its reader notices as well
        while chunk := await reader.read(CHUNK_BYTES):
            await socket.send_bytes(bytes([DATA]) + chunk)
        await socket.close()


async def _down(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    begun: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
            content = content[2:]
        if channel == ERROR and content:
            return str(content.decode(errors="replace"))
        if channel == DATA and content:
            writer.write(content)
            await writer.drain()
    return ""
