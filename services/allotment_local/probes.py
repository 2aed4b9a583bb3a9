"""Is a local process ready? One small HTTP request, or NATS's greeting; no client library."""

import json
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio

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


async def probe_http(address: str, path: str = "/readyz") -> Answer:
    """Ask a service on `host:port` whether it is ready."""
    try:
        with anyio.fail_after(TIMEOUT_S):
            status, body = await _get(address, path)
    except TimeoutError:
        return Answer(False, f"no answer from {address} within {TIMEOUT_S:.0f} s")
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, ValueError) as error:
        return Answer(False, f"no answer from {address}: {error_text(error)}")
    reasons = "" if status == 200 else _reasons(status, body)
    return Answer(
        status == 200,
        reasons,
        _lag(body),
        _refused(body),
        _pages(body),
        _active(body),
        _silent_since_ms(body),
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


def _lag(body: bytes) -> Lag | None:
    """What a service's /readyz says of its fold; a process without one says nothing, and neither
    does one that has no news of where the log ends.
    """
    if _silent_since_ms(body) is not None:
        return None
    try:
        figures = json.loads(body)["figures"]["log"]
        return Lag(int(figures["recordsBehind"]), float(figures["secondsBehind"]))
    except (ValueError, KeyError, TypeError):
        return None


def _silent_since_ms(body: bytes) -> int | None:
    """Since when a service's /readyz says that it has had no news from NATS."""
    try:
        since_ms = json.loads(body)["figures"]["log"]["silentSinceMs"]
    except (ValueError, KeyError, TypeError):
        return None
    return since_ms if isinstance(since_ms, int) else None


def _refused(body: bytes) -> tuple[str, ...]:
    """The objects that a service's /readyz names as refused."""
    try:
        return tuple(str(line) for line in json.loads(body)["refused"])
    except (ValueError, KeyError, TypeError):
        return ()


def _pages(body: bytes) -> str:
    """Where a service's /readyz says that its pages are."""
    try:
        return str(json.loads(body)["holds"]["pages"])
    except (ValueError, KeyError, TypeError):
        return ""


def _active(body: bytes) -> bool | None:
    """Whether a service's /readyz says that it has the lease."""
    try:
        return str(json.loads(body)["holds"]["lease"]).startswith("active")
    except (ValueError, KeyError, TypeError):
        return None


def _reasons(status: int, body: bytes) -> str:
    """What a service's /readyz says it waits for."""
    try:
        reasons = json.loads(body)["reasons"]
        return "; ".join(f"{name}: {why}" for name, why in reasons.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {status}: {body[:200].decode(errors='replace').strip()}"
