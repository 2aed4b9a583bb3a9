"""What loops are made of: the functions that they call, and the columns of hosts that they read.

A loop body is ordinary Python that numba can compile: integers and indexing only, no objects, no
exceptions, and every function that it calls marked with `part`. Values are int64 all along: a sum
must not pass 2⁶³, also in between.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from allotment.core.placement.rules.points import FULL_MICRO

# Rows of `host`: free pods, CPU (milli), memory (bytes), minus the pods that device plugins have
# still to serve; the shares in use (`points.host_sum`); what there is for shares of cards and for
# whole ones (`card_book.Spare`); two more for the host's own term; then one for every extended
# resource.
(
    PODS,
    CPU,
    HOST_MEMORY,
    PLUGIN,
    HOST_SUM,
    FOR_SHARES,
    FOR_WHOLE,
    CPU_WEIGHT,
    KIB_WEIGHT,
    EXTENDED,
) = range(10)

# Columns of `sizes`: CPU, memory, then one for every extended resource, in four rows: how much
# there is; the same in the unit that `points.near_share_micro` counts in (at least 1); half of
# that; the bits between the two.
SIZE_CPU, SIZE_MEMORY = 0, 1
SIZE_EXTENDED = 2 - EXTENDED
"""From the host row of an extended resource to its column in `sizes`."""

_Part = TypeVar("_Part", bound=Callable[..., Any])
Array = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

PARTS: list[Callable[..., Any]] = []
"""The functions that compiled ones call, which a compiler has to know."""


def part(function: _Part) -> _Part:
    """Marks one of them."""
    PARTS.append(function)
    return function


@part
def share_of(position: int, host: Array, sizes: Array, row: int, need: int) -> int:
    """`points.near_share_micro` of the resource at a host row with `need` more in use."""
    column = row - CPU if row < EXTENDED else row + SIZE_EXTENDED
    used = sizes[column, 0, position] - host[position, row] + need
    scaled = sizes[column, 1, position]
    share: int = (
        FULL_MICRO * min(used >> sizes[column, 3, position], scaled) + sizes[column, 2, position]
    ) // scaled
    return share
