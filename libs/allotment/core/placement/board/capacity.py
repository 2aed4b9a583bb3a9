"""How many pods of one request all nodes can hold at most: a bound, without trying.

Per node the least of what its host and its cards have room for; cards are counted one by one, each
as often as its free slots, memory and compute allow, and a pod that wants several cards at once
takes that many of the sum. More than that can never be placed; fewer may be.
"""

import numpy as np

from allotment.core.placement.board import packing
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import Ints
from allotment.core.placement.board.rows import Row, good_cards
from allotment.core.placement.policies.base import View
from allotment.core.placement.rules.score_term import CPU, HOST_MEMORY, PODS


def holds_at_most(columns: Columns, row: Row) -> int:
    """An upper bound over the nodes on which the request fits now."""
    at = row.fit.nonzero()[0]
    view = View(columns, at, np.arange(len(at)) * columns.depth)
    request = row.shape.request
    most: Ints = view.host[PODS]
    for resource, amount in ((CPU, request.cpu_milli), (HOST_MEMORY, request.memory_bytes)):
        if amount:
            most = np.minimum(most, view.host[resource] // amount)
    for known, amount in row.shape.extended_need:
        most = np.minimum(most, view.host[known] // amount)
    for ask in row.shape.asks:
        kind = view.keys & columns.kind_mask
        good = good_cards(row, ask, view)
        times = ask.slots[kind] - packing.holders(view.packed)
        if ask.is_whole:
            times = np.minimum(times, 1)
        times = np.minimum(times, ask.times[kind])
        need = np.maximum(ask.need_mib[kind], 1)
        times = np.where(
            ask.need_mib[kind] > 0,
            np.minimum(times, packing.memory_mib(view.packed) // need),
            times,
        )
        if ask.request.cores_pct:
            times = np.minimum(times, packing.cores_pct(view.packed) // ask.request.cores_pct)
        most = np.minimum(most, np.where(good, times, 0).sum(axis=1) // ask.number)
    return int(most.sum())
