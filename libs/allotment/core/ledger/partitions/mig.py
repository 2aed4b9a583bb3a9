"""MIG: a card is partitioned by one geometry at a time, and an instance has one holder.

A geometry lists profiles with counts; positions count through them in the configuration's order.
An instance is named ``<geometry>-<position>``. The smallest profile that will do is handed out, at
its lowest free position; every profile of the chosen geometry is on offer, and the geometry is free
to be chosen again when its last instance is released. Source: volcano `vgpu/mig.go`, with quirks
Q3, Q4, Q5 and Q6 (deviceshare 4.4, 10) done right.

Which geometry an empty card gets: the one that would strand least if pods like this one came for
the rest of the card, that is, whose instances serve most of them; of equals the one with the
smaller instance for this pod, then the first in the configuration. With the order `listed` it is
the first that will do, as in Volcano.

State: () for an unpartitioned card; (geometry, free count of each of its profiles);
`CONTRADICTORY` for a card whose holders contradict each other or the table, which hands out
nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from allotment.core.ledger.partitions.base import UNPARTITIONED, Piece, State, Table, share_mib
from allotment_proto.facts import CardFact, DeviceRequest, Geometry

CONTRADICTORY: State = (-1,)
LISTED = "listed"


class _Mig:
    """The partitioner of MIG cards; see `allotment.core.ledger.partitions.Partitioner`."""

    def state(self, card: CardFact, table: Table, held: Sequence[str]) -> State:
        if not held:
            return UNPARTITIONED
        found = [_place(table, instance) for instance in held]
        chosen = found[0]
        if chosen is None:
            return CONTRADICTORY
        number, used = chosen[0], set()
        for place in found:
            if place is None or place[0] != number:
                return CONTRADICTORY
            used.add(place[1])
        return (number, *_free_counts(table[number], used))

    def states(self, card: CardFact, table: Table) -> Iterable[State]:
        yield UNPARTITIONED
        yield CONTRADICTORY
        for number, geometry in enumerate(table):
            counts = (range(profile.count + 1) for profile in geometry.profiles)
            for free in product(*counts):
                yield (number, *free)

    def piece(
        self, card: CardFact, table: Table, state: State, wanted: DeviceRequest, order: str
    ) -> Piece | None:
        need_mib = _need_on(card, table, wanted)
        if state != UNPARTITIONED:
            if state == CONTRADICTORY:
                return None
            return _smallest(table, state, need_mib, wanted.cores_pct)
        fresh = (
            (number, *(profile.count for profile in geometry.profiles))
            for number, geometry in enumerate(table)
        )
        pieces = [
            (piece, table[start[0]])
            for start in fresh
            if (piece := _smallest(table, start, need_mib, wanted.cores_pct)) is not None
        ]
        if not pieces:
            return None
        if order == LISTED:
            return pieces[0][0]
        return min(pieces, key=lambda pair: _stranded(pair[0], pair[1], need_mib))[0]

    def most(self, card: CardFact, table: Table, state: State, wanted: DeviceRequest) -> int:
        if state == CONTRADICTORY:
            return 0
        need_mib = _need_on(card, table, wanted)
        if state != UNPARTITIONED:
            return _adequate(table[state[0]], state[1:], need_mib)
        counts = (
            _adequate(geometry, [profile.count for profile in geometry.profiles], need_mib)
            for geometry in table
        )
        return max(counts, default=0)

    def name(self, table: Table, piece: Piece, held: Sequence[str]) -> str:
        number, profile = piece.kind
        geometry = table[number]
        used = {place[1] for instance in held if (place := _place(table, instance)) is not None}
        start = sum(p.count for p in geometry.profiles[:profile])
        positions = range(start, start + geometry.profiles[profile].count)
        return f"{geometry.name}-{next(p for p in positions if p not in used)}"

    def charged_mib(self, table: Table, instance: str, wanted_mib: int) -> int:
        """The instance's memory; of one that the table does not know, what was asked for."""
        place = _place(table, instance)
        if place is None:
            return wanted_mib
        return table[place[0]].profiles[_profile_at(table[place[0]], place[1])].memory_mib

    def admits(self, card: CardFact, table: Table, held: Sequence[str], new: Sequence[str]) -> bool:
        # others may have given one instance twice: that is in use, and no reason to refuse the rest
        is_new = len(set(new)) == len(new) and set(new).isdisjoint(held)
        return is_new and self.state(card, table, (*held, *new)) != CONTRADICTORY


MIG = _Mig()


def largest_mib(table: Table) -> int:
    """The memory of the largest instance that a card can be partitioned into."""
    return max((p.memory_mib for g in table for p in g.profiles if p.count), default=0)


def most_mib(table: Table) -> int:
    """The most memory that all instances of one geometry have together."""
    return max((sum(p.memory_mib * p.count for p in g.profiles) for g in table), default=0)


def largest_left_mib(table: Table, state: State) -> int:
    """The memory of the largest instance that a card in this state can still give."""
    if state == UNPARTITIONED:
        return largest_mib(table)
    if state == CONTRADICTORY:
        return 0
    number, *free = state
    profiles = zip(table[number].profiles, free, strict=True)
    return max((profile.memory_mib for profile, count in profiles if count), default=0)


def _need_on(card: CardFact, table: Table, wanted: DeviceRequest) -> int:
    """The memory that an instance must have: a whole card's is that of the largest instance."""
    if not wanted.memory_pct:
        return wanted.memory_mib
    return min(share_mib(card.memory_mib, wanted.memory_pct), largest_mib(table))


def _smallest(table: Table, state: State, need_mib: int, cores_pct: int) -> Piece | None:
    """The smallest adequate profile with a free instance; of equals the first in order."""
    number, free = state[0], state[1:]
    profiles = table[number].profiles
    fitting = [
        (profile.memory_mib, at)
        for at, profile in enumerate(profiles)
        if free[at] and profile.memory_mib >= need_mib
    ]
    if not fitting:
        return None
    memory_mib, at = min(fitting)
    after = (*free[:at], free[at] - 1, *free[at + 1 :])
    return Piece((number, at), memory_mib, cores_pct, (number, *after))


def _adequate(geometry: Geometry, free: Sequence[int], need_mib: int) -> int:
    """How many free instances are large enough."""
    pairs = zip(geometry.profiles, free, strict=True)
    return sum(count for profile, count in pairs if profile.memory_mib >= need_mib)


def _stranded(piece: Piece, geometry: Geometry, need_mib: int) -> tuple[int, int]:
    """The less, the better: pods like this one that fit, negated; the instance's memory."""
    counts = [profile.count for profile in geometry.profiles]
    return -_adequate(geometry, counts, need_mib), piece.memory_mib


def _free_counts(geometry: Geometry, used: set[int]) -> Iterator[int]:
    start = 0
    for profile in geometry.profiles:
        end = start + profile.count
        yield sum(position not in used for position in range(start, end))
        start = end


def profile_name(table: Table, instance: str) -> str:
    """The profile of an instance, as ``1g.10gb``; empty for one that the table does not have."""
    place = _place(table, instance)
    if place is None:
        return ""
    geometry = table[place[0]]
    return geometry.profiles[_profile_at(geometry, place[1])].name


def _place(table: Table, instance: str) -> tuple[int, int] | None:
    """Geometry number and position of an instance; None if the table has no such instance."""
    name, _, text = instance.rpartition("-")
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        return None
    position = int(text)
    if str(position) != text:
        return None
    for number, geometry in enumerate(table):
        if geometry.name == name:
            size = sum(profile.count for profile in geometry.profiles)
            return (number, position) if position < size else None
    return None


def _profile_at(geometry: Geometry, position: int) -> int:
    end = 0
    for number, profile in enumerate(geometry.profiles):
        end += profile.count
        if position < end:
            return number
    raise LookupError(f"{geometry.name} has no position {position}")
