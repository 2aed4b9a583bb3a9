"""`allot bench batch`: cycles over groups and queues, most of which only run."""

import time
from typing import Any, NamedTuple

import click

from allotment.adapters.service.heap import freeze_heap
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Ranker
from allotment.core.queues.round.rounds import Rounds
from allotment_board import NodeRanker
from allotment_cli.show.output import note
from allotment_filter.groups import Groups
from allotment_lab.bench.results import peak_rss_mib, publish, reporting, result
from allotment_lab.bench.worlds.churn import CARDS
from allotment_lab.bench.worlds.groups import Crowd, CrowdError
from allotment_lab.percentiles import percentile

TOO_MANY = CARDS + 1
"""So many cards no node has."""


class Cycle(NamedTuple):
    """CPU µs of one cycle by stage, and whose pods were placed."""

    filter_us: float
    scorer_us: float
    fold_us: float
    placed: frozenset[str]

    @property
    def us(self) -> float:
        return self.filter_us + self.scorer_us


class Readers:
    """A filter and a scorer on one state, as the services have them."""

    def __init__(self, state: ClusterState, ranker: Ranker) -> None:
        self.groups = Groups(state, lambda: NodeRanker(state))
        self.rounds = Rounds(state)
        self.ranker = ranker

    @property
    def opened(self) -> int:
        """How many jobs both looked at so far."""
        return self.groups.rounds.views.made + self.rounds.views.made

    def cycle(self, crowd: Crowd) -> Cycle | None:
        """One cycle; None if no group is due."""
        start = time.thread_time_ns()
        found = self.groups.next_batch(())
        filtered = time.thread_time_ns()
        if found is None:
            return None
        outcome = self.rounds.run(found.batch.uids, self.ranker)
        scored = time.thread_time_ns()
        decided = crowd.decide(found.batch.uids, outcome)
        self.groups.tried(found)
        folded = time.thread_time_ns()
        if len(decided.placements) != len(outcome.placements):
            raise AllotError("a placement did not stand: this would not measure cycles")
        return Cycle(
            (filtered - start) / 1000,
            (scored - filtered) / 1000,
            (folded - scored) / 1000,
            frozenset(placed.uid for placed in decided.placements),
        )

    def settle(self, crowd: Crowd) -> None:
        """Cycles until no group is due."""
        while self.cycle(crowd) is not None:
            pass


@click.command()
@click.option("--nodes", default=2_000, show_default=True, type=click.IntRange(1, 200_000))
@click.option("--groups", default=5_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--pending", default=20, show_default=True, type=click.IntRange(0, 1_000_000))
@click.option("--size", default=4, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--queues", default=16, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--cycles", default=100, show_default=True, type=click.IntRange(1, 1_000_000))
@reporting
def batch(as_json: bool, save: Any, compare: Any, pending: int, cycles: int, **plan: int) -> None:
    """One of many running groups ends and another comes, cycle after cycle; others wait in vain."""
    nodes, groups, size = plan["nodes"], plan["groups"], plan["size"]
    note(f"filling {nodes} nodes × {CARDS} cards with {groups} groups of {size} …")
    try:
        crowd = Crowd(nodes, plan["queues"], groups, size)
    except CrowdError as error:
        raise AllotError(f"{error}: take more --nodes or fewer --groups") from None
    board = NodeRanker(crowd.state)
    readers = Readers(crowd.state, board)
    crowd.arrive(pending, TOO_MANY)
    readers.settle(crowd)
    turn_over(crowd, readers)
    freeze_heap()
    before = readers.opened
    measured = [turn_over(crowd, readers) for _ in range(cycles)]
    opened = (readers.opened - before) / cycles
    hopeless = [in_vain(crowd, readers) for _ in range(cycles)]
    ordered = sorted(cycle.us for cycle in measured)
    mean_us = sum(ordered) / cycles
    found = result(
        "batch",
        {**plan, "pending": pending, "cycles": cycles},
        rate_per_cpu_second=round(1e6 / mean_us, 1),
        p50_us=percentile(ordered, 50),
        p99_us=percentile(ordered, 99),
        cpu_us={
            stage: round(sum(getattr(cycle, f"{stage}_us") for cycle in measured) / cycles, 1)
            for stage in ("filter", "scorer", "fold")
        },
        opened=round(opened, 1),
        hopeless_us=percentile(sorted(hopeless), 50),
        rss_mib=peak_rss_mib(),
    )
    publish(found, as_json=as_json, save=save, compare=compare)


def turn_over(crowd: Crowd, readers: Readers) -> Cycle:
    """The group that ran longest ends, another one comes and gets a place, in one cycle."""
    crowd.end_oldest()
    (key,) = crowd.arrive(1)
    cycle = readers.cycle(crowd)
    if cycle is None or not cycle.placed.issuperset(crowd.state.groups[key].members):
        raise AllotError(f"{key} came and was not placed at once: take fewer --pending")
    crowd.runs(key)
    return cycle


def in_vain(crowd: Crowd, readers: Readers) -> float:
    """A gang comes that can never fit; CPU µs until a decision says so. Then it goes."""
    start = time.thread_time_ns()
    (key,) = crowd.arrive(1, TOO_MANY)
    readers.cycle(crowd)
    took_us = (time.thread_time_ns() - start) / 1000
    if crowd.state.groups[key].short is None:
        raise AllotError(f"{key} can never fit, but was not rejected at once: give fewer --pending")
    crowd.end(key)
    readers.settle(crowd)
    return took_us
