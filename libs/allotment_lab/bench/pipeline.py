"""`allot bench pipeline`: facts in the log to decisions in the log, through the real services.

A nats-server of its own on file storage, every write synced; filter, scorer and binder as processes
of their own, the binder with `--no-bind`, so that no Kubernetes is involved. Three measurements on
one cluster: pods one at a time on an idle system, a backlog as fast as it goes, and a steady rate.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import anyio
import anyio.abc
import click

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.loop_watch import CPU
from allotment.core.errors import AllotError
from allotment_cli.options.params import Finite
from allotment_cli.show.output import note
from allotment_lab.bench.pipeline_load import Load, write_at_once
from allotment_lab.bench.policies import PolicyWord, misfits_option, policy_of, queues_option
from allotment_lab.bench.results import Result, have_compiled, publish, reporting, result
from allotment_lab.bench.worlds.churn import node_fact, queue_facts, shapes
from allotment_lab.percentiles import percentile
from allotment_lab.processes import (
    CpuClock,
    Services,
    blocked_of,
    longest_ms,
    nats_server,
    peak_rss_mib,
    run,
    scores_compiled,
    services,
)
from allotment_proto.events import Event, PolicyLoaded

PLACED_MIN = 0.95
SILENCE_S = 60.0
SINGLES_GAP_S = 0.02
TICK_S = 0.01
WARM_UP_ROUNDS = 4
STAGES = ("filter", "scorer", "binder")


class Plan(NamedTuple):
    """What to run."""

    nodes: int
    pods: int
    shapes: int
    singles: int
    rate: int
    seconds: float
    live: int | None
    batch_max: int | None
    policy: str
    queues: int
    misfits: int
    seed: int


@click.command()
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--pods", default=20_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--shapes", default=16, show_default=True, type=click.IntRange(1, 4096))
@click.option("--singles", default=50, show_default=True, type=click.IntRange(1, 10_000))
@click.option(
    "--rate",
    default=500,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Pods a second when steady.",
)
@click.option("--seconds", default=5.0, show_default=True, type=Finite(0.1, 600))
@click.option(
    "--live",
    type=click.IntRange(1),
    help="Pods that run; the oldest end as others are placed. By default one a node.",
)
@click.option("--batch-max", type=click.IntRange(1), help="The filter's setting.")
@click.option("--policy", type=PolicyWord(), default="binpack", show_default=True)
@queues_option
@misfits_option
@click.option("--seed", default=1, show_default=True)
@reporting
def pipeline(as_json: bool, save: Any, compare: Any, **plan: Any) -> None:
    """Facts in the log to decisions in the log: filter, scorer, binder and NATS, no Kubernetes."""
    planned = Plan(**plan)
    have_compiled(planned.nodes, policy_of(planned.policy))
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as directory:
        found = run(_measure, planned, Path(directory))
    publish(found, as_json=as_json, save=save, compare=compare)


async def _measure(plan: Plan, directory: Path) -> Result:
    note(f"the bare client of a log: {plan.pods} pods …")
    before = await _bare_rate(plan, directory / "bare-a")
    async with nats_server(directory / "nats") as server:
        found = await _with_server(plan, directory, server)
    bare = (before + await _bare_rate(plan, directory / "bare-b")) / 2
    found["bare_per_second_wall"] = round(bare, 1)
    found["ratio_to_bare_client"] = round(found["pods_per_second_wall"] / bare, 3)
    return found


async def _bare_rate(plan: Plan, directory: Path) -> float:
    """Pods a second (wall) of a client that decides nothing: their facts are put into a log of its
    own as the load puts them, and read back.
    """
    random = Random(plan.seed)
    async with (
        nats_server(directory) as server,
        connect(server.url, "bench") as connection,
        anyio.create_task_group() as group,
    ):
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        load = Load(log, shapes(plan.shapes, random), 1, random)
        group.start_soon(load.write)
        group.start_soon(load.follow, await log.last_seq())
        requests = load.pick(plan.pods)
        start = anyio.current_time()
        load.arrive(requests)
        await load.written(SILENCE_S)
        took_s = anyio.current_time() - start
        group.cancel_scope.cancel()
    return plan.pods / took_s


async def _with_server(plan: Plan, directory: Path, server: NatsServer) -> Result:
    random = Random(plan.seed)
    wanted = shapes(plan.shapes, random)
    async with connect(server.url, "bench") as connection, anyio.create_task_group() as group:
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        load = Load(log, wanted, plan.live or plan.nodes, random, plan.queues, plan.misfits)
        note(f"writing {plan.nodes} nodes …")
        await write_at_once(log, _cluster(plan, random))
        group.start_soon(load.write)
        group.start_soon(load.follow, await log.last_seq())
        note("starting filter, scorer and binder …")
        async with services(_commands(plan, server), directory) as running:
            pids = running.pids() | {"nats": server.pid, "bench": os.getpid()}
            found = await _run(plan, load, running, pids)
        group.cancel_scope.cancel()
    return found


def _cluster(plan: Plan, random: Random) -> Iterator[Event]:
    yield PolicyLoaded(policy=policy_of(plan.policy), source="bench", text_sha256="")
    yield from queue_facts(plan.queues)
    for number in range(plan.nodes):
        yield node_fact(number, random)


def _commands(plan: Plan, server: NatsServer) -> dict[str, list[str]]:
    nats = ["--nats-url", server.url, "--nats-monitor-url", server.monitor_url]
    own = {"binder": ["--no-bind"]}
    if plan.batch_max is not None:
        own["filter"] = ["--batch-max", str(plan.batch_max)]
    return {name: [f"allotment_{name}", *nats, *own.get(name, [])] for name in STAGES}


async def _run(plan: Plan, load: Load, running: Services, pids: Mapping[str, int]) -> Result:
    note("warming up …")
    for _ in range(WARM_UP_ROUNDS):
        load.arrive(load.wanted)
        await load.settled(SILENCE_S)
    load.forget()
    addresses = {name: running.http(name) for name in STAGES}
    blocked = {name: await blocked_of(address) for name, address in addresses.items()}
    note(f"{plan.singles} pods, one at a time …")
    for _ in range(plan.singles):
        load.arrive(load.pick(1))
        await load.settled(SILENCE_S)
        await anyio.sleep(SINGLES_GAP_S)
    idle_us = load.latencies_us()
    idle_batch_max = max(len(each.cycle.batch) for each in load.decisions)
    load.forget()
    note(f"a backlog of {plan.pods} pods …")
    clock = CpuClock(pids)
    load.arrive(load.pick(plan.pods))
    await load.settled(SILENCE_S)
    burst, burst_s, cpu_us = load.decisions.copy(), load.elapsed_s(), clock.passed_us()
    load.forget()
    note(f"{plan.rate} pods a second for {plan.seconds:g} s …")
    clock = CpuClock(pids)
    await _steady(plan, load)
    steady_cpu_us = clock.passed_us()
    running.check()
    blocked_after = {name: await blocked_of(address) for name, address in addresses.items()}
    if load.placed < PLACED_MIN * (load.placed + load.refused):
        raise AllotError(
            f"only {load.placed} of {load.placed + load.refused} pods found a place: this would "
            "measure refusals; take fewer pods (--live) or more nodes"
        )
    steady_us = load.latencies_us()
    batches = sorted(len(each.cycle.batch) for each in burst)
    total_us = sum(us for name, us in cpu_us.items() if name != "bench")
    return result(
        "pipeline",
        plan._asdict(),
        is_compiled=await scores_compiled(running.http("scorer")),
        rate_per_cpu_second=round(1e6 * plan.pods / max(total_us, 1), 1),
        pods_per_second_wall=round(plan.pods / burst_s, 1),
        p50_us=percentile(steady_us, 50),
        p99_us=percentile(steady_us, 99),
        idle_p50_us=percentile(idle_us, 50),
        idle_p99_us=percentile(idle_us, 99),
        cpu_us={name: round(us / plan.pods, 1) for name, us in cpu_us.items()},
        steady_cpu_us={name: round(us / len(steady_us), 1) for name, us in steady_cpu_us.items()},
        placed_percent=round(100 * load.placed / (load.placed + load.refused), 2),
        blocked_cpu_ms_max=longest_ms(blocked, blocked_after, CPU),
        cycles=len(burst),
        batch_p50=int(percentile(batches, 50)),
        batch_max=batches[-1],
        idle_batch_max=idle_batch_max,
        rss_mib={name: peak_rss_mib(pid) for name, pid in pids.items()},
    )


async def _steady(plan: Plan, load: Load) -> None:
    """Pods at an even rate, whatever gathers in a tick together."""
    start, sent = anyio.current_time(), 0
    while (passed := anyio.current_time() - start) < plan.seconds:
        due = int(passed * plan.rate) + 1 - sent
        if due > 0:
            load.arrive(load.pick(due))
            sent += due
        await anyio.sleep(TICK_S)
    await load.settled(SILENCE_S)
