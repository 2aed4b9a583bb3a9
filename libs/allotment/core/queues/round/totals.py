"""What all nodes together offer, and how much of it is in use, followed node by node."""

from typing import NamedTuple

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.rules import card_names
from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.resources import CPU, MEMORY, MILLI, NOTHING, PODS, Resources, Tally
from allotment.core.queues.round.members import CARD_QUOTA
from allotment_proto.events import NodeObserved

_ALWAYS_NAMED = Resources({CPU: 0, MEMORY: 0, PODS: 0})


class Totals:
    """The totals of one state as it moves on. `read` counts the nodes whose facts were read,
    `counted` those whose use was.
    """

    def __init__(self, state: ClusterState) -> None:
        self.offered = NOTHING
        self.cards: tuple[Card, ...] = ()
        self.read = 0
        self.counted = 0
        self._state = state
        self._nodes_seq = -1
        self._offers: dict[str, _Offer] = {}
        """By node."""
        self._offered = Tally()
        self._used_on: dict[int, Resources] = {}
        """By row."""
        self._used = Tally()
        self._cursor = -1

    def follow(self) -> bool:
        """Read what nodes offer. Returns whether the amounts that pods hold of cards count
        differently now.
        """
        state = self._state
        if self._nodes_seq == state.nodes_seq:
            return False
        self._nodes_seq = state.nodes_seq
        before, self._offers = self._offers, {}
        is_other = are_cards_other = False
        for node in state.nodes.values():
            was = known = before.pop(node.name, None)
            if known is None or known.fact is not node.fact:
                self.read += 1
                known = _offer_of(node)
                self._offered.add(known.capacity)
                if was is None or not was.is_same(known):
                    are_cards_other = True
                    is_other |= bool(node.allocations)
                if was is not None:
                    self._offered.add(was.capacity, -1)
            self._offers[node.name] = known
        for gone in before.values():
            self._offered.add(gone.capacity, -1)
        self.offered = self._offered.amounts()
        if are_cards_other or before:
            self.cards = self._cards()
        return is_other

    def _cards(self) -> tuple[Card, ...]:
        cards: dict[str, Card] = {}
        for offer in self._offers.values():
            for card in offer.cards:
                cards.setdefault(card.name, card)
        return tuple(cards[name] for name in sorted(cards))

    def used(self) -> Resources:
        """What is in use now. Unchanged nodes are not read again."""
        state = self._state
        changes = state.trails.nodes.since(self._cursor)
        rows = range(len(state.rows)) if changes is None else {row for row, _, _ in changes}
        self._cursor = state.trails.nodes.end
        for row in rows:
            self.counted += 1
            before, now = self._used_on.pop(row, NOTHING), NOTHING
            node = state.rows[row]
            if node is not None and node.fact is not None and node.allocations:
                now = self._used_on[row] = _use(node, node.fact)
            self._used.swap(before, now)
        return _ALWAYS_NAMED.plus(self._used.amounts())


class _Offer(NamedTuple):
    """What a node offers: resources, cards by name, and the inventories that weigh holdings."""

    fact: NodeObserved | None
    capacity: Resources
    cards: tuple[Card, ...]
    sizes: tuple[tuple[str, int], ...]

    def is_same(self, other: "_Offer") -> bool:
        """Whether both offer the same cards."""
        return self.cards == other.cards and self.sizes == other.sizes


def _offer_of(node: Node) -> _Offer:
    if node.fact is None:
        return _Offer(None, NOTHING, (), ())
    listed = [name for name, _ in node.fact.extended]
    cards = tuple(card_names.discover(node.labels, listed))
    sizes = [
        (id_, card.fact.memory_mib)
        for family in CARD_QUOTA
        if cards and family in node.ledgers
        for id_, card in node.ledgers[family].by_id.items()
    ]
    return _Offer(node.fact, _capacity(node.fact), cards, tuple(sizes))


def _capacity(fact: NodeObserved) -> Resources:
    found = {CPU: fact.cpu_milli, MEMORY: fact.memory_bytes, PODS: fact.pods}
    found.update((name, amount * MILLI) for name, amount in fact.extended)
    return Resources(found)


def _use(node: Node, fact: NodeObserved) -> Resources:
    found = {
        CPU: fact.cpu_milli - node.cpu_milli_free,
        MEMORY: fact.memory_bytes - node.memory_bytes_free,
        PODS: fact.pods - node.pods_free,
    }
    free = node.extended_free
    for name, amount in fact.extended:
        used = amount - free.get(name, amount)
        if used:
            found[name] = used * MILLI
    return Resources(found)
