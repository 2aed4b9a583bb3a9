"""Which pods a cycle is opened for: the filter's pure part.

Due pods are asked for in order. A pod whose class fits nowhere and that was told so in the very
same words before is not worth a cycle: it is remembered as tried and costs nothing until something
changes. So a thousand hopeless pods neither fill the log nor hold up one that fits.
"""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.cycle import BATCH_MAX, Evaluator, Place, refuse, same_refusal
from allotment.core.queues.order import due
from allotment.core.state import ClusterState
from allotment_proto.events import PodObserved, Refusal
from allotment_proto.facts import PodRequest
from allotment_proto.messages import ClassFeasible


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
    evaluator: Evaluator,
    tried: Mapping[str, int],
    held_back: Mapping[str, float],
    batch_max: int = BATCH_MAX,
) -> Round:
    """Open the next batch. `held_back` pods (their Binding failed just now) are left out."""
    uids: list[str] = []
    in_vain: list[str] = []
    looks: dict[PodRequest, _Look] = {}
    opened: dict[PodRequest, ClassFeasible] = {}
    for pod in due(state, tried):
        fact = pod.fact
        if fact.uid in held_back:
            continue
        if fact.problem is None:
            look = looks.get(fact.request)
            if look is None:
                look = looks[fact.request] = _look(fact, evaluator)
            if not look.feasible and same_refusal(pod.refusal, look.refusal):
                in_vain.append(fact.uid)
                continue
            if fact.request not in opened:
                opened[fact.request] = ClassFeasible(
                    len(uids), look.feasible, look.refusal.nodes, look.refusal.reasons
                )
        uids.append(fact.uid)
        if len(uids) == batch_max:
            break
    return Round(Batch(state.seq, tuple(uids), tuple(opened.values())), tuple(in_vain))


class _Look(NamedTuple):
    """What one class of pods meets now: on how many nodes it fits, and why not on the others."""

    feasible: int
    refusal: Refusal


def _look(fact: PodObserved, evaluator: Evaluator) -> _Look:
    verdicts = evaluator.verdicts(fact.request)
    feasible = sum(isinstance(verdict, Place) for verdict in verdicts.values())
    return _Look(feasible, refuse(fact, verdicts))
