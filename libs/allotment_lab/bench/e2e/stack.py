"""What `allot bench e2e` measures, as processes: local mode, or services for an existing cluster.

Either is started in a directory of its own, with free ports, and leaves nothing behind.
"""

import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.log.nats_users import SCHEDULER
from allotment.core.errors import AllotError
from allotment_cli.show.output import note
from allotment_lab.processes import CpuClock, peak_rss_mib
from allotment_local.home import BINDER_CONTEXT
from allotment_local.orchestrator import LocalModeError, down, up
from allotment_local.specs import (
    KUBECONFIG,
    NATS,
    NATS_MONITOR,
    NATS_NKEY,
    SCHEDULER_NAMES,
    ServiceSpec,
    default_services,
)

HOME = "home"
"""Where in its directory a local mode is."""
QUIET_S = 0.5
QUIET_PART = 0.25
"""Of one core, all processes together."""
QUIET_WITHIN_S = 30.0


class Stack:
    """Running processes by name, and where services answer (`host:port`)."""

    def __init__(self, pids: dict[str, int], http: dict[str, str]) -> None:
        self.pids = pids
        self.http = http

    def clock(self) -> Callable[[], dict[str, int]]:
        """Counts the CPU time of every process, µs, from now on; this process is the load.

        What it returns raises AllotError if one of them has ended.
        """
        clock = CpuClock(self._all())

        def passed_us() -> dict[str, int]:
            try:
                return clock.passed_us()
            except OSError as error:
                raise AllotError(f"a process ended while it was measured: {error}") from error

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
    *,
    one_process: bool = False,
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
                one_process=one_process,
                services=services,
                say=note,
            )
            rows = found["services"]
            stack = Stack(
                {row["name"]: row["pid"] for row in rows},
                {row["name"]: row["http"].removeprefix("http://") for row in rows if row["http"]},
            )
            yield stack, Path(found["kubeconfig"])
        finally:
            with anyio.CancelScope(shield=True):
                await down(home, say=note)
    except LocalModeError as error:
        raise AllotError("local mode: " + "; ".join(error.problems)) from error


def commands(
    names: Collection[str],
    server: NatsServer,
    kubeconfig: Path,
    scheduler: str,
    policy_file: Path | None,
) -> dict[str, list[str]]:
    """Services for an existing API server, as `processes.services` starts them."""
    values = {
        NATS: server.url,
        NATS_MONITOR: server.monitor_url,
        KUBECONFIG: str(kubeconfig),
        SCHEDULER_NAMES: scheduler,
    }
    # this nats-server accepts every client, and the kubeconfig is the user's
    unused = ("--nats-nkey", NATS_NKEY, "--kube-context", BINDER_CONTEXT)
    found: dict[str, list[str]] = {}
    for spec in default_services(policy_file, one_process=SCHEDULER in names):
        if spec.name in names:
            _python, _module, *words = spec.argv
            found[spec.name] = [values.get(word, word) for word in words if word not in unused]
    for name in found.keys() & {"watcher", "binder", SCHEDULER}:
        found[name] += ["--log-config-map", "none"]  # each run begins a new log
    return found
