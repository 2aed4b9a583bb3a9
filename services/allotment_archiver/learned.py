"""The log's segments, learned from the few records that are about them.

Folding the whole log would hold the state of the cluster for two dozen records a month. So the
stream is asked for the next record on each of three subjects, and these are folded by the same
functions as everywhere (`core/ledger/segments.py`).
"""

from typing import NamedTuple, Protocol

from allotment.core import chain
from allotment.core.ledger import segments
from allotment.core.ledger.segments import OpenSegment, Segments
from allotment.core.logport import LogDamaged, Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import (
    CheckpointPart,
    Event,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
)

_ABOUT = (subjects.SEGMENT, subjects.CHECKPOINT, subjects.ARCHIVE)


class AskedLog(Protocol):
    """As much of a log as learning its segments takes."""

    async def first_seq(self) -> int: ...

    async def first_on(self, subject: str, from_seq: int) -> Record | None: ...


class Before(NamedTuple):
    """What a segment begins with: the chain's head before it, and the record that completes its
    checkpoint (0: the log begins here).
    """

    chain: str
    checkpoint_seq: int


class Learned:
    """The segments of a log; `look` brings them up to date. `archive_seq` is the last record on
    the archiver's subject.
    """

    def __init__(self, log: AskedLog) -> None:
        self.segments = Segments()
        self.archive_seq = 0
        self.before: dict[int, Before] = {1: Before(chain.START.hex(), 0)}
        """By number of a segment."""
        self._log = log
        self._next: dict[str, Record] = {}
        self._seq = 0

    async def look(self) -> None:
        """Fold what is new. Raises LogUnavailable, LogDamaged."""
        if not self._seq:
            await self._begin()
        while True:
            for subject in _ABOUT:
                if subject not in self._next:
                    record = await self._log.first_on(subject, self._seq + 1)
                    if record is not None:
                        self._next[subject] = record
            if not self._next:
                return
            record = min(self._next.values(), key=lambda record: record.seq)
            del self._next[record.subject]
            self._take(record)

    async def _begin(self) -> None:
        """Where the stream no longer has the first record, begin with the segment before it."""
        begins = await self._log.first_seq()
        if begins == 1:
            return
        seq = begins
        while record := await self._log.first_on(subjects.CHECKPOINT, seq):
            seq = record.seq + 1
            for event in _events(record):
                if isinstance(event, SegmentClosed) and event.last_seq == begins - 1:
                    now = OpenSegment(event.number, event.first_seq, closing=event.last_seq)
                    self.segments = Segments(open=now, dropped_seq=event.last_seq)
                    self._seq = event.last_seq
                    return
        raise LogDamaged(f"the log begins at {begins}, and no segment ends before that record")

    def _take(self, record: Record) -> None:
        self._seq = record.seq
        if record.subject == subjects.ARCHIVE:
            self.archive_seq = record.seq
        for event in _events(record):
            self.segments = _folded(self.segments, event, record.seq)
        live = self.segments.live
        if live and live[-1].closed_seq == record.seq:
            closed = live[-1].closed
            self.before[closed.number + 1] = Before(closed.chain, record.seq)


def _folded(of: Segments, event: Event, seq: int) -> Segments:
    match event:
        case SegmentClosing():
            return segments.closing(of, event, seq)
        case CheckpointPart():
            return segments.part(of, event, seq)
        case SegmentClosed():
            return segments.closed(of, event, seq)
        case SegmentArchived():
            return segments.archived(of, event, seq)
        case SegmentsDropped():
            return segments.dropped(of, event, seq)
        case _:
            return of


def _events(record: Record) -> tuple[Event, ...]:
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()
