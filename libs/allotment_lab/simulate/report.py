"""What a run says of itself."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from allotment.core.placement.policies.typical import CARD_MILLI
from allotment_lab.engine import Totals
from allotment_lab.percentiles import percentile

Curve = list[tuple[float, float]]
"""(arrived %, allocated %) along a run; where pods come and go (second, allocated %)."""


CPU_LEAST_S = 0.1
"""Less CPU time than this says nothing: processes are counted in hundredths of a second."""


Starts = Mapping[str, tuple[str, int | None]]
"""By uid a pod's name and how many seconds it waited for its place, None if it never had one."""


class Ran(NamedTuple):
    """What came of one run."""

    report: "RunReport"
    curve: Curve
    starts: Starts


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Percentages are of all cards of the cluster, and are rounded only where shown.

    Where pods come and go, `allocation_percent`, `unallocated_cards`, `idle_cards` and
    `fragmentation_percent` are means over the time in which pods arrive, otherwise values at
    the end. `unallocated_cards` counts every free part, `idle_cards` whole cards without
    holders. `evicted` pods made room for others. `refusals` counts each
    refused pod once, by the last obstacle on the node that came closest. Waits are those of the
    pods that were placed: how long the refused would have waited is unknown.
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
    evicted: int
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
        return 100 * milli / capacity

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
        evicted=totals.evicted,
        decisions=totals.decisions,
        decisions_per_cpu_second=(
            round(totals.decisions / cpu_s) if cpu_s >= CPU_LEAST_S else None
        ),
        trace_sha256=totals.trace_sha256,
    )


def curve(totals: Totals, *, over_time: bool = False) -> Curve:
    capacity = max(totals.capacity_milli, 1)
    start_s = totals.curve[0][2] if totals.curve else 0
    return [
        (at_s - start_s if over_time else 100 * arrived / capacity, 100 * allocated / capacity)
        for arrived, allocated, at_s in totals.curve
    ]
