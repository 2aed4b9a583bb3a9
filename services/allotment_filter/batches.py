"""Which pods a cycle is opened for: the filter's pure part.

Due pods are taken in order. A pod whose class fits nowhere and whose last refusal gave the very
same reasons is not worth a cycle: it is remembered as tried and costs nothing until something
changes. Pods that only get a new refusal take what the pods that fit leave of a batch, or a
quarter of it, whatever their priority. So a thousand hopeless pods neither fill the log nor hold up
one that fits, even where something changes all the time.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.placement.cycle import BATCH_MAX, same_refusal
from allotment.core.queues.order import due, in_line, is_due
from allotment_filter.effort import Effort
from allotment_filter.feasibility import Feasibility, FeasibilityCache
from allotment_filter.waiting import Waiting
from allotment_proto.events import PodObserved
from allotment_proto.messages import ClassFeasible

REFUSED_PART = 4
"""One in so many of a full batch is kept for pods that fit nowhere and have no such refusal yet."""


class _Candidate(NamedTuple):
    """A pod, and where its class fits."""

    fact: PodObserved
    feasibility: Feasibility | None


class Batch(NamedTuple):
    """Pods worth a cycle, in order, and what was found about each class among them."""

    basis: int
    uids: tuple[str, ...]
    classes: tuple[ClassFeasible, ...]


class Round(NamedTuple):
    """One scan of the pending pods: a batch (perhaps empty) and the pods tried in vain."""

    batch: Batch
    in_vain: tuple[str, ...]


def next_round(
    feasibility: FeasibilityCache,
    tried: Mapping[str, int],
    held_back: Mapping[str, float],
    batch_max: int = BATCH_MAX,
    waiting: Waiting | None = None,
    effort: Effort | None = None,
) -> Round:
    """Open the next batch. `held_back` pods (their Binding failed just now) are left out, and those
    that are `in_cycle`, one that is not over.

    `waiting` has all pending pods in order, if the caller keeps them so; only as many are looked at
    as it takes to fill the batch. `effort` remembers from batch to batch who was too much work.
    """
    state = feasibility.state

    def counts(pod: Pod) -> bool:
        return is_due(state, pod, _tried_seq(pod, tried))

    if waiting is None:
        pods: Iterable[Pod] = due(state, tried)
    else:
        pods = waiting.in_turns(counts)
    try:
        return _round(pods, feasibility, held_back, batch_max, effort or Effort())
    finally:
        feasibility.close()


def _tried_seq(pod: Pod, tried: Mapping[str, int]) -> int:
    return max(tried.get(pod.fact.uid, 0), pod.refused_basis)


def _round(
    pods: Iterable[Pod],
    feasibility: FeasibilityCache,
    held_back: Mapping[str, float],
    batch_max: int,
    effort: Effort,
) -> Round:
    in_vain: list[str] = []
    fitting: list[_Candidate] = []
    unrefused: list[_Candidate] = []
    refused_before: list[_Candidate] = []
    effort.begin()
    for pod in pods:
        fact = pod.fact
        if fact.uid in held_back:
            continue
        found = None
        if fact.problem is None:
            if not effort.admits(fact.uid, (fact,)):
                continue
            found = feasibility.of(fact)
            if found.feasible:
                fitting.append(_Candidate(fact, found))
                if len(fitting) == batch_max:
                    break
                continue
            if same_refusal(pod.refusal, found.refusal):
                in_vain.append(fact.uid)
                continue
        candidate = _Candidate(fact, found)
        (unrefused if pod.refusal is None else refused_before).append(candidate)
    refused_max = max(batch_max - len(fitting), batch_max // REFUSED_PART)
    refused = (unrefused + refused_before)[:refused_max]
    chosen = fitting[: batch_max - len(refused)] + refused
    return Round(_batch(feasibility.state, chosen), tuple(in_vain))


def _batch(state: ClusterState, found: Iterable[_Candidate]) -> Batch:
    by_uid = {candidate.fact.uid: candidate for candidate in found}
    in_order = in_line(state, [state.pods[uid] for uid in by_uid])
    chosen = [by_uid[pod.fact.uid] for pod in in_order]
    samples: dict[int, tuple[int, Feasibility]] = {}
    for sample, candidate in enumerate(chosen):
        if candidate.feasibility is not None:  # one of them for each class
            samples.setdefault(id(candidate.feasibility), (sample, candidate.feasibility))
    classes = tuple(
        ClassFeasible(sample, found.feasible, found.refusal.nodes, found.refusal.reasons)
        for sample, found in samples.values()
    )
    return Batch(state.seq, tuple(candidate.fact.uid for candidate in chosen), classes)
