"""`allot bench loops`: how long event loops answer nothing during the search for victims.

A full cluster on which pods of a low priority run, all five actions, and two replicas each of
filter, scorer and binder (`--no-bind`). Pods of a high priority come, each of which needs a
victim, and between them small pods that find room at once. It fails if a loop computed
for longer than the bound without answering anybody. What counts is the CPU time of the loop's own
thread: on a busy machine other processes take the processor for as long as they like.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import anyio
import click

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.loop_watch import CPU, WALL
from allotment.core.errors import AllotError
from allotment_cli.show.output import note
from allotment_lab.bench.pipeline import STAGES
from allotment_lab.bench.pipeline_load import NAMESPACE, write_at_once
from allotment_lab.bench.policies import policy_of
from allotment_lab.bench.results import Result, have_compiled, publish, reporting, result
from allotment_lab.bench.worlds.churn import CARDS, GIB, equal_node, queue_facts, queue_name
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
from allotment_local.specs import DEFAULT_POLICY
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    Decided,
    Envelope,
    Event,
    PodObserved,
    PolicyLoaded,
    PriorityClassObserved,
)
from allotment_proto.facts import DeviceRequest, Holding, PodRequest

REPLICAS, QUEUES = 2, 10
SILENCE_S = 300.0
LOW, HIGH = 0, 1000
CARD_MIB = 15_360
WHOLE = PodRequest(
    cpu_milli=1000,
    memory_bytes=GIB,
    devices=(DeviceRequest("vgpu", 0, "main", 1, CARD_MIB, 0, 0),),
)
SMALL = PodRequest(cpu_milli=100, memory_bytes=GIB)


class Plan(NamedTuple):
    """What to run."""

    nodes: int
    preemptors: int
    small: int
    bound_ms: int


@click.command()
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--preemptors", default=2, show_default=True, type=click.IntRange(1, 1000))
@click.option("--small", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--bound-ms",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Fail if a loop computed for longer without answering anybody.",
)
@reporting
def loops(as_json: bool, save: Any, compare: Any, **plan: int) -> None:
    """How long event loops are blocked: five actions, two replicas, pods that must evict."""
    planned = Plan(**plan)
    have_compiled(planned.nodes, policy_of(str(DEFAULT_POLICY)))
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as directory:
        found = run(_measure, planned, Path(directory))
    publish(found, as_json=as_json, save=save, compare=compare)
    blocked_ms = found["blocked_cpu_ms_max"]
    late = {n: ms for n, ms in blocked_ms.items() if ms > planned.bound_ms}
    if late:
        raise AllotError(f"event loops computed for longer than {planned.bound_ms} ms: {late}")


async def _measure(plan: Plan, directory: Path) -> Result:
    async with (
        nats_server(directory / "nats") as server,
        connect(server.url, "bench") as connection,
    ):
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        note(f"writing {plan.nodes} nodes, and pods on all cards …")
        await write_at_once(log, _cluster(plan))
        note(f"starting {REPLICAS} replicas of filter, scorer and binder …")
        async with services(_commands(server), directory) as running:
            return await _run(plan, log, running, server)


def _cluster(plan: Plan) -> Iterator[Event]:
    policy = policy_of(str(DEFAULT_POLICY))
    yield PolicyLoaded(policy=policy, source="bench", text_sha256="")
    yield from queue_facts(QUEUES)
    yield PriorityClassObserved(uid="high", name="high", rv=1, value=HIGH)
    for node in range(plan.nodes):
        yield equal_node(node, "NVIDIA-Tesla T4", CARD_MIB)
    for node, card in itertools.product(range(plan.nodes), range(CARDS)):
        held = Holding("vgpu", 0, f"GPU-{node}-{card}", CARD_MIB, 0)
        number = node * CARDS + card
        yield _pod(f"low-{number}", WHOLE, LOW, node=f"gpu-{node:06d}", holdings=(held,))


def _pod(uid: str, request: PodRequest, priority: int, **more: Any) -> PodObserved:
    return PodObserved(
        uid=uid,
        namespace=NAMESPACE,
        name=uid,
        rv=1,
        created_ms=1,
        queue=queue_name(crc32(uid.encode()) % QUEUES),
        scheduler="allotment",
        request=request,
        priority=priority,
        phase="Running" if "node" in more else "Pending",
        **more,
    )


async def _add(log: JetStreamLog, pods: Sequence[PodObserved]) -> None:
    """Append these pods, in one record."""
    envelope = Envelope(at_ms=0, by="watcher/bench", events=tuple(pods))
    await log.append(subjects.FACTS, encode(envelope), msg_id=f"bench/{pods[0].uid}")


def _commands(server: NatsServer) -> dict[str, list[str]]:
    nats = ["--nats-url", server.url, "--nats-monitor-url", server.monitor_url]
    own = {"binder": ["--no-bind"]}
    return {
        f"{name}-{replica}": [
            *(f"allotment_{name}", *nats, "--instance", f"{name}-{replica}"),
            *own.get(name, []),
        ]
        for name in STAGES
        for replica in range(REPLICAS)
    }


async def _run(plan: Plan, log: JetStreamLog, running: Services, server: NatsServer) -> Result:
    names = list(_commands(server))
    pids = running.pids() | {"nats": server.pid, "bench": os.getpid()}
    follower = _Follower(log)
    async with anyio.create_task_group() as group:
        group.start_soon(follower.run, await log.last_seq())
        await _add(log, [_pod("warm", SMALL, LOW)])
        await follower.until(lambda: "warm" in follower.placed_ns)
        before = {name: await blocked_of(running.http(name)) for name in names}
        begun, clock = follower.begun, CpuClock(pids)
        high = [
            _pod(f"high-{n}", WHOLE, HIGH, priority_class="high") for n in range(plan.preemptors)
        ]
        await _add(log, high)
        note(f"{plan.preemptors} pods that must evict, {plan.small} small ones …")
        for number in range(plan.small):
            await _add(log, [_pod(f"small-{number}", SMALL, LOW)])
            await anyio.sleep(0.1)
        pods = plan.preemptors + plan.small
        await follower.until(
            lambda: (
                len(follower.evicted) >= plan.preemptors and len(follower.placed_ns) > plan.small
            )
        )
        cpu_us = clock.passed_us()
        running.check()
        group.cancel_scope.cancel()
    for _ in range(2):  # for how long writing a page took, the next one says
        after = {name: await blocked_of(running.http(name)) for name in names}
    times_us = sorted(
        (follower.placed_ns[uid] - seen_ns) / 1000
        for uid, seen_ns in follower.seen_ns.items()
        if uid.startswith("small-")
    )
    total_us = sum(us for name, us in cpu_us.items() if name != "bench")
    return result(
        "loops",
        plan._asdict(),
        is_compiled=await scores_compiled(running.http("scorer-0")),
        rate_per_cpu_second=round(1e6 * pods / max(total_us, 1), 2),
        p50_us=percentile(times_us, 50),
        p99_us=percentile(times_us, 99),
        blocked_cpu_ms_max=longest_ms(before, after, CPU),
        blocked_wall_ms_max=longest_ms(before, after, WALL),
        lease_changes=follower.begun - begun,
        pods=pods,
        live_pods=plan.nodes * CARDS,
        evictions=len(follower.evicted),
        cpu_us={name: round(us / pods, 1) for name, us in cpu_us.items()},
        rss_mib={name: peak_rss_mib(pid) for name, pid in pids.items()},
    )


class _Follower:
    """Reads what is decided."""

    def __init__(self, log: JetStreamLog) -> None:
        self.seen_ns: dict[str, int] = {}
        self.placed_ns: dict[str, int] = {}
        self.evicted: set[str] = set()
        self.begun = 0
        """Lives of binders."""
        self._log = log
        self._turn = anyio.Event()

    async def run(self, after_seq: int) -> None:
        async for batch in self._log.follow(after_seq):
            for record in batch:
                envelope = decode_envelope(record.payload, record.subject)
                self.begun += record.subject == subjects.DECISION and not envelope.events
                for event in envelope.events:
                    if isinstance(event, PodObserved):
                        self.seen_ns[event.uid] = record.time_ns
                    elif isinstance(event, Decided):
                        for placement in event.placements:
                            self.placed_ns[placement.uid] = record.time_ns
                        self.evicted.update(eviction.uid for eviction in event.evictions)
            turn, self._turn = self._turn, anyio.Event()
            turn.set()

    async def until(self, holds: Any) -> None:
        """Raises AllotError if no decision comes."""
        while not holds():
            with anyio.move_on_after(SILENCE_S) as silence:
                await self._turn.wait()
            if silence.cancelled_caught:
                raise AllotError(
                    f"nothing decided for {SILENCE_S:.0f} s: {len(self.placed_ns)} placed, "
                    f"{len(self.evicted)} evicted"
                )
