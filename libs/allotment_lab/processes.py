"""Real service processes under measurement, started as local mode does, and their CPU time."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import anyio
import anyio.to_thread
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from allotment.adapters.log.nats_server import NatsServer, NatsServerError
from allotment.adapters.service.loop_watch import CPU, WALL
from allotment.adapters.telemetry.log import error_text
from allotment.core.errors import AllotError, innermost
from allotment_local.child import Child
from allotment_local.state import ServiceState

T = TypeVar("T")

READY_WITHIN_S = 120.0
STOP_S = 15.0
COMPILED_LOOPS = "allot_compiled_loops"
_BLOCKED = "allot_loop_blocked_seconds"
_POLL_S = 0.05
_TAIL_CHARS = 2000
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


def run(
    act: Callable[..., Awaitable[T]],
    *args: Any,
    expected: tuple[type[Exception], ...] = (AllotError,),
) -> T:
    """Run something on an event loop as services have it. What was `expected` to go wrong comes out
    as one AllotError, however many task groups it came through.
    """
    first: BaseException
    try:
        return anyio.run(act, *args, backend_options={"use_uvloop": True})
    except* expected as errors:
        first = innermost(errors)
    # not in the block above: Python 3.11.2 would make a group of it again
    raise first if isinstance(first, AllotError) else AllotError(str(first))


@asynccontextmanager
async def nats_server(directory: Path) -> AsyncIterator[NatsServer]:
    """A nats-server of the run's own, with its store in `directory`; ended whatever happens.

    Raises AllotError if it does not start.
    """
    server = NatsServer(directory)
    try:
        await anyio.to_thread.run_sync(server.start)
        yield server
    except NatsServerError as error:
        raise AllotError(f"nats-server: {error}") from error
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)


@asynccontextmanager
async def services(
    commands: Mapping[str, Sequence[str]], directory: Path
) -> AsyncIterator["Services"]:
    """Start modules with arguments, by name, all ready for the length of the block.

    Raises AllotError with the end of its log if one does not become ready.
    """
    children = {
        name: Child(
            ServiceState(name, str(directory / f"{name}.log")),
            lambda command=tuple(command): (sys.executable, "-m", *command),  # type: ignore[misc]
            lambda: None,
            lambda said: None,
        )
        for name, command in commands.items()
    }
    running = Services(children)
    async with anyio.create_task_group() as group:
        try:
            for child in children.values():
                group.start_soon(child.keep)
            await running.until_ready()
            yield running
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as stopping:
                    for child in children.values():
                        stopping.start_soon(child.stop, STOP_S)


class Services:
    """The running processes, by name."""

    def __init__(self, children: Mapping[str, Child]) -> None:
        self._children = children

    def pids(self) -> dict[str, int]:
        return {name: child.state.pid for name, child in self._children.items()}

    def http(self, name: str) -> str:
        """Where it answers, `host:port`."""
        return self._children[name].state.http

    def check(self) -> None:
        """Raises AllotError if one of them died: nothing measured would be true."""
        for name, child in self._children.items():
            if child.state.restarts:
                raise AllotError(f"{name} {child.state.detail}:\n{self._tail(name)}")

    async def until_ready(self) -> None:
        for name, child in self._children.items():
            why = ""
            with anyio.move_on_after(READY_WITHIN_S) as late:
                while not (answer := await child.answer()).ready:
                    self.check()
                    why = answer.detail
                    await anyio.sleep(_POLL_S)
            if late.cancelled_caught:
                raise AllotError(
                    f"{name} is not ready after {READY_WITHIN_S:.0f} s: {why}\n{self._tail(name)}"
                )

    def _tail(self, name: str) -> str:
        path = Path(self._children[name].state.log)
        return path.read_text(errors="replace")[-_TAIL_CHARS:] if path.exists() else ""


async def samples_of(address: str, metric: str) -> list[Sample]:
    """What the service at `host:port` says of one metric; its page may have very many of others.

    Raises AllotError if it does not say.
    """
    url = f"http://{address}/metrics"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            page = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise AllotError(f"{url}: {error_text(error)}") from error
    lines = "\n".join(line for line in page.splitlines() if line.startswith(metric))
    found = [each for family in text_string_to_metric_families(lines) for each in family.samples]
    if not found:
        raise AllotError(f"{url}: no {metric}")
    return found


Blocked = Mapping[str, Mapping[float, float]]
"""By clock, how many times were at most how long (s)."""


async def blocked_of(address: str) -> Blocked:
    """By clock, how many times were at most how long (s), as a service says."""
    found: dict[str, dict[float, float]] = {CPU: {}, WALL: {}}
    for sample in await samples_of(address, f"{_BLOCKED}_bucket"):
        found[sample.labels["clock"]][float(sample.labels["le"])] = sample.value
    return found


def longest_ms(
    before: Mapping[str, Blocked], after: Mapping[str, Blocked], clock: str
) -> dict[str, float]:
    """By replica, the least bound that all times between two looks stayed within."""
    found = {}
    for name, rows in after.items():
        counts = {le: count - before[name][clock].get(le, 0) for le, count in rows[clock].items()}
        found[name] = 1000 * min(
            le for le, count in counts.items() if count == max(counts.values())
        )
    return found


async def scores_compiled(address: str) -> bool:
    """Whether the scorer that answers at `host:port` scores by compiled loops: its metric says so.

    Raises AllotError if it does not say.
    """
    return any(sample.value == 1 for sample in await samples_of(address, COMPILED_LOOPS))


class CpuClock:
    """CPU time of processes, user and system and all threads, since this was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._start_us = self._now_us()

    def passed_us(self) -> dict[str, int]:
        return {name: us - self._start_us[name] for name, us in self._now_us().items()}

    def _now_us(self) -> dict[str, int]:
        return {name: _cpu_us(pid) for name, pid in self._pids.items()}


def _cpu_us(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_US


def peak_rss_mib(pid: int) -> int:
    """Peak resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0
