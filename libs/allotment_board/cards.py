"""What the columns know of cards besides amounts: their kinds, and the tags of their holders.

Cards that are alike in everything but their use share a kind. What a request needs and earns is
looked up by kind, so that a row costs as much for ten cards as for ten thousand. Tags are what pods
that keep apart from others ask for.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import Node
from allotment.core.ledger.partitions import (
    UNPARTITIONED,
    Partitioner,
    State,
    Table,
    partitioner_of,
)
from allotment_board.packing import Bools
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
    """What can still be had of a partitioned card: it is of another kind after every piece."""

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


_NO_CARD = CardKind("", "", "", 0, 0, 0, False)


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
        """Per kind how it is partitioned, and a card of it."""
        self._numbers: dict[CardKind, int] = {}
        self._siblings: list[dict[State, int]] = []
        """Per kind the numbers of the kinds that differ from it in state only."""
        self.number(_NO_CARD)

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


class Tags:
    """How many holders with each tag the cards have; cards without any are not in here. A card is
    named by its place in the flattened arrays of the columns."""

    def __init__(self) -> None:
        self._cards: dict[str, dict[int, int]] = {}
        self.written: dict[int, dict[str, int]] = {}
        """Per place what was written there last."""

    def write(self, place: int, tags: Mapping[str, int]) -> None:
        """A card's holders have these tags, so many each, and no others."""
        if not tags and place not in self.written:
            return
        for tag, count in self.written.pop(place, {}).items():
            self.count(tag, place, -count)
        for tag, count in tags.items():
            self.count(tag, place, count)
        if tags:
            self.written[place] = dict(tags)

    def count(self, tag: str, place: int, number: int) -> None:
        """So many more holders with a tag on a card."""
        counts = self._cards.setdefault(tag, {})
        now = counts.get(place, 0) + number
        if now:
            counts[place] = now
        else:
            counts.pop(place, None)
            if not counts:
                del self._cards[tag]

    def mask(self, tags: Iterable[str], shape: tuple[int, int]) -> Bools | None:
        """Which cards (N, D) have a holder with one of the tags; None if there are none."""
        places = [place for tag in tags for place in self._cards.get(tag, ())]
        if not places:
            return None
        found = np.zeros(shape, np.bool_)
        found.reshape(-1)[places] = True
        return found
