"""`allot bench grow`: how the cost of a pod grows with nodes, queues or pods that wait, and that of
a question with the log.

All five actions are on, pods are in all queues, and some ask for what no node has. Each size is a
cluster of its own, two thirds full, or full where pods wait; the exponent of a figure is the slope
of its logarithm over that of the size: 0 where it does not grow, 1 where it grows as the size does.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import click

from allotment.adapters.log.exported import ExportedLog
from allotment.adapters.log.kept import KeptLog
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.answers.pods import life
from allotment.answers.screen import UNSEEN
from allotment.answers.source import FileSource
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment.core.queues.round.rounds import Rounds
from allotment_board import NodeRanker
from allotment_cli.options import completion
from allotment_cli.show.output import emit, note, table
from allotment_filter.groups import Groups
from allotment_lab.bench.full import FILL, Services
from allotment_lab.bench.policies import policy_of
from allotment_lab.bench.results import settle
from allotment_lab.bench.worlds.churn import CARDS, GIB, Churn, equal_node, shapes
from allotment_lab.bench.worlds.long_log import START_MS, LongLog
from allotment_local.specs import DEFAULT_POLICY
from allotment_proto.codec import decode_envelope
from allotment_proto.events import (
    Bound,
    Decided,
    Event,
    PodObserved,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import DeviceRequest, Holding, PodRequest

CARD_MIB = 15_360
PRIORITIES = (0, 10, 20, 1_000)
HIGH = PRIORITIES[-1]
ROUNDS, BATCH, PREEMPTORS = 40, 64, 20
MISFIT_EVERY = 100
"""Of so many pods one asks for more cards than any node has."""
SIZES = {
    "nodes": (100, 1_000, 10_000),
    "queues": (1, 10, 100),
    "waiting": (100, 1_000, 10_000),
    "log": (10_000, 50_000, 250_000),
}
ENDS, SHAPES = 100, 16


class Cluster:
    """A cluster on a log of its own, with a filter and a scorer."""

    def __init__(self, nodes: int, queues: int, random: Random) -> None:
        self.state = ClusterState()
        self.queues = queues
        self._made = itertools.count()
        for event in _events(nodes, queues, random):
            self.tell(event)
        self.ranker, self.rounds = NodeRanker(self.state), Rounds(self.state)
        self.groups = Groups(self.state)

    def tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)

    def comes(self, cards: int, memory_mib: int, priority: int = 0) -> PodObserved:
        """A pod that waits, in the next queue."""
        number = next(self._made)
        wanted = DeviceRequest("vgpu", 0, "main", cards, memory_mib, 0, 0)
        request = PodRequest(cpu_milli=1_000, memory_bytes=GIB, devices=(wanted,))
        pod = _pod(f"new-{number}", number % self.queues, request, priority)
        self.tell(pod)
        return pod

    def round(self) -> tuple[float, Decided]:
        """What filter and scorer need for the next batch (CPU µs), and the decision."""
        start = time.thread_time_ns()
        found = self.groups.next_batch(())
        if found is None:
            raise AllotError("no pod is due: the bench expected some")
        uids = found.batch.uids
        made = self.rounds.run(uids, self.ranker)
        took_us = (time.thread_time_ns() - start) / 1_000
        decided = Decided(
            cycle="bench",
            basis=self.state.seq,
            checked=self.state.seq,
            policy=self.state.policy_seq,
            batch=tuple(uids),
            placements=made.placements,
            refusals=made.refusals,
            dropped=(),
            stages=(),
            wholes=made.wholes,
            shorts=made.shorts,
            admissions=made.admissions,
            evictions=made.evictions,
            holds=made.holds,
            nominations=made.nominations,
        )
        self.tell(decided)
        self.groups.tried(found)
        return took_us, decided


def _events(nodes: int, queues: int, random: Random) -> Iterator[Event]:
    yield PolicyLoaded(policy=policy_of(str(DEFAULT_POLICY)), source="bench", text_sha256="")
    for number in range(queues):
        yield QueueObserved(name=f"q{number}", uid=f"q{number}", rv=1, created_ms=1, weight=1)
    for value in PRIORITIES:
        yield PriorityClassObserved(uid=f"p{value}", name=f"p{value}", rv=1, value=value)
    running = itertools.count()
    for number in range(nodes):
        node = equal_node(number, "NVIDIA-T4", CARD_MIB)
        yield node
        cards = node.inventories[0].cards
        first = 0
        while first < CARDS:
            count = min(random.choice((1, 1, 1, 2, 4)), CARDS - first)
            memory_mib = CARD_MIB if count > 1 else CARD_MIB // 3
            for _ in range(1 if count > 1 else random.choice((0, 1, 3))):
                at = next(running)
                wanted = DeviceRequest("vgpu", 0, "main", count, memory_mib, 0, 0)
                request = PodRequest(cpu_milli=1_000, memory_bytes=GIB, devices=(wanted,))
                on = range(first, first + count)
                yield _pod(
                    f"run-{at}",
                    number % queues,
                    request,
                    random.choice(PRIORITIES[:-1]),
                    node=node.name,
                    holdings=tuple(Holding("vgpu", 0, cards[c].id, memory_mib, 0) for c in on),
                )
            first += count


def _pod(uid: str, queue: int, request: PodRequest, priority: int, **more: Any) -> PodObserved:
    return PodObserved(
        uid=uid,
        namespace=f"team-{queue}",
        name=uid,
        rv=1,
        created_ms=1,
        queue=f"q{queue}",
        scheduler="allotment",
        request=request,
        priority=priority,
        priority_class=f"p{priority}",
        phase="Running" if "node" in more else "Pending",
        **more,
    )


def _with_load(nodes: int, queues: int, random: Random) -> dict[str, float]:
    """CPU time of filter and scorer for a pod, by how it comes."""
    cluster = Cluster(nodes, queues, random)
    for _ in range(ROUNDS // 4):
        cluster.comes(1, 2_000)
        cluster.round()
    alone = []
    for _ in range(ROUNDS):
        cluster.comes(1, 2_000)
        alone.append(cluster.round()[0])
    together = []
    for number in range(ROUNDS * BATCH // 4):
        misfit = number % MISFIT_EVERY == MISFIT_EVERY - 1
        cluster.comes(CARDS + 1 if misfit else 1, 2_000)
        if number % BATCH == BATCH - 1:
            together.append(cluster.round()[0] / BATCH)
    preempting = []
    for _ in range(PREEMPTORS):
        cluster.comes(CARDS, CARD_MIB, HIGH)
        took_us, decided = cluster.round()
        if not decided.evictions:
            raise AllotError("a pod of a high priority found no victims: take more nodes")
        preempting.append(took_us / 1_000)
    return {
        "alone_us": _median(alone),
        "together_us": _median(together),
        "first_preemptor_ms": preempting[0],
        "preemptor_ms": _median(preempting[1:]),
    }


def _with_waiting(nodes: int, queues: int, waiting: int, random: Random) -> dict[str, float]:
    """CPU time of filter, scorer and fold when one pod of a full cluster ends (`bench full`)."""
    wanted, policy = shapes(SHAPES, random, most_cards=CARDS), policy_of("binpack")
    churn = Churn(nodes, wanted, random, policy, queues=queues, misfits=1, fill=FILL)
    services = Services(churn, NodeRanker(churn.state), parks=True)
    while (lacking := waiting - len(churn.state.pending)) > 0:
        churn.arrive(lacking)
        services.until_nothing_is_due()
    services.after_an_end()
    ends = [services.after_an_end() for _ in range(ENDS)]
    return {
        "end_ms": sum(e.filter_us + e.scorer_us + e.fold_us for e in ends) / ENDS / 1_000,
        "tried_at_an_end": sum(e.tried for e in ends) / ENDS,
    }


class _KeptSource(FileSource):
    """A log of these records, of which `directory` keeps what was read."""

    def __init__(self, records: list[Record], directory: Path) -> None:
        self.screen, self.records = UNSEEN, records
        self.kept = KeptLog(ExportedLog(records), directory)
        self.snapshots = SnapshotDirectory(directory, log_identity="", bytes_max=GIB)


def _with_log(nodes: int, queues: int, log: int, random: Random) -> dict[str, float]:
    """CPU time of a command that asks about a pod, the first of all and a later one."""
    entries = LongLog(nodes, nodes * CARDS, random).entries(log)
    records = [
        Record(seq, entry.subject, entry.payload, (START_MS + seq) * 1_000_000, f"m{seq}")
        for seq, entry in enumerate(entries, 1)
    ]
    decided = (decode_envelope(r.payload).events[0] for r in reversed(records))
    bound = next(event for event in decided if isinstance(event, Bound))
    took_s = []
    with TemporaryDirectory(prefix="allot-bench-") as directory:
        for _ in range(2):
            start = time.process_time()
            anyio.run(_ask, _KeptSource(records, Path(directory)), bound)
            took_s.append(time.process_time() - start)
    return {"first_question_s": took_s[0], "later_question_ms": took_s[1] * 1_000}


async def _ask(source: _KeptSource, pod: Bound) -> None:
    await life(source, pod.namespace, pod.name)
    await source.kept.close()


_MEASURED: dict[str, Callable[..., dict[str, float]]] = {
    "waiting": _with_waiting,
    "log": _with_log,
}


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the logarithm of the values over that of the sizes, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((each - x) ** 2 for each in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in value.split(",")) if value else ()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers: 100,1000") from None
    if value and (len(set(found)) < 2 or min(found) < 1):
        raise click.BadParameter("at least two different sizes of 1 and more: 100,1000")
    return found


@click.command()
@click.argument("what", type=click.Choice(tuple(SIZES)))
@click.option(
    "--sizes",
    default="",
    callback=_sizes,
    shell_complete=completion.words("100,1000,10000", "1,10,100"),
    help="For example 100,1000,10000.",
)
@click.option("--nodes", default=1_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--queues", default=10, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--seed", default=1, show_default=True)
def grow(what: str, sizes: tuple[int, ...], nodes: int, queues: int, seed: int) -> None:
    """How the cost of a pod grows with the number of nodes, queues or waiting pods, and that of a
    question about one with the log.
    """
    settle()
    sizes = sizes or SIZES[what]
    rows: list[dict[str, float]] = []
    for size in sizes:
        note(f"{what}: {size} …")
        shape = {"nodes": nodes, "queues": queues} | {what: size}
        measured = _MEASURED.get(what, _with_load)
        rows.append(measured(**shape, random=Random(seed)))
    shown = [
        [name, *(f"{row[name]:,.1f}" for row in rows), f"{exponent(sizes, values):.2f}"]
        for name in rows[0]
        for values in ([row[name] for row in rows],)
    ]
    emit(table(["FIGURE", *(f"{size:,} {what.upper()}" for size in sizes), "EXPONENT"], shown))
