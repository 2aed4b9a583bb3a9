"""The nats-server under the supervisor: the same care as any service, but blocking underneath.

It listens on loopback only, so it uses no TLS.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from allotment.adapters.log.nats_server import NatsServer, NatsServerError
from allotment.adapters.log.nats_users import authorization_conf, write_keys
from allotment_local.child import Pause
from allotment_local.processes import identify
from allotment_local.state import ServiceState

_LOOK_S = 0.2
"""How often its end is looked for."""


class NatsChild:
    """Keeps its address over restarts, so that clients find it again by themselves."""

    def __init__(
        self,
        directory: Path,
        state: ServiceState,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.state = state
        self._changed = changed
        self._say = say
        self.server = NatsServer(directory)
        self._stopping = anyio.Event()

    def admit(self, keys: Path) -> None:
        """Make new keys for the users of NATS; no other client can connect."""
        public = write_keys(keys)
        self.server.extra_config = authorization_conf(public.read_text())

    async def start(self) -> None:
        """Start it and return when clients can connect. Raises NatsServerError."""
        await anyio.to_thread.run_sync(self.server.start)
        identity = identify(self.server.pid)
        self.state.pid = self.server.pid
        self.state.started = identity.started if identity else ""
        self._changed()

    async def keep(self) -> None:
        """Start it again whenever it has died, until `stop`."""
        pause = Pause()
        started_s = anyio.current_time()
        while not self._stopping.is_set():
            with anyio.move_on_after(_LOOK_S):
                await self._stopping.wait()
            if self.server.is_running or self._stopping.is_set():
                continue
            self.state.pid, self.state.detail = 0, "ended"
            self.state.restarts += 1
            self._changed()
            pause_s = pause.after(anyio.current_time() - started_s)
            self._say(f"nats {self.state.detail}; it restarts in {pause_s:.1f} s")
            with anyio.move_on_after(pause_s):
                await self._stopping.wait()
            if self._stopping.is_set():
                return
            started_s = anyio.current_time()
            try:
                await self.start()
            except NatsServerError as error:
                self.state.detail = str(error)
                self._changed()

    async def stop(self) -> None:
        """End it, with its store synced."""
        self._stopping.set()
        await anyio.to_thread.run_sync(self.server.stop)
        self.state.pid = 0
