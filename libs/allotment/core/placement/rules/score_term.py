"""What a score term of a plugin is: one file a term, and one row in `terms`.

A term says how many micro-points a node earns for a request by what is in use there: `micro`, on
one node of the books. The board may have a loop that gives the same integers for many nodes.
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
    """One plugin's term. `name` is the plugin's, and how placements and explanations call it.

    Weights are what the term makes of its plugin's arguments; nobody else looks into them.
    """

    name: str
    arguments: Arguments
    """What a configuration file may say to the plugin, with the defaults."""

    def weights(self, use: PluginUse) -> Any | None:
        """From a configuration's plugin; None if with these arguments it adds nothing."""

    def most_micro(self, weights: Any) -> int:
        """The most that it can add to any node."""

    def micro(self, node: Node, request: PodRequest, weights: Any) -> int:
        """The rule: what the node earns."""


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
