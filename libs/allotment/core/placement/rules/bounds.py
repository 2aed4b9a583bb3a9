"""Where an order of queues lets a pod go, beyond what the pod itself asks for.

A *bound* is asked of nodes like the pod's own constraints, but belongs to the round that places the
pod: it is no part of the pod, the log never holds it, and it is not asked again when the decision
is checked. What a node keeps to or not, whatever is free there, is asked together with the pod's
constraints; what is only kept for somebody else for now is asked last, so that its count is that of
the nodes that would take the pod otherwise.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.placement.rules.selectors import affinity_matches
from allotment_proto.facts import ALONE, NodeTerm, PodRequest


class Bound(NamedTuple):
    """A node has to match one of the terms; `code` and, in words, `text` say why one that does not
    is out.
    """

    code: str
    terms: tuple[NodeTerm, ...]
    text: str


class Excluded(NamedTuple):
    """Nodes that are there for somebody else, or held back because they fail: `code` and, in words,
    `text` say for whom and why."""

    code: str
    nodes: frozenset[str]
    text: str


class Bonus(NamedTuple):
    """What a node earns by the value of a label, in micro-points, none of them below 0, in the term
    of its score that is called `term`. `by_value` is sorted. Of several labels that a node has the
    one counts that earns most. Without labels the values are names of nodes.
    """

    term: str
    labels: tuple[str, ...]
    by_value: tuple[tuple[str, int], ...]
    otherwise: int

    @property
    def most(self) -> int:
        return max([self.otherwise, *(micro for _, micro in self.by_value)])


class Bounds(NamedTuple):
    """`always` are asked with the pod's own constraints, `excluded` when all else fits."""

    always: tuple[Bound, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    bonuses: tuple[Bonus, ...] = ()


OPEN = Bounds()


class _BoundRequest(PodRequest, frozen=True, gc=False):
    """A request within bounds."""

    bounds: Bounds = OPEN


def bounded(request: PodRequest, bounds: Bounds) -> PodRequest:
    """The request within these bounds; itself if there are none."""
    if bounds == OPEN:
        return request
    fields = {name: getattr(request, name) for name in PodRequest.__struct_fields__}
    return _BoundRequest(**fields, bounds=bounds)


def bounds_of(request: PodRequest) -> Bounds:
    return request.bounds if isinstance(request, _BoundRequest) else OPEN


def by_itself(request: PodRequest) -> PodRequest:
    """The request as it would be asked if there were no other pods: nothing is kept for others, no
    rule is about them, and none of them failed anywhere.
    """
    bounds = bounds_of(request)
    if bounds.excluded:
        request = msgspec.structs.replace(request, bounds=bounds._replace(excluded=()))
    if request.selection.avoided:
        selection = msgspec.structs.replace(request.selection, avoided=())
        request = msgspec.structs.replace(request, selection=selection)
    return msgspec.structs.replace(request, company=ALONE)


def outside(request: PodRequest, labels: Mapping[str, str], name: str) -> str | None:
    """The reason code of the first lasting bound that a node does not keep to."""
    for bound in bounds_of(request).always:
        if not affinity_matches(bound.terms, labels, name):
            return bound.code
    return None


def kept_back(request: PodRequest, name: str) -> str | None:
    """Why a node that would do is there for somebody else, as a reason code."""
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
    """What stands behind those of the counted reasons that are bounds."""
    bounds = bounds_of(request)
    if bounds is OPEN:
        return ()
    codes = {code for code, _ in counted}
    lasting = [bound.text for bound in bounds.always if bound.code in codes]
    kept = [excluded.text for excluded in bounds.excluded if excluded.code in codes]
    return tuple(dict.fromkeys(lasting + kept))
