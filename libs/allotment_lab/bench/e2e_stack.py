"""What `allot bench e2e` measures, as processes: local mode, or the services beside a cluster.

Either is started in a directory of its own, with free ports, and leaves nothing behind.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from allotment.adapters.log.nats_server import NatsServer, NatsServerError
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_lab.processes import CpuClock, peak_rss_mib
from allotment_local.child import Child
from allotment_local.home import BINDER_CONTEXT, tail
from allotment_local.orchestrator import LocalModeError, down, up
from allotment_local.probes import probe_http
from allotment_local.specs import (
    KUBECONFIG,
    NATS,
    NATS_MONITOR,
    NATS_NKEY,
    SCHEDULER_NAMES,
    ServiceSpec,
    default_services,
)
from allotment_local.state import ServiceState

READY_WITHIN_S = 60.0
STOP_S = 15.0
HOME = "home"
"""Where in its directory a local mode is."""
QUIET_S = 0.5
QUIET_PART = 0.25
"""Of one core, all processes together."""
QUIET_WITHIN_S = 30.0
_POLL_S = 0.02


class Stack:
    """Running processes by name. `pids` grows as they start."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.http: dict[str, str] = {}
        """Where services answer, `host:port`."""

    def clock(self) -> Callable[[], dict[str, int]]:
        """Counts the CPU time of every process, µs, from now on; this process is the load.

        What it returns raises CliError if one of them has ended.
        """
        clock = CpuClock(self._all())

        def passed_us() -> dict[str, int]:
            try:
                return clock.passed_us()
            except OSError as error:
                raise CliError(f"a process ended while it was measured: {error}") from error

        return passed_us

    def rss_mib(self) -> dict[str, int]:
        """Peaks of resident memory."""
        return {name: peak_rss_mib(pid) for name, pid in sorted(self._all().items())}

    async def quiet(self) -> None:
        """Wait until what was put off (Events of bound pods) is done, for a bounded time."""
        with anyio.move_on_after(QUIET_WITHIN_S):
            busy = True
            while busy:
                passed_us = self.clock()
                await anyio.sleep(QUIET_S)
                busy = sum(passed_us().values()) > QUIET_PART * QUIET_S * 1e6

    def _all(self) -> dict[str, int]:
        return {**self.pids, "load": os.getpid()}


@asynccontextmanager
async def local_mode(
    directory: Path,
    nodes_yaml: str,
    policy_file: Path | None,
    allocate_ms: int,
    services: Sequence[ServiceSpec] | None = None,
) -> AsyncIterator[tuple[Stack, Path]]:
    """Local mode with these fake nodes, as `allot up -d --no-inspector` starts it, in a directory
    of its own; its kubeconfig. With `services` it runs those and no others.
    """
    file = anyio.Path(directory / "nodes.yaml")
    await file.parent.mkdir()
    await file.write_text(nodes_yaml)
    home = directory / HOME
    try:
        try:
            found = await up(
                home,
                nodes_file=Path(file),
                policy_file=policy_file,
                allocate_ms=allocate_ms,
                detach=True,
                inspector=False,
                services=services,
                say=note,
            )
            stack = Stack()
            stack.pids = {row["name"]: row["pid"] for row in found["services"]}
            stack.http = {
                row["name"]: row["http"].removeprefix("http://")
                for row in found["services"]
                if row["http"]
            }
            yield stack, Path(found["kubeconfig"])
        finally:
            with anyio.CancelScope(shield=True):
                await down(home, say=note)
    except LocalModeError as error:
        raise CliError("local mode: " + "; ".join(error.problems)) from error


class Services:
    """NATS and the services beside an API server; a service starts when it is asked to."""

    def __init__(
        self, directory: Path, kubeconfig: Path, scheduler: str, policy_file: Path | None
    ) -> None:
        self.stack = Stack()
        self._directory = directory
        self._kubeconfig = kubeconfig
        self._specs = {spec.name: spec for spec in default_services(policy_file)}
        for name, spec in self._specs.items():
            named = (scheduler if word == SCHEDULER_NAMES else word for word in spec.argv)
            # this nats-server lets everybody in, and the kubeconfig is somebody else's
            ours = ("--nats-nkey", NATS_NKEY, "--kube-context", BINDER_CONTEXT)
            words = [word for word in named if word not in ours]
            if name in ("watcher", "binder"):
                words += ["--log-config-map", "none"]  # this log is begun anew with each run
            self._specs[name] = ServiceSpec(name, tuple(words))
        self._children: dict[str, Child] = {}
        self._nats = NatsServer(directory / "nats")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """NATS, and whatever is started; ended when the scope is left."""
        try:
            await anyio.to_thread.run_sync(self._nats.start)
            self.stack.pids["nats"] = self._nats.pid
            async with anyio.create_task_group() as self._tasks:
                try:
                    yield
                finally:
                    with anyio.CancelScope(shield=True):
                        await self.stop_all()
        except NatsServerError as error:
            raise CliError(f"nats-server: {error}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._nats.stop)

    async def start(self, names: Sequence[str]) -> None:
        """Start these services and return when they are ready. Raises CliError."""
        for name in names:
            state = ServiceState(name, str(self._directory / f"{name}.log"))
            child = Child(state, self._command_of(name), lambda: None, note)
            self._children[name] = child
            self._tasks.start_soon(child.keep)
        for name in names:
            await self._until_ready(self._children[name])
            self.stack.pids[name] = self._children[name].state.pid
            self.stack.http[name] = self._children[name].state.http

    def restarts(self) -> dict[str, int]:
        """Services that died and came back while they were measured: there must be none."""
        return {n: c.state.restarts for n, c in self._children.items() if c.state.restarts}

    def _command_of(self, name: str) -> Callable[[], list[str]]:
        values = {
            NATS: self._nats.url,
            NATS_MONITOR: self._nats.monitor_url,
            KUBECONFIG: str(self._kubeconfig),
        }
        return lambda: self._specs[name].command(values)

    async def _until_ready(self, child: Child) -> None:
        detail = "it has not announced its address"
        with anyio.move_on_after(READY_WITHIN_S):
            while True:
                if child.state.http:
                    answer = await probe_http(child.state.http)
                    if answer.ready:
                        return
                    detail = answer.detail
                await anyio.sleep(_POLL_S)
        last = "\n".join(tail(Path(child.state.log)))
        raise CliError(f"{child.state.name} is not ready: {detail}\n{last}")

    @property
    def nats_url(self) -> str:
        return self._nats.url

    async def stop_all(self) -> None:
        """End all services; NATS stays."""
        async with anyio.create_task_group() as ending:
            for child in self._children.values():
                ending.start_soon(child.stop, STOP_S)
