"""The limits that a round sets, as bounds of requests: what nodes are asked beside what pods want.

Quota by card names cards, nodes have labels that name theirs (``nvidia.com/gpu.product``): a pod
that may have one card goes where one of these labels says so.
"""

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.rules.bounds import Bound, Bounds, Worth
from allotment.core.queues.limits import CardPoints, Limits, NodePoints, NodeRule
from allotment_proto.facts import Expression, NodeTerm

PRODUCT = ".product"
"""How labels end that name a node's card."""
NO_NODE = NodeTerm(())
"""A term without expressions matches nothing."""


class Bounding:
    """Makes bounds for one state as it is now."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._products: tuple[str, ...] | None = None
        self._last: tuple[Limits, tuple[str, ...]] | None = None
        self._made = Bounds()

    def bounds(self, limits: Limits, cards: tuple[str, ...] = ()) -> Bounds:
        """What is asked for a task that may have only these cards, if some are named."""
        asked = limits, cards
        if self._last != asked:  # a job's tasks come one after the other
            always = tuple(map(bound_of, limits.rules))
            worths = tuple(map(worth_of, limits.points))
            if cards:
                always = (*always, self._cards(cards))
                if limits.card_points is not None:
                    worths = (*worths, self._worth_of_cards(limits.card_points))
            if limits.node:
                always = (*always, only(limits.node))
            self._last, self._made = asked, Bounds(always, limits.barred, worths)
        return self._made

    def card_at(self, node: str, cards: tuple[str, ...]) -> str:
        """Which of the cards is the node's, the preferred in front; empty if none was named."""
        if len(cards) < 2:
            return next(iter(cards), "")
        labels = self._state.nodes[node].labels
        there = {labels.get(label) for label in self._product_labels()}
        return next((card for card in cards if _product(card) in there), "")

    def _worth_of_cards(self, points: CardPoints) -> Worth:
        best: dict[str, int] = {}
        for card, micro in points.by_card:
            best[_product(card)] = max(micro, best.get(_product(card), 0))
        return Worth(points.plugin, self._product_labels(), tuple(sorted(best.items())), 0)

    def _cards(self, cards: tuple[str, ...]) -> Bound:
        products = tuple(dict.fromkeys(map(_product, cards)))
        terms = tuple(
            NodeTerm((Expression(label, "In", products),)) for label in self._product_labels()
        )
        text = f"its queue has quota for card {' or '.join(cards)}"
        return Bound(reasons.CARD_WITHOUT_QUOTA, terms or (NO_NODE,), text)

    def _product_labels(self) -> tuple[str, ...]:
        if self._products is None:
            found = {
                label
                for node in self._state.nodes.values()
                for label in node.labels
                if label.endswith(PRODUCT)
            }
            self._products = tuple(sorted(found))
        return self._products


def _product(card: str) -> str:
    """The model of a card, which nodes' labels name, be it whole or sliced."""
    return card.partition("/")[0]


def only(name: str) -> Bound:
    """One node and no other."""
    there = NodeTerm((), (Expression("metadata.name", "In", (name,)),))
    return Bound(reasons.AFFINITY_MISMATCH, (there,), f"it was promised node {name}")


def bound_of(rule: NodeRule) -> Bound:
    """A plugin's rule as terms: `NodeRule.allows` says the same."""
    terms = [NodeTerm((Expression(rule.label, "In", rule.values),))] if rule.values else []
    if rule.unlabelled:
        terms.append(NodeTerm((Expression(rule.label, "DoesNotExist", ()),)))
    return Bound(rule.code, tuple(terms) or (NO_NODE,), rule.text)


def worth_of(points: NodePoints) -> Worth:
    """A plugin's points, moved up so that none are below 0: what counts is how nodes differ."""
    lift = max(0, -min((micro for _, micro in points.by_value), default=0))
    by_value = tuple(sorted((value, micro + lift) for value, micro in points.by_value))
    return Worth(points.plugin, (points.label,), by_value, lift)
