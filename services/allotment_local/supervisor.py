"""The supervisor: starts local mode in order, keeps it running, ends it in order.

    home owned ─ leftovers ended ─ last log set aside ─ warden
      └─▶ nats-server, API server ─ ready ─▶ services ─ ready ─▶ (kept) ─ signal ─▶ all ended

It runs inside `allot up`, or as a process of its own (`supervisor_main`) for `allot up -d`. Every
process it starts is in the state file before it can do anything, so that others can end it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from allotment.adapters.log.nats_server import NatsServerError
from allotment.adapters.log.nats_users import seed_file
from allotment_local.child import Child, describe_exit
from allotment_local.home import Home, tail
from allotment_local.nats_child import NatsChild
from allotment_local.probes import probe_http
from allotment_local.processes import end, identify
from allotment_local.specs import (
    KUBECONFIG,
    NATS,
    NATS_MONITOR,
    NATS_NKEY,
    PAGE_PORT,
    ServiceSpec,
)
from allotment_local.state import NOBODY, ServiceState, State, StateError, read_state, write_state

READY_WITHIN_S = 60.0
STARTS_MAX = 3
"""A service that dies so often before everything was ready will not get better."""
STOP_S = 15.0
"""How long services have to end; longer than their own drain and flush."""
LEFTOVER_S = 5.0
WRONG_SETTINGS = 2
_PROBE_PAUSE_S = 0.05


class StartFailed(Exception):
    """Raised when local mode did not become ready; nothing is left running."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Supervisor:
    """One life of local mode in a home. Make it inside an event loop."""

    def __init__(
        self,
        home: Home,
        services: Sequence[ServiceSpec],
        nodes_file: Path | None,
        say: Callable[[str], None],
        *,
        allocate_ms: int = 0,
    ) -> None:
        self._home = home
        self._say = say
        self._nodes_file = nodes_file
        self._allocate_ms = allocate_ms
        self._state = State(started_at=datetime.now(UTC).isoformat(timespec="seconds"))
        self._nats = NatsChild(home.nats, self._service("nats"), self._write, say)
        self._cluster = Child(
            self._service("apiserver"), self._cluster_command, self._cluster_changed, say
        )
        self._services = [
            Child(self._service(spec.name), self._command_of(spec), self._write, say)
            for spec in services
        ]
        self._warden: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = anyio.Event()
        self._starting = anyio.CancelScope()

    async def run(self, ready: Callable[[], None]) -> None:
        """Live until a signal; `ready` is called once everything is.

        Raises AlreadyRunning when the home has a supervisor, StartFailed when something does not
        start. Whatever happens, no process is left.
        """
        with self._home.own():
            await anyio.to_thread.run_sync(self._take_over)
            try:
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._watch_signals)
                    problems = await self._start(tasks)
                    if not problems and not self._asked_to_stop.is_set():
                        self._state.phase = "ready"
                        self._write()
                        ready()
                        await self._asked_to_stop.wait()
                    await self._end(problems)
                    tasks.cancel_scope.cancel()
            finally:
                self._dismiss_warden()
            if problems:
                raise StartFailed(problems)

    # Before

    def _take_over(self) -> None:
        """End what an earlier supervisor left behind, and make room for a new cluster."""
        try:
            before = read_state(self._home.state)
        except StateError as error:
            raise StartFailed([str(error)]) from error
        self._state.supervisor = identify(os.getpid()) or NOBODY
        if before is not None:
            gone, before.supervisor = before.supervisor, self._state.supervisor
            before.phase = "starting"
            write_state(self._home.state, before)
            survivors = end([*before.processes(), gone], LEFTOVER_S)
            if survivors:
                pids = ", ".join(str(process.pid) for process in survivors)
                raise StartFailed(
                    [f"processes of the last run could not be ended, end them by hand: {pids}"]
                )
        self._home.turn_logs()
        kept = self._home.set_aside_nats(datetime.now(UTC))
        if kept is not None:
            self._say(
                "the API server keeps its objects in memory: this is a new cluster with a new log"
                f" (the last log is kept in {kept})"
            )
        self._nats.admit(self._home.keys)
        self._write()
        self._warden = subprocess.Popen(
            [sys.executable, "-m", "allotment_local.warden", "--home", self._home.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._state.warden = identify(self._warden.pid) or NOBODY
        self._write()

    async def _watch_signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._asked_to_stop.is_set():
                    self._say("ending everything at once")
                    for child in (*self._services, self._cluster):
                        child.kill()
                self._asked_to_stop.set()
                self._starting.cancel()

    # Starting

    async def _start(self, tasks: TaskGroup) -> list[str]:
        """Start everything; returns what did not become ready, empty if all did."""
        with self._starting:
            tasks.start_soon(self._cluster.keep)
            try:
                await self._nats.start()
            except NatsServerError as error:
                return [f"nats: {error}"]
            tasks.start_soon(self._nats.keep)
            self._state.nats = self._nats.server.url
            binary = self._nats.server.binary
            self._say(f"nats-server {binary.version if binary else ''} at {self._state.nats}")
            problems = await self._until_ready([self._cluster])
            if problems:
                return problems
            self._say(f"API server at {self._state.apiserver}")
            for child in self._services:
                tasks.start_soon(child.keep)
            return await self._until_ready(self._services)
        return []

    async def _until_ready(self, children: Sequence[Child]) -> list[str]:
        waiting = {child.state.name: child for child in children}
        why: dict[str, str] = {}
        with anyio.move_on_after(READY_WITHIN_S):
            while waiting:
                for name, child in list(waiting.items()):
                    if _is_hopeless(child):
                        return [self._hopeless(child)]
                    if not child.state.http:
                        continue
                    answer = await probe_http(child.state.http)
                    why[name] = answer.detail
                    if answer.ready:
                        del waiting[name]
                        if child in self._services:
                            self._say(f"{name} ready at http://{child.state.http}")
                            if answer.pages:
                                self._state.inspector = answer.pages
                                self._say(f"see the cluster in a browser: {answer.pages}")
                await anyio.sleep(_PROBE_PAUSE_S)
        return [
            _with_tail(
                f"{name} is not ready after {READY_WITHIN_S:.0f} s:"
                f" {why.get(name, 'it has not announced its address')}",
                child,
            )
            for name, child in waiting.items()
        ]

    def _hopeless(self, child: Child) -> str:
        ended = f"{child.state.name} ended with {describe_exit(child.exit_status)} while starting"
        return _with_tail(ended, child)

    # Ending

    async def _end(self, problems: list[str]) -> None:
        """End the services, then the API server, then the log."""
        self._state.phase = "stopping"
        self._state.problems = problems
        self._write()
        async with anyio.create_task_group() as ending:
            for child in self._services:
                ending.start_soon(child.stop, STOP_S)
        await self._cluster.stop(STOP_S)
        await self._nats.stop()
        self._home.kubeconfig.unlink(missing_ok=True)
        self._state.phase = "failed" if problems else "stopped"
        self._write()

    def _dismiss_warden(self) -> None:
        """Let it see that we end; if anything still runs then, it ends that. Blocking, briefly."""
        if self._warden is None or self._warden.stdin is None:
            return
        self._warden.stdin.close()
        try:
            self._warden.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._warden.kill()
            self._warden.wait()

    # The state, and what goes into commands

    def _service(self, name: str) -> ServiceState:
        log = self._home.log_of(name)
        if name == "nats":
            log = self._home.nats / "nats-server.log"
        state = ServiceState(name, str(log))
        self._state.services.append(state)
        return state

    def _write(self) -> None:
        write_state(self._home.state, self._state)

    def _cluster_changed(self) -> None:
        if self._cluster.state.http and not self._state.apiserver:
            self._state.apiserver = f"http://{self._cluster.state.http}"
            self._home.write_kubeconfig(self._state.apiserver)
        self._write()

    def _cluster_command(self) -> list[str]:
        """After a restart it is a new cluster, but at the address that everyone knows."""
        port = self._state.apiserver.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "allotment_local.cluster", "--port", port]
        command += ["--allocate-ms", str(self._allocate_ms)]
        command += ["--writer-token", str(self._home.writer_token)]
        return command if self._nodes_file is None else [*command, "--nodes", str(self._nodes_file)]

    def _command_of(self, spec: ServiceSpec) -> Callable[[], list[str]]:
        return lambda: spec.command(
            {
                NATS: self._state.nats,
                NATS_MONITOR: self._nats.server.monitor_url,
                NATS_NKEY: str(seed_file(self._home.keys, spec.name)),
                PAGE_PORT: self._state.inspector.rpartition(":")[2] or "0",
                KUBECONFIG: str(self._home.kubeconfig),
            }
        )


def _is_hopeless(child: Child) -> bool:
    if child.starts > STARTS_MAX:
        return True
    return child.exit_status == WRONG_SETTINGS and child.state.restarts > 0


def _with_tail(problem: str, child: Child) -> str:
    last = tail(Path(child.state.log))
    shown = "".join(f"\n    {line}" for line in last) or "\n    (its log is empty)"
    return f"{problem}; the end of {child.state.log}:{shown}"
