"""Segments put together again: checked as they are added, then read as a whole."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allotment.core.replay.journal.books import Balance, balance, spans, starts
from allotment.core.replay.journal.segment import (
    CARD,
    ENTRY,
    HOLDING,
    HOST,
    NONE,
    START,
    JournalError,
    Names,
    Rows,
    Segment,
    charging,
    unpacked,
)


class _Parts(NamedTuple):
    entries: Rows
    holdings: Rows
    hosts: Rows
    cards: Rows


class Journal:
    """All segments from the log's first record on. `names` and `chain` let a `Writer` go on."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.chain = START
        self.names = Names()
        self._parts = [_Parts(*(np.empty(0, kind) for kind in (ENTRY, HOLDING, HOST, CARD)))]

    def add(self, segment: Segment) -> None:
        """Take the next segment. Raises `JournalError`, and is as before, if it does not fit."""
        if segment.first_seq != self.last_seq + 1 or segment.last_seq < self.last_seq:
            found = f"{segment.first_seq} to {segment.last_seq}"
            raise JournalError(f"a segment from {found} does not follow {self.last_seq}")
        if segment.chain_before != self.chain:
            raise JournalError(f"the segment from {segment.first_seq} is of another log")
        parts = _Parts(
            unpacked(segment.entries, ENTRY),
            unpacked(segment.holdings, HOLDING),
            unpacked(segment.hosts, HOST),
            unpacked(segment.cards, CARD),
        )
        if not _is_sound(segment, parts, self.names):
            raise JournalError(f"the segment from {segment.first_seq} contradicts itself")
        self._parts.append(parts)
        for name in Names.__struct_fields__:
            getattr(self.names, name).extend(getattr(segment.names, name))
        self.last_seq, self.chain = segment.last_seq, segment.chain

    @property
    def entries(self) -> Rows:
        """Every booking and release, in order."""
        return self._joined().entries

    def holdings_of(self, bookings: NDArray[Any]) -> Rows:
        """These entries' holdings, one entry after the other."""
        entries, holdings, _, _ = self._joined()
        counts = entries["holdings"]
        return holdings[spans(starts(counts)[bookings], counts[bookings])]

    def listed_cards(self) -> tuple[NDArray[Any], Rows]:
        """Every card that a node listed, whenever it did, and the sequence of that record."""
        _, _, hosts, cards = self._joined()
        return np.repeat(hosts["seq"], hosts["cards"]), cards

    def books(self, seq: int | None = None) -> Balance:
        """Who held what and what was free after the record `seq` (None: the last).

        Raises `JournalError` if numbers are too large to be added up here, or make no sense.
        """
        return balance(self.names, *self._joined(), seq=self.last_seq if seq is None else seq)

    def _joined(self) -> _Parts:
        if len(self._parts) > 1:
            self._parts = [_Parts(*map(np.concatenate, zip(*self._parts, strict=True)))]
        return self._parts[0]


def _is_sound(segment: Segment, parts: _Parts, known: Names) -> bool:
    """Whether rows are in order and of this segment, and everything that they refer to is there."""
    entries, holdings, hosts, cards = parts
    new = segment.names
    spaces, pods, nodes, families, places, shares, taken, extended, cuts = (
        len(getattr(known, name)) + len(getattr(new, name)) for name in Names.__struct_fields__
    )
    return (
        _is_ordered(entries["seq"], segment)
        and _is_ordered(hosts["seq"], segment)
        and _is_within(entries["pod"], 0, pods)
        and _is_within(entries["node"], NONE, nodes)
        and _is_within(entries["taken"], NONE, taken)
        and bool(((entries["node"] < 0) == (entries["taken"] < 0)).all())
        and _is_count(entries["holdings"], holdings)
        and _is_within(holdings["place"], 0, places)
        and _is_within(charging(holdings["share"]), 0, shares)
        and _is_within(holdings["is_used"], 0, 2)
        and _is_within(hosts["node"], 0, nodes)
        and _is_within(hosts["is_there"], 0, 2)
        and _is_within(hosts["extended"], 0, extended)
        and _is_count(hosts["cards"], cards)
        and _is_within(cards["place"], 0, places)
        and _is_within(cards["cut"], NONE, cuts)
        and all(0 <= space < spaces for space, _ in new.pods)
        and all(0 <= n < nodes and 0 <= f < families for n, f, _ in new.places)
    )


def _is_ordered(seqs: NDArray[Any], segment: Segment) -> bool:
    return not len(seqs) or bool(
        segment.first_seq <= seqs[0]
        and seqs[-1] <= segment.last_seq
        and (seqs[1:] >= seqs[:-1]).all()
    )


def _is_within(numbers: NDArray[Any], lowest: int, end: int) -> bool:
    return not len(numbers) or bool(lowest <= numbers.min() and numbers.max() < end)


def _is_count(counts: NDArray[Any], rows: Rows) -> bool:
    """Whether these are the counts of all these rows."""
    return _is_within(counts, 0, len(rows) + 1) and int(counts.sum()) == len(rows)
