"""`allot bench gang`: batches that are placed whole or not at all, placed, undone and refused."""

import time
from collections.abc import Callable
from random import Random
from typing import Any

import click

from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.gang import Short, Whole, WholeRanker, place_whole
from allotment.testing.churn import Churn, shapes
from allotment_board import NodeRanker
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_lab.bench.policies import PolicyWord, policy_of
from allotment_lab.bench.report import (
    Report,
    peak_rss_mib,
    publish,
    reporting,
    settle,
)
from allotment_lab.bench.yardstick import placements
from allotment_lab.percentiles import percentile
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import DeviceRequest, PodRequest, Selection

GIB = 1 << 30
HOPELESS = 1_000_000
"""More pods than any cluster of this bench holds."""
ORACLE_PODS_MAX = 8


class GangReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench gang`. `rate_per_cpu_second` counts pods of gangs that were placed;
    p50 and p99 are a whole gang's."""

    policy: str
    seed: int
    size: int
    cards_per_pod: int = 1
    gangs: int
    undo_us: float
    """Giving one placed gang back, p50."""
    failed_us: float
    """A gang whose last pod finds no place: tried, given back, refused, p50."""
    hopeless_us: float
    """A gang that cannot fit, refused without a trial, p50."""


@click.command()
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(1, 200_000))
@click.option("--size", default=512, show_default=True, type=click.IntRange(2, 10_000))
@click.option("--cards", default=1, show_default=True, type=click.IntRange(1, 8))
@click.option("--gangs", default=20, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--policy", type=PolicyWord(), default="binpack", show_default=True)
@click.option("--seed", default=1, show_default=True)
@reporting
def gang(nodes: int, size: int, cards: int, gangs: int, policy: str, seed: int, **out: Any) -> None:
    """Place a gang and give it back, again and again, on a cluster that is two thirds full.

    The oracle places the first few pods of the same gang by asking every node.
    """
    random = Random(seed)
    note(f"filling {nodes} nodes × 8 cards …")
    churn = Churn(nodes, shapes(16, random), random, policy_of(policy))
    settle()
    board = NodeRanker(churn.state)
    pods = _pods(size, _wanted(cards, 2048))
    board.begin()
    first = place_whole(pods, board)
    if not isinstance(first, Whole):
        raise CliError(f"only {first.together} of {size} pods fit together: take more nodes")
    board.undo(0)
    late = [*pods[:-1], *_pods(1, _taken_by_then(churn, first.placements[0]), "last")]
    looks = placements(nodes, cards=8, shapes=1)
    placed, undone = [], []
    for _ in range(gangs):
        placed.append(_timed(lambda: _expect(Whole, pods, board)))
        undone.append(_timed(lambda: board.undo(0)))
    failed = [_timed(lambda: _expect(Short, late, board)) for _ in range(max(gangs // 4, 1))]
    refused = [_timed(lambda: _bound(pods[0], board)) for _ in range(gangs)]
    board.end()
    oracle_us = _oracle_us(churn, pods[:ORACLE_PODS_MAX])
    per_pod_us = sum(placed) / gangs / size
    yardstick = looks.taken()
    report = GangReport(
        bench="gang",
        nodes=nodes,
        shapes=1,
        policy=policy,
        seed=seed,
        size=size,
        cards_per_pod=cards,
        gangs=gangs,
        rate_per_cpu_second=round(1e6 / per_pod_us),
        ratio_to_oracle=round(oracle_us / per_pod_us, 1),
        p50_us=percentile(sorted(placed), 50),
        p99_us=percentile(sorted(placed), 99),
        undo_us=percentile(sorted(undone), 50),
        failed_us=percentile(sorted(failed), 50),
        hopeless_us=percentile(sorted(refused), 50),
        rss_mib={"core": peak_rss_mib()},
        yardstick=yardstick,
        ratio_to_yardstick=round(1e6 / per_pod_us / yardstick.rate, 3),
    )
    publish(report, f"gang: {size} pods × {cards} cards, {nodes} nodes", _rows(report), **out)


def _wanted(cards: int, memory_mib: int) -> PodRequest:
    return PodRequest(
        cpu_milli=500,
        memory_bytes=GIB,
        devices=(DeviceRequest("vgpu", 0, "main", cards, memory_mib, 0, 0),),
    )


def _taken_by_then(churn: Churn, placement: Placement) -> PodRequest:
    """A request for all that is free now of the very card that a placement will take first."""
    held = placement.holdings[0]
    card = churn.state.nodes[placement.node].ledgers[held.family].by_id[held.card]
    return PodRequest(
        devices=(DeviceRequest("vgpu", 0, "main", 1, card.free_memory_mib, 0, 0),),
        selection=Selection(use_ids=(held.card,)),
    )


def _pods(count: int, request: PodRequest, name: str = "member") -> list[PodObserved]:
    return [
        PodObserved(
            uid=f"{name}-{number}",
            namespace="bench",
            name=f"{name}-{number}",
            rv=1,
            created_ms=number,
            scheduler="allotment",
            phase="Pending",
            request=request,
        )
        for number in range(count)
    ]


def _expect(kind: type[Whole | Short], pods: list[PodObserved], ranker: WholeRanker) -> None:
    found = place_whole(pods, ranker)
    if not isinstance(found, kind):
        raise CliError(
            f"a gang of {len(pods)} was expected to be {kind.__name__.lower()} and is "
            f"{type(found).__name__.lower()}: take more nodes or a smaller --size"
        )


def _bound(pod: PodObserved, board: NodeRanker) -> None:
    most = board.holds_at_most(pod.request, HOPELESS)
    if not 0 < most < HOPELESS:
        raise CliError(f"{most} pods fit at most: this would not measure a refusal")


def _timed(call: Callable[[], None]) -> float:
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / 1000


def _oracle_us(churn: Churn, pods: list[PodObserved]) -> float:
    """CPU µs a pod, when every node is asked for every pod."""

    def place_some() -> None:
        for pod in pods:
            evaluator = Evaluator(churn.state)
            evaluator.begin()
            _expect(Whole, [pod], evaluator)

    return _timed(place_some) / len(pods)


def _rows(report: GangReport) -> list[tuple[str, str]]:
    return [
        ("pods placed per CPU-second", f"{report.rate_per_cpu_second:,}"),
        ("ratio to the oracle", f"{report.ratio_to_oracle:,}"),
        ("a gang placed, p50, p99 (CPU)", f"{_ms(report.p50_us)}, {_ms(report.p99_us)}"),
        ("given back", _ms(report.undo_us)),
        ("tried, failed at the last pod, given back", _ms(report.failed_us)),
        ("hopeless, refused without a trial", _ms(report.hopeless_us)),
        ("memory, peak", f"{report.rss_mib['core']} MiB"),
    ]


def _ms(us: float) -> str:
    return f"{us / 1000:.1f} ms"
