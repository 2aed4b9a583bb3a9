"""`allot bench gang`: batches that are placed whole or not at all, placed, undone and refused."""

import time
from collections.abc import Callable
from random import Random
from typing import Any

import click

from allotment.core.placement.gang import Short, Whole, WholeRanker, place_whole
from allotment.testing.churn import Churn, shapes
from allotment_board import NodeRanker
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_lab.bench.policies import PolicyWord, policy_of
from allotment_lab.bench.results import peak_rss_mib, publish, reporting, result, settle
from allotment_lab.percentiles import percentile
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import DeviceRequest, PodRequest, Selection

GIB = 1 << 30
HOPELESS = 1_000_000
"""More pods than any cluster of this bench holds."""


@click.command()
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(1, 200_000))
@click.option("--size", default=512, show_default=True, type=click.IntRange(2, 10_000))
@click.option("--cards", default=1, show_default=True, type=click.IntRange(1, 8))
@click.option("--gangs", default=20, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--policy", type=PolicyWord(), default="binpack", show_default=True)
@click.option("--seed", default=1, show_default=True)
@reporting
def gang(
    as_json: bool, save: Any, compare: Any, nodes: int, size: int, gangs: int, **plan: Any
) -> None:
    """Place a gang and give it back, again and again, on a cluster that is two thirds full."""
    random = Random(plan["seed"])
    note(f"filling {nodes} nodes × 8 cards …")
    churn = Churn(nodes, shapes(16, random), random, policy_of(plan["policy"]))
    settle()
    board = NodeRanker(churn.state)
    pods = _pods(size, _wanted(plan["cards"], 2048))
    board.begin()
    first = place_whole(pods, board)
    if not isinstance(first, Whole):
        raise CliError(f"only {first.together} of {size} pods fit together: take more nodes")
    board.undo(0)
    late = [*pods[:-1], *_pods(1, _taken_by_then(churn, first.placements[0]), "last")]
    placed, undone = [], []
    for _ in range(gangs):
        placed.append(_timed(lambda: _expect(Whole, pods, board)))
        undone.append(_timed(lambda: board.undo(0)))
    failed = [_timed(lambda: _expect(Short, late, board)) for _ in range(max(gangs // 4, 1))]
    refused = [_timed(lambda: _bound(pods[0], board)) for _ in range(gangs)]
    board.end()
    per_pod_us = sum(placed) / gangs / size
    found = result(
        "gang",
        {"nodes": nodes, "size": size, "gangs": gangs, **plan},
        rate_per_cpu_second=round(1e6 / per_pod_us),
        p50_us=percentile(sorted(placed), 50),
        p99_us=percentile(sorted(placed), 99),
        undo_us=percentile(sorted(undone), 50),
        failed_us=percentile(sorted(failed), 50),
        hopeless_us=percentile(sorted(refused), 50),
        rss_mib=peak_rss_mib(),
    )
    publish(found, as_json=as_json, save=save, compare=compare)


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
