"""Best fit on MIG: a pod gets the smallest instance that is available on any node.

Scores cannot express that: binpack prefers a large instance on a card in use to a small one on an
empty card. So where the best place gives an instance, this searches for places with smaller ones
until there are none. The order ``best-fit`` of `Policy.mig_order` turns it on.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Place
from allotment_proto.facts import PodRequest

BEST_FIT = "best-fit"
_T = TypeVar("_T")


def smallest(
    state: ClusterState,
    request: PodRequest,
    found: _T,
    place_of: Callable[[_T], Place | None],
    ask: Callable[[PodRequest], _T],
) -> _T:
    """What was found for the request, or what is found for it with smaller instances only."""
    if state.policy.mig_order != BEST_FIT:
        return found
    best = place_of(found)
    while best is not None and (largest_mib := _largest_mib(state, best)):
        selection = msgspec.structs.replace(request.selection, pieces_below_mib=largest_mib)
        better = ask(msgspec.structs.replace(request, selection=selection))
        best = place_of(better)
        if best is not None:
            found = better
    return found


def _largest_mib(state: ClusterState, place: Place) -> int:
    """The memory in MiB of the largest instance that a place gives; 0 if it gives none."""
    sizes = []
    for holding in place.holdings:
        if not holding.instance:  # a share, as most are
            continue
        card = state.nodes[place.rank[2]].ledgers[holding.family].by_id[holding.card]
        if card.table:
            sizes.append(card.charged_mib(holding))
    return max(sizes, default=0)
