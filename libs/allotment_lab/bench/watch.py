"""`allot bench watch`: a large cluster listed, told and folded, and then its heartbeats.

A real nats-server (file storage, every write synced), the real watcher process, and a loopback API
server in a process of its own that makes its objects up (`big_cluster`).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anyio
import click
import msgspec

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_lab.bench.big_cluster import node, pod
from allotment_lab.bench.results import Result, publish, reporting, result
from allotment_lab.percentiles import percentile
from allotment_lab.processes import Services, nats_server, peak_rss_mib, run, services

WATCHER = "watcher"
TOLD_WITHIN_S = 300.0
QUIET_S = 3.0
QUIET_CPU_S = 0.3
"""The watcher has read all heartbeats when it works for no more than this in `QUIET_S`."""
POLL_S = 0.2
ATTEMPTS = 5


class _Events(msgspec.Struct):
    events: list[msgspec.Raw]


_events = msgspec.json.Decoder(_Events)


@click.command()
@click.option("--nodes", default=1_000, show_default=True, type=click.IntRange(1, 50_000))
@click.option("--pods", default=20_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 1000))
@reporting
def watch(as_json: bool, save: Any, compare: Any, **plan: int) -> None:
    """From the watcher's start until every object is in its state; then noise, which must make no
    event: --rounds times the status of every node, and of as many pods.

    The full size: --nodes 5000 --pods 100000.
    """
    publish(
        run(_run, plan["nodes"], plan["pods"], plan["rounds"]),
        as_json=as_json,
        save=save,
        compare=compare,
    )


async def _run(nodes: int, pods: int, rounds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as name, _cluster(nodes, pods) as url:
        directory = Path(name)
        async with nats_server(directory / "nats") as server:
            return await _measure(server, url, directory, nodes, pods, rounds)


@contextmanager
def _cluster(nodes: int, pods: int) -> Iterator[str]:
    """The API server's address, for as long as it runs."""
    command = [sys.executable, "-m", "allotment_lab.bench.big_cluster", str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise CliError("the bench's API server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


async def _measure(
    server: NatsServer, url: str, directory: Path, nodes: int, pods: int, rounds: int
) -> Result:
    kubeconfig = directory / "kubeconfig"
    await anyio.Path(kubeconfig).write_bytes(_kubeconfig(url))
    arguments = ("allotment_watcher", "--nats-url", server.url, "--kubeconfig", str(kubeconfig))
    wanted = nodes + pods + 2  # and the policy, and the device configuration
    start_s, start_ns = anyio.current_time(), time.time_ns()
    async with (
        connect([server.url], f"bench-{os.getpid()}") as connection,
        aiohttp.ClientSession() as http,
        services({WATCHER: (*arguments, "--log-level", "warning")}, directory) as running,
    ):
        ready_s = anyio.current_time() - start_s
        watcher = _Watcher(http, running.http(WATCHER))
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        note(f"ready after {ready_s:.1f} s; waiting for the last fact …")
        folded = before = await _until_folded(watcher, running, log, wanted)
        folded_s = anyio.current_time() - start_s
        rss_mib = peak_rss_mib(running.pids()[WATCHER])
        note("heartbeats …")
        expected = rounds * (nodes + min(nodes, pods))
        for _ in range(ATTEMPTS):
            beats = await _heartbeats(http, url, rounds)
            if beats == expected:
                break
            said = await anyio.Path(directory / f"{WATCHER}.log").read_text(errors="replace")
            note(f"the watcher left its watches; once more. It said: {said.splitlines()[-1]}")
            await anyio.sleep(QUIET_S)
            await running.until_ready()
            before = await _until_folded(watcher, running, log, wanted)
        else:
            raise CliError("the watcher did not keep its watches long enough for all heartbeats")
        after = await _until_quiet(watcher, running)
        told = await _told(log, start_ns)
    if told.until_seq[before.seq] != wanted:
        raise CliError(f"{told.until_seq[before.seq]} events were appended, not {wanted}")
    if told.events != wanted:
        raise CliError(f"{beats} heartbeats made {told.events - wanted} events, not none")
    return result(
        "watch",
        {"nodes": nodes, "pods": pods, "rounds": rounds},
        rate_per_cpu_second=round((nodes + pods) / folded.cpu_s),
        p50_us=percentile(told.landed_us[:wanted], 50),
        p99_us=percentile(told.landed_us[:wanted], 99),
        ready_seconds_wall=round(ready_s, 2),
        folded_seconds_wall=round(folded_s, 2),
        watcher_cpu_seconds=round(folded.cpu_s, 2),
        listed_mib=(nodes * len(node(0, 1)) + pods * len(pod(0, nodes, 1))) >> 20,
        events_appended=told.events,
        records_appended=told.records,
        heartbeats=beats,
        heartbeat_cpu_us=round((after.cpu_s - before.cpu_s) * 1e6 / beats, 1),
        events_appended_for_heartbeats=told.events - wanted,
        rss_mib={WATCHER: rss_mib},
    )


class _Reading(NamedTuple):
    """How far the watcher has folded, and its CPU time since its start."""

    seq: int
    cpu_s: float


class _Watcher:
    """The watcher's own metrics."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http = http
        self._url = f"http://{address}/metrics"

    async def read(self) -> _Reading:
        async with self._http.get(self._url) as answer:
            lines = (await answer.text()).splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        seq = next(v for k, v in found.items() if k.startswith("allot_ledger_seq"))
        return _Reading(int(float(seq)), float(found["process_cpu_seconds_total"]))


async def _until_folded(
    watcher: _Watcher, running: Services, log: JetStreamLog, wanted: int
) -> _Reading:
    """Wait until all facts are in the log and in the watcher's state."""
    seen = _Reading(-1, 0.0)
    with anyio.move_on_after(TOLD_WITHIN_S):
        while True:
            running.check()
            now = await watcher.read()
            last_seq = await log.last_seq()
            if now.seq == last_seq == seen.seq and (await _told(log)).events >= wanted:
                return seen
            seen = now if now.seq == last_seq and now.seq != seen.seq else seen
            await anyio.sleep(POLL_S)
    raise CliError(f"the watcher had not recorded {wanted} facts after {TOLD_WITHIN_S:.0f} s")


async def _heartbeats(http: aiohttp.ClientSession, url: str, rounds: int) -> int:
    """How many were sent; too few if the watcher left its watches meanwhile."""
    async with http.post(f"{url}/heartbeats?rounds={rounds}") as answer:
        if answer.status != 200:
            return 0
        sent: dict[str, int] = await answer.json()
        return sent["events"]


async def _until_quiet(watcher: _Watcher, running: Services) -> _Reading:
    """Wait until the watcher has read all that was sent, and for what it might then append."""
    seen = await watcher.read()
    while True:
        await anyio.sleep(QUIET_S)
        running.check()
        now = await watcher.read()
        if now.cpu_s - seen.cpu_s < QUIET_CPU_S:
            return now
        seen = now


class _Told(NamedTuple):
    records: int
    events: int
    until_seq: dict[int, int]
    """Sequence → events up to there."""
    landed_us: list[int]
    """Of every event, how long after the start it landed."""


async def _told(log: JetStreamLog, start_ns: int = 0) -> _Told:
    """What is in the log."""
    until_seq = {0: 0}
    landed_us: list[int] = []
    async for batch in log.read(1, await log.last_seq()):
        for record in batch:
            events = len(_events.decode(record.payload).events)
            until_seq[record.seq] = until_seq[record.seq - 1] + events
            landed_us += [(record.time_ns - start_ns) // 1000] * events
    return _Told(len(until_seq) - 1, max(until_seq.values()), until_seq, landed_us)


def _kubeconfig(url: str) -> bytes:
    """JSON is YAML."""
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {"server": url}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
    )
