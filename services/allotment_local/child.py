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
from anyio.abc import Process

from allotment_local.home import append_to
from allotment_local.processes import identify
from allotment_local.state import ServiceState

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
STEADY_S = 20.0
"""Having lived so long, a service is taken to be sound again."""
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
        self.exit_status: int | None = None
        """Of the last process that ended."""
        self.starts = 0
        self._command = command
        self._changed = changed
        self._say = say
        self._process: Process | None = None
        self._stopping = anyio.Event()

    async def keep(self) -> None:
        """Run the service until `stop`; whenever it ends before that, start it again."""
        pause = Pause()
        while not self._stopping.is_set():
            started_s = anyio.current_time()
            await self._live()
            if self._stopping.is_set():
                return
            self.state.restarts += 1
            self.state.detail = f"ended with {describe_exit(self.exit_status)}"
            self._changed()
            pause_s = pause.after(anyio.current_time() - started_s)
            self._say(f"{self.state.name} {self.state.detail}; it restarts in {pause_s:.1f} s")
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

    async def _live(self) -> None:
        """One process from its start to its end."""
        self.starts += 1
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
                log.write(f"cannot be started: {error}\n".encode())
                self.exit_status = 127
                return
            async with process:
                self._process = process
                identity = identify(process.pid)
                self.state.pid = process.pid
                self.state.started = identity.started if identity else ""
                self.state.http = ""
                self._changed()
                if self._stopping.is_set():
                    process.terminate()
                async with anyio.create_task_group() as beside:
                    beside.start_soon(self._listen, process, log.write)
                    self.exit_status = await process.wait()
                    beside.cancel_scope.cancel()
        self._process = None
        self.state.pid, self.state.started, self.state.http = 0, "", ""

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
            http = json.loads(line)["http"]
        except (ValueError, KeyError, TypeError):
            self.state.detail = f"announced itself with {line[:80]!r}, not with its http address"
        else:
            self.state.http = str(http)
        self._changed()


def describe_exit(status: int | None) -> str:
    """An exit status in words: negative ones are signals."""
    if status is None:
        return "no status"
    return f"signal {-status}" if status < 0 else f"exit status {status}"


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
