"""What a run says of itself, on one line of JSON or in a table, and the mean of many runs."""

from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from allotment.core.policies.typical import CARD_MILLI
from allotment.testing.lab.engine import Totals
from allotment_cli.output import table
from allotment_cli.percentiles import percentile

Curve = list[tuple[float, float]]
"""(arrived %, allocated %) along a run."""


CPU_LEAST_S = 0.1
"""Less CPU time than this says nothing: processes are counted in hundredths of a second."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Percentages are of all cards of the cluster.

    Where pods come and go, `allocation_percent`, `unallocated_cards` and `fragmentation_percent`
    are means over the time in which pods arrive. `unallocated_cards` counts every part that nobody
    holds, `idle_cards` whole cards that nobody holds a part of, at the end. `refusals` counts each
    refused pod once, by the last obstacle on the node that came closest. Waits are those of the
    pods that were placed: how long the refused would have waited nobody knows.
    """

    policy: str
    seed: int
    through: str
    mode: str
    nodes: int
    cards: int
    arrived: int
    arrived_percent: float
    allocation_percent: float
    peak_allocation_percent: float
    unallocated_cards: float
    idle_cards: int
    fragmentation_percent: float
    placed: int
    refused: int
    refusals: dict[str, int]
    wait_p50_s: int | None
    wait_p99_s: int | None
    decisions: int
    decisions_per_cpu_second: int | None
    """None if too little was decided to tell."""
    trace_sha256: str


def report(
    totals: Totals, *, policy: str, seed: int, through: str, mode: str, nodes: int, cpu_s: float
) -> RunReport:
    """A run's totals in the units that people compare."""
    capacity = max(totals.capacity_milli, 1)
    waits = totals.waits_s if mode == "churn" else []

    def percent(milli: int) -> float:
        return round(100 * milli / capacity, 3)

    return RunReport(
        policy=policy,
        seed=seed,
        through=through,
        mode=mode,
        nodes=nodes,
        cards=totals.capacity_milli // CARD_MILLI,
        arrived=totals.arrived,
        arrived_percent=percent(totals.arrived_milli),
        allocation_percent=percent(totals.allocated_milli),
        peak_allocation_percent=percent(totals.peak_milli),
        unallocated_cards=(totals.capacity_milli - totals.allocated_milli) / CARD_MILLI,
        idle_cards=totals.idle_cards,
        fragmentation_percent=percent(totals.fragmented_milli),
        placed=totals.placed,
        refused=totals.refused,
        refusals=totals.refusals,
        wait_p50_s=percentile(waits, 50) if waits else None,
        wait_p99_s=percentile(waits, 99) if waits else None,
        decisions=totals.decisions,
        decisions_per_cpu_second=(
            round(totals.decisions / cpu_s) if cpu_s >= CPU_LEAST_S else None
        ),
        trace_sha256=totals.trace_sha256,
    )


def curve(totals: Totals) -> Curve:
    capacity = max(totals.capacity_milli, 1)
    return [(100 * x / capacity, 100 * y / capacity) for x, y in totals.curve]


def lines(reports: Sequence[RunReport]) -> list[str]:
    """One row a run, then what was refused and why."""
    first = reports[0]
    headers = ["POLICY", "SEED", "ARRIVED %", "ALLOCATED %", "UNALLOCATED CARDS", "IDLE CARDS"]
    headers += ["FRAGMENTED %", "PLACED", "REFUSED", "DECISIONS/CPU-S"]
    is_churn = first.mode == "churn"
    if is_churn:
        headers += ["PEAK %", "WAIT P50", "WAIT P99"]
    rows = [_row(found, is_churn) for found in reports]
    out = [f"{cluster(first)}; {_MODES[first.mode]}"]
    out += table(headers, rows, right=headers[1:])
    refused = [
        [found.policy, str(found.seed), reason, f"{pods:,}"]
        for found in reports
        for reason, pods in sorted(found.refusals.items(), key=lambda item: (-item[1], item[0]))
    ]
    if refused:
        out += ["", "refused, by the last obstacle:"]
        out += table(["POLICY", "SEED", "REASON", "PODS"], refused, right=["SEED", "PODS"])
    return out


_MODES = {
    "arrivals": "pods arrive one at a time and stay, one that does not fit is dropped",
    "churn": "pods come, wait and go; allocation and fragmentation are means over time, "
    "waits are those of placed pods",
}


def cluster(found: RunReport) -> str:
    """`1,523 nodes, 6,212 cards`."""
    return f"{_counted(found.nodes, 'node')}, {_counted(found.cards, 'card')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _row(found: RunReport, is_churn: bool) -> list[str]:
    row = [
        found.policy,
        str(found.seed),
        f"{found.arrived_percent:.2f}",
        f"{found.allocation_percent:.2f}",
        f"{found.unallocated_cards:,.1f}",
        f"{found.idle_cards:,}",
        f"{found.fragmentation_percent:.2f}",
        f"{found.placed:,}",
        f"{found.refused:,}",
        "" if (rate := found.decisions_per_cpu_second) is None else f"{rate:,}",
    ]
    if is_churn:
        row.append(f"{found.peak_allocation_percent:.2f}")
        row += [_seconds(found.wait_p50_s), _seconds(found.wait_p99_s)]
    return row


def _seconds(wait_s: int | None) -> str:
    return "" if wait_s is None else f"{wait_s:,} s"


def summary(reports: Sequence[RunReport]) -> list[str]:
    """Mean and spread (sample standard deviation) of each policy's runs."""
    rows = []
    for policy in dict.fromkeys(found.policy for found in reports):
        mine = [found for found in reports if found.policy == policy]
        allocated = [found.allocation_percent for found in mine]
        rows.append(
            [
                policy,
                f"{mine[0].seed}-{mine[-1].seed}",
                f"{fmean(allocated):.2f}",
                f"{stdev(allocated):.2f}",
                f"{min(allocated):.2f}",
                f"{max(allocated):.2f}",
                f"{fmean(found.unallocated_cards for found in mine):,.1f}",
                f"{fmean(found.fragmentation_percent for found in mine):.2f}",
                f"{fmean(found.refused for found in mine):,.0f}",
            ]
        )
    headers = ["POLICY", "SEEDS", "ALLOCATED %", "SPREAD", "LEAST", "MOST"]
    headers += ["UNALLOCATED CARDS", "FRAGMENTED %", "REFUSED"]
    return ["mean of the runs:", *table(headers, rows, right=headers[1:])]
