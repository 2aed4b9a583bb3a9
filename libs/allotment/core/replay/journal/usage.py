"""Who used how much, and for how long: a journal's rows, summed up over a stretch of time."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from allotment.core.replay.journal.reader import Journal
from allotment.core.replay.journal.segment import NONE, charging
from allotment_proto.facts import Holding

MICRO = 1_000_000


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """What the pods of one namespace, on one node, or of one name held: amounts times milliseconds.

    A device is a card or a part of one that a container held; where nobody can tell which cards,
    as many as were asked for. Memory is what was asked for; of an
    instance that has more, the rest is nobody's use. `counted_ms` are extended resources, by name.

    `card_micro_ms` are millionths of cards: a device counts as its part of its card (see
    `part_micro`), and one of a counted resource ``…/gpu`` as a whole card.
    """

    name: str
    pods: int
    device_ms: int
    memory_mib_ms: int
    cpu_milli_ms: int
    counted_ms: dict[str, int] = {}
    card_micro_ms: int = 0


class CardKind(NamedTuple):
    """What a card has."""

    memory_mib: int
    cores_pct: int
    slots: int


_UNLISTED = CardKind(0, 100, 1)
"""Of a card that its node never listed compute counts as percent, and the rest is not known."""


class _Held(NamedTuple):
    """Bookings that reach into the time, and how long they did."""

    at: NDArray[Any]
    ms: NDArray[Any]


def usage(
    journal: Journal,
    from_ms: int,
    to_ms: int,
    *,
    by_node: bool = False,
    name_of: Callable[[str], str] | None = None,
) -> list[Usage]:
    """What was held between two moments, by namespace, by node, or by what `name_of` says of pods'
    uids, in the order of names.
    """
    entries, names = journal.entries, journal.names
    held = _held(entries["pod"], entries["node"], entries["at_ms"], from_ms, to_ms)
    booked = entries[held.at]
    spaces = np.array([space for space, _ in names.pods], np.int64)
    words = names.nodes if by_node else names.spaces
    keys = booked["node"] if by_node else spaces[booked["pod"]]
    if name_of is not None:
        told, which = np.unique(booked["pod"], return_inverse=True)
        found_names = [name_of(names.pods[number][1]) for number in told.tolist()]
        words = sorted(set(found_names))
        place = {word: at for at, word in enumerate(words)}
        keys = np.array([place[word] for word in found_names], np.int64)[which.reshape(-1)]
    pods, device_ms, memory_mib_ms, cpu_milli_ms, card_micro_ms = (Counter[int]() for _ in range(5))
    for key, _ in np.unique(np.stack((keys, booked["pod"]), 1), axis=0).tolist():
        pods[key] += 1
    counted_ms: dict[int, Counter[str]] = {}
    for key, number, ms in _sums(keys, booked["taken"], held.ms):
        taken = names.taken[number]
        cpu_milli_ms[key] += taken.cpu_milli * ms
        counted = counted_ms.setdefault(key, Counter())
        for resource, amount in taken.extended:
            counted[resource] += amount * ms
            if resource.endswith("/gpu"):
                card_micro_ms[key] += amount * MICRO * ms
    holdings = journal.holdings_of(held.at)
    is_used = holdings["is_used"] > 0
    holdings = holdings[is_used]
    owners = np.repeat(np.arange(len(booked)), booked["holdings"])[is_used]
    shares, of_holdings = holdings["share"], held.ms[owners]
    kinds, kind_of = _card_kinds(journal, holdings["place"], booked["seq"][owners])
    numbers = charging(shares) * len(kinds) + kind_of
    holding_keys = keys[owners]
    for key, number, ms in _sums(holding_keys, numbers, of_holdings):
        share = names.shares[number // len(kinds)]
        device_ms[key] += ms
        memory_mib_ms[key] += share.memory_mib * ms
    once = shares >= 0
    for key, number, ms in _sums(holding_keys[once], numbers[once], of_holdings[once]):
        share, kind = names.shares[number // len(kinds)], kinds[number % len(kinds)]
        card_micro_ms[key] += part_micro(share, kind) * ms
    found = [
        Usage(
            words[key],
            pods[key],
            device_ms[key],
            memory_mib_ms[key],
            cpu_milli_ms[key],
            dict(sorted(counted_ms[key].items())),
            card_micro_ms[key],
        )
        for key in pods
    ]
    return sorted(found, key=lambda used: used.name)


def part_micro(share: Holding, card: CardKind) -> int:
    """Which part of its card a share is, in millionths: of memory or of compute, whichever is more;
    of a card that is handed out by neither, one of its slots.
    """
    cores = 100 if card.cores_pct in (0, 100) else card.cores_pct
    parts = [share.cores_pct * MICRO // cores]
    if card.memory_mib:
        parts.append(share.memory_mib * MICRO // card.memory_mib)
    return min(max(parts) or MICRO // max(card.slots, 1), MICRO)


def _card_kinds(
    journal: Journal, places: NDArray[Any], seqs: NDArray[Any]
) -> tuple[list[CardKind], NDArray[Any]]:
    """The kinds of cards, and of the card at each place its number: as its node listed it last
    before that record, or else for the first time after it.
    """
    listed_seqs, cards = journal.listed_cards()
    amounts = np.stack([cards[name] for name in CardKind._fields], 1)
    known, kind_of = np.unique(amounts, axis=0, return_inverse=True)
    count = len(cards)
    # One order of listings and questions, by place and record; an answer is the listing before it.
    place = np.concatenate((cards["place"], places))
    order = np.lexsort((np.arange(len(place)) >= count, np.concatenate((listed_seqs, seqs)), place))
    is_listing = order < count
    before = np.maximum.accumulate(np.where(is_listing, np.arange(len(order)), NONE))
    after = np.minimum.accumulate(np.where(is_listing, np.arange(len(order)), len(order))[::-1])[
        ::-1
    ]
    found = np.full(len(place), len(known), np.int64)
    for nearest in (after, before):  # the one before it wins
        inside = (nearest >= 0) & (nearest < len(order))
        listing = order[np.where(inside, nearest, 0)]
        same = inside & (place[listing] == place[order])
        found[order[same]] = kind_of.reshape(-1)[listing[same]]
    kinds = [CardKind(*row) for row in known.tolist()]
    return [*kinds, _UNLISTED], found[count:]


def _held(
    pods: NDArray[Any], nodes: NDArray[Any], at_ms: NDArray[Any], from_ms: int, to_ms: int
) -> _Held:
    """Each booking lasts until the next entry of its pod, or still does."""
    order = np.argsort(pods, kind="stable")
    ends = np.full(len(order), to_ms, np.int64)
    same = pods[order][1:] == pods[order][:-1]
    ends[order[:-1][same]] = at_ms[order[1:][same]]
    ms = np.minimum(ends, to_ms) - np.maximum(at_ms, from_ms)
    at = np.flatnonzero((nodes >= 0) & (ms > 0))
    return _Held(at, ms[at])


def _sums(
    keys: NDArray[Any], numbers: NDArray[Any], ms: NDArray[Any]
) -> list[tuple[int, int, int]]:
    """The milliseconds of every pair of key and number: there are few, and the rest of the
    arithmetic is done in integers without bounds.
    """
    pairs, which = np.unique(np.stack((keys, numbers), 1), axis=0, return_inverse=True)
    sums = np.zeros(len(pairs), np.int64)
    np.add.at(sums, which.reshape(-1), ms)
    return [
        (key, number, total)
        for (key, number), total in zip(pairs.tolist(), sums.tolist(), strict=True)
    ]
