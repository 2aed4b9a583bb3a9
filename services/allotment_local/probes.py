"""Is a local process ready? One small HTTP request, or NATS's greeting; no client library."""

from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import msgspec

from allotment.adapters.telemetry.log import error_text

TIMEOUT_S = 2.0
_ANSWER_BYTES_MAX = 1 << 20


class Lag(NamedTuple):
    """How far a service is behind the end of the log: in records, and for how long."""

    records: int
    seconds: float


class Answer(NamedTuple):
    """Whether it is ready, and what it waits for if it is not. `lag` of what folds the log."""

    ready: bool
    detail: str
    lag: Lag | None = None
    refused: tuple[str, ...] = ()
    """Objects that it refuses while it is ready, a line each."""
    pages: str = ""
    """Where its pages are, if it has any."""
    active: bool | None = None
    """Whether it works or stands by; None of what does not say."""
    silent_since_ms: int | None = None
    """Since when it has had no news from NATS, in Unix time; None while news comes."""

    def row(self) -> dict[str, Any]:
        """The same as a part of a row of `status`."""
        return {
            "ready": self.ready,
            "detail": self.detail,
            "active": self.active,
            "lag": None if self.lag is None else self.lag._asdict(),
            "silentSinceMs": self.silent_since_ms,
            "refused": list(self.refused),
        }


class _Log(msgspec.Struct, rename="camel"):
    records_behind: int | None = None
    seconds_behind: float | None = None
    silent_since_ms: int | None = None


class _Figures(msgspec.Struct):
    log: _Log = msgspec.field(default_factory=_Log)


class _Ready(msgspec.Struct):
    """What a service's /readyz says."""

    reasons: dict[str, str] = {}
    refused: tuple[str, ...] = ()
    holds: dict[str, Any] = {}
    figures: _Figures = msgspec.field(default_factory=_Figures)


async def probe_http(address: str, path: str = "/readyz") -> Answer:
    """Ask a service on `host:port` whether it is ready."""
    try:
        with anyio.fail_after(TIMEOUT_S):
            status, body = await _get(address, path)
    except TimeoutError:
        return Answer(False, f"no answer from {address} within {TIMEOUT_S:.0f} s")
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, ValueError) as error:
        return Answer(False, f"no answer from {address}: {error_text(error)}")
    try:
        said = msgspec.json.decode(body, type=_Ready)
    except msgspec.DecodeError:
        said = _Ready()
    detail = "; ".join(f"{name}: {why}" for name, why in said.reasons.items())
    if not detail:
        detail = f"HTTP {status}: {body[:200].decode(errors='replace').strip()}"
    log, lease = said.figures.log, said.holds.get("lease")
    lag = None
    if None not in (log.records_behind, log.seconds_behind) and log.silent_since_ms is None:
        lag = Lag(log.records_behind or 0, log.seconds_behind or 0.0)
    return Answer(
        ready=status == 200,
        detail="" if status == 200 else detail,
        lag=lag,
        refused=said.refused,
        pages=str(said.holds.get("pages", "")),
        active=None if lease is None else str(lease).startswith("active"),
        silent_since_ms=log.silent_since_ms,
    )


async def probe_nats(url: str) -> Answer:
    """Ask a nats-server whether it greets."""
    parts = urlsplit(url)
    try:
        with anyio.fail_after(TIMEOUT_S):
            async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as stream:
                greeting = await stream.receive(4096)
    except TimeoutError:
        return Answer(False, f"no greeting from {url} within {TIMEOUT_S:.0f} s")
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        return Answer(False, f"no greeting from {url}: {error_text(error)}")
    if not greeting.startswith(b"INFO "):
        return Answer(False, f"what listens at {url} is not a NATS server")
    return Answer(True, "")


async def _get(address: str, path: str) -> tuple[int, bytes]:
    host, _, port = address.rpartition(":")
    request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    answer = b""
    async with await anyio.connect_tcp(host.strip("[]"), int(port)) as stream:
        await stream.send(request.encode())
        while len(answer) < _ANSWER_BYTES_MAX:
            try:
                answer += await stream.receive()
            except anyio.EndOfStream:
                break
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1] if head.startswith(b"HTTP/") else b"no HTTP"), body
