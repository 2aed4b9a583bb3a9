"""How a request to Kubernetes ends: three answers, a stream, and the server's own words.

    Ok        the server did it (2xx); the body as it came
    Refused   the server said no (4xx) and did nothing
    Unknown   it may or may not have happened: no answer, a broken one, 5xx, throttled for too long

For a read, Unknown means "ask again". For a write it means "look before you ask again": the pod may
be bound although the answer was lost.
"""

import math
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import anyio
import msgspec

from allotment.adapters.telemetry.log import error_text


class Ok(msgspec.Struct, frozen=True):
    """The server did what was asked."""

    status: int
    body: bytes


class Refused(msgspec.Struct, frozen=True):
    """The server did nothing and says why. `reason` is the Status reason, such as `Conflict`."""

    status: int
    reason: str
    message: str
    details: dict[str, Any] = {}


class Unknown(msgspec.Struct, frozen=True):
    """It is unknown whether it happened.

    `cause`: `unreachable` (no connection was made, so nothing happened), `timeout`, `connection`
    (broken while waiting), `server` (5xx), `throttled` (429 for longer than we wait) or
    `credentials` (none could be obtained, nothing was sent).
    """

    cause: str
    message: str
    status: int = 0
    retry_after_s: float | None = None


KubeResult = Ok | Refused | Unknown


class StreamBroken(Exception):
    """Raised when a stream ends in any other way than by the server closing it in order."""


class ByteStream:
    """The lines of a watch, without their line ends; objects of any size."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._taken_bytes = 0

    @property
    def has_unread(self) -> bool:
        """Whether more has arrived than `lines` has taken."""
        return self._response.content.total_bytes > self._taken_bytes

    async def lines(self, silence_s: float = math.inf) -> AsyncGenerator[list[bytes], None]:
        """Yield what has arrived, whole lines only, many at a time; nothing after each silence of
        `silence_s`. Raises StreamBroken.
        """
        rest = b""
        try:
            while True:
                chunk = None
                with anyio.move_on_after(silence_s):  # a read that is cancelled takes nothing
                    chunk = await self._response.content.readany()
                if chunk is None:
                    yield []
                    continue
                if not chunk:
                    break
                self._taken_bytes += len(chunk)
                *whole, rest = (rest + chunk).split(b"\n")
                if whole:
                    yield whole
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StreamBroken(error_text(error)) from error
        if rest:
            raise StreamBroken("the stream ended in the middle of a line")


class Status(msgspec.Struct):
    """The part of a `kind: Status` body that is read."""

    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None
