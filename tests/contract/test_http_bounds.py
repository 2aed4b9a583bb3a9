"""No client of an HTTP port keeps others out: connections end, and their number is bounded."""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from tests.waiting import patience, until

from allotment.adapters.service import http

pytestmark = pytest.mark.anyio

ASKED: list[Any] = []
"""The server's sockets on which something large was asked for."""


@pytest.fixture
async def address(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    """A server that takes ten connections and waits a second for a request."""
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 10)
    monkeypatch.setattr(http, "IDLE_S", 1.0)

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            while True:
                await response.write(b"x")
                await anyio.sleep(0.05)
        return response

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def large(request: web.Request) -> web.Response:
        assert request.transport is not None
        ASKED.append(request.transport.get_extra_info("socket"))
        return web.Response(body=bytes(16 << 20))

    app = web.Application()
    app.router.add_get("/stream", stream)
    app.router.add_get("/large", large)
    app.router.add_get("/page", page)
    async with http.listening(app, "127.0.0.1", 0, "http") as found:
        host, _, port = found.rpartition(":")
        yield host, int(port)


def is_closed(connection: socket.socket) -> bool:
    try:
        while received := connection.recv(65_536):
            assert received
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


async def page_of(address: tuple[str, int]) -> str:
    url = f"http://{address[0]}:{address[1]}/page"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


@pytest.mark.parametrize("sent", [b"", b"GET /page HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_connection_without_a_whole_request_is_closed(
    address: tuple[str, int], sent: bytes
) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        connection.setblocking(False)
        await until(lambda: is_closed(connection))


@pytest.mark.parametrize("path", ["", "/stream"])
async def test_whoever_holds_all_connections_locks_nobody_out(
    address: tuple[str, int], path: str
) -> None:
    """Half-open ones, and streams that are read from and never end."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() if path else b""
    with contextlib.ExitStack() as held:
        connections = [
            held.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0)))
            for _ in range(30)
        ]
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(ConnectionError):
                connection.send(request)
        with patience():
            assert await page_of(address) == "ok"
        await until(lambda: sum(map(is_closed, connections)) >= 20)


async def test_a_client_that_reads_nothing_keeps_no_connection_open(
    address: tuple[str, int],
) -> None:
    """What is left to be sent to it does not keep the server's side open beyond the bound."""
    ASKED.clear()
    with contextlib.ExitStack() as held:
        connections: list[socket.socket] = []
        for _ in range(30):
            connections.append(held.enter_context(socket.create_connection(address)))
            connections[-1].sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: len(ASKED) == len(connections))
        await until(lambda: sum(each.fileno() == -1 for each in ASKED) >= 20)
        with patience():
            assert await page_of(address) == "ok"


async def test_a_browser_keeps_its_stream_while_another_client_floods(
    address: tuple[str, int],
) -> None:
    url = f"http://{address[0]}:{address[1]}/stream"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert await response.content.read(1)
        with contextlib.ExitStack() as held:
            for _ in range(40):
                connected = socket.create_connection(address, source_address=("127.0.0.2", 0))
                held.enter_context(connected)
                await anyio.lowlevel.checkpoint()
            assert await page_of(address) == "ok"
            assert await response.content.read(1)
