"""One record whole: what it says, as it is stored, what it stood on."""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.history.records import stood_on
from allotment.core.explain.history.story import line, of_no_event
from allotment_inspector.history import Entry, Moment
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.pages.parts.found import Near, NotFound, no_record
from allotment_inspector.said import path, typed
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import Decided, Envelope

_SHOWN_CHARS = 200_000


class RecordPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record; `text` is what is stored, indented, and cut if it is very long (`is_cut`). Without
    a `reason` it could be read.
    """

    seq: int
    time_ms: int
    subject: str
    by: str
    lines: tuple[tuple[str, str], ...]
    stood_on: tuple[str, ...]
    is_decision: bool
    text: str
    is_cut: bool
    reason: str


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> RecordPage | NotFound:
    """The record of this sequence."""
    seq = natural(match["seq"])
    entry = None if seq is None else moment.entry(seq)
    if entry is None:
        last = Near(f"record {moment.seq}", path("log", str(moment.seq)))
        return no_record(moment, "record", match["seq"], (last,) if moment.seq else ())
    envelope = Envelope(v=0, at_ms=entry.time_ms, by=entry.by, events=entry.events)
    text = _indented(entry.payload)
    return RecordPage(
        seq=entry.seq,
        time_ms=entry.time_ms,
        subject=entry.subject,
        by=entry.by,
        lines=_lines(entry),
        stood_on=tuple(stood_on(envelope)),
        is_decision=any(isinstance(event, Decided) for event in entry.events),
        text=text[:_SHOWN_CHARS],
        is_cut=len(text) > _SHOWN_CHARS,
        reason=entry.reason,
    )


def _lines(entry: Entry) -> tuple[tuple[str, str], ...]:
    """What the record says, a line each: the kind, and the rest."""
    if not entry.events and not entry.reason:
        return (of_no_event(entry.subject, entry.by),)
    return tuple((type(event).__name__, line(event)) for event in entry.events)


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "log", "show", match["seq"])


def _indented(payload: bytes) -> str:
    try:
        return msgspec.json.format(payload, indent=2).decode(errors="backslashreplace")
    except UNREADABLE:
        return payload.decode(errors="backslashreplace")
