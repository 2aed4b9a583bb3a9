"""The score term of a plugin: one file a term, and one entry in `terms`.

`micro` returns how many micro-points a node earns for a request by what is in use there. The board
may have a loop that gives the same integers for many nodes.
"""

from typing import Any, NamedTuple, Protocol

from allotment.core.ledger.model import Node
from allotment.core.plugin_arguments import Arguments
from allotment_proto.facts import PluginUse, PodRequest

CPU_NAME = "cpu"
MEMORY_NAME = "memory"
SWITCH = "enableNodeOrder"
"""The switch of plugins whose terms count."""


class Amount(NamedTuple):
    """How much of a resource is in use, and how much there is."""

    used: int
    size: int


class ScoreTerm(Protocol):
    """One plugin's term. `name` is the plugin's, and the term's in placements and explanations.

    `weights` are made from the plugin's arguments and used by the term alone.
    """

    name: str
    arguments: Arguments
    """The arguments that a configuration file may set, with the defaults."""

    def weights(self, use: PluginUse) -> Any | None:
        """The weights from a configuration's plugin; None if it adds nothing with these
        arguments.
        """

    def most_micro(self, weights: Any) -> int:
        """The most micro-points that it can add to any node."""

    def micro(self, node: Node, request: PodRequest, weights: Any) -> int:
        """The micro-points that the node earns."""


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
