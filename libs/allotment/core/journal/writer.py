"""Writes the journal beside a fold: what each record did to the books, and nothing of its own.

Bookings and releases are taken from `state.changes`, where the one door notes them; so what a
decision meant, or who bound a pod, is not asked a second time here.
"""

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from allotment.core.cuts import cutter_of
from allotment.core.journal.segment import (
    CARD,
    ENTRY,
    HOLDING,
    HOST,
    JOURNAL_VERSION,
    NONE,
    START,
    Cut,
    JournalError,
    Names,
    Segment,
    Taken,
    packed,
)
from allotment.core.model import Allocation, ClusterState
from allotment_proto.events import Event, NodeGone, NodeObserved
from allotment_proto.facts import NO_TABLE, Holding

K = TypeVar("K", bound=Hashable)


class _Numbers(dict[K, int]):
    """The number of each name; a new one gets the next and is written down."""

    def __init__(self, known: Sequence[K], new: list[K]) -> None:
        super().__init__(zip(known, range(len(known)), strict=True))
        self._new = new

    def __missing__(self, name: K) -> int:
        self._new.append(name)
        self[name] = number = len(self)
        return number


class Writer:
    """Follows `state` from its start, or from where a journal with these names and chain ends."""

    def __init__(
        self, state: ClusterState, known: Names | None = None, chain: bytes = START
    ) -> None:
        known = known or Names()
        self._state = state
        self._cursor = state.changes_dropped + len(state.changes)
        self._last_seq = state.seq
        self._chain = chain
        self._new = new = Names()
        self._spaces = _Numbers(known.spaces, new.spaces)
        self._pods = {uid: number for number, (_, uid) in enumerate(known.pods)}
        self._nodes = _Numbers(known.nodes, new.nodes)
        self._families = _Numbers(known.families, new.families)
        self._places = _Numbers(known.places, new.places)
        self._shares = _Numbers(known.shares, new.shares)
        self._taken = _Numbers(known.taken, new.taken)
        self._extended = _Numbers(known.extended, new.extended)
        self._cuts = _Numbers(known.cuts, new.cuts)
        self._entries: list[tuple[int, ...]] = []
        self._holdings: list[tuple[int, ...]] = []
        self._hosts: list[tuple[int, ...]] = []
        self._cards: list[tuple[int, ...]] = []
        self._opened = (self._last_seq, self._chain)

    @property
    def last_seq(self) -> int:
        """The last record that was taken."""
        return self._last_seq

    def take(self, seq: int, at_ms: int, payload: bytes, events: Iterable[Event]) -> None:
        """What the record did, once it took effect; no events for one that was passed over.

        Raises `JournalError` if it did more than the state remembers.
        """
        self._chain = chained(self._chain, payload)
        self._last_seq = seq
        changes = self._state.changes
        start = self._cursor - self._state.changes_dropped
        if start < 0:
            raise JournalError(f"the record at {seq} changed more than is remembered of it")
        self._cursor += len(changes) - start
        for _, allocation, sign in changes[start:]:
            if allocation is None:
                continue
            if sign > 0:
                self._book(seq, at_ms, allocation)
            else:
                self._entries.append((seq, at_ms, self._pod(allocation), NONE, NONE, 0))
        for name in {e.name: None for e in events if isinstance(e, NodeObserved | NodeGone)}:
            node = self._state.nodes.get(name)
            self._list(seq, at_ms, name, None if node is None else node.fact)

    def cut(self) -> Segment:
        """Everything since the last cut. Raises `JournalError` for numbers without room."""
        before, chain_before = self._opened
        segment = Segment(
            v=JOURNAL_VERSION,
            first_seq=before + 1,
            last_seq=self._last_seq,
            chain_before=chain_before,
            chain=self._chain,
            names=Names(*(list(table) for table in msgspec.structs.astuple(self._new))),
            entries=packed(self._entries, ENTRY),
            holdings=packed(self._holdings, HOLDING),
            hosts=packed(self._hosts, HOST),
            cards=packed(self._cards, CARD),
        )
        for table in msgspec.structs.astuple(self._new):
            table.clear()
        for rows in (self._entries, self._holdings, self._hosts, self._cards):
            rows.clear()
        self._opened = (self._last_seq, self._chain)
        return segment

    def _pod(self, allocation: Allocation) -> int:
        uid, fact = allocation.uid, allocation.fact
        number = self._pods.get(uid)
        if number is None:
            space = self._spaces["" if fact is None else fact.namespace]
            self._new.pods.append((space, uid))
            number = self._pods[uid] = len(self._pods)
        return number

    def _book(self, seq: int, at_ms: int, allocation: Allocation) -> None:
        node = self._nodes[allocation.node]
        taken = Taken(allocation.cpu_milli, allocation.memory_bytes, allocation.extended)
        held = allocation.holdings
        self._entries.append(
            (seq, at_ms, self._pod(allocation), node, self._taken[taken], len(held))
        )
        seen: set[tuple[int, int]] = set()
        for holding in held:
            place = self._places[node, self._families[holding.family], holding.card]
            share = self._shares[_without_card(holding)]
            is_again = (place, holding.container) in seen  # a container has a card once
            seen.add((place, holding.container))
            self._holdings.append((place, NONE - share if is_again else share))

    def _list(self, seq: int, at_ms: int, name: str, fact: NodeObserved | None) -> None:
        node = self._nodes[name]
        if fact is None:
            self._hosts.append((seq, at_ms, node, 0, 0, 0, 0, self._extended[()], 0))
            return
        cards: dict[int, tuple[int, ...]] = {}
        for inventory in {i.family: i for i in fact.inventories}.values():
            family, tables = self._families[inventory.family], inventory.tables
            for card in inventory.cards:
                table = tables[card.table] if 0 <= card.table < len(tables) else ()
                cut = NONE
                if cutter_of(inventory.family, card, table) is not None:
                    cut = self._cuts[Cut(inventory.family, card.table == NO_TABLE, table)]
                place = self._places[node, family, card.id]
                cards[place] = (place, cut, card.slots, card.memory_mib, card.cores_pct)
        self._cards += cards.values()
        amounts = fact.cpu_milli, fact.memory_bytes, fact.pods, self._extended[fact.extended]
        self._hosts.append((seq, at_ms, node, 1, *amounts, len(cards)))


def chained(chain: bytes, payload: bytes) -> bytes:
    """The hash chain of a log, one record on."""
    return hashlib.blake2b(payload, key=chain, digest_size=32).digest()


def _without_card(holding: Holding) -> Holding:
    return Holding(
        holding.family,
        holding.container,
        "",
        holding.memory_mib,
        holding.cores_pct,
        holding.instance,
    )
