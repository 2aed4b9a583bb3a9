"""`allot bench`: how fast this machine decides, and how much faster than asking every node."""

import gc
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from random import Random

import click
import msgspec

from allotment.core.board import Board
from allotment.core.cycle import Evaluator, Outcome
from allotment.testing.churn import Churn, shapes
from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, table
from allotment_proto.facts import Policy

PLACED_MIN = 0.5
ORACLE_DECISIONS_MIN = 5


class CoreResult(msgspec.Struct, frozen=True):
    """One run of `allot bench core`. Times are CPU time, in which a busy machine counts less."""

    bench: str
    nodes: int
    shapes: int
    cards_per_node: int
    policy: str
    decisions: int
    placed_percent: float
    rate_per_cpu_second: int
    oracle_rate_per_cpu_second: float
    ratio_to_oracle: float
    p50_us: int
    p99_us: int
    rss_mib: int
    seed: int
    allotment: str
    python: str


class _Run(msgspec.Struct, frozen=True):
    decisions: int
    placed: int
    seconds: float
    latencies_us: list[int]


@click.group()
def bench() -> None:
    """Measure this machine. Compare only what was measured on one machine, in one sitting."""


@bench.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1, 200_000))
@click.option(
    "--shapes", "shape_count", default=16, show_default=True, type=click.IntRange(1, 4096)
)
@click.option("--policy", type=click.Choice(("binpack", "spread", "none")), default="binpack")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1, 600))
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
def core(
    nodes: int, shape_count: int, policy: str, seconds: float, seed: int, as_json: bool
) -> None:
    """One process, one core: end a pod, decide a pod, on a cluster that is two thirds full.

    The oracle (every node asked for every decision) runs on the same cluster in the same process.
    """
    random = Random(seed)
    note(f"filling {nodes} nodes × 8 cards …")
    wanted = shapes(shape_count, random)
    churn = Churn(nodes, wanted, random, Policy(device_policy=policy))
    gc.collect()
    gc.freeze()
    board = Board(churn.state)
    decide = churn.decider(board)
    _run(churn, decide, seconds / 5)
    measured = _run(churn, decide, seconds)
    oracle = _run(churn, _every_node(churn), seconds / 5, ORACLE_DECISIONS_MIN)
    if measured.placed < PLACED_MIN * measured.decisions:
        raise CliError(
            f"only {measured.placed} of {measured.decisions} pods found a place: this would "
            "measure refusals; take fewer shapes or more nodes"
        )
    result = _result(measured, oracle, nodes, shape_count, policy, seed)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        emit(_text(result))


def _every_node(churn: Churn) -> Callable[[str], Outcome]:
    """A decision that remembers nothing: the plain loops, made anew each time."""
    return lambda uid: churn.decider(Evaluator(churn.state))(uid)


def _run(
    churn: Churn, decide: Callable[[str], Outcome], seconds: float, decisions_min: int = 1
) -> _Run:
    latencies: list[int] = []

    def timed(uid: str) -> Outcome:
        start = time.thread_time_ns()
        outcome = decide(uid)
        latencies.append((time.thread_time_ns() - start) // 1000)
        return outcome

    placed = 0
    start = time.process_time()
    while time.process_time() - start < seconds or len(latencies) < decisions_min:
        placed += churn.step(timed)
    took = time.process_time() - start
    return _Run(len(latencies), placed, took, sorted(latencies))


def _result(
    run: _Run, oracle: _Run, nodes: int, shape_count: int, policy: str, seed: int
) -> CoreResult:
    rate, oracle_rate = run.decisions / run.seconds, oracle.decisions / oracle.seconds
    return CoreResult(
        bench="core",
        nodes=nodes,
        shapes=shape_count,
        cards_per_node=8,
        policy=policy,
        decisions=run.decisions,
        placed_percent=round(100 * run.placed / run.decisions, 1),
        rate_per_cpu_second=round(rate),
        oracle_rate_per_cpu_second=round(oracle_rate, 1),
        ratio_to_oracle=round(rate / oracle_rate, 1),
        p50_us=run.latencies_us[run.decisions // 2],
        p99_us=run.latencies_us[run.decisions * 99 // 100],
        rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        seed=seed,
        allotment=version("allotment"),
        python=sys.version.split()[0],
    )


def _text(result: CoreResult) -> list[str]:
    rows = [
        ["decisions per CPU-second", f"{result.rate_per_cpu_second:,}"],
        ["the oracle's", f"{result.oracle_rate_per_cpu_second:,}"],
        ["ratio", f"{result.ratio_to_oracle:,}"],
        ["decide p50, p99 (CPU)", f"{result.p50_us} µs, {result.p99_us} µs"],
        ["placed", f"{result.placed_percent} % of {result.decisions:,}"],
        ["memory, peak", f"{result.rss_mib} MiB"],
    ]
    title = f"core: {result.nodes} nodes × 8 cards, {result.shapes} shapes, {result.policy}"
    return [title, *table(["FIGURE", "VALUE"], rows, right=["VALUE"])]
