"""The limits of a round as bounds of requests, applied to nodes in addition to what pods request.

Quota by card names cards, and nodes have labels with these names (``nvidia.com/gpu.product``): a
pod that may use one card goes where such a label has its name.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import add, gt

from allotment.core import reasons
from allotment.core.ledger.evictions import ending
from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.placement.rules.bounds import Bonus, Bound, Bounds
from allotment.core.queues.limits import BucketPoints, CardPoints, Limits, NodePoints, NodeRule
from allotment.core.queues.resources import CPU, MEMORY, PODS
from allotment_proto.events import Placement
from allotment_proto.facts import Expression, NodeTerm, PodRequest

_PRODUCT = ".product"
"""The end of the labels that name a node's card."""
_NO_NODE = NodeTerm(())
"""A term without expressions matches nothing."""
_NOBODY: Mapping[str, Placement] = {}


class Bounding:
    """Makes bounds for one state as it is now."""

    def __init__(self, state: ClusterState, assumed: Mapping[str, Placement] = _NOBODY) -> None:
        """`assumed` are placements on top of the state, current whenever bounds are made."""
        self._state = state
        self._rooms = _Rooms(state, assumed)
        self._products: tuple[str, ...] | None = None
        self._last: tuple[Limits, tuple[str, ...]] | None = None
        self._made = Bounds()

    def bounds(self, limits: Limits, cards: tuple[str, ...] = ()) -> Bounds:
        """The bounds for a task; with `cards`, it may use only these."""
        asked = limits, cards
        # A job's tasks come one after the other; a bucket's points change with each placement.
        if self._last != asked or limits.bucket is not None:
            always = tuple(map(_bound_of, limits.rules))
            bonuses = tuple(map(_bonus_of, limits.points))
            if cards:
                always = (*always, self._cards(cards))
                if limits.card_points is not None:
                    bonuses = (*bonuses, self._bonus_of_cards(limits.card_points))
            if limits.bucket is not None:
                bonuses = (*bonuses, self._rooms.bonus_of(limits.bucket))
            if limits.node:
                always = (*always, _only(limits.node))
            self._last, self._made = asked, Bounds(always, limits.excluded, bonuses)
        return self._made

    def card_at(self, node: str, cards: tuple[str, ...]) -> str:
        """Which of the cards the node has, the preferred first; empty if no card was named."""
        if len(cards) < 2:
            return next(iter(cards), "")
        labels = self._state.nodes[node].labels
        there = {labels.get(label) for label in self._product_labels()}
        return next((card for card in cards if _product(card) in there), "")

    def _bonus_of_cards(self, points: CardPoints) -> Bonus:
        best: dict[str, int] = {}
        for card, micro in points.by_card:
            best[_product(card)] = max(micro, best.get(_product(card), 0))
        return Bonus(points.plugin, self._product_labels(), tuple(sorted(best.items())), 0)

    def _cards(self, cards: tuple[str, ...]) -> Bound:
        products = tuple(dict.fromkeys(map(_product, cards)))
        terms = tuple(
            NodeTerm((Expression(label, "In", products),)) for label in self._product_labels()
        )
        text = f"its queue has quota for card {' or '.join(cards)}"
        return Bound(reasons.CARD_WITHOUT_QUOTA, terms or (_NO_NODE,), text)

    def _product_labels(self) -> tuple[str, ...]:
        if self._products is None:
            found = {
                label
                for node in self._state.nodes.values()
                for label in node.labels
                if label.endswith(_PRODUCT)
            }
            self._products = tuple(sorted(found))
        return self._products


class _Rooms:
    """What nodes have free, after what is assumed and once the pods that are ending are gone."""

    def __init__(self, state: ClusterState, assumed: Mapping[str, Placement]) -> None:
        self._state = state
        self._assumed = assumed
        self._ending: list[Allocation] | None = None

    def bonus_of(self, points: BucketPoints) -> Bonus:
        """The points of nodes for the first of a bucket's tasks: none without room for it;
        otherwise the node's own, and one for each of the tasks in a row that fits along with those
        before it. Shifted so that none is below 0.
        """
        taken = [_taken_by(self._state.pods[uid].fact.request) for uid in points.tasks]
        names = sorted(set().union(*taken))
        sums = list(accumulate([tuple(one.get(name, 0) for name in names) for one in taken], _plus))
        own, known = dict(points.by_node), dict[tuple[int, ...], int]()
        scores: dict[str, int] = {}
        for node, room in self._rooms(names):
            fitting = known.get(room)
            if fitting is None:
                fitting = known[room] = bisect_left(sums, True, key=partial(_exceeds, room))
            scores[node] = own.get(node, 0) + fitting if fitting else 0
        lift = max(0, -min(scores.values(), default=0))
        by_name = ((n, (s + lift) * points.point_micro // points.most) for n, s in scores.items())
        return Bonus(points.plugin, (), tuple(sorted(by_name)), 0)

    def _rooms(self, names: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """By node, how much of each name is free."""
        if self._ending is None:
            found = (self._state.pods[uid].allocation for uid in ending(self._state))
            self._ending = [held for held in found if held is not None]
        moved: dict[str, Counter[str]] = {}
        for held in self._ending:
            moved.setdefault(held.node, Counter()).update(_taken_by(held))
        for placement in self._assumed.values():
            moved.setdefault(placement.node, Counter()).subtract(_taken_by(placement))
        for node in self._state.nodes.values():
            free = {
                **node.extended_free,
                CPU: node.cpu_milli_free,
                MEMORY: node.memory_bytes_free,
                PODS: node.pods_free,
            }
            more = moved.get(node.name)
            if more is not None:
                free = {name: amount + more[name] for name, amount in free.items()}
            yield node.name, tuple(max(free.get(name, 0), 0) for name in names)


def _taken_by(held: Allocation | Placement | PodRequest) -> dict[str, int]:
    """What one pod takes of its node; cards by the resources that nodes list for them."""
    host = {CPU: held.cpu_milli, MEMORY: held.memory_bytes, PODS: 1}
    found = {**dict(held.extended), **host}
    return {name: amount for name, amount in found.items() if amount}


def _plus(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(add, left, right))


def _exceeds(room: tuple[int, ...], needed: tuple[int, ...]) -> bool:
    """Whether a sum exceeds the room. Sums only grow, so once true it stays true."""
    return any(map(gt, needed, room))


def _product(card: str) -> str:
    """The model of a card as node labels name it, whole or sliced."""
    return card.partition("/")[0]


def _only(name: str) -> Bound:
    """Only the node that a task is nominated for."""
    there = NodeTerm((), (Expression("metadata.name", "In", (name,)),))
    return Bound(reasons.NOT_NOMINATED, (there,), f"it is nominated for node {name}")


def _bound_of(rule: NodeRule) -> Bound:
    """A plugin's rule as terms, equivalent to `NodeRule.allows`."""
    terms = [NodeTerm((Expression(rule.label, "In", rule.values),))] if rule.values else []
    if rule.unlabelled:
        terms.append(NodeTerm((Expression(rule.label, "DoesNotExist", ()),)))
    return Bound(rule.code, tuple(terms) or (_NO_NODE,), rule.text)


def _bonus_of(points: NodePoints) -> Bonus:
    """A plugin's points, shifted so that none is below 0: only differences between nodes count."""
    lift = max(0, -min((micro for _, micro in points.by_value), default=0))
    by_value = tuple(sorted((value, micro + lift) for value, micro in points.by_value))
    return Bonus(points.plugin, (points.label,), by_value, lift)
