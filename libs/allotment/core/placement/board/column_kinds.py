"""Kinds of cards: what cards have in common that a request can ask about, by number.

Cards that are alike in everything but their use share a kind. What a request needs and earns is
looked up by kind, so that a row costs as much for ten cards as for ten thousand.
"""

from collections.abc import Iterator
from typing import NamedTuple

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import Node
from allotment.core.ledger.partitions import (
    UNPARTITIONED,
    Partitioner,
    State,
    Table,
    partitioner_of,
)
from allotment_proto.facts import NO_TABLE, CardFact


class CardKind(NamedTuple):
    """What cards have in common that a request can ask about."""

    family: str
    mode: str
    model: str
    slots: int
    memory_mib: int
    cores_pct: int
    healthy: bool
    blocked: str | None = None
    """Why no card of its ledger takes anything; see `Ledger.blocked`."""
    table: Table = ()
    is_closed: bool = False
    """It hands out nothing; see `NO_TABLE`."""
    state: State = UNPARTITIONED
    """What can still be had of a cut card: it is of another kind after every piece."""

    def fact(self) -> CardFact:
        """A card of this kind."""
        return CardFact(
            "",
            0,
            self.model,
            self.slots,
            self.memory_mib,
            self.cores_pct,
            self.healthy,
            self.mode,
            NO_TABLE if self.is_closed else -1,
        )

    @property
    def partitioner(self) -> Partitioner | None:
        return partitioner_of(self.family, self.fact(), self.table)


NO_CARD = CardKind("", "", "", 0, 0, 0, False)


class Keys(NamedTuple):
    """How a key is laid out, from its highest bits down.

    What the order prefers (`fullest` and `preferred`: memory in use in MiB; `emptiest`: how few
    holders, as `HOLDERS_MOST` less those there are; `first` and `last`: 0), the card's place among
    equals, and its kind.
    """

    kind_bits: int
    place_bits: int
    amount_shift: int
    """The bits of kind and place together."""
    kind_mask: int

    @property
    def kinds_most(self) -> int:
        """How many kinds a key can tell apart."""
        return 1 << self.kind_bits


class Kinds:
    """The kinds there are, numbered as they are met. Number 0 is no card."""

    def __init__(self) -> None:
        self.known: list[CardKind] = []
        self.partitioners: list[tuple[Partitioner | None, CardFact]] = []
        """Per kind how it is cut, and a card of it."""
        self._numbers: dict[CardKind, int] = {}
        self._siblings: list[dict[State, int]] = []
        """Per kind the numbers of the kinds that differ from it in state only."""
        self.number(NO_CARD)

    def number(self, kind: CardKind) -> int:
        """The number of a kind, a new one if it was not met yet."""
        known = self._numbers.get(kind)
        if known is None:
            known = self._add(kind, {})
            partitioner, fact = self.partitioners[known]
            if partitioner is not None:  # all that such a card can become: rows know it at once
                siblings = self._siblings[known]
                for state in partitioner.states(fact, kind.table):
                    if state not in siblings:
                        self._add(kind._replace(state=state), siblings)
        return known

    def in_state(self, number: int, state: State) -> int:
        """The kind that a card of this kind has once it is in another state."""
        siblings = self._siblings[number]
        found = siblings.get(state)
        if found is None:
            found = siblings[state] = self.number(self.known[number]._replace(state=state))
        return found

    def _add(self, kind: CardKind, siblings: dict[State, int]) -> int:
        number = self._numbers[kind] = siblings[kind.state] = len(self.known)
        self.known.append(kind)
        self.partitioners.append((kind.partitioner, kind.fact()))
        self._siblings.append(siblings)
        return number


def cards_of(node: Node) -> Iterator[tuple[Card, CardKind]]:
    """The cards of a node with their kinds, in the order of their slots."""
    for family, ledger in node.ledgers.items():
        for card in ledger.cards:
            fact = card.fact
            yield (
                card,
                CardKind(
                    family,
                    ledger.mode,
                    fact.model,
                    fact.slots,
                    fact.memory_mib,
                    fact.cores_pct,
                    fact.healthy,
                    ledger.blocked,
                    card.table,
                    fact.table == NO_TABLE,
                    card.state,
                ),
            )
