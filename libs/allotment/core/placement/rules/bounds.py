"""Where an order of queues allows a pod, beyond the pod's own request.

A *bound* is checked on nodes like the pod's own constraints, but belongs to the round that places
the pod: it is not part of the pod or of the log, and is not rechecked with the decision. Lasting
bounds are checked with the pod's constraints. Reservations for other pods are checked last, so that
their count is that of the nodes that would otherwise take the pod.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.placement.rules.selectors import affinity_matches
from allotment_proto.facts import ALONE, NodeTerm, PodRequest


class Bound(NamedTuple):
    """A node must match one of the terms; `code` and `text` are the reason if it does not."""

    code: str
    terms: tuple[NodeTerm, ...]
    text: str


class Excluded(NamedTuple):
    """Nodes that are reserved for other pods, or held back because pods fail there; `code` and
    `text` are the reason.
    """

    code: str
    nodes: frozenset[str]
    text: str


class Bonus(NamedTuple):
    """Micro-points of a node by the value of a label, none below 0, in the score term named `term`.
    `by_value` is sorted. If a node has several of the labels, the one that earns most counts.
    Without labels the values are names of nodes.
    """

    term: str
    labels: tuple[str, ...]
    by_value: tuple[tuple[str, int], ...]
    otherwise: int

    @property
    def most(self) -> int:
        return max([self.otherwise, *(micro for _, micro in self.by_value)])


class Bounds(NamedTuple):
    """`always` are checked with the pod's own constraints, `excluded` once everything else fits."""

    always: tuple[Bound, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    bonuses: tuple[Bonus, ...] = ()


OPEN = Bounds()


class _BoundRequest(PodRequest, frozen=True, gc=False):
    """A request within bounds."""

    bounds: Bounds = OPEN


def bounded(request: PodRequest, bounds: Bounds) -> PodRequest:
    """The request within these bounds; the same object if there are none."""
    if bounds == OPEN:
        return request
    fields = {name: getattr(request, name) for name in PodRequest.__struct_fields__}
    return _BoundRequest(**fields, bounds=bounds)


def bounds_of(request: PodRequest) -> Bounds:
    return request.bounds if isinstance(request, _BoundRequest) else OPEN


def by_itself(request: PodRequest) -> PodRequest:
    """The request as if there were no other pods: no reservations, no rules about other pods, and
    no failures of theirs.
    """
    bounds = bounds_of(request)
    if bounds.excluded:
        request = msgspec.structs.replace(request, bounds=bounds._replace(excluded=()))
    if request.selection.avoided:
        selection = msgspec.structs.replace(request.selection, avoided=())
        request = msgspec.structs.replace(request, selection=selection)
    return msgspec.structs.replace(request, company=ALONE)


def outside(request: PodRequest, labels: Mapping[str, str], name: str) -> str | None:
    """The reason code of the first lasting bound that a node violates."""
    for bound in bounds_of(request).always:
        if not affinity_matches(bound.terms, labels, name):
            return bound.code
    return None


def kept_back(request: PodRequest, name: str) -> str | None:
    """The reason code for a node that would fit but is reserved for other pods or held back."""
    return next((b.code for b in bounds_of(request).excluded if name in b.nodes), None)


def bonus_micro(bonus: Bonus, labels: Mapping[str, str], name: str) -> int:
    """What a node with these labels and this name earns."""
    if not bonus.labels:
        return _micro_of(bonus, name)
    found = (labels[label] for label in bonus.labels if label in labels)
    return max((_micro_of(bonus, value) for value in found), default=bonus.otherwise)


def _micro_of(bonus: Bonus, value: str) -> int:
    """By search in the sorted values: there can be one for every node."""
    at = bisect_left(bonus.by_value, (value,))
    if at < len(bonus.by_value) and bonus.by_value[at][0] == value:
        return bonus.by_value[at][1]
    return bonus.otherwise


def texts_of(request: PodRequest, counted: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The texts of those counted reasons that are bounds."""
    bounds = bounds_of(request)
    if bounds is OPEN:
        return ()
    codes = {code for code, _ in counted}
    lasting = [bound.text for bound in bounds.always if bound.code in codes]
    kept = [excluded.text for excluded in bounds.excluded if excluded.code in codes]
    return tuple(dict.fromkeys(lasting + kept))
