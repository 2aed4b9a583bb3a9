"""What a score term of a plugin is, and what it may read: one file a term, and one row in `terms`.

A term says how many micro-points a node earns for a request by what is in use there. It says so
twice, side by side in its file: `micro` in plain Python on one node of the books, which is the rule
(`fits`, explain and the recheck read it), and `loop` on one position of the columns, which the
board runs for many nodes and numba compiles. `encode` hands the loop its numbers. Both give the
same integers; property tests hold them to that.

A loop body is ordinary Python that numba can compile: integers and indexing only, no objects, no
exceptions, and every function that it calls marked with `part`. Its arguments:

    position  the node
    host      (N nodes, R): what is free there, see below
    sizes     (S, 4, N): how much there is, see below
    unrequested (2, N): CPU (milli) and memory (bytes) that scores add to what is in use
    encoded   (T,): all numbers of the request
    start     where in `encoded` those of this term begin

Values are int64 all along: a sum must not pass 2⁶³, also in between.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.points import FULL_MICRO
from allotment.core.plugin_arguments import Arguments
from allotment_proto.facts import PluginUse, PodRequest

CPU_NAME = "cpu"
MEMORY_NAME = "memory"
SWITCH = "enableNodeOrder"
"""The switch of plugins whose terms count."""

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


class Amount(NamedTuple):
    """How much of a resource is in use, and how much there is."""

    used: int
    size: int


class ScoreTerm(Protocol):
    """One plugin's term. `name` is the plugin's, and how placements and explanations call it.

    Weights are what the term makes of its plugin's arguments; nobody else looks into them.
    """

    name: str
    arguments: Arguments
    """What a configuration file may say to the plugin, with the defaults."""
    loop: Callable[..., int]

    def weights(self, use: PluginUse) -> Any | None:
        """From a configuration's plugin; None if with these arguments it adds nothing."""

    def most_micro(self, weights: Any) -> int:
        """The most that it can add to any node."""

    def micro(self, node: Node, request: PodRequest, weights: Any) -> int:
        """The rule: what the node earns."""

    def encode(
        self, request: PodRequest, weights: Any, row_of: Callable[[str], int | None]
    ) -> Sequence[int]:
        """The numbers that `loop` reads from its `start` on. `row_of` gives the host row of a
        resource, None if no node has it."""


def amount_of(node: Node, name: str) -> Amount:
    """How much of a resource is in use on a node, and how much there is."""
    fact = node.fact
    assert fact is not None
    if name == CPU_NAME:
        size, free = fact.cpu_milli, node.cpu_milli_free
    elif name == MEMORY_NAME:
        size, free = fact.memory_bytes, node.memory_bytes_free
    else:
        size, free = dict(fact.extended).get(name, 0), node.extended_free.get(name, 0)
    return Amount(size - max(free, 0), size)


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
