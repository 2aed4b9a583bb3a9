"""The supervisor: starts local mode in order, keeps it running, ends it in order.

    home owned ─ leftovers ended ─ last log set aside ─ warden
      └─▶ nats-server, API server ─ ready ─▶ services ─ ready ─▶ (kept) ─ signal ─▶ all ended

It runs inside `allot up`, or as a process of its own (`python -m allotment_local.supervisor`) for
`allot up -d`. Every process it starts is in the state file before it can do anything, so that
others can end it.
"""

import argparse
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

from allotment.adapters.log.nats_users import seed_file
from allotment_local.child import Child, NatsChild
from allotment_local.home import AlreadyRunning, Home, tail
from allotment_local.processes import end, identify, pids_text
from allotment_local.specs import (
    ARCHIVE,
    KUBECONFIG,
    NATS,
    NATS_MONITOR,
    NATS_NKEY,
    PAGE_PORT,
    ServiceSpec,
    from_json,
)
from allotment_local.state import NOBODY, ServiceState, State, StateError, read_state, write_state

READY_WITHIN_S = 60.0
IS_RUNNING = 3
"""Exit status where another supervisor owns the home."""
STAMP_END = "] "
"""Between the time and the text of what a supervisor says in its log."""
_STOP_S = 15.0
"""How long services have to end; longer than their own drain and flush."""
_LEFTOVER_S = 5.0
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
        names = ["apiserver", *(spec.name for spec in services)]
        states = [
            ServiceState("nats", str(home.nats / "nats-server.log")),
            *(ServiceState(name, str(home.log_of(name))) for name in names),
        ]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._state = State(services=states, started_at=now)
        self._nats = NatsChild(home.nats, states[0], self._write, say)
        self._cluster = Child(states[1], self._cluster_command, self._write, say)
        self._services = [
            Child(state, lambda spec=spec: self._command_of(spec), self._write, say)  # type: ignore[misc]
            for state, spec in zip(states[2:], services, strict=True)
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
            if survivors := end([*before.processes(), gone], _LEFTOVER_S):
                text = "processes of the last run could not be ended, end them by hand"
                raise StartFailed([f"{text}: {pids_text(survivors)}"])
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

    async def _start(self, tasks: TaskGroup) -> list[str]:
        """Start everything; returns what did not become ready, empty if all did."""
        with self._starting:
            problems = await self._until_ready(tasks, [self._nats, self._cluster])
            if problems:
                return problems
            self._state.nats = self._nats.server.url
            self._state.apiserver = f"http://{self._cluster.state.http}"
            self._home.write_kubeconfig(self._state.apiserver)
            self._say(f"NATS at {self._state.nats}, API server at {self._state.apiserver}")
            return await self._until_ready(tasks, self._services)
        return []

    async def _until_ready(self, tasks: TaskGroup, children: Sequence[Child]) -> list[str]:
        waiting = dict.fromkeys(children, "")
        for child in children:
            tasks.start_soon(child.keep)
        with anyio.move_on_after(READY_WITHIN_S):
            while waiting:
                for child in list(waiting):
                    name, answer = child.state.name, await child.answer()
                    waiting[child] = answer.detail
                    if answer.ready:
                        del waiting[child]
                        if child in self._services:
                            self._say(f"{name} ready at http://{child.state.http}")
                        if answer.pages:
                            self._state.inspector = answer.pages
                            self._say(f"see the cluster in a browser: {answer.pages}")
                    elif child.is_hopeless:
                        ended = f"{name} {child.state.detail} while starting"
                        return [_with_tail(ended, child)]
                await anyio.sleep(_PROBE_PAUSE_S)
        late = f"is not ready after {READY_WITHIN_S:.0f} s"
        return [
            _with_tail(f"{child.state.name} {late}: {why}", child) for child, why in waiting.items()
        ]

    async def _end(self, problems: list[str]) -> None:
        """End the services, then the API server, then the log."""
        self._state.phase = "stopping"
        self._state.problems = problems
        self._write()
        async with anyio.create_task_group() as ending:
            for child in self._services:
                ending.start_soon(child.stop, _STOP_S)
        await self._cluster.stop(_STOP_S)
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
            self._warden.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._warden.kill()
            self._warden.wait()

    def _write(self) -> None:
        write_state(self._home.state, self._state)

    def _cluster_command(self) -> list[str]:
        """After a restart it is a new cluster, but at the address that everyone knows."""
        port = self._state.apiserver.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "allotment_local.cluster", "--port", port]
        command += ["--allocate-ms", str(self._allocate_ms)]
        command += ["--writer-token", str(self._home.writer_token)]
        if self._nodes_file is not None:
            command += ["--nodes", str(self._nodes_file.expanduser().absolute())]
        return command

    def _command_of(self, spec: ServiceSpec) -> list[str]:
        return spec.command(
            {
                NATS: self._state.nats,
                NATS_MONITOR: self._nats.server.monitor_url,
                NATS_NKEY: str(seed_file(self._home.keys, spec.name)),
                PAGE_PORT: self._state.inspector.rpartition(":")[2] or "0",
                KUBECONFIG: str(self._home.kubeconfig),
                ARCHIVE: str(self._home.archive),
            }
        )


def _with_tail(problem: str, child: Child) -> str:
    last = tail(Path(child.state.log))
    shown = "".join(f"\n    {line}" for line in last) or "\n    (its log is empty)"
    return f"{problem}; the end of {child.state.log}:{shown}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m allotment_local.supervisor")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--nodes", type=Path, help="YAML of node shapes")
    parser.add_argument("--allocate-ms", type=int, default=0, help="of device plugins")
    parser.add_argument("--services", type=from_json, required=True, help="as JSON")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(f"[{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}{STAMP_END}{text}", flush=True)

    async def life() -> None:
        supervisor = Supervisor(
            Home(given.home), given.services, given.nodes, say, allocate_ms=given.allocate_ms
        )
        await supervisor.run(lambda: say("ready"))

    try:
        anyio.run(life)
    except AlreadyRunning:
        sys.exit(IS_RUNNING)
    except StartFailed as error:
        sys.exit("\n".join(error.problems))


if __name__ == "__main__":
    main()
