"""`allot bench full`: a full cluster, where many pods wait and now and then one ends.

That is how GPU clusters mostly are. What it costs that room appeared somewhere must not be what it
costs to try everybody who waits.
"""

import time
from random import Random
from typing import Any, NamedTuple

import click

from allotment.core.errors import AllotError
from allotment.core.placement.evaluator import Ranker
from allotment.core.queues.round.rounds import Rounds
from allotment_board import NodeRanker
from allotment_cli.show.output import note
from allotment_filter.groups import Groups
from allotment_lab.bench.policies import PolicyWord, misfits_option, policy_of, queues_option
from allotment_lab.bench.results import peak_rss_mib, publish, reporting, result, settle
from allotment_lab.bench.worlds.churn import Churn, shapes
from allotment_lab.percentiles import percentile

CARDS = 8
FILL = 0.9
"""So much of the cards' memory is taken before anybody waits; the first pods fill the rest."""


class End(NamedTuple):
    """CPU µs of what followed one pod's end, by stage, and what it was."""

    filter_us: float
    scorer_us: float
    fold_us: float
    cycles: int
    tried: int
    placed: int


class Services:
    """A filter and a scorer on one state."""

    def __init__(self, churn: Churn, ranker: Ranker, *, parks: bool) -> None:
        self._churn = churn
        self._ranker = ranker
        self._groups = Groups(churn.state, (lambda: NodeRanker(churn.state)) if parks else None)
        self._rounds = Rounds(churn.state)

    def until_nothing_is_due(self) -> End:
        filter_ns = scorer_ns = fold_ns = cycles = tried = placed = 0
        while True:
            start = time.thread_time_ns()
            found = self._groups.next_batch(())
            filtered = time.thread_time_ns()
            filter_ns += filtered - start
            if found is None:
                break
            outcome = self._rounds.run(found.batch.uids, self._ranker)
            scored = time.thread_time_ns()
            if outcome.says_anything:
                self._churn.decided(found.batch.uids, outcome)
            self._groups.tried(found)
            scorer_ns += scored - filtered
            fold_ns += time.thread_time_ns() - scored
            cycles += 1
            tried += len(found.batch.uids)
            placed += len(outcome.placements)
        return End(filter_ns / 1000, scorer_ns / 1000, fold_ns / 1000, cycles, tried, placed)

    def after_an_end(self) -> End:
        self._churn.end_one()
        return self.until_nothing_is_due()


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--waiting", default=5000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--shapes", default=16, show_default=True, type=click.IntRange(1, 100))
@click.option("--ends", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--policy", type=PolicyWord(), default="binpack", show_default=True)
@queues_option
@misfits_option
@click.option("--seed", default=1, show_default=True)
@reporting
def full(
    as_json: bool, save: Any, compare: Any, nodes: int, waiting: int, ends: int, **plan: Any
) -> None:
    """Pods wait on a full cluster, and one of those that run ends at a time."""
    random = Random(plan["seed"])
    note(f"filling {nodes} nodes × {CARDS} cards …")
    wanted = shapes(plan["shapes"], random, most_cards=CARDS)
    policy, misfits = policy_of(plan["policy"]), plan["misfits"]
    churn = Churn(nodes, wanted, random, policy, queues=plan["queues"], misfits=misfits, fill=FILL)
    settle()
    board = NodeRanker(churn.state)
    services = Services(churn, board, parks=True)
    note(f"until {waiting} pods wait …")
    pending = churn.state.pending
    while len(pending) < waiting:
        churn.arrive(waiting - len(pending))
        services.until_nothing_is_due()
    services.after_an_end()
    measured = [services.after_an_end() for _ in range(ends)]
    if not any(end.placed for end in measured):
        raise AllotError(
            f"{ends} pods ended and no pod was placed: this would measure "
            "rejections; give more --ends"
        )
    all_us = sorted(map(_us, measured))
    mean_us = sum(all_us) / ends
    found = result(
        "full",
        {"nodes": nodes, "waiting": waiting, "ends": ends, **plan},
        rate_per_cpu_second=round(1e6 / mean_us, 1),
        p50_us=percentile(all_us, 50),
        p99_us=percentile(all_us, 99),
        cpu_us={
            stage: round(sum(getattr(end, f"{stage}_us") for end in measured) / ends, 1)
            for stage in ("filter", "scorer", "fold")
        },
        cycles_per_end=round(sum(end.cycles for end in measured) / ends, 2),
        tried_per_end=round(sum(end.tried for end in measured) / ends, 1),
        placed_per_end=round(sum(end.placed for end in measured) / ends, 2),
        rss_mib=peak_rss_mib(),
    )
    publish(found, as_json=as_json, save=save, compare=compare)


def _us(end: End) -> float:
    return end.filter_us + end.scorer_us + end.fold_us
