"""Which pods a cycle is opened for: the filter's pure part.

Due pods are asked for in order. A pod whose class fits nowhere and that was told so in the very
same words before is not worth a cycle: it is remembered as tried and costs nothing until something
changes. Pods that are only to be told new words get what the pods that fit leave of a batch, or a
quarter of it, whatever their priority. So a thousand hopeless pods neither fill the log nor hold up
one that fits, even where something changes all the time.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allotment.core.ledger.state import ClusterState, Pod
from allotment.core.placement.cycle import BATCH_MAX, same_refusal
from allotment.core.queues.order import due, in_line, is_due
from allotment_filter.looks import Look, Looks
from allotment_filter.waiting import Waiting
from allotment_proto.events import PodObserved
from allotment_proto.messages import ClassFeasible

TOLD_PART = 4
"""One in so many of a full batch is kept for pods that fit nowhere but do not know it yet."""


class _Candidate(NamedTuple):
    """A pod, and what its class meets."""

    fact: PodObserved
    look: Look | None


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
    looks: Looks,
    tried: Mapping[str, int],
    held_back: Mapping[str, float],
    batch_max: int = BATCH_MAX,
    waiting: Waiting | None = None,
) -> Round:
    """Open the next batch. `held_back` pods (their Binding failed just now) are left out.

    `waiting` has all pending pods in order, if the caller keeps them so; only as many are looked at
    as it takes to fill the batch.
    """
    state = looks.state
    if waiting is None:
        pods: Iterable[Pod] = due(state, tried)
    else:
        pods = waiting.in_turns(lambda pod: is_due(state, pod, _tried_seq(pod, tried)))
    try:
        return _round(pods, looks, held_back, batch_max)
    finally:
        looks.close()


def _tried_seq(pod: Pod, tried: Mapping[str, int]) -> int:
    return max(tried.get(pod.fact.uid, 0), pod.refused_basis)


def _round(
    pods: Iterable[Pod], looks: Looks, held_back: Mapping[str, float], batch_max: int
) -> Round:
    in_vain: list[str] = []
    fitting: list[_Candidate] = []
    untold: list[_Candidate] = []
    told_before: list[_Candidate] = []
    for pod in pods:
        fact = pod.fact
        if fact.uid in held_back:
            continue
        look = None
        if fact.problem is None:
            look = looks.of(fact)
            if look.feasible:
                fitting.append(_Candidate(fact, look))
                if len(fitting) == batch_max:
                    break
                continue
            if same_refusal(pod.refusal, look.refusal):
                in_vain.append(fact.uid)
                continue
        candidate = _Candidate(fact, look)
        (untold if pod.refusal is None else told_before).append(candidate)
    to_tell = max(batch_max - len(fitting), batch_max // TOLD_PART)
    refused = (untold + told_before)[:to_tell]
    chosen = fitting[: batch_max - len(refused)] + refused
    return Round(_batch(looks.state, chosen), tuple(in_vain))


def _batch(state: ClusterState, found: Iterable[_Candidate]) -> Batch:
    by_uid = {candidate.fact.uid: candidate for candidate in found}
    in_order = in_line(state, [state.pods[uid] for uid in by_uid])
    chosen = [by_uid[pod.fact.uid] for pod in in_order]
    samples: dict[int, tuple[int, Look]] = {}
    for sample, candidate in enumerate(chosen):
        if candidate.look is not None:  # one of them for each class
            samples.setdefault(id(candidate.look), (sample, candidate.look))
    classes = tuple(
        ClassFeasible(sample, look.feasible, look.refusal.nodes, look.refusal.reasons)
        for sample, look in samples.values()
    )
    return Batch(state.seq, tuple(candidate.fact.uid for candidate in chosen), classes)
