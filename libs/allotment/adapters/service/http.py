"""The small HTTP side of every service: is it alive, is it ready, what does it count.

`/healthz` answers while the event loop turns. `/readyz` answers 503 with the reasons until every
declared condition holds, and again as soon as the service is asked to stop; objects that are
refused are named there and do not make a service unready. `/metrics` speaks
Prometheus text or OpenMetrics, whichever the scraper asks for.

Connections are bounded. One on which no whole request arrives is closed after `IDLE_S`. When
`CONNECTIONS_MAX` are open, a new one replaces the oldest connection of the address that has the
most, so no client can lock out the others.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence

import anyio
import msgspec
from aiohttp import hdrs, web

from allotment.adapters.telemetry.metrics import ServiceMetrics

CONNECTIONS_MAX = 512
IDLE_S = 30.0
ACCEPT_AGAIN_S = 0.1
"""How long accepting pauses after it failed, for example because no file descriptor was free."""
NOT_DECLARED = "the service has not yet said what it waits for"


class CannotListen(Exception):
    """Raised when the HTTP address cannot be taken; says which and what to change."""


class Readiness:
    """Conditions that must all hold. Each is a name, whether it holds, and why (not).

    `refused` says what is refused while the service is ready: other objects are not affected.
    """

    def __init__(self, refused: Callable[[], Sequence[str]] = lambda: ()) -> None:
        self.refused = refused
        self._conditions: dict[str, tuple[bool, str]] = {}
        self._stopping = False
        self.figures: dict[str, dict[str, int | float]] = {}
        """What there is to say in numbers, by subject: for machines, next to the conditions."""

    def set(self, name: str, holds: bool, detail: str = "") -> None:
        self._conditions[name] = (holds, detail)

    def stop(self) -> None:
        """From now on never ready again."""
        self._stopping = True

    @property
    def is_ready(self) -> bool:
        return not self.reasons()

    def reasons(self) -> dict[str, str]:
        """Why the service is not ready, by condition; empty when it is."""
        if self._stopping:
            return {"stopping": "the service was asked to stop"}
        if not self._conditions:
            return {"started": NOT_DECLARED}
        return {
            name: detail or "not yet"
            for name, (holds, detail) in self._conditions.items()
            if not holds
        }

    def details(self) -> dict[str, str]:
        """What there is to say about each condition that holds."""
        return {name: detail for name, (holds, detail) in self._conditions.items() if holds}


@contextlib.asynccontextmanager
async def serve_http(
    host: str, port: int, service: str, readiness: Readiness, metrics: ServiceMetrics
) -> AsyncIterator[str]:
    """Serve until the scope is left; yields the address in use as `host:port`.

    Port 0 takes a free one. Raises CannotListen.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = readiness.reasons()
        body: dict[str, object] = {
            "service": service,
            "ready": not reasons,
            "reasons": reasons,
            "holds": readiness.details(),
            "figures": readiness.figures,
        }
        if refused := readiness.refused():
            body["refused"] = refused
        return web.Response(
            body=msgspec.json.encode(body) + b"\n",
            status=503 if reasons else 200,
            content_type="application/json",
        )

    async def metrics_page(request: web.Request) -> web.StreamResponse:
        parts, content_type = await metrics.page(request.headers.get("Accept", ""))
        headers = {"Content-Type": content_type}
        if request.method == hdrs.METH_HEAD:
            return web.Response(headers=headers)
        response = web.StreamResponse(headers=headers)
        with contextlib.suppress(ConnectionError):  # who asked may be gone by now, and needs none
            await response.prepare(request)
            for part in parts:
                await response.write(part)
            await response.write_eof()
        return response

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_page)
    async with listening(app, host, port, "http") as address:
        yield address


@contextlib.asynccontextmanager
async def listening(app: web.Application, host: str, port: int, options: str) -> AsyncIterator[str]:
    """Serve an application until the scope is left; yields HOST:PORT. Port 0 takes a free one.

    `options` is how the settings of host and port begin, for what is said where the address cannot
    be taken. Raises CannotListen.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S)
    await runner.setup()
    server = runner.server
    assert server is not None, "set up just now"
    try:
        try:
            listener = await anyio.to_thread.run_sync(_listener, host, port)
        except OSError as error:
            why = "it is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
            raise CannotListen(
                f"cannot listen on {host}:{port}: {why};"
                f" give another --{options}-host or --{options}-port (0 takes a free port)"
            ) from error
        with listener:
            taken = listener.getsockname()
            shown = f"[{taken[0]}]" if ":" in taken[0] else taken[0]
            async with anyio.create_task_group() as group:
                group.start_soon(_accept, listener, server)
                yield f"{shown}:{taken[1]}"
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):  # bounded by shutdown_timeout
            await runner.cleanup()


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket for the first address of the host. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = found[0]
    listener = socket.create_server((str(address[0]), int(address[1])), family=family, backlog=128)
    listener.setblocking(False)
    return listener


async def _accept(listener: socket.socket, server: web.Server) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            if len(_open(server)) >= CONNECTIONS_MAX:
                _make_room(server)
            await loop.connect_accepted_socket(server, connection)
        except OSError:
            _make_room(server)
            await anyio.sleep(ACCEPT_AGAIN_S)


def _make_room(server: web.Server) -> None:
    """Close the oldest connection of the address that has the most.

    What was not sent yet is dropped: a client that reads nothing would keep the connection open.
    """
    by_address = Counter(map(_address, _open(server)))
    for busiest, _ in by_address.most_common(1):
        oldest = next(each for each in _open(server) if _address(each) == busiest)
        transport = oldest.transport
        oldest.force_close()
        if transport is not None:
            transport.abort()


def _open(server: web.Server) -> list[web.RequestHandler]:
    """The open connections, oldest first; the server lists closed ones until their task ends."""
    return [each for each in server.connections if each.transport is not None]


def _address(connection: web.RequestHandler) -> str:
    return str(connection.peername[0]) if connection.peername else ""


def host_of(header: str) -> str:
    """The name or address in a Host header, without its port."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


def is_own_host(host: str, names: Collection[str] = ()) -> bool:
    """Whether a request for `host` may be answered: localhost, one of `names`, or an address.

    Another name could belong to an enemy who made it lead here, so that a browser takes our answers
    for those of his site (DNS rebinding). An address has no owner.
    """
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
