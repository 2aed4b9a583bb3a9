"""`allot bench core`: how fast one core decides, and how much faster than by the plain rules."""

import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import click
import msgspec

from allotment.core.errors import AllotError
from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import REQUESTS_MAX, Evaluator
from allotment.core.placement.policies.learning import learn
from allotment_board import NodeRanker
from allotment_cli.options.params import Finite
from allotment_cli.show.output import note
from allotment_lab.bench.policies import PolicyWord, misfits_option, policy_of, queues_option
from allotment_lab.bench.results import peak_rss_mib, publish, reporting, result, settle
from allotment_lab.bench.worlds.churn import DEVICES, Churn, shapes
from allotment_lab.percentiles import percentile
from allotment_proto.facts import PodRequest, Policy

PLACED_MIN = 0.6
WARM_UP_PER_SHAPE = 20
"""So many decisions for each shape go before: the first of each looks at every node, once."""
DEFAULT_SHAPES = 16
STEPS_AT_A_TIME = 8
"""One decision of so many is timed by itself: the clocks cost a twentieth of a decision that is no
round over queues."""
CARD_MIB = 81_920
"""The usual card of the bench's clusters, for what a request is worth."""


class _Run(NamedTuple):
    decisions: int
    placed: int
    seconds: float
    latencies_us: list[int]


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1, 200_000))
@click.option(
    "--shapes",
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
@queues_option
@misfits_option
@click.option("--seconds", default=5.0, show_default=True, type=Finite(0.1, 600))
@click.option("--seed", default=1, show_default=True)
@reporting
def core(as_json: bool, save: Any, compare: Any, cards: int, devices: str, **plan: Any) -> None:
    """One process, one core: end a pod, decide a pod, on a cluster that is two thirds full.

    The baseline is the plain ranker of the core, on the same cluster in the same process.
    """
    nodes, shape_count, seconds = plan["nodes"], plan["shapes"], plan["seconds"]
    random = Random(plan["seed"])
    note(f"filling {nodes} nodes × {cards} cards …")
    wanted = shapes(shape_count or DEFAULT_SHAPES, random, most_cards=cards, devices=devices)
    churn = Churn(
        nodes,
        wanted,
        random,
        _with_mix(policy_of(plan["policy"]), wanted),
        cards_per_node=cards,
        devices=devices,
        is_each_its_own=shape_count == 0,
        queues=plan["queues"],
        misfits=plan["misfits"],
    )
    settle()
    board = NodeRanker(churn.state)
    cold_us = _first_rankings_us(board, wanted)
    decide = churn.decider(board)
    _run(churn, decide, seconds / 5, WARM_UP_PER_SHAPE * shape_count)
    at_a_time = 1 if plan["queues"] else STEPS_AT_A_TIME
    measured = _run(churn, decide, seconds, at_a_time=at_a_time)
    note("by the plain rules …")
    by_rules = churn.decider(Evaluator(churn.state))
    _run(churn, by_rules, seconds / 5, len(wanted))
    plain = _run(churn, by_rules, seconds / 5, at_a_time=at_a_time)
    if measured.placed < PLACED_MIN * measured.decisions:
        raise AllotError(
            f"only {measured.placed} of {measured.decisions} pods found a place: this would "
            "measure refusals; take fewer shapes or more nodes"
        )
    rate, plain_rate = (run.decisions / run.seconds for run in (measured, plain))
    decide_us = sum(measured.latencies_us) / len(measured.latencies_us)
    found = result(
        "core",
        {**plan, "cards": cards, "devices": devices},
        rate_per_cpu_second=round(rate),
        plain_rate_per_cpu_second=round(plain_rate, 1),
        ratio_to_plain=round(rate / plain_rate, 2),
        p50_us=percentile(measured.latencies_us, 50),
        p99_us=percentile(measured.latencies_us, 99),
        cold_us=round(cold_us, 1),
        cpu_us={
            "decide": round(decide_us, 1),
            "fold and load": round(1e6 * measured.seconds / measured.decisions - decide_us, 1),
        },
        decisions=measured.decisions,
        placed_percent=round(100 * measured.placed / measured.decisions, 1),
        rss_mib=peak_rss_mib(),
    )
    publish(found, as_json=as_json, save=save, compare=compare)


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
