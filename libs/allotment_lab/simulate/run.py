"""One run: draw the workload, schedule it in virtual time, measure."""

import time
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies.typical import Mix
from allotment_board import NodeRanker
from allotment_lab import tuning
from allotment_lab.dice import Dice
from allotment_lab.engine import Simulation, Sink, Totals
from allotment_lab.in_queues import ASSUMED, Endless, InQueues
from allotment_lab.measures import Wanted, capacity_milli, learned, typical
from allotment_lab.runs import ComeAndGo, Progress, one_by_one
from allotment_lab.simulate.inputs import Source
from allotment_lab.simulate.policies import Chosen
from allotment_lab.simulate.report import Ran, curve, report
from allotment_lab.workload import Arrival, Workload
from allotment_proto.events import MixLearned
from allotment_proto.facts import PodRequest


class Plan(NamedTuple):
    """How workloads are run. `inflate`: load the cluster to so many times its cards."""

    source: Source
    inflate: float | None
    churn: bool

    @property
    def in_queues(self) -> bool:
        """Whether groups, queues and evictions are played as recorded."""
        return self.source.has_queues and self.churn and self.inflate is None

    @property
    def is_drawn(self) -> bool:
        """Whether dice are part of the workload, so that every seed is another run. For pods that
        come at their times, the order of their facts makes no difference.
        """
        is_shuffled = not self.source.comes_and_goes and not self.churn
        return self.source.is_made_up or self.inflate is not None or is_shuffled


def assumed(plan: Plan) -> list[str]:
    """What a run assumes and leaves out, in lines; none for workloads without queues."""
    if plan.in_queues:
        return ["assumed:", *(f"  {what}" for what in ASSUMED)]
    if plan.source.has_queues:
        why = "--inflate" if plan.inflate is not None else "--no-churn"
        return [
            f"left out by {why}: groups, queues, quotas and evictions of the log; pods are placed "
            "one by one"
        ]
    return []


STRAYS_PERCENT_MAX = 10
"""A run of a log's own policy that places more or fewer pods than the log by more than this shows
that the run is not what happened: how other policies compare with it says nothing."""


def check_history(then: int, placed: int, *, compares: bool) -> str:
    """How a run of a log's own policy, which places `placed` pods, differs from the log, in which
    `then` (at least one) were placed: in a line. Raises `AllotError` if that is too much to compare
    other policies (`compares`) with it.
    """
    percent = 100 * abs(placed - then) / then
    said = (
        f"the log placed {then:,} pods; the same pods run again under its own policy: {placed:,} "
        f"placed ({'' if placed < then else '+'}{100 * (placed - then) / then:.1f}%)"
    )
    if compares and percent > STRAYS_PERCENT_MAX:
        raise AllotError(
            f"{said}: this run does not reproduce what happened, so it cannot compare policies",
            "give --policy recorded alone to see what differs, or report this log",
        )
    return said


class Drawn(NamedTuple):
    """One seed's pods in order, those of others, and the shapes that are typical of the source."""

    workload: Workload
    ours: Sequence[Arrival]
    mix: Mix
    requests: Sequence[PodRequest]
    """What the source's pods ask for: all that a policy may learn from."""

    def learned(self, chosen: Chosen) -> tuple[MixLearned, ...]:
        """What the log says of the pods under a policy that looks ahead."""
        policy = chosen.policy
        if policy.mix:  # recorded
            pods = len(self.requests)
            return (MixLearned(policy=policy.device_policy, mix=policy.mix, pods=pods),)
        return learned(policy.device_policy, self.requests, self.workload.nodes)


def draw(plan: Plan, seed: int) -> Drawn:
    """The workload of a seed. Raises `AllotError` if there are no cards, or too few pods that ask
    for some to load them.
    """
    random = Random(seed)
    workload = plan.source.draw(random)
    ours: Sequence[Arrival] = workload.ours
    requests = [arrival.fact.request for arrival in ours]
    if not (cards_milli := capacity_milli(workload.nodes)):
        raise AllotError(
            "the nodes have no cards, and nothing else is measured", "give nodes with cards"
        )
    mix = typical(requests, workload.nodes)
    if plan.inflate is not None:
        wanted = Wanted(workload.nodes)
        target_milli = round(plan.inflate * cards_milli)
        try:
            ours = tuning.tuned(
                tuning.shuffled(ours, random),
                target_milli,
                lambda arrival: wanted.milli(arrival.fact.request),
                random,
            )
        except ValueError as error:
            raise AllotError(f"--inflate cannot load the cluster: {error}") from None
    elif not plan.source.comes_and_goes:
        ours = tuning.shuffled(ours, random)
    return Drawn(workload, ours, mix, requests)


def simulate(
    plan: Plan, drawn: Drawn, chosen: Chosen, seed: int, progress: Progress, sink: Sink | None
) -> Ran:
    """Schedule a drawn workload under a policy, through the core in this process."""
    if chosen.is_random and plan.in_queues:
        raise AllotError(
            "no dice choose for groups, and this log has some",
            "leave out --policy random, or give --no-churn: pods one by one",
        )
    random = Random(f"{seed}/placing")

    def ranker(state: ClusterState) -> Ranker:
        ranker = NodeRanker(state, lambda reason: None)  # uncompiled the same, but slower
        return Dice(state, ranker, random) if chosen.is_random else ranker

    simulation = Simulation(
        drawn.workload.nodes,
        chosen.policy,
        ranker,
        prelude=drawn.learned(chosen),
        sink=sink,
    )
    start = time.process_time()
    totals = _run(plan, drawn, simulation, progress)
    cpu_s = time.process_time() - start
    found = report(
        totals,
        policy=chosen.name,
        seed=seed,
        through="core",
        mode="churn" if plan.churn else "arrivals",
        nodes=len(drawn.workload.nodes),
        cpu_s=cpu_s,
    )
    return Ran(found, curve(totals, over_time=plan.churn), totals.starts)


def _run(plan: Plan, drawn: Drawn, simulation: Simulation, progress: Progress) -> Totals:
    fixed = drawn.workload.fixed
    if plan.churn:
        churn = (
            InQueues(simulation, NodeRanker(simulation.state), drawn.mix, drawn.workload.facts)
            if plan.in_queues
            else ComeAndGo(simulation, drawn.mix)
        )
        try:
            churn.run([*fixed, *drawn.ours], progress)
        except Endless as error:
            raise AllotError(f"the run comes to no end: {error}", "report this log") from None
        return churn.totals()
    one_by_one(simulation, drawn.ours, fixed, progress)
    return simulation.totals(drawn.mix)
