"""Records of the log as lines, what a record stood on, and what a decision led to."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from allotment.core.explain.history import story
from allotment.core.explain.history.concerned import Everything, Subject
from allotment.core.units import rfc3339
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Event,
    Evicted,
    PodGone,
)

_UNREADABLE = "Unreadable"


class LogLine(msgspec.Struct, frozen=True):
    """One event as JSON; `event` is None for a record that cannot be read, or holds none."""

    seq: int
    time: str
    by: str
    type: str
    text: str
    event: Event | None


class Wanted(NamedTuple):
    """Which events are lines: those about one `subject`, of these `types`; all without any."""

    subject: Subject
    types: Collection[str]
    claims: story.Claims

    def lines(
        self, seq: int, time_ms: int, topic: str, envelope: Envelope, *, shown: bool
    ) -> list[LogLine]:
        """The lines of one record. `topic` is its subject in the log. Ask for every record in log
        order: subjects and claims remember; those that are not `shown` have none.
        """
        found = []
        if not envelope.events and shown and self._takes_all:
            kind, text = story.of_no_event(topic, envelope.by)
            found.append(LogLine(seq, rfc3339(time_ms), envelope.by, kind, text, None))
        for event in envelope.events:
            claim = self.claims.note(event, seq)
            takes = self.subject.takes(event)
            kind = type(event).__name__
            if takes and shown and (not self.types or kind in self.types):
                text = story.line(event, self.subject.only) + claim
                found.append(LogLine(seq, rfc3339(time_ms), envelope.by, kind, text, event))
        return found

    def unreadable(self, seq: int, time_ms: int, reason: str) -> list[LogLine]:
        """The line of a record that cannot be read; it is about nothing in particular."""
        if not self._takes_all:
            return []
        return [LogLine(seq, rfc3339(time_ms), "", _UNREADABLE, reason, None)]

    @property
    def _takes_all(self) -> bool:
        return isinstance(self.subject, Everything) and not self.types


def stood_on(envelope: Envelope) -> list[str]:
    """The records that the events of a record name as their basis."""
    found: list[str] = []
    for event in envelope.events:
        if isinstance(event, Decided):
            found.append(
                f"seq {event.basis} (placed), seq {event.checked} (checked), "
                f"policy of seq {event.policy}"
            )
        elif isinstance(event, Bound | BindFailed | Evicted | Corrected) and event.decision:
            found.append(f"decision at seq {event.decision}")
    return found


class Effect(NamedTuple):
    """A line of a later record that a decision led to."""

    seq: int
    text: str


class Effects:
    """Finds what a decision led to: the outcomes, the end of pods that it evicted, and the places
    of those that gain by it. Give it every later record, in log order.
    """

    def __init__(self, seq: int, decided: Sequence[Decided]) -> None:
        self._seq = seq
        self._leaving = {eviction.uid for event in decided for eviction in event.evictions}
        self._gaining = {n.uid for event in decided for n in event.nominations}

    def of(self, seq: int, later: Envelope) -> Iterator[Effect]:
        """What of one later record the decision led to."""
        for event in later.events:
            if self._is_effect(event):
                yield Effect(seq, story.line(event))
            elif isinstance(event, Decided):
                placed = {p.uid for p in event.placements} & self._gaining
                self._gaining -= placed
                if placed:
                    yield Effect(seq, story.line(event, placed))

    def _is_effect(self, event: Event) -> bool:
        match event:
            case Bound() | BindFailed() | Evicted() | Corrected():
                return event.decision == self._seq
            case PodGone():
                return event.uid in self._leaving
            case _:
                return False
