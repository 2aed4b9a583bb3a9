"""`allot bench watch`: a large cluster listed, recorded and folded, and then its heartbeats.

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
from typing import Any

import aiohttp
import anyio
import click
import msgspec

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.core.errors import AllotError
from allotment_cli.show.output import note
from allotment_lab.bench.big_cluster import node, pod
from allotment_lab.bench.results import Result, publish, reporting, result
from allotment_lab.percentiles import percentile
from allotment_lab.processes import Services, nats_server, peak_rss_mib, run, samples_of, services

WATCHER = "watcher"
RECORDED_WITHIN_S = 300.0
QUIET_S = 3.0
QUIET_CPU_S = 0.3
"""The watcher has read all heartbeats when it works for no more than this in `QUIET_S`."""
POLL_S = 0.2


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
                raise AllotError("the bench's API server did not start")
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
        address = running.http(WATCHER)
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        note(f"ready after {ready_s:.1f} s; waiting for the last fact …")
        folded_cpu_s = await _until_folded(address, running, log, wanted)
        folded_s = anyio.current_time() - start_s
        rss_mib = peak_rss_mib(running.pids()[WATCHER])
        note("heartbeats …")
        async with http.post(f"{url}/heartbeats?rounds={rounds}") as answer:
            beats = (await answer.json()).get("events", 0) if answer.ok else 0
        if beats != rounds * (nodes + min(nodes, pods)):
            raise AllotError(
                f"the watcher left its watches after {beats} heartbeats", "take fewer --rounds"
            )
        heartbeat_cpu_s = await _until_quiet(address, running) - folded_cpu_s
        landed_us, records = await _landed_us(log, start_ns)
    events = len(landed_us)
    if events != wanted:
        raise AllotError(f"{beats} heartbeats made {events - wanted} events, not none")
    return result(
        "watch",
        {"nodes": nodes, "pods": pods, "rounds": rounds},
        rate_per_cpu_second=round((nodes + pods) / folded_cpu_s),
        p50_us=percentile(landed_us, 50),
        p99_us=percentile(landed_us, 99),
        ready_seconds_wall=round(ready_s, 2),
        folded_seconds_wall=round(folded_s, 2),
        watcher_cpu_seconds=round(folded_cpu_s, 2),
        listed_mib=(nodes * len(node(0, 1)) + pods * len(pod(0, nodes, 1))) >> 20,
        events_appended=events,
        records_appended=records,
        heartbeats=beats,
        heartbeat_cpu_us=round(heartbeat_cpu_s * 1e6 / beats, 1),
        events_appended_for_heartbeats=events - wanted,
        rss_mib={WATCHER: rss_mib},
    )


async def _cpu_s(address: str) -> float:
    (sample,) = await samples_of(address, "process_cpu_seconds_total")
    return sample.value


async def _until_folded(address: str, running: Services, log: JetStreamLog, wanted: int) -> float:
    """Wait until all facts are in the log and in the watcher's state; its CPU seconds then."""
    with anyio.move_on_after(RECORDED_WITHIN_S):
        while True:
            running.check()
            cpu_s, last_seq = await _cpu_s(address), await log.last_seq()
            folded = {round(each.value) for each in await samples_of(address, "allot_ledger_seq")}
            if folded == {last_seq} and len((await _landed_us(log, 0))[0]) >= wanted:
                return cpu_s
            await anyio.sleep(POLL_S)
    raise AllotError(f"the watcher had not recorded {wanted} facts after {RECORDED_WITHIN_S:.0f} s")


async def _until_quiet(address: str, running: Services) -> float:
    """Wait until the watcher has read all that was sent; its CPU seconds then."""
    seen_s = await _cpu_s(address)
    while True:
        await anyio.sleep(QUIET_S)
        running.check()
        now_s = await _cpu_s(address)
        if now_s - seen_s < QUIET_CPU_S:
            return now_s
        seen_s = now_s


async def _landed_us(log: JetStreamLog, start_ns: int) -> tuple[list[int], int]:
    """Of every event in the log, how long after the start it landed; and how many records."""
    landed_us: list[int] = []
    last_seq = await log.last_seq()
    async for batch in log.read(1, last_seq):
        for record in batch:
            events = len(_events.decode(record.payload).events)
            landed_us += [(record.time_ns - start_ns) // 1000] * events
    return landed_us, last_seq


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
