"""Segments of the log as the log tells them: which one is open, and which are closed and live.

A closing counts if it is of the open segment; a later one takes its place, so a binder that died
between a closing and its end leaves nothing that has to be mended. What does not fit, as of a
binder that was too late, changes nothing.
"""

import msgspec

from allotment_proto.segments import (
    CheckpointPart,
    LevelRaised,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
)


class OpenSegment(msgspec.Struct, frozen=True):
    """The segment that is written. `closing` is its last record, once there is one (else 0), and
    `parts` how many parts of the checkpoint after it are in the log.
    """

    number: int = 1
    first_seq: int = 1
    closing: int = 0
    parts: int = 0


class ClosedSegment(msgspec.Struct, frozen=True):
    """A closed segment whose records are in the stream. `closed_seq` is the record that says so,
    `archived` what is known of its copy.
    """

    closed_seq: int
    closed: SegmentClosed
    archived: SegmentArchived | None = None


class Segments(msgspec.Struct, frozen=True):
    """All segments that the stream holds, oldest first. `checkpoint_seq` is the last
    `SegmentClosed`, whether it counted or not, `dropped_seq` the last record that has left the
    stream, `level` the level of records that may be written.
    """

    open: OpenSegment = OpenSegment()
    live: tuple[ClosedSegment, ...] = ()
    checkpoint_seq: int = 0
    dropped_seq: int = 0
    level: int = 1


def closing(of: Segments, event: SegmentClosing, seq: int) -> Segments:
    """The segments after a record, as are those of the functions below."""
    if event.number != of.open.number:
        return of
    return _replace(of, open=_replace(of.open, closing=seq, parts=0))


def part(of: Segments, event: CheckpointPart, seq: int) -> Segments:
    if not event.closing or (event.closing, event.index) != (of.open.closing, of.open.parts):
        return of
    return _replace(of, open=_replace(of.open, parts=of.open.parts + 1))


def closed(of: Segments, event: SegmentClosed, seq: int) -> Segments:
    now = of.open
    wanted = (now.number, now.first_seq, now.closing, now.parts)
    if not now.closing or (event.number, event.first_seq, event.last_seq, event.parts) != wanted:
        return _replace(of, checkpoint_seq=seq)  # the next one must follow it
    return _replace(
        of,
        open=OpenSegment(event.number + 1, event.last_seq + 1),
        live=(*of.live, ClosedSegment(seq, event)),
        checkpoint_seq=seq,
    )


def archived(of: Segments, event: SegmentArchived, seq: int) -> Segments:
    live = tuple(
        _replace(one, archived=event) if one.closed.number == event.number else one
        for one in of.live
    )
    return _replace(of, live=live)


def dropped(of: Segments, event: SegmentsDropped, seq: int) -> Segments:
    """Only whole segments that are archived, and never the last of them, can go."""
    gone = [one for one in of.live[:-1] if one.closed.last_seq <= event.last_seq]
    if not gone or any(one.archived is None for one in gone):
        return of
    return _replace(of, live=of.live[len(gone) :], dropped_seq=gone[-1].closed.last_seq)


def raised(of: Segments, event: LevelRaised, seq: int) -> Segments:
    return _replace(of, level=max(of.level, event.level))


_replace = msgspec.structs.replace
