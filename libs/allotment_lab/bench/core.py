"""`allot bench core`: how fast one core decides, and how much faster than asking every node."""

import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

import click
import msgspec

from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import REQUESTS_MAX, Evaluator
from allotment.core.placement.policies.learning import learn
from allotment.testing.churn import DEFAULT_QUEUE, DEVICES, Churn, shapes
from allotment_board import NodeRanker
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_cli.params import Finite
from allotment_lab.bench.policies import PolicyWord, policy_of
from allotment_lab.bench.report import (
    Report,
    peak_rss_mib,
    publish,
    reporting,
    settle,
)
from allotment_lab.bench.yardstick import Yardstick, placements
from allotment_lab.percentiles import percentile
from allotment_proto.facts import PodRequest, Policy

PLACED_MIN = 0.6
WARM_UP_PER_SHAPE = 20
"""So many decisions a shape go before: the first of each looks at every node, once."""
DEFAULT_SHAPES = 16
STEPS_AT_A_TIME = 8
"""One decision of so many is timed by itself: the clocks cost a twentieth of a decision that is no
round over queues."""
CARD_MIB = 81_920
"""The usual card of the bench's clusters, for what a request is worth."""


class CoreReport(Report, frozen=True, kw_only=True):
    """One run of `allot bench core`."""

    cards_per_node: int
    devices: str = DEVICES[0]
    policy: str
    queue: str
    """The queue of all pods; empty: there are no queues."""
    seed: int
    decisions: int
    placed_percent: float
    oracle_rate_per_cpu_second: float
    cold_us: float | None = None
    """CPU time of a request's first ranking, at which every node is scored: the median over shapes.
    None in reports from before it was taken."""


class _Run(msgspec.Struct, frozen=True):
    decisions: int
    placed: int
    seconds: float
    latencies_us: list[int]


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1, 200_000))
@click.option(
    "--shapes",
    "shape_count",
    default=16,
    show_default=True,
    type=click.IntRange(0, REQUESTS_MAX),
    help="Different requests; 0: no two pods ask for the same.",
)
@click.option("--cards", default=8, show_default=True, type=click.IntRange(1, 64), help="A node.")
@click.option(
    "--devices",
    type=click.Choice(DEVICES),
    default=DEVICES[0],
    show_default=True,
    help="Shares, MIG instances cut on demand, or Ascend templates.",
)
@click.option("--policy", type=PolicyWord(), default="binpack", show_default=True)
@click.option(
    "--queue/--no-queue",
    default=True,
    show_default=True,
    help="All pods are in a queue `default`, as in every cluster with Volcano's definitions.",
)
@click.option("--seconds", default=5.0, show_default=True, type=Finite(0.1, 600))
@click.option("--seed", default=1, show_default=True)
@reporting
def core(
    nodes: int,
    shape_count: int,
    cards: int,
    devices: str,
    policy: str,
    queue: bool,
    seconds: float,
    seed: int,
    **out: Any,
) -> None:
    """One process, one core: end a pod, decide a pod, on a cluster that is two thirds full.

    The oracle (every node asked for every decision) runs on the same cluster in the same process.
    """
    random = Random(seed)
    note(f"filling {nodes} nodes × {cards} cards …")
    wanted = shapes(shape_count or DEFAULT_SHAPES, random, most_cards=cards, devices=devices)
    churn = Churn(
        nodes,
        wanted,
        random,
        _with_mix(policy_of(policy), wanted),
        cards_per_node=cards,
        devices=devices,
        is_each_its_own=shape_count == 0,
        has_queue=queue,
    )
    settle()
    board = NodeRanker(churn.state)
    cold_us = _first_rankings_us(board, wanted)
    decide = churn.decider(board)
    _run(churn, decide, seconds / 5, WARM_UP_PER_SHAPE * shape_count)
    looks = placements(nodes, cards, shape_count or DEFAULT_SHAPES)
    measured = _run(churn, decide, seconds, at_a_time=1 if queue else STEPS_AT_A_TIME)
    yardstick = looks.taken()
    note("asking every node …")
    oracle = _run(churn, _every_node(churn), seconds / 5, at_a_time=1)
    if measured.placed < PLACED_MIN * measured.decisions:
        raise CliError(
            f"only {measured.placed} of {measured.decisions} pods found a place: this would "
            "measure refusals; take fewer shapes or more nodes"
        )
    report = _report(
        measured,
        oracle,
        yardstick,
        cold_us,
        nodes=nodes,
        shapes=shape_count,
        cards_per_node=cards,
        devices=devices,
        policy=policy,
        queue=DEFAULT_QUEUE if queue else "",
        seed=seed,
    )
    title = (
        f"core: {nodes} nodes × {cards} cards ({devices}), "
        f"{shape_count or 'all different'} shapes, {policy}, queue {report.queue or 'none'}"
    )
    publish(report, title, _rows(report), **out)


def _with_mix(policy: Policy, wanted: list[PodRequest]) -> Policy:
    """The policy with what it would have learned of these pods."""
    mix = learn(policy.device_policy, dict.fromkeys(wanted, 1), CARD_MIB)
    return msgspec.structs.replace(policy, mix=mix)


def _first_rankings_us(board: NodeRanker, wanted: list[PodRequest]) -> float:
    """The median CPU time of ranking all nodes for a request that was never asked for before."""
    took: list[int] = []
    board.begin()
    for request in wanted:
        start = time.thread_time_ns()
        board.rank(request)
        took.append(time.thread_time_ns() - start)
    board.end()
    return statistics.median(took) / 1000


def _every_node(churn: Churn) -> Callable[[str], Outcome]:
    """A decision that remembers nothing: the plain loops, made anew each time."""
    return lambda uid: churn.decider(Evaluator(churn.state))(uid)


def _run(
    churn: Churn,
    decide: Callable[[str], Outcome],
    seconds: float,
    decisions_min: int = 1,
    at_a_time: int = STEPS_AT_A_TIME,
) -> _Run:
    latencies: list[int] = []

    def timed(uid: str) -> Outcome:
        start = time.thread_time_ns()
        outcome = decide(uid)
        latencies.append((time.thread_time_ns() - start) // 1000)
        return outcome

    placed = decisions = 0
    start = time.process_time()
    while time.process_time() - start < seconds or decisions < decisions_min:
        for _ in range(at_a_time - 1):
            placed += churn.step(decide)
        placed += churn.step(timed)
        decisions += at_a_time
    took = time.process_time() - start
    return _Run(decisions, placed, took, sorted(latencies))


def _report(
    run: _Run, oracle: _Run, yardstick: Yardstick, cold_us: float, **plan: Any
) -> CoreReport:
    decide_us = sum(run.latencies_us) / len(run.latencies_us)
    rate, oracle_rate = run.decisions / run.seconds, oracle.decisions / oracle.seconds
    return CoreReport(
        bench="core",
        **plan,
        decisions=run.decisions,
        placed_percent=round(100 * run.placed / run.decisions, 1),
        rate_per_cpu_second=round(rate),
        oracle_rate_per_cpu_second=round(oracle_rate, 3),
        cold_us=round(cold_us, 1),
        ratio_to_oracle=round(rate / oracle_rate, 1),
        p50_us=percentile(run.latencies_us, 50),
        p99_us=percentile(run.latencies_us, 99),
        cpu_us={
            "decide": round(decide_us, 1),
            "fold and load": round(1e6 * run.seconds / run.decisions - decide_us, 1),
        },
        rss_mib={"core": peak_rss_mib()},
        yardstick=yardstick,
        ratio_to_yardstick=round(rate / yardstick.rate, 3),
    )


def _rows(report: CoreReport) -> list[tuple[str, str]]:
    return [
        ("decisions per CPU-second", f"{report.rate_per_cpu_second:,}"),
        ("the oracle's", f"{report.oracle_rate_per_cpu_second:,}"),
        ("ratio", f"{report.ratio_to_oracle:,}"),
        ("the first of a request (CPU)", f"{report.cold_us} µs"),
        ("decide p50, p99 (CPU)", f"{report.p50_us} µs, {report.p99_us} µs"),
        ("of this: decide, fold and load", " µs, ".join(map(str, report.cpu_us.values())) + " µs"),
        ("placed", f"{report.placed_percent} % of {report.decisions:,}"),
        ("memory, peak", f"{report.rss_mib['core']} MiB"),
    ]
