"""The watchdog of a connection: frees the client where it would wait for ever.

Three things the client does not notice by itself: a server that hangs while our socket buffer is
full (its pings cannot be written, so their answers are not missed), a closed socket whose last
bytes nobody reads (it waits for them before it reconnects), and a reconnect loop that ended by an
error it did not expect. The first two are cured by dropping the socket, the third is told.
"""

import logging
import time
from collections.abc import Callable

import anyio
import anyio.lowlevel

from allotment.adapters.nats_client import GuardedClient

TICK_S = 0.25
STUCK_S_MAX = 0.5

log = logging.getLogger("allotment.nats")


class Watchdog:
    """Watches one client. `aborts` counts the sockets it dropped."""

    def __init__(
        self, client: GuardedClient, *, silence_s_max: float, on_lost: Callable[[], None]
    ) -> None:
        self.aborts = 0
        self._client = client
        self._silence_s_max = silence_s_max
        self._on_lost = on_lost
        self._heard = client.heard
        self._heard_at = time.monotonic()
        self._stuck_since: float | None = None

    async def run(self, report: Callable[[], None]) -> None:
        """Look every quarter of a second, for ever; `report` is called at each look."""
        while True:
            await anyio.sleep(TICK_S)
            report()
            now = time.monotonic()
            await self._check_silence(now)
            await self._check_closing(now)
            if self._client.has_stopped_reconnecting:
                self._on_lost()

    async def _check_silence(self, now: float) -> None:
        heard = self._client.heard
        if heard != self._heard or not self._client.is_connected:
            self._heard, self._heard_at = heard, now
        elif now - self._heard_at > self._silence_s_max:
            log.warning("nats: nothing heard for %.1f s, reconnecting", now - self._heard_at)
            self._heard_at = now
            await self._abort()
            await self._client.force_reconnect()

    async def _check_closing(self, now: float) -> None:
        if not self._client.is_stuck_closing:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > STUCK_S_MAX:
            await self._abort()

    async def _abort(self) -> None:
        self.aborts += 1
        self._client.abort()
        await anyio.lowlevel.checkpoint()
