"""One service process: started, heard out, restarted when it dies, ended.

A service that dies comes back after a pause that doubles while it keeps dying, and is short again
once it has lived for a while.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import Process

from allotment.adapters.log.nats_server import NatsServer, NatsServerError
from allotment.adapters.log.nats_users import authorization_conf, write_keys
from allotment_local.home import append_to
from allotment_local.probes import Answer, probe_http
from allotment_local.processes import identify
from allotment_local.state import NOBODY, ServiceState

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
STEADY_S = 20.0
"""Having lived so long, a service is taken to be sound again."""
_STARTS_MAX = 3
"""A service that dies so often before everything was ready will not get better."""
_WRONG_SETTINGS = 2
_LOOK_S = 0.2
"""How often the end of nats-server is looked for."""
_LINE_BYTES_MAX = 64 * 1024
_KEPT_VARIABLES = ("ALLOT_LOG_LEVEL", "ALLOT_LOG_FORMAT", "ALLOT_COMMIT", "ALLOT_TRACE_FILE")


class Pause:
    """How long to wait before the next start."""

    def __init__(self) -> None:
        self._next_s = PAUSE_FIRST_S

    def after(self, lived_s: float) -> float:
        if lived_s >= STEADY_S:
            self._next_s = PAUSE_FIRST_S
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, PAUSE_MAX_S)
        return pause_s


class Child:
    """A service under the supervisor. `changed` is called whenever its state did."""

    def __init__(
        self,
        state: ServiceState,
        command: Callable[[], Sequence[str]],
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.state = state
        self._command = command
        self._changed = changed
        self._say = say
        self._is_wrong = False
        """Whether it ended so that another start makes no sense."""
        self._process: Process | None = None
        self._stopping = anyio.Event()

    @property
    def is_hopeless(self) -> bool:
        """Whether it will not get ready, if it never was."""
        return self._is_wrong or self.state.restarts >= _STARTS_MAX

    async def answer(self) -> Answer:
        """Whether it is ready."""
        if not self.state.http:
            return Answer(False, "it has not announced its address")
        return await probe_http(self.state.http)

    async def keep(self) -> None:
        """Run the service until `stop`; whenever it ends before that, start it again."""
        pause = Pause()
        while not self._stopping.is_set():
            started_s = anyio.current_time()
            ended = await self._live()
            self.state.is_now(NOBODY)
            if self._stopping.is_set():
                return
            self.state.restarts += 1
            self.state.detail = ended
            self._changed()
            pause_s = pause.after(anyio.current_time() - started_s)
            self._say(f"{self.state.name} {ended}; it restarts in {pause_s:.1f} s")
            with anyio.move_on_after(pause_s):
                await self._stopping.wait()

    async def stop(self, term_s: float) -> None:
        """End it by SIGTERM, after `term_s` by SIGKILL; it does not come back."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with anyio.move_on_after(term_s):
            await process.wait()
            return
        self.kill()
        await process.wait()

    def kill(self) -> None:
        """End it at once."""
        self._stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _began(self, pid: int) -> None:
        self.state.is_now(identify(pid) or NOBODY)
        self._changed()

    async def _live(self) -> str:
        """One process from its start to its end; how it ended."""
        with append_to(Path(self.state.log)) as log:
            try:
                process = await anyio.open_process(
                    list(self._command()),
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                    env=environment(os.environ),
                    start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's
                )
            except OSError as error:
                return f"cannot be started: {error}"
            async with process:
                self._process = process
                self._began(process.pid)
                if self._stopping.is_set():
                    process.terminate()
                async with anyio.create_task_group() as beside:
                    beside.start_soon(self._listen, process, log.write)
                    status = await process.wait()
                    beside.cancel_scope.cancel()
        self._process = None
        self._is_wrong = status == _WRONG_SETTINGS
        return f"ended with {f'signal {-status}' if status < 0 else f'exit status {status}'}"

    async def _listen(self, process: Process, keep: Callable[[bytes], object]) -> None:
        """Copy what it prints to its log; the first line announces its address."""
        assert process.stdout is not None
        first: bytes | None = b""
        async for piece in process.stdout:
            keep(piece)
            if first is None:
                continue
            first += piece
            if b"\n" in first or len(first) > _LINE_BYTES_MAX:
                self._announced(first.partition(b"\n")[0])
                first = None

    def _announced(self, line: bytes) -> None:
        try:
            self.state.http = str(json.loads(line)["http"])
        except (ValueError, KeyError, TypeError):
            self.state.detail = f"announced itself with {line[:80]!r}, not with its http address"
        self._changed()


class NatsChild(Child):
    """The nats-server: the same care as any service, but blocking underneath. It keeps its address
    over restarts, so that clients find it again, and uses no TLS, as it listens on loopback only.
    """

    def __init__(
        self,
        directory: Path,
        state: ServiceState,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(state, tuple, changed, say)
        self.server = NatsServer(directory)

    def admit(self, keys: Path) -> None:
        """Make new keys for the users of NATS; no other client can connect."""
        public = write_keys(keys)
        self.server.extra_config = authorization_conf(public.read_text())

    async def start(self) -> None:
        """Start it and return when clients can connect. Raises NatsServerError."""
        await anyio.to_thread.run_sync(self.server.start)
        self._began(self.server.pid)

    async def answer(self) -> Answer:
        return Answer(bool(self.state.pid), "it does not listen yet")

    async def stop(self, term_s: float = 0.0) -> None:
        """End it, with its store synced, within a time of its own."""
        self._stopping.set()
        await anyio.to_thread.run_sync(self.server.stop)
        self.state.is_now(NOBODY)

    async def _live(self) -> str:
        try:
            await self.start()
        except NatsServerError as error:
            self._is_wrong = True
            return str(error)
        while self.server.is_running and not self._stopping.is_set():
            with anyio.move_on_after(_LOOK_S):
                await self._stopping.wait()
        return "ended"


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The variables for a service: without those that would send it elsewhere than to this home.

    Everything is on loopback, where proxies are in the way.
    """
    return {
        name: value
        for name, value in outer.items()
        if (name in _KEPT_VARIABLES or not name.startswith("ALLOT_"))
        and name.lower() not in ("http_proxy", "https_proxy", "all_proxy", "kubeconfig")
    } | {"PYTHONUNBUFFERED": "1"}
