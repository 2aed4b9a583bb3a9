"""One point of `allot bench growth`: a log folded as it is made, with as many pods alive all along.

    python -m allotment_cli.bench.growth_log EVENTS NODES LIVE SEED     prints its report

No record is kept, so that the memory of this process is that of the state (and of the maker of the
log, which knows the pods alive and nothing else), however long the log is.
"""

import gc
import sys
import time
from collections.abc import Iterable
from random import Random

import msgspec

from allotment.adapters.service.heap import uncollected
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.state import ClusterState, apply_all
from allotment.testing.long_log import ROUND_PODS, Entry, LongLog
from allotment_cli.bench import speed
from allotment_cli.bench.report import Report, peak_rss_mib
from allotment_cli.errors import CliError
from allotment_cli.percentiles import percentile
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope

SHAPES = 16
EVENTS_PER_POD = 3
"""Arrival, Binding, seen running: what a pod costs while none has to go for it."""


class LogReport(Report, frozen=True, kw_only=True):
    """A log of `size` events, the first of which fill the cluster and are not timed.

    `rate_per_cpu_second` counts events, decoded and folded; percentiles are of one record
    (up to 500 facts, or a decision on 250 pods).
    """

    size: int
    live_pods: int
    seed: int
    events_timed: int
    snapshot_kib: int
    """The state at the end, encoded: its size whatever Python keeps around it."""


def filled_by(nodes: int, live: int) -> int:
    """How many events come before every pod's arrival is another one's end."""
    return nodes + EVENTS_PER_POD * (live + ROUND_PODS)


def measure(events: int, nodes: int, live: int, seed: int) -> LogReport:
    """Raises CliError if the log is too short, the cluster too small, or the books wrong."""
    speed.begin()
    full = filled_by(nodes, live)
    if events <= full + ROUND_PODS:
        raise CliError(
            f"a log of {events:,} events: {nodes:,} nodes and {live:,} pods alone are {full:,}; "
            "take longer logs, fewer nodes or fewer pods"
        )
    made = LongLog(nodes, live, Random(seed), shapes=SHAPES)
    state = ClusterState()
    per_record_us: list[float] = []
    try:
        _fold(state, made.entries(full), per_record_us)
        gc.collect()
        gc.freeze()
        per_record_us.clear()
        first = made.events
        took_us = _fold(state, made.entries(events - first), per_record_us)
    except ValueError as error:
        raise CliError(str(error)) from error
    if wrong := check(state):
        raise CliError(f"the books do not balance: {wrong[0]}")
    if len(state.pods) != made.placed - made.gone:
        raise CliError(f"{made.placed - made.gone} pods are alive, the state has {len(state.pods)}")
    per_record_us.sort()
    timed = made.events - first
    rss_mib = peak_rss_mib()
    return LogReport(
        bench="log",
        nodes=nodes,
        shapes=SHAPES,
        size=events,
        live_pods=len(state.pods),
        seed=seed,
        events_timed=timed,
        rate_per_cpu_second=round(timed / took_us * 1e6),
        p50_us=round(percentile(per_record_us, 50), 2),
        p99_us=round(percentile(per_record_us, 99), 2),
        cpu_us={"decode and fold": round(took_us / timed, 2)},
        rss_mib={"fold": rss_mib},
        calibration_ns=speed.calibrate_ns(),
        calibration_change_percent=speed.change_percent(),
        snapshot_kib=len(snapshot.encode(state)) >> 10,
    )


def _fold(state: ClusterState, entries: Iterable[Entry], per_record_us: list[float]) -> float:
    """CPU µs of decoding and folding alone; the log is made meanwhile and not counted."""
    total_us = 0.0
    with uncollected():
        for entry in entries:
            start = time.thread_time_ns()
            envelope = decode_envelope(entry.payload)
            is_decision = entry.subject == subjects.DECISION
            apply_all(state, envelope.events, state.seq + 1, is_decision=is_decision)
            took_us = (time.thread_time_ns() - start) / 1000
            total_us += took_us
            per_record_us.append(took_us)
    return total_us


if __name__ == "__main__":
    try:
        print(msgspec.json.encode(measure(*map(int, sys.argv[1:5]))).decode())
    except CliError as failed:
        print(failed.format_message(), file=sys.stderr)
        raise SystemExit(2) from None
