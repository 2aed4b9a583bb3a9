"""`allot bench e2e`: pods created, decided, bound and running, through an API server.

With local mode (the default) everything is private to the run. On an existing cluster the
bench plays the kubelets and device plugins of nodes of its own.

What it measures is held against a bare client in the same run, before and after: a client that
decides nothing and paces nothing, only creates the same pods and binds them, on the same kind of
API server with the same device plugins. With `--peer` another scheduler of the cluster gets the
same load in the same run.
"""

import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.config import KubeConfigError
from allotment.adapters.log.nats_users import SCHEDULER
from allotment.adapters.service.loop_watch import CPU
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment_cli.options.params import Finite
from allotment_cli.show.output import note
from allotment_lab.bench import policies
from allotment_lab.bench.e2e import cluster as e2e_cluster
from allotment_lab.bench.e2e import counts as e2e_counts
from allotment_lab.bench.e2e import pods as e2e_pods
from allotment_lab.bench.e2e.kubelets import Kubelets
from allotment_lab.bench.e2e.load import SENDERS, BareClient, Eyes, bare_client
from allotment_lab.bench.e2e.phases import Done, Load, Phases
from allotment_lab.bench.e2e.stack import HOME, Stack, commands, local_mode
from allotment_lab.bench.results import Result, have_compiled, publish, reporting, result
from allotment_lab.percentiles import percentile
from allotment_lab.processes import (
    blocked_of,
    longest_ms,
    nats_server,
    run,
    scores_compiled,
    services,
)
from allotment_local.home import BINDER_CONTEXT, Home
from allotment_local.nodes.books import MISDELIVERED, OVERSOLD
from allotment_local.nodes.shape_reader import ALLOCATE_MS_MAX

LOCAL = "local"
LOCAL_SCHEDULER = "allotment"
DEFAULT_POLICY = "binpack"
NOT_SERVICES = ("apiserver", "load")


@click.command()
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1, 5000))
@click.option("--pods", default=2000, show_default=True, type=click.IntRange(2, 100_000))
@click.option(
    "--ask",
    type=click.Choice(e2e_pods.ASKS),
    default=e2e_pods.SHARES,
    show_default=True,
    help="Pods ask for a part of a card, for a counted card, or for CPU and memory alone.",
)
@click.option("--policy", type=policies.PolicyWord(), default=DEFAULT_POLICY, show_default=True)
@click.option(
    "--allocate-ms",
    default=0,
    show_default=True,
    type=click.IntRange(0, ALLOCATE_MS_MAX),
    help="How long a node's device plugin takes to serve a container.",
)
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
    "--one-process",
    is_flag=True,
    help="Run watcher, filter, scorer and binder as one process.",
)
@click.option(
    "--server",
    metavar="URL",
    default=LOCAL,
    show_default=True,
    help="local, or the http address of a cluster.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run on this cluster instead, with nodes and a namespace that are deleted afterwards.",
)
@click.option(
    "--peer",
    metavar="SCHEDULER",
    help="With --kubeconfig or --server: give the same load to this scheduler of the cluster too,"
    " such as default-scheduler.",
)
@policies.queues_option
@reporting
def e2e(
    server: str,
    kubeconfig: Path | None,
    as_json: bool,
    save: Any,
    compare: Any,
    **plan: Any,
) -> None:
    """Create pods, wait until all run: a burst, then a steady trickle for latencies."""
    planned = Plan(**plan)
    wanted = planned.pods + round(planned.rate * planned.seconds)
    if planned.peer and kubeconfig is None and server == LOCAL:
        raise AllotError(
            f"local mode has no scheduler {planned.peer}",
            "give --kubeconfig or --server of a cluster where it runs",
        )
    room = e2e_pods.PODS_PER_NODE[planned.ask] * planned.nodes
    if wanted > room:
        raise AllotError(
            f"{planned.nodes} nodes hold {room} pods, not {wanted}",
            "take more nodes, fewer pods, or a shorter steady phase",
        )
    have_compiled(planned.nodes, policies.policy_of(planned.policy))
    directory = Path(tempfile.mkdtemp(prefix="allotment-bench-"))
    measuring = _Run(directory, planned)
    try:
        found = run(measuring.measure, server, kubeconfig, expected=(AllotError, KubeConfigError))
    finally:
        shutil.rmtree(directory)
    publish(found, as_json=as_json, save=save, compare=compare)


class Plan(NamedTuple):
    """What to run."""

    nodes: int
    pods: int
    ask: str
    policy: str
    allocate_ms: int
    rate: int
    seconds: float
    replicas: int
    one_process: bool
    peer: str | None
    queues: int

    @property
    def scheduling(self) -> tuple[str, ...]:
        """The services that schedule, the one that scores first."""
        return (SCHEDULER,) if self.one_process else ("scorer", "watcher", "binder", "filter")


class _Measured(NamedTuple):
    """What the services showed."""

    burst: Done
    steady: Done
    burst_us: dict[str, float]
    steady_us: dict[str, float]
    cpu_us: dict[str, float]
    requests: Counter[str] | None
    blocked_cpu_ms_max: dict[str, float]
    rss_mib: dict[str, int]
    is_compiled: bool


class _Run:
    """One run in a directory of its own."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory = directory
        self._plan = plan
        self._name = f"allot-bench-{secrets.token_hex(4)}"

    async def measure(self, server: str, kubeconfig: Path | None) -> Result:
        if kubeconfig is None and server == LOCAL:
            return await self._in_local_mode()
        if kubeconfig is not None:
            return await self._beside(kubeconfig, str(kubeconfig))
        place = Home(self._directory / "cluster")
        place.create()
        place.write_kubeconfig(server)
        return await self._beside(place.kubeconfig, server)

    # In local mode, whose API server is the same with and without services

    async def _in_local_mode(self) -> Result:
        before = await self._bare_alone("bare-a")
        async with (
            self._local("measured", None) as (stack, kubeconfig),
            kube.connect(kubeconfig) as client,
            e2e_cluster.queues(client, self._name, self._plan.queues) as queues,
            self._phases(kubeconfig, LOCAL_SCHEDULER, None, queues, binds_as=BINDER_CONTEXT) as (
                phases,
                bare,
            ),
        ):
            origin = e2e_counts.local(self._directory / "measured" / HOME)
            measured = await self._created_to_running(phases, bare, stack, origin)
            books = await e2e_counts.books(bare)
        after = await self._bare_alone("bare-b")
        return self._report(LOCAL, len(queues), measured, books, (before, after), None)

    async def _bare_alone(self, name: str) -> "_Bare":
        note(f"the bare client: {self._plan.pods} pods …")
        async with (
            self._local(name, ()) as (_, kubeconfig),
            self._phases(kubeconfig, LOCAL_SCHEDULER, None, [], binds_as=BINDER_CONTEXT) as (
                phases,
                _,
            ),
        ):
            return await self._bare(phases, name)

    def _local(self, name: str, only: tuple[()] | None) -> Any:
        plan, directory = self._plan, self._directory
        nodes = e2e_pods.nodes_yaml(plan.nodes, self._name, plan.ask)
        policy = policies.file_of(plan.policy, directory)
        return local_mode(
            *(directory / name, nodes, policy, plan.allocate_ms, only),
            one_process=plan.one_process,
        )

    # On an existing cluster

    async def _beside(self, kubeconfig: Path, server: str) -> Result:
        plan = self._plan
        policy = policies.file_of(plan.policy, self._directory)
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        objects = e2e_pods.node_bodies(plan.nodes, self._name, plan.ask, now)
        async with (
            nats_server(self._directory / "nats") as nats,
            kube.connect(kubeconfig) as client,
            bare_client(kubeconfig) as bare,
            e2e_cluster.nodes(bare, objects),
            e2e_cluster.queues(client, self._name, plan.queues) as queues,
            anyio.create_task_group() as plugins,
        ):
            bares: list[_Bare] = []
            peer: dict[str, Any] | None = None
            books: dict[str, int] = {}
            parts = ("bare-a", *["peer"] * bool(plan.peer), "measured", "bare-b")
            for number, part in enumerate(parts):
                scheduler = plan.peer if plan.peer and part == "peer" else self._name
                async with self._phases(
                    kubeconfig, scheduler, (objects, plugins), queues, f"{self._name}-{number}"
                ) as (phases, own):
                    if part == "peer":
                        peer = await self._by_a_peer(phases, own, scheduler)
                    elif part == "measured":
                        names = [*plan.scheduling, *["controller"] * bool(queues)]
                        started = commands(names, nats, kubeconfig, self._name, policy)
                        async with services(started, self._directory) as running:
                            stack = Stack(
                                running.pids() | {"nats": nats.pid},
                                {name: running.http(name) for name in names},
                            )
                            origin = Origin(self._directory, nats=nats.url)
                            measured = await self._created_to_running(phases, own, stack, origin)
                            books = dict(phases.books())
                            running.check()
                    else:
                        note(f"the bare client: {plan.pods} pods …")
                        bares.append(await self._bare(phases, part))
            plugins.cancel_scope.cancel()
        return self._report(server, len(queues), measured, books, bares, peer)

    # Both

    @asynccontextmanager
    async def _phases(
        self,
        kubeconfig: Path,
        scheduler: str,
        played: tuple[list[dict[str, Any]], anyio.abc.TaskGroup] | None,
        queues: list[str],
        namespace: str = "",
        binds_as: str | None = None,
    ) -> AsyncIterator[tuple[Phases, BareClient]]:
        """Phases in a namespace of their own; `played`: nodes whose kubelets are played here.
        `binds_as` is the context of a user who may write device records, as the bare client does.
        """
        plan = self._plan
        allocate_s = plan.allocate_ms / 1000
        nodes = e2e_pods.node_names(plan.nodes, self._name)
        load = Load(self._name, scheduler, plan.ask, plan.replicas, allocate_s, nodes, queues)
        async with (
            kube.connect(kubeconfig) as client,
            bare_client(kubeconfig, binds_as) as bare,
            e2e_cluster.namespace(client, namespace or self._name) as pods,
            anyio.create_task_group() as watching,
        ):
            eyes = Eyes(client, pods)
            kubelets = None
            if played is not None:
                objects, tasks = played
                kubelets = Kubelets(bare, pods, tasks, objects, allocate_s)
                eyes.heard = kubelets.observe
            await watching.start(eyes.look)
            yield Phases(bare, eyes, pods, load, kubelets), bare
            watching.cancel_scope.cancel()

    async def _bare(self, phases: Phases, prefix: str) -> "_Bare":
        done = await phases.bare(prefix, self._plan.pods, int(time.time()))
        eyes = phases.eyes
        latencies = eyes.latencies_us(done.names, eyes.bound_s)
        return _Bare(done.bound_per_second, done.running_per_second, percentile(latencies, 50))

    async def _by_a_peer(self, phases: Phases, own: BareClient, scheduler: str) -> dict[str, Any]:
        plan, eyes = self._plan, phases.eyes
        asked = await e2e_counts.requests(own)
        note(f"{scheduler}: burst: {plan.pods} pods …")
        burst = await phases.burst("burst", plan.pods)
        now_asked = await e2e_counts.requests_settled(own)
        note(f"{scheduler}: steady: {plan.rate} pods a second for {plan.seconds:g} s …")
        steady = await phases.steady("steady", plan.rate, plan.seconds)
        return {
            "scheduler": scheduler,
            "pods_per_second_wall": round(burst.bound_per_second, 1),
            "running_per_second_wall": round(burst.running_per_second, 1),
            "burst_us": _times(eyes, burst.names, _seen(eyes)),
            "steady_us": _times(eyes, steady.names, _seen(eyes)),
            "requests_per_pod": _requests_per_pod(_between(asked, now_asked), plan.pods),
        }

    async def _created_to_running(
        self, phases: Phases, bare: BareClient, stack: Stack, origin: Origin
    ) -> _Measured:
        plan = self._plan
        begun_seq = await e2e_counts.log_end(origin)
        asked = await e2e_counts.requests(bare)
        addresses = {name: stack.http[name] for name in plan.scheduling}
        blocked = {name: await blocked_of(address) for name, address in addresses.items()}
        passed_us = stack.clock()
        note(f"burst: {plan.pods} pods, {SENDERS} at a time …")
        burst = await phases.burst("burst", plan.pods)
        await stack.quiet()
        now_asked = await e2e_counts.requests_settled(bare)
        cpu_us = {name: round(us / plan.pods, 1) for name, us in sorted(passed_us().items())}
        note(f"steady: {plan.rate} pods a second for {plan.seconds:g} s …")
        steady = await phases.steady("steady", plan.rate, plan.seconds)
        eyes = phases.eyes
        decided = await e2e_counts.decided_s(origin, eyes.uids.values(), begun_seq)
        return _Measured(
            burst,
            steady,
            _times(eyes, burst.names, _decided(eyes, burst.names, decided) | _seen(eyes)),
            _times(eyes, steady.names, _decided(eyes, steady.names, decided) | _seen(eyes)),
            cpu_us,
            _between(asked, now_asked),
            longest_ms(
                blocked, {name: await blocked_of(each) for name, each in addresses.items()}, CPU
            ),
            stack.rss_mib(),
            await scores_compiled(stack.http[plan.scheduling[0]]),
        )

    def _report(
        self,
        server: str,
        queues: int,
        found: _Measured,
        books: Mapping[str, int],
        bares: Sequence["_Bare"],
        peer: dict[str, Any] | None,
    ) -> Result:
        plan = self._plan
        if books[OVERSOLD] or books[MISDELIVERED]:
            raise AllotError(
                f"the device plugins' books say that {books[OVERSOLD]} cards were oversold and "
                f"{books[MISDELIVERED]} containers were misdelivered: this measured no success"
            )
        per_pod = {kind: n / plan.pods for kind, n in sorted((found.requests or {}).items())}
        bare = sum(each.per_second for each in bares) / len(bares)
        services_us = sum(us for name, us in found.cpu_us.items() if name not in NOT_SERVICES)
        return result(
            "e2e",
            plan._asdict() | {"server": server, "queues": queues},
            is_compiled=found.is_compiled,
            rate_per_cpu_second=round(1e6 / max(1, sum(found.cpu_us.values())), 1),
            pods_per_second_wall=round(found.burst.bound_per_second, 1),
            running_per_second_wall=round(found.burst.running_per_second, 1),
            created_per_second_wall=round(found.burst.created_per_second, 1),
            bare_per_second_wall=round(bare, 1),
            bare_running_per_second_wall=round(
                sum(each.running_per_second for each in bares) / len(bares), 1
            ),
            bare_p50_us=max(each.p50_us for each in bares),
            ratio_to_bare_client=round(found.burst.bound_per_second / bare, 3),
            burst_us=found.burst_us,
            steady_pods=len(found.steady.names),
            steady_us=found.steady_us,
            p50_us=found.steady_us["bound_p50"],
            p99_us=found.steady_us["bound_p99"],
            cpu_us=found.cpu_us,
            blocked_cpu_ms_max=found.blocked_cpu_ms_max,
            services_cpu_us=round(services_us, 1),
            requests_per_pod=_requests_per_pod(found.requests, plan.pods),
            requests={kind: round(n, 2) for kind, n in per_pod.items() if n >= 0.01},
            rss_mib=found.rss_mib,
            oversold=books[OVERSOLD],
            misdelivered=books[MISDELIVERED],
            peer=peer,
        )


class _Bare(NamedTuple):
    """What the bare client reached."""

    per_second: float
    running_per_second: float
    p50_us: float


def _between(before: Counter[str] | None, after: Counter[str] | None) -> Counter[str] | None:
    return None if before is None or after is None else after - before


def _requests_per_pod(requests: Counter[str] | None, pods: int) -> float | None:
    return None if requests is None else round(requests.total() / pods, 2)


def _decided(
    eyes: Eyes, names: Sequence[str], by_uid: Mapping[str, float]
) -> dict[str, Mapping[str, float]]:
    return {"decided": {name: by_uid[eyes.uids[name]] for name in names}}


def _seen(eyes: Eyes) -> dict[str, Mapping[str, float]]:
    return {"bound": eyes.bound_s, "running": eyes.running_s}


def _times(
    eyes: Eyes, names: Sequence[str], moments: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Percentiles from sent until each of these moments, µs: `bound_p50` and the like."""
    times: dict[str, float] = {}
    for what, until_s in moments.items():
        latencies = eyes.latencies_us(names, until_s)
        times[f"{what}_p50"] = percentile(latencies, 50)
        times[f"{what}_p99"] = percentile(latencies, 99)
    return times
