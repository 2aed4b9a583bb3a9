"""Best fit on MIG: a pod gets no larger instance than has to be, of all that can be had anywhere.

Scores cannot say that: a large instance on a card in use is worth more to binpack than a small one
on an empty card, whatever it wastes. So where the best place gives an instance, places are asked
for that give smaller ones, until there are none. The order ``best-fit`` of `Policy.mig_order` asks
for that.
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
    """The memory of the largest instance that a place gives; 0 if it gives none."""
    sizes = []
    for holding in place.holdings:
        if not holding.instance:  # a share, as most are: nothing to look up
            continue
        card = state.nodes[place.rank[2]].ledgers[holding.family].by_id[holding.card]
        if card.table:
            sizes.append(card.charged_mib(holding))
    return max(sizes, default=0)
