"""The terms that plugins add to a node's score. A new term is a file and an entry here.

Plugins count only if a configuration file gave the tiers. The built-in tiers (equal to
`BUILT_IN_TIERS`) score by the device and the host policy alone, so that logs from before there were
tiers replay as they were decided. A plugin that is not in any tier, or whose `enableNodeOrder` is
off, adds nothing.
"""

from typing import Any, NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.nodeorder import NodeOrder, NodeOrderTerm
from allotment.core.placement.rules.resource_shares import BinpackTerm, StrategyFitTerm
from allotment.core.placement.rules.score_term import SWITCH, ScoreTerm
from allotment.core.plugin_arguments import is_on, plugin, remembered
from allotment_proto.facts import BUILT_IN_TIERS, PodRequest, Policy

TERMS: tuple[ScoreTerm, ...] = (NodeOrderTerm(), BinpackTerm(), StrategyFitTerm())
"""In the order of placements and explanations. The board, its loops, the bound on totals and the
table of an explanation all read this list.
"""


class Weights(NamedTuple):
    """The weights of a policy's plugins: by term, in the order of `TERMS`, None for a term that
    adds nothing.
    """

    of_terms: tuple[Any | None, ...]

    @property
    def nodeorder(self) -> NodeOrder | None:
        """nodeorder's weights, which `relative` needs as well."""
        found: NodeOrder | None = self.of_terms[0]
        return found

    def active(self) -> list[tuple[ScoreTerm, Any]]:
        """The terms that count, each with its weights."""
        pairs = zip(TERMS, self.of_terms, strict=True)
        return [(term, weights) for term, weights in pairs if weights is not None]


NONE = Weights((None,) * len(TERMS))


def most_micro(weights: Weights) -> int:
    """The most micro-points that the plugins can add."""
    return sum(term.most_micro(each) for term, each in weights.active())


def host_terms(node: Node, request: PodRequest, weights: Weights) -> tuple[tuple[str, int], ...]:
    """The weighted terms of the plugins that are on, without what is relative to other nodes."""
    return tuple((term.name, term.micro(node, request, each)) for term, each in weights.active())


@remembered
def weights_of(policy: Policy) -> Weights:
    """The weights of a policy."""
    if policy.tiers == BUILT_IN_TIERS:
        return NONE
    uses = [plugin(policy, term.name) for term in TERMS]
    return Weights(
        tuple(
            term.weights(use) if use is not None and is_on(use, SWITCH) else None
            for term, use in zip(TERMS, uses, strict=True)
        )
    )
