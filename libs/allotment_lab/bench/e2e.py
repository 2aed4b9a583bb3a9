"""`allot bench e2e`: pods created to pods bound, through an API server.

With local mode (the default) everything is private to the run. Beside a cluster that is there, the
bench also asks what a bare client, which does nothing but POST Bindings, reaches on it: before and
after, so that a machine that is busy in between does not flatter us.
"""

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.config import KubeConfigError
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_cli.params import Finite
from allotment_lab.bench import e2e_cluster, e2e_pods
from allotment_lab.bench.e2e_load import SENDERS, Eyes, bare_client
from allotment_lab.bench.e2e_phases import Burst, Phases
from allotment_lab.bench.e2e_stack import Services, Stack, local_mode
from allotment_lab.bench.report import Report, publish, reporting, versions
from allotment_lab.percentiles import percentile
from allotment_lab.processes import run, scores_compiled
from allotment_local.home import Home

LOCAL = "local"
LOCAL_SCHEDULER = "allotment"


class E2eReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench e2e`. `p50_us` and `p99_us` are wall times at the steady rate."""

    server: str
    pods: int
    replicas: int
    pods_per_second_wall: float
    """The burst: from the first pod sent to the last one seen bound."""
    created_per_second_wall: float
    """The burst: what the load reached with creating alone."""
    burst_p50_us: float
    burst_p99_us: float
    steady_per_second: int
    steady_pods: int
    binds_per_second: float | None = None
    """Pods with cards that were pending: Bindings a second, acknowledgements beside them."""
    plain_binds_per_second: float | None = None
    """The same with pods that ask for no cards: nothing but Bindings, as the bare client's."""
    bare_binds_per_second: float | None = None
    ratio_to_bare_client: float | None = None
    plain_cpu_us: dict[str, float] | None = None
    """CPU time per Binding of `plain_binds_per_second`, by process; the filter's start left out."""


@click.command()
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1, 5000))
@click.option("--pods", default=2000, show_default=True, type=click.IntRange(2, 100_000))
@click.option(
    "--rate",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Pods a second of the steady phase.",
)
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=Finite(0.1, 600),
    help="How long the steady phase lasts.",
)
@click.option(
    "--replicas",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Pods of one shape that come in a row, as from a Deployment.",
)
@click.option(
    "--server", default=LOCAL, show_default=True, help="local, or the http address of a cluster."
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Beside this cluster instead: with nodes and a namespace of its own, deleted afterwards.",
)
@reporting
def e2e(
    nodes: int,
    pods: int,
    rate: int,
    seconds: float,
    replicas: int,
    server: str,
    kubeconfig: Path | None,
    **out: Any,
) -> None:
    """Create pods, wait until all are bound: a burst, then a steady trickle for latencies."""
    wanted = pods + round(rate * seconds)
    if wanted > e2e_pods.PODS_PER_NODE * nodes:
        raise CliError(
            f"{nodes} nodes hold {e2e_pods.PODS_PER_NODE * nodes} pods, not {wanted}",
            "take more nodes, fewer pods, or a shorter steady phase",
        )
    directory = Path(tempfile.mkdtemp(prefix="allotment-bench-"))
    measuring = _Run(directory, nodes, pods, replicas, rate, seconds)
    try:
        report = run(measuring.measure, server, kubeconfig, expected=(CliError, KubeConfigError))
    finally:
        shutil.rmtree(directory)
    publish(report, f"e2e: {pods} pods on {nodes} nodes, {report.server}", _rows(report), **out)


class _Run:
    """One run in a directory of its own."""

    def __init__(
        self, directory: Path, nodes: int, pods: int, replicas: int, rate: int, seconds: float
    ) -> None:
        self._directory = directory
        self._nodes = nodes
        self._pods = pods
        self._replicas = replicas
        self._rate = rate
        self._seconds = seconds
        self._name = f"allot-bench-{secrets.token_hex(4)}"

    async def measure(self, server: str, kubeconfig: Path | None) -> E2eReport:
        if kubeconfig is None and server == LOCAL:
            async with (
                local_mode(self._directory, self._nodes, self._name) as (stack, found),
                self._phases(found, LOCAL_SCHEDULER, acknowledge=False) as phases,
            ):
                return await self._created_to_bound(phases, stack, LOCAL)
        if kubeconfig is None:
            place = Home(self._directory / "cluster")
            place.create()
            place.write_kubeconfig(server)
            kubeconfig = place.kubeconfig
        services = Services(self._directory, kubeconfig, self._name)
        async with (
            services.running(),
            bare_client(kubeconfig) as bare,
            e2e_cluster.nodes(bare, self._nodes, self._name) as nodes,
            self._phases(kubeconfig, self._name, acknowledge=True) as phases,
        ):
            return await self._beside(phases, services, list(nodes), str(kubeconfig))

    @asynccontextmanager
    async def _phases(
        self, kubeconfig: Path, scheduler: str, *, acknowledge: bool
    ) -> AsyncIterator[Phases]:
        async with (
            kube.connect(kubeconfig) as client,
            bare_client(kubeconfig) as bare,
            e2e_cluster.namespace(client, self._name) as pods,
            anyio.create_task_group() as watching,
        ):
            eyes = Eyes(client, bare, pods, acknowledge=acknowledge)
            await watching.start(eyes.look)
            yield Phases(bare, eyes, pods, self._name, scheduler, self._replicas)
            if eyes.double:
                raise CliError(f"{eyes.double} pods were bound to one node and then to another")
            watching.cancel_scope.cancel()

    async def _created_to_bound(self, phases: Phases, stack: Stack, server: str) -> E2eReport:
        passed_us = stack.clock()
        note(f"burst: {self._pods} pods, {SENDERS} at a time …")
        burst = await phases.burst("burst", self._pods)
        cpu_us = _per_pod(passed_us(), self._pods)
        await stack.quiet()
        note(f"steady: {self._rate} pods a second for {self._seconds:g} s …")
        steady = await phases.steady("steady", self._rate, self._seconds)
        is_compiled = await scores_compiled(stack.scorer_http)
        return self._report(server, burst, steady, cpu_us, stack.rss_mib(), is_compiled)

    async def _beside(
        self, phases: Phases, services: Services, nodes: list[str], server: str
    ) -> E2eReport:
        note(f"the bare client: {self._pods} Bindings …")
        bare = [await phases.bare("bare-a", self._pods, nodes)]
        await phases.delete(list(e2e_pods.names("bare-a", self._pods)))
        await services.start(("watcher", "scorer", "binder"))
        rates, cpu_us = {}, {}
        for kind in ("plain", "cards"):
            names = await phases.create(kind, self._pods, plain=kind == "plain")
            note(f"{self._pods} pending pods ({kind}) …")
            await services.start(("filter",))
            passed_us = services.stack.clock()
            rates[kind] = await phases.bound(names)
            cpu_us[kind] = _per_pod(passed_us(), self._pods)
            await services.stop("filter")
            await phases.delete(names)
        await services.start(("filter",))
        report = await self._created_to_bound(phases, services.stack, server)
        if restarts := services.restarts():
            raise CliError(f"services died while they were measured: {restarts}")
        await services.stop_all()
        note(f"the bare client again: {self._pods} Bindings …")
        bare.append(await phases.bare("bare-b", self._pods, nodes))
        reached = sum(bare) / len(bare)
        return msgspec.structs.replace(
            report,
            binds_per_second=round(rates["cards"], 1),
            plain_binds_per_second=round(rates["plain"], 1),
            bare_binds_per_second=round(reached, 1),
            ratio_to_bare_client=round(rates["plain"] / reached, 3),
            plain_cpu_us=cpu_us["plain"],
        )

    def _report(
        self,
        server: str,
        burst: Burst,
        steady: list[int],
        cpu_us: dict[str, float],
        rss_mib: dict[str, int],
        is_compiled: bool,
    ) -> E2eReport:
        return E2eReport(
            versions=versions(is_compiled=is_compiled),
            bench="e2e",
            nodes=self._nodes,
            shapes=e2e_pods.SHAPES,
            server=server,
            pods=self._pods,
            replicas=self._replicas,
            rate_per_cpu_second=round(1e6 / sum(cpu_us.values()), 1),
            pods_per_second_wall=round(burst.bound_per_second, 1),
            created_per_second_wall=round(burst.created_per_second, 1),
            burst_p50_us=percentile(burst.latencies_us, 50),
            burst_p99_us=percentile(burst.latencies_us, 99),
            steady_per_second=self._rate,
            steady_pods=len(steady),
            p50_us=percentile(steady, 50),
            p99_us=percentile(steady, 99),
            cpu_us=cpu_us,
            rss_mib=rss_mib,
        )


def _per_pod(cpu_us: dict[str, int], pods: int) -> dict[str, float]:
    return {name: round(us / pods) for name, us in sorted(cpu_us.items())}


def _rows(report: E2eReport) -> list[tuple[str, str]]:
    rows = [
        ("created → bound, pods per second (wall)", f"{report.pods_per_second_wall:,}"),
        ("created alone, pods per second (wall)", f"{report.created_per_second_wall:,}"),
        ("pods per CPU-second, all processes", f"{report.rate_per_cpu_second:,}"),
        ("burst p50, p99 (wall)", _times(report.burst_p50_us, report.burst_p99_us)),
        (f"at {report.steady_per_second}/s p50, p99 (wall)", _times(report.p50_us, report.p99_us)),
    ]
    if report.ratio_to_bare_client is not None:
        rows += [
            ("Bindings per second, bare client", f"{report.bare_binds_per_second:,}"),
            ("Bindings per second, plain pods", f"{report.plain_binds_per_second:,}"),
            ("Bindings per second, pods with cards", f"{report.binds_per_second:,}"),
            ("plain pods to bare client", f"{report.ratio_to_bare_client:.0%}"),
        ]
        spent = report.plain_cpu_us or {}
        rows += [(f"CPU per plain pod, {name}", f"{us:,} µs") for name, us in spent.items()]
    rows += [(f"CPU per pod, {name}", f"{us:,} µs") for name, us in report.cpu_us.items()]
    rows += [(f"memory, peak, {name}", f"{mib} MiB") for name, mib in report.rss_mib.items()]
    return [*rows, ("one turn of an empty loop", f"{report.calibration_ns} ns")]


def _times(p50_us: float, p99_us: float) -> str:
    return f"{p50_us / 1000:.1f} ms, {p99_us / 1000:.1f} ms"
