"""A batch of pods that is placed whole or not at all.

What fits is asked first: if more pods of one request are in the batch than all nodes together can
hold, nothing is tried. Otherwise the pods are placed one after the other, each on top of what the
earlier ones took; at the first that finds no place everything is given back, exactly.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from allotment.core.placement.cycle import place, refuse
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.rules.interpod import situated
from allotment_proto.events import Placement, PodObserved, Refusal
from allotment_proto.facts import PodRequest


class WholeRanker(Ranker, Protocol):
    """A ranker that can take back a part of what is assumed, and tell what cannot fit."""

    def mark(self) -> int: ...

    def undo(self, mark: int) -> None: ...

    def holds_at_most(self, request: PodRequest, wanted: int) -> int: ...


class Whole(NamedTuple):
    """All pods found a place. The placements stay assumed until the ranker's `end`."""

    placements: tuple[Placement, ...]


class Short(NamedTuple):
    """The batch does not fit as a whole; nothing of it is assumed."""

    together: int
    """How many of its pods fit together: those placed before the first that found no place, or at
    most as many if nothing was tried."""
    was_tried: bool
    refusal: Refusal
    """What the first pod without a place lacks, counted over nodes as they are then."""


def place_whole(pods: Sequence[PodObserved], ranker: WholeRanker) -> Whole | Short:
    """Place every pod of the batch in order, or none; between the ranker's `begin` and `end`."""
    hopeless = _hopeless(pods, ranker)
    if hopeless is not None:
        return hopeless
    mark = ranker.mark()
    placements: list[Placement] = []
    for pod in pods:
        answer = place(pod, ranker)
        if isinstance(answer, Refusal):
            ranker.undo(mark)
            return Short(len(placements), was_tried=True, refusal=answer)
        ranker.assume(answer)
        placements.append(answer)
    return Whole(tuple(placements))


def _hopeless(pods: Sequence[PodObserved], ranker: WholeRanker) -> Short | None:
    """Why the batch cannot fit whatever is tried; None if it may."""
    for pod in pods:
        if pod.problem is not None:
            return Short(0, was_tried=False, refusal=_refused(pod, ranker))
    wanted = Counter(pod.request for pod in pods)
    for request, count in wanted.items():
        most = ranker.holds_at_most(request, count)
        if most < count:
            first = next(pod for pod in pods if pod.request == request)
            return Short(len(pods) - count + most, was_tried=False, refusal=_refused(first, ranker))
    return None


def _refused(pod: PodObserved, ranker: Ranker) -> Refusal:
    answer = place(pod, ranker)
    if isinstance(answer, Refusal):
        return answer
    asked = situated(pod, ranker.state)
    ranking = ranker.rank(asked)
    return refuse(ranker.state, pod, asked, ranking.nodes, ranker.reasons(asked))
