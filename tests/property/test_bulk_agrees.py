"""Bulk road, journal and ordinary fold end in the same books, whatever the log says."""

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis.stateful import invariant

from allotment.core.ledger.state import ClusterState, apply_all
from allotment.core.replay.bulk import Books, picture_of, rebuild
from allotment.core.replay.journal import Journal, Writer
from allotment.testing.long_log import LongLog
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import ENVELOPE_VERSION, BindFailed, Bound, Envelope
from tests import build
from tests.journaling import Journaled
from tests.property.fold_machine import Fold


class Bulk(Fold):
    """Every step of the stateful fold test, taken by the bulk road and the journal too."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books()
        self.journaled = Journaled(self.state)

    def append(self, *events: Any) -> None:
        super().append(*events)
        record = self.records[-1]
        self.books.take(record.seq, record.payload)
        self.journaled.took(record.seq, events, record.payload)

    @invariant()
    def the_books_are_the_same(self) -> None:
        assert self.books.picture() == picture_of(self.state)

    def teardown(self) -> None:
        """What the base class does here is its own test's."""
        self.journaled.check()


Bulk.TestCase.settings = settings(max_examples=max(60, settings().max_examples // 5))
TestBulk = Bulk.TestCase


def test_a_long_log_ends_in_the_same_books_and_everything_in_it_was_upheld() -> None:
    made = LongLog(30, 300, Random(3))
    state, books = ClusterState(), Books()
    writer = Writer(state)
    for seq, entry in enumerate(made.entries(4_000), start=1):
        events = decode_envelope(entry.payload).events
        apply_all(state, events, seq)
        books.take(seq, entry.payload)
        writer.take(seq, seq, entry.payload, events)
    journal = Journal()
    journal.add(writer.cut())
    assert (books.booked, books.released) == (made.placed, made.gone)
    assert made.gone > 300
    assert not state.voided
    assert books.picture() == picture_of(state)
    assert len(journal.entries) == made.placed + made.gone
    assert journal.books().picture() == picture_of(state)


def record(*events: Any, v: int = 1) -> bytes:
    return encode(Envelope(v=v, at_ms=0, by="test", events=events))


def test_records_that_cannot_be_read_change_nothing() -> None:
    node, pod = build.node(), build.pod()
    placed = build.decided(build.placement())
    newer = record(placed, v=ENVELOPE_VERSION + 1)
    payloads = [record(node, pod), b"{", newer, b'{"v":1,"events":[{"type":"New"}]}']
    books = rebuild(enumerate(payloads, start=1))
    assert books.seq == 4
    assert books.booked == 0
    books.take(5, record(placed))
    assert books.booked == 1


def test_a_binding_that_is_known_to_have_happened_is_not_given_back() -> None:
    of: Any = {"uid": "a", "namespace": "", "name": "", "node": "n1", "decision": 2}
    log = [record(build.node(), build.pod()), record(build.decided(build.placement()))]
    bound, failed = record(Bound(**of)), record(BindFailed(**of, code="", message=""))
    assert rebuild(enumerate([*log, bound, failed], 1)).picture().holders.keys() == {"a"}
    assert not rebuild(enumerate([*log, failed], 1)).picture().holders


def test_a_container_that_names_one_card_twice_is_booked_once() -> None:
    twice = (build.holding("GPU-0", 1_000), build.holding("GPU-0", 2_000))
    strange = build.pod("s", node="n1", holdings=twice, phase="Running")
    payloads = [record(build.node(), strange)]
    state = build.state_of(build.node(), strange)
    assert rebuild(enumerate(payloads, 1)).picture() == picture_of(state)
