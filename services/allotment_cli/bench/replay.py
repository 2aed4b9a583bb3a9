"""`allot bench replay`: a long log rebuilt in bulk and folded; starts with and without snapshot.

The records go through the codec and live in memory: reading them from NATS costs the same for every
road and is not what is measured here.
"""

import functools
import gc
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import anyio
import click

from allotment.adapters.snapshots import SnapshotDirectory
from allotment.core import snapshot
from allotment.core.bulk import Books, Picture, picture_of
from allotment.core.check import check
from allotment.core.state import ClusterState, apply_all
from allotment.testing.long_log import Entry, LongLog
from allotment_cli.bench.report import (
    REFERENCE_NS,
    Report,
    loop_ns,
    peak_rss_mib,
    percentile,
    publish,
    reporting,
)
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope

LOG = "bench"

T = TypeVar("T")


class ReplayReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench replay`. Seconds are CPU seconds.

    `rate_per_cpu_second` counts changes of the books in the bulk road: an allocation that was
    booked, or released; percentiles are of one record in the bulk road. `ratio_to_oracle` is the
    bulk road's speed against the ordinary fold's.
    """

    seed: int
    events: int
    records: int
    log_mib: int
    live_pods: int
    allocations: int
    releases: int
    allocations_per_cpu_second: int
    bulk_events_per_cpu_second: int
    fold_events_per_cpu_second: int
    tail_events: int
    start_seconds: float
    start_with_snapshot_seconds: float
    start_with_snapshot_seconds_at_reference: float
    snapshot_mib: float
    snapshot_write_seconds: float
    state_sha256: str


class _Timed(NamedTuple):
    """CPU seconds, and the time of an empty loop's turn just before and after."""

    seconds: float
    loop_ns: float


@click.command()
@click.option("--events", default=200_000, show_default=True, type=click.IntRange(2_000))
@click.option("--nodes", default=2_000, show_default=True, type=click.IntRange(10, 100_000))
@click.option("--live", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--tail", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@reporting
def replay(events: int, nodes: int, live: int, tail: int, seed: int, **out: Any) -> None:
    """Rebuild who holds what from a log of EVENTS, and start a service on it.

    Pods come until --live are there, then one goes for each that comes. The snapshot lies --tail
    events before the end. The full size: --events 1000000 --nodes 10000 --live 100000.
    """
    made = LongLog(nodes, live, Random(seed), shapes=16)
    note(f"making a log of {events:,} events …")
    try:
        before = list(made.entries(max(events - tail, 1)))
        entries = before + list(made.entries(min(tail, events)))
    except ValueError as error:
        raise CliError(str(error)) from error
    gc.collect()
    gc.freeze()
    note("rebuilding in bulk …")
    latencies_us: list[float] = []
    bulk, picture = _timed(lambda: _rebuild(entries, made, latencies_us))
    latencies_us.sort()
    note("folding …")
    fold, state = _timed(lambda: _folded(None, entries, 0))
    _assert_same(picture, state)
    digest = hashlib.sha256(snapshot.encode(state)).hexdigest()
    del picture, state
    with TemporaryDirectory(prefix="allot-bench-") as directory:
        note("starting from a snapshot …")
        restart = anyio.run(_restart, Path(directory), entries, len(before))
    if restart.digest != digest:
        raise CliError("a start from a snapshot and one from nothing ended in different states")
    changes = made.placed + made.gone
    slow = (bulk.loop_ns + fold.loop_ns + restart.start.loop_ns) / 3 / REFERENCE_NS
    report = ReplayReport(
        bench="replay",
        nodes=nodes,
        shapes=16,
        seed=seed,
        rate_per_cpu_second=round(changes / bulk.seconds),
        ratio_to_oracle=round(fold.seconds / bulk.seconds, 2),
        p50_us=percentile(latencies_us, 50),
        p99_us=percentile(latencies_us, 99),
        cpu_us={
            "bulk per event": round(bulk.seconds * 1e6 / made.events, 2),
            "fold per event": round(fold.seconds * 1e6 / made.events, 2),
        },
        rss_mib={"bench": peak_rss_mib()},
        calibration_ns=round(slow * REFERENCE_NS, 1),
        events=made.events,
        records=len(entries),
        log_mib=sum(len(entry.payload) for entry in entries) >> 20,
        live_pods=made.placed - made.gone,
        allocations=made.placed,
        releases=made.gone,
        allocations_per_cpu_second=round(made.placed / bulk.seconds),
        bulk_events_per_cpu_second=round(made.events / bulk.seconds),
        fold_events_per_cpu_second=round(made.events / fold.seconds),
        tail_events=sum(entry.events for entry in entries[len(before) :]),
        start_seconds=round(fold.seconds, 2),
        start_with_snapshot_seconds=round(restart.start.seconds, 2),
        start_with_snapshot_seconds_at_reference=round(
            restart.start.seconds * REFERENCE_NS / restart.start.loop_ns, 2
        ),
        snapshot_mib=round(restart.bytes / (1 << 20), 1),
        snapshot_write_seconds=round(restart.write.seconds, 2),
        state_sha256=digest,
    )
    title = f"replay: {made.events:,} events, {nodes:,} nodes × 8 cards, {live:,} pods alive"
    publish(report, title, _rows(report), **out)


def _timed(work: Callable[[], T]) -> tuple[_Timed, T]:
    """As a service does it: no garbage collection until all is folded."""
    loop, start = loop_ns(), time.process_time()
    gc.disable()
    try:
        result = work()
    finally:
        gc.enable()
    return _Timed(time.process_time() - start, (loop + loop_ns()) / 2), result


def _rebuild(entries: list[Entry], made: LongLog, latencies_us: list[float]) -> Picture:
    books = Books()
    for seq, entry in enumerate(entries, start=1):
        start = time.thread_time_ns()
        books.take(seq, entry.payload)
        latencies_us.append((time.thread_time_ns() - start) / 1000)
    if (books.booked, books.released) != (made.placed, made.gone):
        raise CliError(
            f"{made.placed} pods were placed and {made.gone} ended, but {books.booked} were "
            f"booked and {books.released} released"
        )
    return books.picture()


def _folded(state: ClusterState | None, entries: list[Entry], after: int) -> ClusterState:
    """Everything after the record `after`, on top of a state or of nothing."""
    state = state or ClusterState()
    for seq, entry in enumerate(entries[after:], start=after + 1):
        envelope = decode_envelope(entry.payload)
        apply_all(state, envelope.events, seq, is_decision=entry.subject == subjects.DECISION)
    return state


def _assert_same(picture: Picture, state: ClusterState) -> None:
    if wrong := check(state):
        raise CliError(f"the fold's books do not balance: {wrong[0]}")
    if picture != picture_of(state):
        raise CliError("the bulk road and the fold disagree about who holds what")


class _Restart(NamedTuple):
    start: _Timed
    write: _Timed
    bytes: int
    digest: str


async def _restart(directory: Path, entries: list[Entry], cut: int) -> _Restart:
    """Write a snapshot at `cut`, load it as a service does, fold the tail, check the books."""
    store = SnapshotDirectory(directory, log_identity=LOG)
    write, image = _timed(functools.partial(snapshot.encode, _folded(None, entries[:cut], 0)))
    await store.save(cut, image)
    loop, start = loop_ns(), time.process_time()
    gc.disable()
    found = await store.load(len(entries))
    if found is None:
        raise CliError(f"the snapshot that was just written is passed over: {store.ignored}")
    started = _folded(snapshot.decode(found[1]), entries, found[0])
    wrong = check(started)
    gc.enable()
    took = _Timed(time.process_time() - start, (loop + loop_ns()) / 2)
    if wrong:
        raise CliError(f"the books of a start from a snapshot do not balance: {wrong[0]}")
    digest = hashlib.sha256(snapshot.encode(started)).hexdigest()
    return _Restart(took, write, len(image), digest)


def _rows(report: ReplayReport) -> list[tuple[str, str]]:
    return [
        ("log", f"{report.records:,} records, {report.log_mib:,} MiB"),
        ("bulk: bookings and releases per CPU-second", f"{report.rate_per_cpu_second:,}"),
        ("bulk: allocations per CPU-second", f"{report.allocations_per_cpu_second:,}"),
        ("bulk: events per CPU-second", f"{report.bulk_events_per_cpu_second:,}"),
        ("fold: events per CPU-second", f"{report.fold_events_per_cpu_second:,}"),
        ("bulk against fold", f"{report.ratio_to_oracle:,} ×"),
        ("start without a snapshot", f"{report.start_seconds} CPU-s"),
        (
            f"start with one, {report.tail_events:,} events behind",
            f"{report.start_with_snapshot_seconds} CPU-s",
        ),
        (
            f"the same where a loop's turn takes {REFERENCE_NS:.0f} ns",
            f"{report.start_with_snapshot_seconds_at_reference} CPU-s",
        ),
        ("snapshot", f"{report.snapshot_mib} MiB, {report.snapshot_write_seconds} CPU-s to encode"),
        ("memory, peak", f"{report.rss_mib['bench']:,} MiB"),
        ("one turn of an empty loop, meanwhile", f"{report.calibration_ns} ns"),
    ]
