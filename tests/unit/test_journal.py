"""The journal says what the fold says, and nothing at all when it is in doubt."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.replay.journal import (
    Journal,
    JournalError,
    Segment,
    Writer,
    decode,
    encode,
    usage,
)
from allotment.core.replay.journal.segment import CARD, ENTRY, HOLDING, HOST, Cut
from allotment.core.replay.picture import picture_of
from allotment_proto.events import Event, NodeGone, PodGone
from allotment_proto.facts import Geometry, Holding, Inventory, Profile
from tests import build
from tests.journaling import Journaled

NODE, POD, PLACED = build.node(), build.pod("a"), build.decided(build.placement("a"))
GONE = PodGone(uid="a", namespace="default", name="a", rv=9)
LEFT = NodeGone(name="n1", uid="uid-n1", rv=9)
LIFE: tuple[Event, ...] = (NODE, POD, PLACED, GONE)


def told(*events: Event) -> tuple[ClusterState, Journaled]:
    """A fold of these events, one a record, with its journal."""
    state = ClusterState()
    journaled = Journaled(state)
    for seq, event in enumerate(events, start=1):
        apply_all(state, (event,), seq)
        journaled.took(seq, (event,), b"%d" % seq)
    return state, journaled


def segment_of(*events: Event) -> Segment:
    """The one segment of a log of these events."""
    state = ClusterState()
    writer = Writer(state)
    for seq, event in enumerate(events, start=1):
        apply_all(state, (event,), seq)
        writer.take(seq, seq, b"%d" % seq, (event,))
    return writer.cut()


@pytest.mark.parametrize(
    "events",
    [
        LIFE,
        (POD, NODE, PLACED, LEFT, GONE),
        (NODE, POD, PLACED, LEFT, build.node(rv=10), GONE),
        (NODE, POD, PLACED, LEFT, build.node(cards=0, rv=10)),
        (build.pod("s", node="n9", holdings=(build.holding(),), phase="Running"),),
    ],
    ids=["life", "node-first-gone", "node-returns", "without-its-cards", "node-never-seen"],
)
def test_books_at_every_sequence(events: tuple[Event, ...]) -> None:
    _, journaled = told(*events)
    journaled.check()


def test_a_container_that_names_one_card_twice_is_charged_once() -> None:
    twice = (build.holding("GPU-0", 1_000), build.holding("GPU-0", 2_000))
    _, journaled = told(NODE, build.pod("s", node="n1", holdings=twice, phase="Running"))
    journaled.check()
    cards = journaled.journal().books().picture().cards["n1"]
    assert cards["vgpu/GPU-0"][1] == NODE.inventories[0].cards[0].memory_mib - 1_000


def test_a_container_that_has_two_pieces_of_one_card_is_charged_for_both() -> None:
    table = (Geometry("g1", (Profile("1g", 2_000, 7),)),)
    mig = build.node(
        inventories=(Inventory("vgpu", "mig", (build.card(0, mode="mig", table=0),), (table,)),)
    )
    two = tuple(Holding("vgpu", 0, "GPU-0", 1_000, 0, name) for name in ("g1-0", "g1-1"))
    _, journaled = told(mig, build.pod("s", node="n1", holdings=two, phase="Running"))
    journaled.check()
    listed = mig.inventories[0].cards[0].memory_mib
    cards = journaled.journal().books().picture().cards["n1"]
    assert cards["vgpu/GPU-0"][1] == listed - 2 * 2_000


def test_a_share_that_may_be_on_any_card_is_used_once() -> None:
    """Its claim cannot be read: it is booked on every card, and one card is what it has."""
    asks = build.wants(1_000, 10)
    pod = build.pod(
        "s",
        build.request(asks),
        node="n1",
        phase="Running",
        broken="nobody can tell its cards",
        unplaced=(asks,),
    )
    state, journaled = told(build.node("n1", 8), pod, build.node("n1", 8, rv=9))
    held = state.pods["s"].allocation
    assert held is not None
    assert (len(held.holdings), len(held.quota_holdings)) == (8, 1)
    journaled.check()
    journal = journaled.journal()
    _, booked, *_ = journal.books().picture().holders["s"]
    assert booked == held.holdings
    (used,) = usage(journal, 0, 3)
    assert (used.device_ms, used.memory_mib_ms) == (1, 1_000)


def test_resources_that_are_counted() -> None:
    listed = build.node(extended=(("example.com/nic", 4),))
    request = msgspec.structs.replace(build.request(), extended=(("example.com/nic", 3),))
    running = build.pod("s", request, node="n1", phase="Running")
    _, journaled = told(listed, running, build.node(rv=5, extended=(("example.com/nic", 2),)))
    journaled.check()
    assert journaled.journal().books().picture().extended == {"n1": {"example.com/nic": -1}}


def test_a_record_that_is_passed_over_is_part_of_the_chain() -> None:
    state = ClusterState()
    writer, other = Writer(state), Writer(state)
    writer.take(1, 1, b"{", ())
    other.take(1, 1, b"}", ())
    segment = writer.cut()
    assert (segment.first_seq, segment.last_seq, segment.entries) == (1, 1, b"")
    assert segment.chain != other.cut().chain


def test_the_same_records_make_the_same_bytes() -> None:
    assert encode(segment_of(*LIFE)) == encode(segment_of(*LIFE))


def test_a_start_on_a_state_that_holds_something_already_is_another_journal() -> None:
    """Without what came before, a segment is not taken."""
    state = build.state_of(NODE, POD, PLACED)
    writer = Writer(state)
    apply_all(state, (GONE,), 4)
    writer.take(4, 4, b"4", (GONE,))
    with pytest.raises(JournalError, match="a segment from 4 to 4 does not follow 0"):
        Journal().add(writer.cut())


def test_segments_of_two_logs_do_not_mix() -> None:
    state, journal = ClusterState(), Journal()
    writer, other = Writer(state), Writer(state)
    for number, each in enumerate((writer, other)):
        each.take(1, 1, b"%d" % number, ())
    journal.add(writer.cut())
    other.cut()
    other.take(2, 2, b"2", ())
    with pytest.raises(JournalError, match="the segment from 2 is of another log"):
        journal.add(other.cut())
    assert journal.last_seq == 1


def test_a_record_that_did_more_than_is_remembered() -> None:
    state = ClusterState()
    writer = Writer(state)
    state.changes_dropped = 1
    with pytest.raises(JournalError, match="the record at 1 changed more than is remembered"):
        writer.take(1, 1, b"", ())


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff" * 20, encode(segment_of(NODE))[:-3]])
def test_bytes_that_are_no_segment(payload: bytes) -> None:
    with pytest.raises(JournalError, match="not a segment"):
        decode(payload)


def test_a_segment_of_another_release() -> None:
    other = msgspec.structs.replace(segment_of(NODE), v=1)
    with pytest.raises(JournalError, match="segment version 1, known is 2"):
        decode(encode(other))


def changed(field: str, kind: np.dtype[Any], column: str, value: int) -> Callable[..., Segment]:
    def change(segment: Segment) -> Segment:
        rows = np.frombuffer(getattr(segment, field), kind).copy()
        rows[column][0] = value
        return msgspec.structs.replace(segment, **{field: rows.tobytes()})

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed("entries", ENTRY, "seq", 9),
        changed("entries", ENTRY, "seq", 0),
        changed("entries", ENTRY, "pod", 1),
        changed("entries", ENTRY, "node", 1),
        changed("entries", ENTRY, "node", -2),
        changed("entries", ENTRY, "taken", 1),
        changed("entries", ENTRY, "taken", -1),
        changed("entries", ENTRY, "holdings", 2),
        changed("entries", ENTRY, "holdings", -1),
        changed("holdings", HOLDING, "place", 9),
        changed("holdings", HOLDING, "share", 1),
        changed("holdings", HOLDING, "share", -2),
        changed("holdings", HOLDING, "is_used", 2),
        changed("hosts", HOST, "seq", 0),
        changed("hosts", HOST, "node", 1),
        changed("hosts", HOST, "is_there", 2),
        changed("hosts", HOST, "extended", 1),
        changed("hosts", HOST, "cards", 1),
        changed("cards", CARD, "place", -1),
        changed("cards", CARD, "cut", 0),
    ],
)
def test_a_segment_that_contradicts_itself_is_not_taken(change: Callable[..., Segment]) -> None:
    journal = Journal()
    with pytest.raises(JournalError, match="the segment from 1 contradicts itself"):
        journal.add(change(segment_of(*LIFE)))
    assert (journal.last_seq, len(journal.entries), journal.names.pods) == (0, 0, [])
    journal.add(segment_of(*LIFE))
    assert len(journal.entries) == 2


def test_names_that_refer_to_nothing() -> None:
    segment = segment_of(*LIFE)
    segment.names.pods[0] = (1, "a")
    with pytest.raises(JournalError, match="contradicts itself"):
        Journal().add(segment)


def test_cards_that_are_cut_as_none_can_be() -> None:
    segment = changed("cards", CARD, "cut", 0)(segment_of(NODE, POD, PLACED))
    segment.names.cuts.append(Cut("vgpu", False, ()))
    journal = Journal()
    journal.add(segment)
    with pytest.raises(JournalError, match="cards of vgpu are not cut so"):
        journal.books()


def test_rows_that_are_cut_short() -> None:
    segment = segment_of(*LIFE)
    with pytest.raises(JournalError, match="63 bytes are no rows of 32"):
        Journal().add(msgspec.structs.replace(segment, entries=segment.entries[:-1]))


def test_numbers_without_room_are_left_to_the_fold() -> None:
    huge = build.node(memory_bytes=1 << 70)
    with pytest.raises(JournalError, match="a number is too large for a journal"):
        segment_of(huge)
    journal = Journal()
    journal.add(segment_of(build.node(memory_bytes=(1 << 63) - 1), POD, PLACED))
    with pytest.raises(JournalError, match="amounts are too large for a journal"):
        journal.books()


def test_books_of_the_middle_are_those_of_a_shorter_log() -> None:
    journal = Journal()
    journal.add(segment_of(*LIFE))
    for seq in range(len(LIFE) + 1):
        state = build.state_of(*LIFE[:seq])
        assert journal.books(seq).picture() == picture_of(state)
