"""The small HTTP side of every service: is it alive, is it ready, what does it count.

`/healthz` answers while the event loop turns. `/readyz` answers 503 with the reasons until every
declared condition holds, and again as soon as the service is asked to stop; objects that are
refused are named there and make nobody unready. `/metrics` speaks
Prometheus text or OpenMetrics, whichever the scraper asks for.
"""

import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import msgspec
from aiohttp import hdrs, web

from allotment.adapters.telemetry.metrics import ServiceMetrics

NOT_DECLARED = "the service has not yet said what it waits for"


class CannotListen(Exception):
    """Raised when the HTTP address cannot be taken; says which and what to change."""


class Readiness:
    """Conditions that must all hold. Each is a name, whether it holds, and why (not).

    `refused` says what is refused while the service is ready: that harms nobody else.
    """

    def __init__(self, refused: Callable[[], Sequence[str]] = lambda: ()) -> None:
        self.refused = refused
        self._conditions: dict[str, tuple[bool, str]] = {}
        self._stopping = False
        self.figures: dict[str, dict[str, int | float]] = {}
        """What there is to say in numbers, by subject: for machines, beside the conditions."""

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
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = "it is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
            raise CannotListen(
                f"cannot listen on {host}:{port}: {why};"
                f" give another --{options}-host or --{options}-port (0 takes a free port)"
            ) from error
        taken = runner.addresses[0]
        shown = f"[{taken[0]}]" if ":" in taken[0] else taken[0]
        yield f"{shown}:{taken[1]}"
    finally:
        with anyio.CancelScope(shield=True):  # bounded by shutdown_timeout
            await runner.cleanup()
