"""The books at a sequence, made from a journal's rows all at once.

What a pod holds is what its last booking says, if no release came after it. What is free is what
the nodes list, less what is held: three subtractions over all holdings, none of them in Python. So
the cost is that of reading the rows, and nothing is asked that only the fold can answer.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allotment.core.ledger.partitions import partitioner_of
from allotment.core.replay.journal.segment import NONE, JournalError, Names, Rows, charging, on_card
from allotment.core.replay.picture import Picture
from allotment_proto.facts import NO_TABLE, CardFact, Holding

Numbers = NDArray[np.int64]

_SUM_MAX = 1 << 62
"""Amounts are added up in 64 bits: what could be more is left to the fold's integers."""


class Balance(NamedTuple):
    """Who holds what and what is free, in arrays by the numbers of nodes and of places.

    Amounts of what is not listed say nothing. `bookings` are the entries of those who hold
    something, in the order in which they were booked; their holdings start at `first`.
    """

    names: Names
    bookings: Rows
    first: Numbers
    holdings: Rows
    hosts: Rows
    """The row of each node that is there."""
    is_listed: NDArray[np.bool_]
    cpu_milli: Numbers
    memory_bytes: Numbers
    pods: Numbers
    slots: Numbers
    memory_mib: Numbers
    cores_pct: Numbers

    def picture(self) -> Picture:
        """The same with names and objects, to hold it against `picture_of` a fold's state."""
        names, nodes = self.names, self.names.nodes
        shares = charging(self.holdings["share"]).tolist()
        places = self.holdings["place"].tolist()
        holders = {}
        columns = ("pod", "node", "taken", "holdings")
        rows = zip(*(self.bookings[c].tolist() for c in columns), self.first.tolist(), strict=True)
        for pod, node, number, count, first in rows:
            held = tuple(
                on_card(names.shares[shares[at]], names.places[places[at]][2])
                for at in range(first, first + count)
            )
            taken = names.taken[number]
            holders[names.pods[pod][1]] = (
                nodes[node],
                held,
                taken.cpu_milli,
                taken.memory_bytes,
                taken.extended,
            )
        there = self.hosts["node"].tolist()
        cards: dict[str, dict[str, tuple[int, int, int]]] = {nodes[node]: {} for node in there}
        for place in np.flatnonzero(self.is_listed).tolist():
            node, family, card = names.places[place]
            cards[nodes[node]][f"{names.families[family]}/{card}"] = (
                int(self.slots[place]),
                int(self.memory_mib[place]),
                int(self.cores_pct[place]),
            )
        hosts = {
            nodes[node]: (
                int(self.cpu_milli[node]),
                int(self.memory_bytes[node]),
                int(self.pods[node]),
            )
            for node in there
        }
        return Picture(holders, cards, hosts, self._extended())

    def _extended(self) -> dict[str, dict[str, int]]:
        """Node → resource → free; few pods ask for such, so these are looked at one by one."""
        names = self.names
        free = {
            node: dict(names.extended[extended])
            for node, extended in zip(
                self.hosts["node"].tolist(), self.hosts["extended"].tolist(), strict=True
            )
        }
        asks = np.array([bool(taken.extended) for taken in names.taken], bool)
        for row in self.bookings[asks[self.bookings["taken"]]]:
            listed = free.get(int(row["node"]), {})
            for resource, amount in names.taken[row["taken"]].extended:
                if resource in listed:
                    listed[resource] -= amount
        return {names.nodes[node]: left for node, left in free.items()}


def balance(
    names: Names, entries: Rows, holdings: Rows, hosts: Rows, cards: Rows, *, seq: int
) -> Balance:
    """The books after the record `seq`. Raises `JournalError` for amounts that are too large, and
    for cards that are cut as none can be.
    """
    entries = entries[: np.searchsorted(entries["seq"], seq, "right")]
    hosts = hosts[: np.searchsorted(hosts["seq"], seq, "right")]
    last = _last(entries["pod"], len(names.pods))
    live = last[entries["node"][last] >= 0]
    first = starts(entries["holdings"])[live]
    bookings = entries[live]
    at = _last(hosts["node"], len(names.nodes))
    listed = cards[spans(starts(hosts["cards"])[at], hosts["cards"][at])]
    there = hosts[at[hosts["is_there"][at] > 0]]

    nodes, places = bookings["node"], len(names.places)
    try:
        taken = np.array([(t.cpu_milli, t.memory_bytes) for t in names.taken], np.int64)
        asked = np.array([(s.memory_mib, s.cores_pct) for s in names.shares], np.int64)
    except OverflowError as error:
        raise JournalError(f"a number is too large for a journal: {error}") from error
    taken, asked = taken.reshape(-1, 2), asked.reshape(-1, 2)
    is_listed = np.zeros(places, bool)
    is_listed[listed["place"]] = True
    held = holdings[spans(first, bookings["holdings"])]
    held = held[(held["share"] >= 0) & is_listed[held["place"]]]
    charged = asked[held["share"], 0]
    cut = np.full(places, NONE)
    cut[listed["place"]] = listed["cut"]
    _charge_pieces(names, cut[held["place"]], held["share"], charged)
    of_nodes = taken[bookings["taken"]]
    one = np.ones(1, np.int64)
    return Balance(
        names,
        bookings,
        first,
        holdings,
        there,
        is_listed,
        _left(len(names.nodes), there["node"], there["cpu_milli"], nodes, of_nodes[:, 0]),
        _left(len(names.nodes), there["node"], there["memory_bytes"], nodes, of_nodes[:, 1]),
        _left(len(names.nodes), there["node"], there["pods"], nodes, one),
        _left(places, listed["place"], listed["slots"], held["place"], one),
        _left(places, listed["place"], listed["memory_mib"], held["place"], charged),
        _left(places, listed["place"], listed["cores_pct"], held["place"], asked[held["share"], 1]),
    )


def _last(numbers: NDArray[Any], count: int) -> Numbers:
    """Where each number is found last, in order of place; those that are not found are left out."""
    last = np.full(count, NONE, np.int64)
    last[numbers] = np.arange(len(numbers))  # of equal indices the last value stays
    last.sort()
    return last[np.searchsorted(last, 0) :]


def starts(counts: NDArray[Any]) -> Numbers:
    """Where the span of each begins, if they lie one after the other."""
    before: Numbers = np.cumsum(counts, dtype=np.int64) - counts
    return before


def spans(first: Numbers, counts: NDArray[Any]) -> Numbers:
    """The indices of all spans, one after the other."""
    return np.repeat(first - starts(counts), counts) + np.arange(int(counts.sum()))


def _left(
    size: int, listed: NDArray[Any], amounts: NDArray[Any], held: NDArray[Any], less: NDArray[Any]
) -> Numbers:
    """What is listed less what is held. Raises `JournalError` if 64 bits could be too few."""
    highest = max((int(np.abs(some).max()) for some in (amounts, less) if len(some)), default=0)
    if highest * (len(held) + 1) >= _SUM_MAX:
        raise JournalError("amounts are too large for a journal")
    free = np.zeros(size, np.int64)
    free[listed] = amounts
    np.subtract.at(free, held, less)
    return free


def _charge_pieces(
    names: Names, cuts: NDArray[Any], shares: NDArray[Any], charged: Numbers
) -> None:
    """A piece of a card is charged what it has: asked once for each kind of piece."""
    at = np.flatnonzero(cuts >= 0)
    if not len(at):
        return
    pairs, which = np.unique(np.stack((cuts[at], shares[at]), 1), axis=0, return_inverse=True)
    amounts = [_piece_mib(names, cut, names.shares[share]) for cut, share in pairs.tolist()]
    charged[at] = np.array(amounts, np.int64)[which.reshape(-1)]


def _piece_mib(names: Names, number: int, share: Holding) -> int:
    cut = names.cuts[number]
    card = CardFact("", 0, "", 0, 0, 0, True, "", NO_TABLE if cut.is_closed else NONE)
    partitioner = partitioner_of(cut.family, card, cut.table)
    if partitioner is None:
        raise JournalError(f"cards of {cut.family} are not cut so")
    return partitioner.charged_mib(cut.table, share.instance, share.memory_mib)
