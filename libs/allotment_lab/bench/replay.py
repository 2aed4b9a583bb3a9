"""`allot bench replay`: a long log folded, and a start from a snapshot.

The records go through the codec and live in memory: reading them from NATS costs the same for both
and is not what is measured here. The snapshot is read from a file. As in a service there is no
garbage collection during a fold. Seconds are CPU seconds.
"""

import gc
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import anyio
import click

from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.adapters.service.heap import freeze_heap
from allotment.core.errors import AllotError
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_cli.show.output import note
from allotment_lab.bench.results import peak_rss_mib, publish, reporting, result
from allotment_lab.bench.worlds.long_log import Entry, LongLog
from allotment_lab.percentiles import percentile
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope

MIB = 1 << 20
T = TypeVar("T")


@click.command()
@click.option("--events", default=200_000, show_default=True, type=click.IntRange(2_000))
@click.option("--nodes", default=2_000, show_default=True, type=click.IntRange(10, 100_000))
@click.option("--live", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--tail", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@reporting
def replay(as_json: bool, save: Any, compare: Any, **plan: int) -> None:
    """Rebuild who holds what from a log of EVENTS, and start a service on it.

    Pods come until --live are there, then one goes for each that comes. The snapshot lies --tail
    events before the end. The full size: --events 1000000 --nodes 10000 --live 100000.
    """
    events, tail = plan["events"], plan["tail"]
    made = LongLog(plan["nodes"], plan["live"], Random(plan["seed"]), shapes=16)
    note(f"making a log of {events:,} events …")
    try:
        before = list(made.entries(max(events - tail, 1)))
        entries = before + list(made.entries(min(tail, events)))
    except ValueError as error:
        raise AllotError(str(error)) from error
    freeze_heap()
    note("folding …")
    latencies_us: list[float] = []
    fold_s, state = timed(lambda: folded(ClusterState(), entries, 0, latencies_us))
    latencies_us.sort()
    if wrong := check(state) or without_place(state, made.placed - made.gone):
        raise AllotError(f"the fold's state is wrong: {wrong[0]}")
    digest = hashlib.sha256(snapshot.encode(state)).hexdigest()
    del state
    note("starting from a snapshot …")
    then = folded(ClusterState(), before, 0)
    write_s, image = timed(lambda: snapshot.encode(then))
    with TemporaryDirectory(prefix="allot-bench-") as directory:
        start_s, restarted = anyio.run(restart, Path(directory), entries, len(before), image)
    if hashlib.sha256(snapshot.encode(restarted)).hexdigest() != digest:
        raise AllotError("a start from a snapshot and one from nothing ended in different states")
    found = result(
        "replay",
        plan,
        rate_per_cpu_second=round((made.placed + made.gone) / fold_s),
        p50_us=percentile(latencies_us, 50),
        p99_us=percentile(latencies_us, 99),
        fold_events_per_cpu_second=round(len(entries) / fold_s),
        start_seconds=round(fold_s, 2),
        start_with_snapshot_seconds=round(start_s, 2),
        events=len(entries),
        tail_events=len(entries) - len(before),
        log_mib=sum(len(entry.payload) for entry in entries) // MIB,
        live_pods=made.placed - made.gone,
        allocations=made.placed,
        releases=made.gone,
        snapshot_mib=round(len(image) / MIB, 1),
        snapshot_write_seconds=round(write_s, 2),
        state_sha256=digest,
        rss_mib=peak_rss_mib(),
    )
    publish(found, as_json=as_json, save=save, compare=compare)


def without_place(state: ClusterState, placed: int) -> list[str]:
    """What is wrong unless so many pods exist, each with an allocation; empty if they do."""
    holding = sum(pod.allocation is not None for pod in state.pods.values())
    if holding == len(state.pods) == placed:
        return []
    return [
        f"the log that was made gives places to {placed:,} pods that have not ended; folded, it "
        f"has {len(state.pods):,} pods, and {holding:,} of them hold a place"
    ]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of some work without the garbage collector, and its result."""
    start = time.process_time()
    gc.disable()
    try:
        done = work()
    finally:
        gc.enable()
    return time.process_time() - start, done


def folded(
    state: ClusterState,
    entries: Sequence[Entry],
    after: int,
    latencies_us: list[float] | None = None,
) -> ClusterState:
    """The state with everything after the record `after`."""
    for seq, entry in enumerate(entries[after:], start=after + 1):
        start = time.thread_time_ns()
        envelope = decode_envelope(entry.payload)
        apply_all(state, envelope.events, seq, is_decision=entry.subject == subjects.DECISION)
        if latencies_us is not None:
            latencies_us.append((time.thread_time_ns() - start) / 1000)
    return state


async def restart(
    directory: Path, entries: Sequence[Entry], cut: int, image: bytes
) -> tuple[float, ClusterState]:
    """CPU seconds to load a snapshot of `cut` as a service does, fold the rest and check the state;
    and the state.
    """
    store = SnapshotDirectory(directory, log_identity="bench")

    async def digest_at(seq: int) -> str:
        return hashlib.sha256(entries[seq - 1].payload).hexdigest()

    await store.save(cut, image, await digest_at(cut))
    start = time.process_time()
    loaded = await store.load(len(entries), digest_at)
    if loaded is None:
        raise AllotError(f"the snapshot that was just written is ignored: {store.ignored}")
    seq, kept = loaded
    load_s = time.process_time() - start

    def fold() -> tuple[ClusterState, list[str]]:
        state = folded(snapshot.decode(kept), entries, seq)
        return state, check(state)

    fold_s, (state, wrong) = timed(fold)
    if wrong:
        raise AllotError(f"the state of a start from a snapshot is wrong: {wrong[0]}")
    return load_s + fold_s, state
