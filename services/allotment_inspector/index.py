"""What is known of every record without reading it again: when it was written, how much it says,
whether it is marked.

Bounded: it also forgets the times of the oldest records, and the oldest marks. What is forgotten is
still in the log; pages then begin later and say so.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from allotment.core.logport import Record
from allotment_proto.events import Decided, Envelope, Event, Evicted, NodeGone, NodeObserved

RECORDS_MAX = 4_000_000
MARKS_MAX = 50_000
GONE_MAX = 4_000
BINS = 240
MARKS_SHOWN = 120
"""More than these would overlap on the slider."""

REFUSED, EVICTED, ILL, GONE = "refused", "evicted", "ill", "gone"
_WEIGHT = {"": 0, REFUSED: 1, ILL: 2, EVICTED: 3, GONE: 4}
"""Of several in one record, or at one place of the slider, the heaviest is shown."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A record that a reader may look for: ``refused``, ``evicted``, ``ill`` or ``gone``."""

    seq: int
    ms: int
    kind: str


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A node that went."""

    seq: int
    ms: int
    name: str


class _Part(msgspec.Struct, array_like=True):
    """What an index says of some records, in a file."""

    times_ms: list[int]
    events: list[int]
    marks: list[Mark]
    gone: list[Gone]
    ill: dict[str, frozenset[tuple[str, str]]]
    """Cards that are unhealthy after the last of them."""


class Density(NamedTuple):
    """How many records were written in each of `BINS` equal parts of a stretch of time."""

    first_ms: int
    last_ms: int
    counts: tuple[int, ...]


class Index:
    """Feed it every record in order with `take`. `first_seq` is the oldest one it still knows."""

    def __init__(self, first_seq: int = 1) -> None:
        self.first_seq = first_seq
        self.times_ms: array[int] = array("q")
        """Of the records from `first_seq` on, never going back."""
        self._events: array[int] = array("q")
        """How many events there were up to each of them, since the index began."""
        self._events_before = 0
        """What of that is before the first of them: what `precede` adds counts below zero."""
        self.marks: list[Mark] = []
        self.gone: list[Gone] = []
        """Nodes that went, in order."""
        self._ill: dict[str, frozenset[tuple[str, str]]] = {}
        """Node → its cards that are unhealthy."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.times_ms) - 1

    def begin(self, base: int) -> None:
        """Forget all; the first record that is noted follows this one."""
        self.first_seq = base + 1
        self.times_ms, self._events, self._events_before = array("q"), array("q"), 0
        self.marks, self.gone, self._ill = [], [], {}

    def begin_with(self, nodes: Iterable[NodeObserved]) -> None:
        """Note the nodes as they are before the first record: which cards are unhealthy by then."""
        for node in nodes:
            self._node_mark(node)

    def take(self, record: Record, envelope: Envelope | None) -> None:
        """Note a record; None: it could not be read."""
        ms = record.time_ns // 1_000_000
        if self.times_ms and ms < self.times_ms[-1]:
            ms = self.times_ms[-1]  # a clock that was set back must not hide records
        self.times_ms.append(ms)
        count = len(envelope.events) if envelope is not None else 1
        self._events.append(count + (self._events[-1] if self._events else 0))
        kind = ""
        for event in envelope.events if envelope is not None else ():
            kind = max(kind, self._mark_of(event, record.seq, ms), key=_WEIGHT.__getitem__)
        if kind:
            self.marks.append(Mark(record.seq, ms, kind))
        self._bound()

    def part(self, first_seq: int, last_seq: int) -> bytes:
        """What is known of some records up to the last one, for `add`."""
        first = max(first_seq - self.first_seq, 0)
        totals = self._events[max(first - 1, 0) :]
        events = [after - before for before, after in pairwise(totals)]
        if not first:
            events[:0] = [each - self._events_before for each in self._events[:1]]
        return msgspec.msgpack.encode(
            _Part(
                list(self.times_ms[first:]),
                events,
                self.marks[bisect_left(self.marks, first_seq, key=lambda mark: mark.seq) :],
                self.gone[bisect_left(self.gone, first_seq, key=lambda gone: gone.seq) :],
                self._ill,
            )
        )

    def add(self, part: bytes) -> None:
        """Take in what `part` gave of the records that follow these."""
        found = msgspec.msgpack.decode(part, type=_Part)
        before = self._events[-1] if self._events else 0
        self.times_ms.extend(found.times_ms)
        self._events.extend(before + total for total in accumulate(found.events))
        self.marks.extend(found.marks)
        self.gone.extend(found.gone)
        self._ill = found.ill
        self._bound()

    def precede(self, older: "Index") -> None:
        """Note what an index of the records before these says, as far as there is room."""
        has_room = len(older.times_ms) + len(self.times_ms) <= RECORDS_MAX
        if older.times_ms and older.last_seq + 1 == self.first_seq and has_room:
            until_ms = self.times_ms[0] if self.times_ms else older.times_ms[-1]
            self.times_ms[:0] = array("q", (min(ms, until_ms) for ms in older.times_ms))
            self._events_before -= older._events[-1]
            shift = self._events_before
            self._events[:0] = array("q", (shift + events for events in older._events))
            self.first_seq = older.first_seq
        self.marks[:0] = older.marks[max(len(older.marks) + len(self.marks) - MARKS_MAX, 0) :]
        self.gone[:0] = older.gone[max(len(older.gone) + len(self.gone) - GONE_MAX, 0) :]

    def ms_of(self, seq: int) -> int | None:
        """When a record was written, None if that is not known (yet, or no longer)."""
        place = seq - self.first_seq
        return self.times_ms[place] if 0 <= place < len(self.times_ms) else None

    def events_between(self, seq: int, other: int) -> int:
        """How many events the records after one sequence up to another hold; where that is not
        known, how many records they are.
        """
        first, last = seq - self.first_seq, other - self.first_seq
        if min(first, last) < 0 or max(first, last) >= len(self._events):
            return other - seq
        return self._events[last] - self._events[first]

    def seq_at(self, ms: int) -> int:
        """The last record written at that moment or before; what is before the index counts as
        its beginning.
        """
        return self.first_seq - 1 + bisect_right(self.times_ms, ms)

    def density(self, first_ms: int, last_ms: int) -> Density:
        """How the records are spread over a stretch of time."""
        span = max(last_ms - first_ms, 1)
        edges = [
            bisect_left(self.times_ms, first_ms + span * place // BINS) for place in range(BINS)
        ]
        edges.append(bisect_right(self.times_ms, last_ms))
        counts = tuple(after - before for before, after in pairwise(edges))
        return Density(first_ms, last_ms, counts)

    def marks_shown(self, first_ms: int, last_ms: int) -> tuple[Mark, ...]:
        """At most `MARKS_SHOWN` marks of a stretch of time: the heaviest of each place, and of
        equal ones the last.
        """
        span = max(last_ms - first_ms, 1)
        found: dict[int, Mark] = {}
        for mark in self.marks[bisect_left(self.marks, first_ms, key=lambda m: m.ms) :]:
            if mark.ms > last_ms:
                break
            place = (mark.ms - first_ms) * (MARKS_SHOWN - 1) // span
            before = found.get(place)
            if before is None or _WEIGHT[mark.kind] >= _WEIGHT[before.kind]:
                found[place] = mark
        return tuple(found[place] for place in sorted(found))

    def marked(self, seq: int, step: int) -> int | None:
        """The next marked record after (1) or before (−1) a sequence, None if there is none."""
        if step > 0:
            place = bisect_right(self.marks, seq, key=lambda m: m.seq)
            return self.marks[place].seq if place < len(self.marks) else None
        place = bisect_left(self.marks, seq, key=lambda m: m.seq)
        return self.marks[place - 1].seq if place else None

    def kind_of(self, seq: int) -> str:
        """How a record is marked, "" if it is not."""
        place = bisect_left(self.marks, seq, key=lambda m: m.seq)
        is_there = place < len(self.marks) and self.marks[place].seq == seq
        return self.marks[place].kind if is_there else ""

    def gone_between(self, first_ms: int, seq: int) -> list[Gone]:
        """The nodes that went since a time, up to a sequence; of each the last time."""
        found = {gone.name: gone for gone in self.gone if gone.ms >= first_ms and gone.seq <= seq}
        return sorted(found.values(), key=lambda gone: gone.name)

    def _mark_of(self, event: Event, seq: int, ms: int) -> str:
        match event:
            case NodeGone():
                self._ill.pop(event.name, None)
                self.gone.append(Gone(seq, ms, event.name))
                return GONE
            case NodeObserved():
                return self._node_mark(event)
            case Evicted() if not event.code:
                return EVICTED
            case Decided() if event.evictions:
                return EVICTED
            case Decided() if event.refusals or event.shorts:
                return REFUSED
            case _:
                return ""

    def _node_mark(self, event: NodeObserved) -> str:
        """Marked if a card that was healthy no longer is."""
        ill = frozenset(
            (inventory.family, card.id)
            for inventory in event.inventories
            for card in inventory.cards
            if not card.healthy
        )
        before = self._ill.pop(event.name, frozenset())
        if ill:
            self._ill[event.name] = ill
        return ILL if ill - before else ""

    def _bound(self) -> None:
        """Forget the oldest of what is too much."""
        too_many = len(self.times_ms) - RECORDS_MAX
        if too_many > 0:
            count = too_many + RECORDS_MAX // 8
            self._events_before = self._events[count - 1]
            del self.times_ms[:count], self._events[:count]
            self.first_seq += count
        if len(self.marks) > MARKS_MAX:
            del self.marks[: len(self.marks) - MARKS_MAX + MARKS_MAX // 8]
        if len(self.gone) > GONE_MAX:
            del self.gone[: len(self.gone) - GONE_MAX + GONE_MAX // 8]
