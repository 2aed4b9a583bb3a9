"""The watchdog of a connection: frees the client where it would wait for ever.

Four things the client does not notice by itself: a server that hangs while our socket buffer is
full (its pings cannot be written, so their answers are not missed), a closed socket whose last
bytes stay unread (it waits for them before it reconnects), and a reconnect loop that ended by an
error it did not expect. The first two are cured by dropping the socket, the third is reported.
The fourth is a server that answers pings and does no work: cut off from its cluster, without a
leader, unable to write. It is left for another of the configured or announced servers, more and
more patiently when none of them is better.
"""

import logging
import time
from collections.abc import Callable

import anyio
import anyio.lowlevel

from allotment.adapters.log.nats_client import GuardedClient

TICK_S = 0.25
STUCK_S_MAX = 0.5
UNANSWERED_S_MAX = 5.0
"""A server that leaves JetStream's questions unanswered for so long is left for another."""
UNANSWERED_S_MOST = 60.0
"""The same when every server was tried without success."""

log = logging.getLogger("allotment.nats")


class Watchdog:
    """Watches one client. `aborts` counts the sockets it dropped."""

    def __init__(
        self,
        client: GuardedClient,
        *,
        silence_s_max: float,
        on_lost: Callable[[], None],
        unanswered_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.aborts = 0
        self.leaves = 0
        self._unanswered_s = unanswered_s
        self._in_vain = 0
        """How many servers were left since one answered."""
        self._wanted = ""
        self._left_id = ""
        self._returns = 0
        """How often in a row the server that was left came back, under another of its addresses."""
        self._reconnects = -1
        self._here_since = 0.0
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
            await self._check_service(now)
            if self._client.has_stopped_reconnecting:
                self._on_lost()

    async def _check_silence(self, now: float) -> None:
        heard = self._client.heard
        if heard != self._heard or not self._client.is_connected:
            self._heard, self._heard_at = heard, now
        elif now - self._heard_at > self._silence_s_max:
            log.warning("nats: nothing received for %.1f s, reconnecting", now - self._heard_at)
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

    def leave(self, reason: str) -> None:
        """Leave the server at the next look, if there is another to go to."""
        self._wanted = reason

    async def _check_service(self, now: float) -> None:
        reconnects = int(self._client.stats["reconnects"])
        if not self._client.is_connected:
            return
        if reconnects != self._reconnects:
            self._reconnects, self._here_since = reconnects, now
            if (
                self._client.server_id == self._left_id
                and self._returns < self._client.server_count
            ):
                self._returns += 1
                await self._client.leave_server()
            return
        unanswered_s = self._unanswered_s()
        if unanswered_s == 0.0:
            self._in_vain = 0
        elif not self._wanted:
            rounds = self._in_vain // max(self._client.server_count, 1)
            patience_s = min(UNANSWERED_S_MAX * 2.0 ** min(rounds, 8), UNANSWERED_S_MOST)
            if min(unanswered_s, now - self._here_since) >= patience_s:
                self._wanted = f"JetStream has not answered for {unanswered_s:.1f} s"
        wanted, self._wanted = self._wanted, ""
        if not wanted or self._client.server_count < 2:
            return
        self.leaves += 1
        self._in_vain += 1
        self._left_id, self._returns = self._client.server_id, 0
        log.warning("nats: leaving %s for another server: %s", self._client.server, wanted)
        await self._client.leave_server()

    async def _abort(self) -> None:
        self.aborts += 1
        self._client.abort()
        await anyio.lowlevel.checkpoint()
