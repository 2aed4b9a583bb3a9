"""What is known of every record without reading it again: when it was written, what it is about,
whether it is marked.

Bounded: it forgets the times of the oldest records, the middle of a subject's life, the oldest pods
of a name, and the subjects without news for the longest time. What is forgotten is still in the
log; pages then begin later and say so.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import msgspec

from allotment.core.logport import Record
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
)

RECORDS_MAX = 4_000_000
SUBJECTS_MAX = 100_000
SEQS_PER_SUBJECT_MAX = 2_000
UIDS_PER_NAME_MAX = 200
MARKS_MAX = 50_000
GONE_MAX = 4_000
BINS = 240
MARKS_SHOWN = 120
"""More than these would overlap on the slider."""

REFUSED, EVICTED, ILL, GONE = "refused", "evicted", "ill", "gone"
_WEIGHT = {"": 0, REFUSED: 1, ILL: 2, EVICTED: 3, GONE: 4}
"""Of several in one record, or at one place of the slider, the heaviest is shown."""

POD, GROUP, NODE = "pod", "group", "node"


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A record that a reader may look for: ``refused``, ``evicted``, ``ill`` or ``gone``."""

    seq: int
    ms: int
    kind: str


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A node that went, as it was last seen."""

    seq: int
    ms: int
    node: NodeObserved


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
        """How many events there were up to each of them, since `first_seq` was 1."""
        self.marks: list[Mark] = []
        self._about: dict[tuple[str, str], array[int]] = {}
        """The one that changed last comes last."""
        self._uids: dict[str, tuple[str, ...]] = {}
        """``<namespace>/<name>`` → the pods that had it, the oldest first."""
        self.gone: list[Gone] = []
        """Nodes that went, in order."""
        self._nodes: dict[str, NodeObserved] = {}
        """Nodes that are there, as they were last seen."""
        self._ill: dict[str, frozenset[tuple[str, str]]] = {}
        """Node → its cards that are unhealthy."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.times_ms) - 1

    def take(self, record: Record, envelope: Envelope | None) -> None:
        """Note a record; None: it could not be read."""
        ms = record.time_ns // 1_000_000
        if self.times_ms and ms < self.times_ms[-1]:
            ms = self.times_ms[-1]  # a clock that was set back must not hide records
        self.times_ms.append(ms)
        count = len(envelope.events) if envelope is not None else 1
        self._events.append(count + (self._events[-1] if self._events else 0))
        if len(self.times_ms) > RECORDS_MAX:
            self._forget(len(self.times_ms) // 8)
        kind = ""
        for event in envelope.events if envelope is not None else ():
            kind = max(kind, self._mark_of(event, record.seq, ms), key=_WEIGHT.__getitem__)
            for subject in _subjects(event):
                self._note(subject, record.seq)
            if isinstance(event, PodObserved):
                self._name(f"{event.namespace}/{event.name}", event.uid)
        if kind:
            self.marks.append(Mark(record.seq, ms, kind))
            self._bound_marks()

    def join(self, later: "Index") -> None:
        """Add an index that begins where this one ends, or has forgotten its beginning since."""
        if later.first_seq > self.last_seq + 1:
            self._forget(len(self.times_ms))
            self.first_seq = later.first_seq
        self.times_ms.extend(later.times_ms)
        before = self._events[-1] if self._events else 0
        self._events.extend(before + count for count in later._events)
        self.marks.extend(later.marks)
        for subject, seqs in later._about.items():
            self._about[subject] = self._about.pop(subject, array("q")) + seqs
        for name, uids in later._uids.items():
            for uid in uids:
                self._name(name, uid)
        self.gone.extend(later.gone)
        self._nodes, self._ill = later._nodes, later._ill
        self._bound_marks()
        while len(self._about) > SUBJECTS_MAX:
            self._forget_subjects()

    def seqs(self, kind: str, name: str) -> tuple[int, ...]:
        """The records about a pod (by uid), a group (``ns/name``) or a node, in order."""
        return tuple(self._about.get((kind, name), ()))

    def first_seq_of(self, kind: str, name: str) -> int | None:
        """The first record about one of them, None if none is known."""
        seqs = self._about.get((kind, name))
        return seqs[0] if seqs else None

    def uids_of(self, namespace: str, name: str) -> tuple[str, ...]:
        """The pods that ever had a name, the oldest first."""
        return self._uids.get(f"{namespace}/{name}", ())

    def pod_names(self) -> tuple[str, ...]:
        """``<namespace>/<name>`` of every pod that is known, also of those that are gone. (A copy:
        views look through it in a thread, while records come.)
        """
        return tuple(self._uids)

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
        found = {
            gone.node.name: gone for gone in self.gone if gone.ms >= first_ms and gone.seq <= seq
        }
        return sorted(found.values(), key=lambda gone: gone.node.name)

    def _mark_of(self, event: Event, seq: int, ms: int) -> str:
        match event:
            case NodeGone():
                self._ill.pop(event.name, None)
                seen = self._nodes.pop(event.name, None)
                if seen is not None:
                    self.gone.append(Gone(seq, ms, seen))
                    if len(self.gone) > GONE_MAX:
                        del self.gone[: GONE_MAX // 8]
                return GONE
            case NodeObserved():
                self._nodes[event.name] = event
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

    def _name(self, name: str, uid: str) -> None:
        known = self._uids.get(name, ())
        if uid not in known:
            self._uids[name] = (*known, uid)[-UIDS_PER_NAME_MAX:]

    def _note(self, subject: tuple[str, str], seq: int) -> None:
        seqs = self._about.pop(subject, None)
        if seqs is None:
            seqs = array("q")
            if len(self._about) >= SUBJECTS_MAX:
                self._forget_subjects()
        self._about[subject] = seqs
        if seqs and seqs[-1] == seq:
            return
        seqs.append(seq)
        if len(seqs) > SEQS_PER_SUBJECT_MAX:  # how it began and how it stands now are kept
            middle = SEQS_PER_SUBJECT_MAX // 4
            del seqs[middle : 2 * middle]

    def _bound_marks(self) -> None:
        if len(self.marks) > MARKS_MAX:
            del self.marks[: len(self.marks) - MARKS_MAX + MARKS_MAX // 8]

    def _forget(self, count: int) -> None:
        del self.times_ms[:count], self._events[:count]
        self.first_seq += count

    def _forget_subjects(self) -> None:
        """Forget those without news for the longest time; existing nodes stay."""
        quiet = (each for each in self._about if each[0] != NODE or each[1] not in self._nodes)
        forgotten = list(islice(quiet, SUBJECTS_MAX // 8)) or list(self._about)[:1]
        for subject in forgotten:
            del self._about[subject]
        uids = {uid for kind, uid in forgotten if kind == POD}
        for name in [name for name, had in self._uids.items() if not uids.isdisjoint(had)]:
            left = tuple(uid for uid in self._uids[name] if uid not in uids)
            if left:
                self._uids[name] = left
            else:
                del self._uids[name]


def _subjects(event: Event) -> Iterator[tuple[str, str]]:
    """Whom an event is about."""
    match event:
        case PodObserved() | PodGone() | Bound() | BindFailed() | Evicted() | Corrected():
            yield POD, event.uid
        case NodeObserved() | NodeGone():
            yield NODE, event.name
        case GroupObserved() | GroupGone():
            yield GROUP, f"{event.namespace}/{event.name}"
        case Decided():
            yield from ((POD, uid) for uid in event.batch)
            yield from ((POD, placement.uid) for placement in event.placements)
            yield from ((POD, refusal.uid) for refusal in event.refusals)
            yield from ((POD, eviction.uid) for eviction in event.evictions)
            yield from ((POD, nomination.uid) for nomination in event.nominations)
            yield from ((GROUP, short.group) for short in event.shorts)
            yield from ((GROUP, admission.group) for admission in event.admissions)
            yield from ((NODE, placement.node) for placement in event.placements)
        case _:
            pass
