"""Which pods a cycle is opened for: the filter's pure part.

Due pods are asked for in order. A pod whose class fits nowhere and that was told so in the very
same words before is not worth a cycle: it is remembered as tried and costs nothing until something
changes. Pods that are only to be told new words get what the pods that fit leave of a batch, or a
quarter of it, whatever their priority. So a thousand hopeless pods neither fill the log nor hold up
one that fits, even where something changes all the time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.cycle import BATCH_MAX, Ranker, refuse, same_refusal
from allotment.core.queues.order import due
from allotment.core.state import ClusterState
from allotment_proto.events import PodObserved, Refusal
from allotment_proto.facts import PodRequest
from allotment_proto.messages import ClassFeasible

TOLD_PART = 4
"""One in so many of a full batch is kept for pods that fit nowhere but do not know it yet."""

_Candidate = tuple[int, PodObserved]
"""A pod and its position in the order of due pods."""


class Batch(NamedTuple):
    """Pods worth a cycle, in order, and what was found about each class among them."""

    basis: int
    uids: tuple[str, ...]
    classes: tuple[ClassFeasible, ...]


class Round(NamedTuple):
    """One look at the pending pods: a batch (perhaps empty) and the pods tried in vain."""

    batch: Batch
    in_vain: tuple[str, ...]


def next_round(
    state: ClusterState,
    ranker: Ranker,
    tried: Mapping[str, int],
    held_back: Mapping[str, float],
    batch_max: int = BATCH_MAX,
) -> Round:
    """Open the next batch. `held_back` pods (their Binding failed just now) are left out."""
    ranker.begin()
    try:
        return _round(state, ranker, tried, held_back, batch_max)
    finally:
        ranker.end()


def _round(
    state: ClusterState,
    ranker: Ranker,
    tried: Mapping[str, int],
    held_back: Mapping[str, float],
    batch_max: int,
) -> Round:
    in_vain: list[str] = []
    looks: dict[PodRequest, _Look] = {}
    fitting: list[_Candidate] = []
    untold: list[_Candidate] = []
    told_before: list[_Candidate] = []
    for position, pod in enumerate(due(state, tried)):
        fact = pod.fact
        if fact.uid in held_back:
            continue
        if fact.problem is None:
            look = looks.get(fact.request)
            if look is None:
                look = looks[fact.request] = _look(fact, ranker)
            if look.feasible:
                fitting.append((position, fact))
                if len(fitting) == batch_max:
                    break
                continue
            if same_refusal(pod.refusal, look.refusal):
                in_vain.append(fact.uid)
                continue
        (untold if pod.refusal is None else told_before).append((position, fact))
    to_tell = max(batch_max - len(fitting), batch_max // TOLD_PART)
    refused = (untold + told_before)[:to_tell]
    chosen = sorted(fitting[: batch_max - len(refused)] + refused)
    batch = _batch(state.seq, [fact for _, fact in chosen], looks)
    return Round(batch, tuple(in_vain))


def _batch(basis: int, facts: list[PodObserved], looks: Mapping[PodRequest, "_Look"]) -> Batch:
    opened: dict[PodRequest, ClassFeasible] = {}
    for sample, fact in enumerate(facts):
        if fact.problem is None and fact.request not in opened:
            found = looks[fact.request]
            opened[fact.request] = ClassFeasible(
                sample, found.feasible, found.refusal.nodes, found.refusal.reasons
            )
    return Batch(basis, tuple(fact.uid for fact in facts), tuple(opened.values()))


class _Look(NamedTuple):
    """What one class of pods meets now: on how many nodes it fits, and why not on the others."""

    feasible: int
    refusal: Refusal


def _look(fact: PodObserved, ranker: Ranker) -> _Look:
    ranking = ranker.rank(fact.request)
    return _Look(ranking.feasible, refuse(fact, ranking.nodes, ranker.reasons(fact.request)))
