"""Writes the journal beside a fold: what each record did to the books, and nothing of its own.

Bookings and releases are taken from `state.changes`, where the one door notes them; so what a
decision meant, or who bound a pod, is not asked a second time here.
"""

import hashlib
import struct
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.ledger.partitions import partitioner_of
from allotment.core.replay.journal.segment import (
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
    on_card,
    packer,
)
from allotment_proto.events import Event, NodeGone, NodeObserved
from allotment_proto.facts import NO_TABLE, Holding

_OF_NODES = (NodeObserved, NodeGone)

_K = TypeVar("_K", bound=Hashable)

_entry, _holding, _host, _card = map(packer, (ENTRY, HOLDING, HOST, CARD))


class _Numbers(dict[_K, int]):
    """The number of each name; a new one gets the next and is written down."""

    def __init__(self, known: Sequence[_K], new: list[_K]) -> None:
        super().__init__(zip(known, range(len(known)), strict=True))
        self._new = new

    def __missing__(self, name: _K) -> int:
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
        self._shares = {_share_key(held): number for number, held in enumerate(known.shares)}
        self._taken = {
            (t.cpu_milli, t.memory_bytes, t.extended): number
            for number, t in enumerate(known.taken)
        }
        self._extended = _Numbers(known.extended, new.extended)
        self._cuts = _Numbers(known.cuts, new.cuts)
        self._entries, self._holdings = bytearray(), bytearray()
        self._hosts, self._cards = bytearray(), bytearray()
        self._opened = (self._last_seq, self._chain)

    @property
    def last_seq(self) -> int:
        """The last record that was taken."""
        return self._last_seq

    def take(self, seq: int, at_ms: int, payload: bytes, events: Iterable[Event]) -> None:
        """What the record did, once it took effect; no events for one that was passed over.

        Raises `JournalError` if it did more than the state remembers, or for a number that has no
        room; then this writer is of no more use.
        """
        self._chain = _chained(self._chain, payload)
        self._last_seq = seq
        changes = self._state.changes
        start = self._cursor - self._state.changes_dropped
        if start < 0:
            raise JournalError(f"the record at {seq} changed more than is remembered of it")
        self._cursor += len(changes) - start
        try:
            for _, allocation, sign in changes[start:]:
                if sign > 0 and allocation is not None:
                    self._book(seq, at_ms, allocation)
                elif sign < 0 and allocation is not None:
                    self._entries += _entry(seq, at_ms, self._pod(allocation), NONE, NONE, 0)
            for name in {e.name: None for e in events if isinstance(e, _OF_NODES)}:
                node = self._state.nodes.get(name)
                self._list(seq, at_ms, name, None if node is None else node.fact)
        except struct.error as error:
            raise JournalError(f"a number is too large for a journal: {error}") from error

    def cut(self) -> Segment:
        """Everything since the last cut."""
        before, chain_before = self._opened
        segment = Segment(
            v=JOURNAL_VERSION,
            first_seq=before + 1,
            last_seq=self._last_seq,
            chain_before=chain_before,
            chain=self._chain,
            names=Names(*(list(table) for table in msgspec.structs.astuple(self._new))),
            entries=bytes(self._entries),
            holdings=bytes(self._holdings),
            hosts=bytes(self._hosts),
            cards=bytes(self._cards),
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
        amounts = allocation.cpu_milli, allocation.memory_bytes, allocation.extended
        taken = self._taken.get(amounts)
        if taken is None:
            taken = self._taken[amounts] = len(self._taken)
            self._new.taken.append(Taken(*amounts))
        held = allocation.holdings
        used = set(map(id, allocation.quota_holdings)) if allocation.unplaced else None
        self._entries += _entry(seq, at_ms, self._pod(allocation), node, taken, len(held))
        seen: set[tuple[int, int, str]] = set()
        for holding in held:
            place = self._places[node, self._families[holding.family], holding.card]
            share = self._share(holding)
            if len(held) > 1:
                piece = place, holding.container, holding.instance
                if piece in seen:  # a container has a piece of a card once
                    share = NONE - share
                seen.add(piece)
            self._holdings += _holding(place, share, used is None or id(holding) in used)

    def _share(self, holding: Holding) -> int:
        key = _share_key(holding)
        number = self._shares.get(key)
        if number is None:
            number = self._shares[key] = len(self._shares)
            self._new.shares.append(on_card(holding, ""))
        return number

    def _list(self, seq: int, at_ms: int, name: str, fact: NodeObserved | None) -> None:
        node = self._nodes[name]
        if fact is None:
            self._hosts += _host(seq, at_ms, node, 0, 0, 0, 0, self._extended[()], 0)
            return
        cards: dict[int, bytes] = {}
        for inventory in {i.family: i for i in fact.inventories}.values():
            family, tables = self._families[inventory.family], inventory.tables
            for card in inventory.cards:
                table = tables[card.table] if 0 <= card.table < len(tables) else ()
                cut = NONE
                if partitioner_of(inventory.family, card, table) is not None:
                    cut = self._cuts[Cut(inventory.family, card.table == NO_TABLE, table)]
                place = self._places[node, family, card.id]
                cards[place] = _card(place, cut, card.slots, card.memory_mib, card.cores_pct)
        self._cards += b"".join(cards.values())
        amounts = fact.cpu_milli, fact.memory_bytes, fact.pods, self._extended[fact.extended]
        self._hosts += _host(seq, at_ms, node, 1, *amounts, len(cards))


def _chained(chain: bytes, payload: bytes) -> bytes:
    """The hash chain of a log, one record on."""
    return hashlib.blake2b(payload, key=chain, digest_size=32).digest()


def _share_key(holding: Holding) -> tuple[str, int, int, int, str]:
    """All of a holding but its card."""
    return (
        holding.family,
        holding.container,
        holding.memory_mib,
        holding.cores_pct,
        holding.instance,
    )
