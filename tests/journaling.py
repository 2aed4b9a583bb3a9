"""A journal kept beside a fold, and held against it at every sequence."""

from collections.abc import Iterable

from allotment.core.bulk import Picture, picture_of
from allotment.core.journal import Journal, Writer, decode, encode
from allotment.core.state import ClusterState
from allotment_proto.events import Event

CUT_EVERY = 4


class Journaled:
    """Call `took` after each record took effect on the state, and `check` in the end."""

    def __init__(self, state: ClusterState) -> None:
        self.segments: list[bytes] = []
        self.pictures: dict[int, Picture] = {}
        self._state = state
        self._writer = Writer(state)

    def took(self, seq: int, events: Iterable[Event], payload: bytes = b"") -> None:
        self._writer.take(seq, seq, payload, events)
        self.pictures[seq] = picture_of(self._state)
        if len(self.pictures) % CUT_EVERY == 0:
            self.cut()

    def cut(self) -> None:
        """Cut a segment; every second time another writer goes on, as after a restart."""
        self.segments.append(encode(self._writer.cut()))
        if len(self.segments) % 2 == 0:
            journal = self.journal()
            self._writer = Writer(self._state, journal.names, journal.chain)

    def journal(self) -> Journal:
        """The journal of all segments so far."""
        journal = Journal()
        for segment in self.segments:
            journal.add(decode(segment))
        return journal

    def check(self) -> None:
        """At every sequence the journal's books are those that the fold had there."""
        self.cut()
        journal = self.journal()
        for seq, picture in self.pictures.items():
            assert journal.books(seq).picture() == picture, f"at {seq}"
