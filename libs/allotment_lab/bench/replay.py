"""`allot bench replay`: a long log folded, and a start from a snapshot.

The records go through the codec and live in memory: reading them from NATS costs the same for every
road and is not what is measured here. The snapshot is read from a file.
"""

import hashlib
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import click

from allotment.adapters.service.heap import freeze_heap
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.testing.long_log import LongLog
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_lab.bench.replay_roads import (
    decoded,
    folded,
    kept_at,
    restarted,
    timed,
)
from allotment_lab.bench.report import (
    Report,
    peak_rss_mib,
    publish,
    reporting,
)
from allotment_lab.bench.yardstick import records
from allotment_lab.percentiles import percentile

MIB = 1 << 20


class ReplayReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench replay`. Seconds are CPU seconds.

    `rate_per_cpu_second` counts changes of the books in the fold: an allocation that was booked, or
    released; percentiles are of one record, decoded and folded. `ratio_to_oracle` is how much
    faster a start with a snapshot is than one without.
    """

    seed: int
    events: int
    records: int
    log_mib: int
    live_pods: int
    allocations: int
    releases: int
    allocations_per_cpu_second: int
    fold_events_per_cpu_second: int
    tail_events: int
    start_seconds: float
    start_with_snapshot_seconds: float
    snapshot_mib: float
    snapshot_write_seconds: float
    state_sha256: str


def without_place(state: ClusterState, placed: int) -> str:
    """What is wrong unless so many pods are there, each with its place; empty if they are."""
    holding = sum(pod.allocation is not None for pod in state.pods.values())
    if holding == len(state.pods) == placed:
        return ""
    return (
        f"the log that was made gives places to {placed:,} pods that have not ended; folded, it "
        f"has {len(state.pods):,} pods, and {holding:,} of them hold a place"
    )


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
    freeze_heap()
    note("folding …")
    reading_s = decoded(entries)
    latencies_us: list[float] = []
    looks = records()
    fold_s, state = timed(lambda: folded(None, entries, 0, latencies_us))
    looks.look()
    latencies_us.sort()
    if wrong := check(state):
        raise CliError(f"the fold's books do not balance: {wrong[0]}")
    if lost := without_place(state, made.placed - made.gone):
        raise CliError(lost)
    digest = hashlib.sha256(snapshot.encode(state)).hexdigest()
    del state
    note("starting from a snapshot …")
    kept = kept_at(entries, len(before))
    changes = made.placed + made.gone
    with TemporaryDirectory(prefix="allot-bench-") as directory:
        restart = anyio.run(restarted, Path(directory), entries, len(before), kept.image)
    if restart.digest != digest:
        raise CliError("a start from a snapshot and one from nothing ended in different states")
    yardstick = looks.taken()
    rate = changes / fold_s
    report = ReplayReport(
        bench="replay",
        nodes=nodes,
        shapes=16,
        seed=seed,
        rate_per_cpu_second=round(rate),
        ratio_to_oracle=round(fold_s / restart.start, 2),
        p50_us=percentile(latencies_us, 50),
        p99_us=percentile(latencies_us, 99),
        cpu_us={
            name: round(seconds * 1e6 / made.events, 2)
            for name, seconds in (
                ("fold per event", fold_s),
                ("fold decode per event", reading_s),
            )
        },
        rss_mib={"bench": peak_rss_mib()},
        yardstick=yardstick,
        ratio_to_yardstick=round(rate / yardstick.rate, 3),
        events=made.events,
        records=len(entries),
        log_mib=sum(len(entry.payload) for entry in entries) // MIB,
        live_pods=made.placed - made.gone,
        allocations=made.placed,
        releases=made.gone,
        allocations_per_cpu_second=round(made.placed / fold_s),
        fold_events_per_cpu_second=round(made.events / fold_s),
        tail_events=sum(entry.events for entry in entries[len(before) :]),
        start_seconds=round(fold_s, 2),
        start_with_snapshot_seconds=round(restart.start, 2),
        snapshot_mib=round(len(kept.image) / MIB, 1),
        snapshot_write_seconds=round(kept.seconds, 2),
        state_sha256=digest,
    )
    title = f"replay: {made.events:,} events, {nodes:,} nodes × 8 cards, {live:,} pods alive"
    publish(report, title, _rows(report), **out)


def _rows(report: ReplayReport) -> list[tuple[str, str]]:
    return [
        ("log", f"{report.records:,} records, {report.log_mib:,} MiB"),
        ("fold: bookings and releases per CPU-second", f"{report.rate_per_cpu_second:,}"),
        ("fold: allocations per CPU-second", f"{report.allocations_per_cpu_second:,}"),
        ("fold: events per CPU-second", f"{report.fold_events_per_cpu_second:,}"),
        ("start with a snapshot against one without", f"{report.ratio_to_oracle:,} ×"),
        (
            "decoding, of an event folded",
            f"{report.cpu_us['fold decode per event']} of {report.cpu_us['fold per event']} µs",
        ),
        ("start without a snapshot", f"{report.start_seconds} CPU-s"),
        (
            f"start with one, {report.tail_events:,} events behind",
            f"{report.start_with_snapshot_seconds} CPU-s",
        ),
        ("snapshot", f"{report.snapshot_mib} MiB, {report.snapshot_write_seconds} CPU-s to encode"),
        ("memory, peak", f"{report.rss_mib['bench']:,} MiB"),
    ]
