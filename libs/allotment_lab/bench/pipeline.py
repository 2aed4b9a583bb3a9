"""`allot bench pipeline`: facts in the log to decisions in the log, through the real services.

A nats-server of its own on file storage, every write synced; filter, scorer and binder as processes
of their own, the binder with `--no-bind`, so that no Kubernetes is involved. Three measurements on
one cluster: pods one at a time on an idle system, a backlog as fast as it goes, and a steady rate.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import anyio
import anyio.abc
import click
import msgspec

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.testing.churn import DEFAULT_QUEUE, node_fact, queue_fact, shapes
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_cli.params import Finite
from allotment_lab.bench.pipeline_load import Landed, Load, write_at_once
from allotment_lab.bench.policies import PolicyWord, policy_of
from allotment_lab.bench.report import Report, have_compiled, publish, reporting, versions
from allotment_lab.bench.scrapes import scrape_option, scraped, slowest_row
from allotment_lab.bench.yardstick import Yardstick
from allotment_lab.percentiles import percentile
from allotment_lab.processes import (
    CpuClock,
    Services,
    nats_server,
    peak_rss_mib,
    run,
    scores_compiled,
    services,
)
from allotment_proto.events import Event, PolicyLoaded
from allotment_proto.facts import PodRequest

PLACED_MIN = 0.95
SILENCE_S = 60.0
SINGLES_GAP_S = 0.02
TICK_S = 0.01
WARM_UP_ROUNDS = 4
BARE_CLIENT = "a bare client that writes pods into a log and reads them back"
STAGES = ("filter", "scorer", "binder")


class PipelineReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench pipeline`. Latencies and `stage_us` are wall time.

    `rate_per_cpu_second` counts the CPU time of the three services and of the nats-server.
    `p50_us` and `p99_us` are of fact → decision at the steady rate.
    """

    cards_per_node: int
    policy: str
    queue: str
    """The queue of all pods; empty: there are no queues."""
    pods: int
    seed: int
    placed_percent: float
    pods_per_second_wall: float
    idle_p50_us: float
    idle_p99_us: float
    steady_rate: float
    cycles: int
    cycles_on_top: int
    """Those of them that were placed before the one before was decided."""
    batch_p50: int
    batch_max: int
    idle_batch_max: int
    steady_batch_p50: int
    stage_us: dict[str, float]
    """Where a cycle's time goes, µs per pod: on its way to a service, and in it. `append` is the
    binder's check and its append, until the log has the decision.
    """
    idle_stage_us: dict[str, float]
    steady_cpu_us: dict[str, float]
    scrape_s: float = 0.0
    """How often the metrics of the services were read; 0: never."""
    scrape_slowest_us: dict[str, float] = msgspec.field(default_factory=dict)
    """By service, wall time."""


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
    queue: bool
    seed: int
    scrape_s: float


class _Burst(NamedTuple):
    """What the backlog showed."""

    decisions: list[Landed]
    wall_s: float
    cpu_us: dict[str, int]


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
@click.option(
    "--queue/--no-queue",
    default=True,
    show_default=True,
    help="All pods are in a queue `default`, as in every cluster with Volcano's definitions.",
)
@click.option("--seed", default=1, show_default=True)
@scrape_option
@reporting
def pipeline(as_json: bool, save: Path | None, compare: Path | None, **plan: Any) -> None:
    """Facts in the log to decisions in the log: filter, scorer, binder and NATS, no Kubernetes."""
    planned = Plan(**plan)
    have_compiled(planned.nodes, policy_of(planned.policy))
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as directory:
        report = run(_measure, planned, Path(directory))
    title = (
        f"pipeline: {report.nodes} nodes × 8 cards, {report.shapes} shapes, {report.pods} pods, "
        f"policy {report.policy}, queue {report.queue or 'none'}"
    )
    publish(report, title, _rows(report), as_json=as_json, save=save, compare=compare)


async def _bare(plan: Plan, directory: Path) -> float:
    wanted = shapes(plan.shapes, Random(plan.seed))
    return await bare_rate(directory, wanted, pods=plan.pods, seed=plan.seed)


async def _measure(plan: Plan, directory: Path) -> PipelineReport:
    note(f"the bare client of a log: {plan.pods} pods …")
    before = await _bare(plan, directory / "bare-a")
    async with nats_server(directory / "nats") as server:
        report = await _with_server(plan, directory, server)
    rates = (before, await _bare(plan, directory / "bare-b"))
    bare = sum(rates) / len(rates)
    apart = round(100 * (max(rates) / min(rates) - 1), 1)
    return msgspec.structs.replace(
        report,
        yardstick=Yardstick(BARE_CLIENT, round(bare, 1), apart),
        ratio_to_yardstick=round(report.pods_per_second_wall / bare, 3),
    )


async def bare_rate(
    directory: Path, wanted: Sequence[PodRequest], *, pods: int, seed: int, live: int = 1
) -> float:
    """Pods a second (wall) of a client that decides nothing: their facts are put into a log of its
    own as the load puts them, and read back.
    """
    random = Random(seed)
    async with (
        nats_server(directory) as server,
        connect(server.url, "bench") as connection,
        anyio.create_task_group() as group,
    ):
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        load = Load(log, wanted, live, random)
        group.start_soon(load.write)
        group.start_soon(load.follow, await log.last_seq())
        requests = load.pick(pods)
        start = anyio.current_time()
        load.arrive(requests)
        await load.written(SILENCE_S)
        took_s = anyio.current_time() - start
        group.cancel_scope.cancel()
    return pods / took_s


async def _with_server(plan: Plan, directory: Path, server: NatsServer) -> PipelineReport:
    random = Random(plan.seed)
    wanted = shapes(plan.shapes, random)
    async with connect(server.url, "bench") as connection, anyio.create_task_group() as group:
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        queue = DEFAULT_QUEUE if plan.queue else ""
        load = Load(log, wanted, plan.live or plan.nodes, random, queue)
        note(f"writing {plan.nodes} nodes …")
        await write_at_once(log, _cluster(plan, random))
        group.start_soon(load.write)
        group.start_soon(load.follow, await log.last_seq())
        note("starting filter, scorer and binder …")
        async with services(_commands(plan, server), directory) as running:
            pids = running.pids() | {"nats": server.pid, "bench": os.getpid()}
            addresses = {name: running.http(name) for name in STAGES}
            async with scraped(addresses, plan.scrape_s) as scrapes:
                report = await _run(plan, load, running, pids)
            report = msgspec.structs.replace(report, scrape_slowest_us=scrapes.slowest_us)
        group.cancel_scope.cancel()
    return report


def _cluster(plan: Plan, random: Random) -> Iterator[Event]:
    yield PolicyLoaded(policy=policy_of(plan.policy), source="bench", text_sha256="")
    if plan.queue:
        yield queue_fact()
    for number in range(plan.nodes):
        yield node_fact(number, random)


def _commands(plan: Plan, server: NatsServer) -> dict[str, list[str]]:
    nats = ["--nats-url", server.url, "--nats-monitor-url", server.monitor_url]
    own = {"binder": ["--no-bind"]}
    if plan.batch_max is not None:
        own["filter"] = ["--batch-max", str(plan.batch_max)]
    return {name: [f"allotment_{name}", *nats, *own.get(name, [])] for name in STAGES}


async def _run(
    plan: Plan, load: Load, running: Services, pids: Mapping[str, int]
) -> PipelineReport:
    note("warming up …")
    for _ in range(WARM_UP_ROUNDS):
        load.arrive(load.wanted)
        await load.settled(SILENCE_S)
    load.forget()
    note(f"{plan.singles} pods, one at a time …")
    for _ in range(plan.singles):
        load.arrive(load.pick(1))
        await load.settled(SILENCE_S)
        await anyio.sleep(SINGLES_GAP_S)
    idle, idle_us = load.decisions.copy(), load.latencies_us()
    idle_begins_us = load.begins_us()
    load.forget()
    note(f"a backlog of {plan.pods} pods …")
    clock = CpuClock(pids)
    load.arrive(load.pick(plan.pods))
    await load.settled(SILENCE_S)
    burst = _Burst(load.decisions.copy(), load.elapsed_s(), clock.passed_us())
    load.forget()
    note(f"{plan.rate} pods a second for {plan.seconds:g} s …")
    clock = CpuClock(pids)
    await _steady(plan, load)
    steady_cpu_us = clock.passed_us()
    running.check()
    if load.placed < PLACED_MIN * (load.placed + load.refused):
        raise CliError(
            f"only {load.placed} of {load.placed + load.refused} pods found a place: this would "
            "measure refusals; take fewer pods (--live) or more nodes"
        )
    steady, steady_us = load.decisions, load.latencies_us()
    steady_pods = len(steady_us)
    batches = sorted(len(d.cycle.batch) for d in burst.decisions)
    total_us = sum(us for name, us in burst.cpu_us.items() if name != "bench")
    return PipelineReport(
        versions=versions(is_compiled=await scores_compiled(running.http("scorer"))),
        bench="pipeline",
        nodes=plan.nodes,
        shapes=plan.shapes,
        cards_per_node=8,
        policy=plan.policy,
        queue=DEFAULT_QUEUE if plan.queue else "",
        yardstick=Yardstick(BARE_CLIENT, 0.0),
        ratio_to_yardstick=0.0,
        pods=plan.pods,
        seed=plan.seed,
        placed_percent=round(100 * load.placed / (load.placed + load.refused), 2),
        pods_per_second_wall=round(plan.pods / burst.wall_s, 1),
        rate_per_cpu_second=round(1e6 * plan.pods / max(total_us, 1), 1),
        cpu_us={name: round(us / plan.pods, 1) for name, us in burst.cpu_us.items()},
        stage_us=_stages(burst.decisions[1:], _could_begin_us(burst.decisions)),
        idle_stage_us=_stages(idle, idle_begins_us),
        steady_cpu_us={name: round(us / steady_pods, 1) for name, us in steady_cpu_us.items()},
        idle_p50_us=percentile(idle_us, 50),
        idle_p99_us=percentile(idle_us, 99),
        idle_batch_max=max(len(d.cycle.batch) for d in idle),
        cycles=len(burst.decisions),
        cycles_on_top=sum(bool(each.cycle.assumed) for each in burst.decisions),
        batch_p50=int(percentile(batches, 50)),
        batch_max=batches[-1],
        steady_rate=plan.rate,
        scrape_s=plan.scrape_s,
        steady_batch_p50=int(percentile(sorted(len(d.cycle.batch) for d in steady), 50)),
        p50_us=percentile(steady_us, 50),
        p99_us=percentile(steady_us, 99),
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


def _could_begin_us(decisions: Sequence[Landed]) -> list[float]:
    """When each cycle but the first could begin: when the one before it was decided, or the one
    before that if it was placed on top of that one.
    """
    before = [max(0, n - bool(each.cycle.assumed)) for n, each in enumerate(decisions[1:])]
    return [decisions[n].time_ns / 1000 for n in before]


def _stages(decisions: Sequence[Landed], begins_us: Sequence[float]) -> dict[str, float]:
    """Mean wall time per pod between the points of a cycle's way, from when each could begin."""
    total: dict[str, float] = {}
    for decision, begin_us in zip(decisions, begins_us, strict=True):
        stages = {stage.stage: stage for stage in decision.cycle.stages}
        points = [("", begin_us)]
        for name in STAGES:
            points.append((f"to {name}", stages[name].received_us))
            points.append((name, stages[name].finished_us))
        points.append(("append", decision.time_ns / 1000))
        for (_, earlier_us), (name, later_us) in itertools.pairwise(points):
            total[name] = total.get(name, 0) + later_us - earlier_us
    pods = sum(len(decision.cycle.batch) for decision in decisions)
    return {name: round(us / pods, 1) for name, us in total.items()}


def _rows(report: PipelineReport) -> list[tuple[str, str]]:
    return [
        ("pods a second, fact to decision", f"{report.pods_per_second_wall:,}"),
        ("pods per CPU-second, all processes", f"{report.rate_per_cpu_second:,}"),
        ("CPU per pod, µs", _shown(report.cpu_us)),
        ("wall per pod, µs", _shown(report.stage_us)),
        ("batches", f"{report.cycles}, p50 {report.batch_p50}, max {report.batch_max}"),
        ("of these on top of one that was not decided yet", f"{report.cycles_on_top}"),
        ("a pod alone: p50, p99", f"{report.idle_p50_us} µs, {report.idle_p99_us} µs"),
        ("a pod alone: wall, µs", _shown(report.idle_stage_us)),
        (f"at {report.steady_rate}/s: p50, p99", f"{report.p50_us} µs, {report.p99_us} µs"),
        (f"at {report.steady_rate}/s: CPU per pod, µs", _shown(report.steady_cpu_us)),
        (f"at {report.steady_rate}/s: batch p50", str(report.steady_batch_p50)),
        *slowest_row(report.scrape_s, report.scrape_slowest_us),
        ("placed", f"{report.placed_percent} %"),
        ("memory, peak, MiB", _shown(report.rss_mib)),
    ]


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in figures.items())
