"""A TCP proxy between a client and its server, to lose what a network loses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Proxy:
    """Forwards bytes; `drops` decides, chunk by chunk, what of the server's words is lost."""

    def __init__(self, target_url: str) -> None:
        self.port = 0
        self.dropped = 0
        self.refuses = False
        self.drops: Callable[[bytes], bool] = lambda chunk: False
        self._target = urlsplit(target_url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection, as a network does."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
            self._writers |= {writer, up_writer}
            try:
                await asyncio.gather(
                    self._pump(reader, up_writer, lambda chunk: False),
                    self._pump(up_reader, writer, lambda chunk: self.drops(chunk)),
                )
            finally:
                self._writers -= {writer, up_writer}
                up_writer.transport.abort()
        except OSError:
            return  # the server is away: the client sees its connection close
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        drops: Callable[[bytes], bool],
    ) -> None:
        while chunk := await reader.read(65536):
            if drops(chunk):
                self.dropped += 1
                continue
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError("one side is gone")

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxy_to(target_url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(target_url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
