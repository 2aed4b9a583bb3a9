"""The inspector's history: every sequence is what a fold from the beginning makes of it, however
one comes there, and what is kept for that is bounded.
"""

import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import aiohttp
import anyio.to_thread
import msgspec
import pytest
from tests.build import card, decided, node, placement, pod
from tests.inspecting import append, following, served, view_of
from tests.memory_log import MemoryLog
from tests.recorded import A_FEW, read_log
from tests.segmenting import Segmented
from tests.waiting import patience, until

from allotment.adapters.log import fold, kept
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.core import chain
from allotment.core.explain.history.concerned import concerned
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogUnavailable, Record, digest_of
from allotment_inspector import history as history_module
from allotment_inspector import index as index_module
from allotment_inspector.frame import frame_of
from allotment_inspector.history import History
from allotment_inspector.index import Index
from allotment_inspector.pages.parts.found import NotFound
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope, encode
from allotment_proto.events import (
    Envelope,
    Event,
    NodeGone,
    PodGone,
    SegmentClosed,
    SegmentsDropped,
)

pytestmark = pytest.mark.anyio


def events_of(record: Record) -> tuple[Event, ...]:
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()


def recorded(name: str = "walk-6") -> MemoryLog:
    log = MemoryLog()
    log.core.records.extend(read_log(name))
    return log


def folds(records: list[Record]) -> list[bytes]:
    """The state after each record, each folded on from the one before; the first is the empty."""
    state = ClusterState()
    images = [snapshot.encode(state)]
    for record in records:
        is_decision = record.subject == subjects.DECISION
        try:
            envelope = decode_envelope(record.payload, record.subject)
        except UndecodableError:
            pass_over(state, record.seq, is_decision=is_decision)
        else:
            apply_record(state, envelope.events, record.seq, is_decision=is_decision)
        images.append(snapshot.encode(state))
    return images


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """States, stepping stones and stretches as often as a long log has them."""
    monkeypatch.setattr(history_module, "_apart", lambda state: 7)
    monkeypatch.setattr(History, "_near_events", lambda self: 3)
    monkeypatch.setattr(history_module, "STONE_BEHIND", 2)
    monkeypatch.setattr(kept, "STRETCH_RECORDS", 20)
    monkeypatch.setattr(history_module, "STRETCH_RECORDS", 20)
    monkeypatch.setattr(history_module, "WORTH_RECORDS", 1)


async def image_at(history: History, seq: int | None) -> bytes:
    async with history.moment(seq) as moment:
        return snapshot.encode(moment.state)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", A_FEW)
@pytest.mark.parametrize("is_kept", [False, True], ids=["in memory", "kept"])
async def test_every_moment_is_the_fold_from_the_beginning(
    name: str, is_kept: bool, tmp_path: Path
) -> None:
    log = recorded(name)
    wanted = folds(log.core.records)
    last = len(wanted) - 1
    async with following(log, directory=tmp_path if is_kept else None) as history:
        assert await image_at(history, None) == wanted[last]
        there_and_back = [*range(last, -1, -1), *range(last + 1)]
        jumps = [Random(7).randrange(last + 1) for _ in range(60)]
        for seq in (*there_and_back, *jumps):
            assert await image_at(history, seq) == wanted[seq], seq
        assert await image_at(history, last + 1000) == wanted[last]
        assert await image_at(history, None) == wanted[last]


@pytest.mark.usefixtures("often")
async def test_a_step_ahead_costs_one_record_and_one_back_no_more_than_a_checkpoint() -> None:
    async with following(recorded()) as history:
        await image_at(history, 60)
        before = history.folded_records
        await image_at(history, 61)
        assert history.folded_records == before + 1
        await image_at(history, 60)
        assert history.folded_records <= before + 1 + 2 * 7


@pytest.mark.usefixtures("often")
async def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    log = recorded()
    wanted = folds(log.core.records)
    sizes = []
    for bytes_max in (1 << 30, 20_000):
        directory = tmp_path / str(bytes_max)
        async with following(log, directory=directory, bytes_max=bytes_max) as history:
            for seq in (0, 1, 50, len(wanted) - 1):
                assert await image_at(history, seq) == wanted[seq]
        sizes.append(sum(path.stat().st_size for path in directory.glob("snapshot-*")))
    assert sizes[1] <= 20_000 < sizes[0]


async def memory_of(log: MemoryLog, directory: Path) -> int:
    """How many objects a history holds for what is before the last stretch."""
    async with following(log, directory=directory) as history:
        await until(lambda: not history._held and not history.kept.is_due(20))
        tail = history.kept._tail
        assert history.head_seq == len(log.core.records)
        assert history.is_filled
        return len(tail.about) + len(tail.uids) + len(history._held) + len(history.kept._parts)


@pytest.mark.usefixtures("often")
async def test_memory_does_not_grow_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    for pods in (40, 400):
        log = MemoryLog()
        await append(log, node())
        for number in range(pods):
            await append(log, pod(f"p{number}"))
            await append(log, PodGone(uid=f"p{number}", namespace="default", name="x", rv=2))
        held.append(await memory_of(log, tmp_path / str(pods)))
    assert held[1] <= held[0] + 3 * 20


@pytest.mark.usefixtures("often")
async def test_the_next_run_reads_no_more_than_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a snapshot it takes all from its files, and pages say the same."""
    log = Deaf(recorded(), {})
    wanted = folds(log.core.records)
    files = tmp_path / "past"
    async with following(log, directory=files) as history:
        index = history.index
    store = await snapshot_at(tmp_path, log, 110)
    monkeypatch.setattr(history_module, "RECENT_RECORDS", 5)
    log.reads.clear()
    async with following(log, snapshots=store, directory=files) as history:
        assert log.reads == []
        again = history.index
        assert (again.times_ms, again.marks, again.gone) == (
            index.times_ms,
            index.marks,
            index.gone,
        )
        assert again.events_between(3, 100) == index.events_between(3, 100)
        assert await image_at(history, 61) == wanted[61]
        assert all(first > 40 for first, _ in log.reads), "from the state before it"


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("records-*")]


@pytest.mark.usefixtures("often")
async def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    log = recorded()
    async with following(log, directory=tmp_path) as history:
        async with history.moment(None) as moment:
            things = [("node", name) for name in moment.state.nodes]
        wanted = [await history.about(thing, 122) for thing in things]
    for name in names_in(tmp_path):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-4])
    for _ in range(2):
        async with following(log, directory=tmp_path) as history:
            for thing in things:
                await history.about(thing, 122)
            await until(lambda: history.is_filled)
            assert [await history.about(thing, 122) for thing in things] == wanted


async def test_records_that_are_not_in_memory_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "RECENT_RECORDS", 5)
    log = recorded()
    wanted = folds(log.core.records)
    async with following(log) as history:
        assert len(history._recent) == 5
        for seq in (40, 41, 40, 118, 121):
            assert await image_at(history, seq) == wanted[seq]
        entries = await history.entries((1, 2, 60, 117, 118, 122, 999))
        assert [entry.seq for entry in entries] == [1, 2, 60, 117, 118, 122]
        assert entries[0].payload == log.core.records[0].payload


class Deaf(MemoryLog):
    """A log that now and then does not answer who reads: at these sequences, so often."""

    def __init__(self, log: MemoryLog, times_at: dict[int, int]) -> None:
        super().__init__(log.core)
        self.times_at = times_at
        self.reads: list[tuple[int, int]] = []
        """Stretches of records that were asked for."""

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        if first_seq < last_seq:
            self.reads.append((first_seq, last_seq))
        for seq in range(first_seq, last_seq + 1):
            if first_seq < last_seq and self.times_at.get(seq, 0) > 0:
                self.times_at[seq] -= 1
                raise LogUnavailable(f"no answer at {seq}")
            async for batch in super().read(seq, seq):
                yield batch


async def snapshot_at(directory: Path, log: MemoryLog, seq: int) -> SnapshotDirectory:
    store = SnapshotDirectory(directory, log_identity=log.identity)
    records = log.core.records
    kept_fold = fold._Kept(chain.START, 0, folds(records)[seq])
    await store.save(seq, msgspec.msgpack.encode(kept_fold), digest_of(records[seq - 1]))
    return store


@pytest.mark.usefixtures("often")
async def test_while_the_log_does_not_answer_the_snapshot_is_where_the_past_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "AGAIN_S", 0.01)
    wanted = folds(recorded().core.records)
    log = Deaf(recorded(), {1: 1_000_000})
    store = await snapshot_at(tmp_path, log, 80)
    async with following(log, snapshots=store, is_filled=False) as history:
        await until(lambda: "no answer at 1" in history.trouble)
        for seq in (80, 81, 85, 122):
            assert await image_at(history, seq) == wanted[seq]
        with pytest.raises(LogUnavailable):
            await image_at(history, 40)
        async with served(history) as address, aiohttp.ClientSession() as session:
            async with session.get(f"{address}/pods/default/none?parts=1") as answer:
                assert "1 to 80 are still being read" in await answer.text()
            log.times_at.clear()
            await until(lambda: history.is_filled and not history.trouble)
            async with session.get(f"{address}/pods/default/none") as answer:
                assert "still being read" not in await answer.text()
        assert not history.trouble
        assert await image_at(history, 40) == wanted[40]


@pytest.mark.usefixtures("often")
async def test_what_was_read_of_the_past_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "AGAIN_S", 0.01)
    log = Deaf(recorded(), {30: 2, 50: 1})
    store = await snapshot_at(tmp_path, log, 80)
    async with following(log, snapshots=store) as history, following(recorded()) as whole:
        assert log.reads == [(1, 154), (30, 154), (30, 154), (50, 154)]
        assert history.index.times_ms == whole.index.times_ms


async def test_a_long_way_is_read_in_parts_and_folded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "RECENT_RECORDS", 5)
    monkeypatch.setattr(history_module, "CHUNK_RECORDS", 10)
    folded_by = set()
    apply = history_module._apply

    def noted(state: ClusterState, record: Record) -> object:
        folded_by.add(threading.get_ident())
        return apply(state, record)

    monkeypatch.setattr(history_module, "_apply", noted)
    log = Deaf(recorded(), {})
    wanted = folds(log.core.records)
    async with following(log) as history:
        for seq in (95, 110, 20):
            assert await image_at(history, seq) == wanted[seq]
        assert log.reads
        assert max(last - first for first, last in log.reads) < 10
        async with history.moment(None) as moment:
            told = await anyio.to_thread.run_sync(lambda: list(moment.states((3, 100))))
            assert [entry.seq for entry, _ in told] == [3, 100]
        assert max(last - first for first, last in log.reads) < 10
        assert threading.get_ident() not in folded_by


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("stands_at", [80, 122])
async def test_a_start_from_a_snapshot_learns_what_was_before(
    tmp_path: Path, stands_at: int
) -> None:
    log = recorded()
    wanted = folds(log.core.records)
    store = await snapshot_at(tmp_path, log, stands_at)
    async with following(log, snapshots=store) as history, following(recorded()) as whole:
        assert history.is_filled
        assert history.index.first_seq == 1
        assert history.index.times_ms == whole.index.times_ms
        assert history.index.marks == whole.index.marks
        for seq in (3, 79, 80, 81, 122):
            assert await image_at(history, seq) == wanted[seq]
        things = {each for r in log.core.records for e in events_of(r) for each in concerned(e)}
        for thing in things:
            assert await history.about(thing, 999) == await whole.about(thing, 999)
            assert await history.about(thing, 999)


async def test_a_moment_is_followed_and_named() -> None:
    log = MemoryLog()
    await append(log, node())
    async with following(log) as history:
        async with history.moment(None) as moment:
            assert (moment.seq, moment.is_now, len(moment.state.pods)) == (1, True, 0)
        await append(log, pod("a"))
        await until(lambda: history.head_seq == 2)
        async with history.moment(None) as moment:
            assert (moment.seq, list(moment.state.pods)) == (2, ["a"])
        async with history.moment(1) as moment:
            assert (moment.seq, moment.is_now, moment.head_seq) == (1, False, 2)
            assert moment.now_ms == moment.time_ms


async def test_a_record_that_nobody_can_read_has_its_place() -> None:
    log = MemoryLog()
    await append(log, node())
    await log.append(subjects.FACTS, b"no envelope", msg_id="bad")
    await append(log, pod("a"))
    async with following(log) as history:
        assert history.index.last_seq == 3
        (entry,) = await history.entries((2,))
        assert entry.reason
        assert not entry.events
        async with history.moment(2) as moment:
            assert moment.seq == 2
            assert not moment.state.pods


async def test_the_index_knows_who_a_record_is_about() -> None:
    log = MemoryLog()
    await append(log, node())
    await append(log, pod("a"), pod("b"))
    decision = await append(log, decided(placement("a"), batch=("a", "b")))
    ill = await append(log, node(cards=[card(0, healthy=False), card(1)], rv=2))
    again = await append(log, node(cards=[card(0, healthy=False), card(1)], rv=3))
    gone = await append(log, PodGone(uid="a", namespace="default", name="pod-a", rv=2))
    await append(log, NodeGone(name="n1", uid="uid-n1", rv=4))
    async with following(log) as history:
        index = history.index
        assert await history.about(("pod", "a"), 7) == [2, decision, gone]
        assert await history.about(("pod", "b"), 7) == [2, decision]
        assert await history.about(("node", "n1"), 7) == [1, decision, ill, again, 7]
        assert await history.about(("node", "n1"), 6) == [1, decision, ill, again]
        assert await history.uids_of("default/pod-a") == ["a"]
        assert [(mark.seq, mark.kind) for mark in index.marks] == [(ill, "ill"), (7, "gone")]
        assert index.marked(ill, 1) == 7
        assert index.marked(7, -1) == ill
        assert index.marked(ill, -1) is None
        assert [one.name for one in index.gone_between(0, 7)] == ["n1"]
        assert index.gone_between(0, 6) == []


def test_the_index_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "RECORDS_MAX", 100)
    monkeypatch.setattr(index_module, "MARKS_MAX", 16)
    monkeypatch.setattr(index_module, "GONE_MAX", 16)
    index = Index()
    for seq in range(1, 301):
        ill = node(cards=[card(0, healthy=bool(seq % 2))], rv=seq)
        envelope = Envelope(
            at_ms=1, by="test", events=(ill, NodeGone(name=f"g{seq}", uid="u", rv=1))
        )
        index.take(Record(seq, subjects.FACTS, b"", seq * 1_000_000, str(seq)), envelope)
        assert len(index.times_ms) <= 100
        assert len(index.marks) <= 16
        assert len(index.gone) <= 16
    assert index.last_seq == 300
    assert index.first_seq == 301 - len(index.times_ms)
    assert index.gone[-1].name == "g300"


def test_a_clock_that_was_set_back_hides_no_record() -> None:
    index = Index()
    for seq, second in enumerate((10, 20, 15, 30), start=1):
        index.take(Record(seq, subjects.FACTS, b"", second * 10**9, str(seq)), None)
    assert list(index.times_ms) == [10_000, 20_000, 20_000, 30_000]
    assert index.seq_at(20_000) == 3
    assert index.seq_at(9_999) == 0
    assert index.seq_at(99_000) == 4
    density = index.density(10_000, 30_000)
    assert sum(density.counts) == 4
    assert density.counts[0] == 1


async def test_someone_who_looks_holds_nobody_up() -> None:
    """Two browsers at two places, while the log grows."""
    log = recorded()
    async with following(log) as history, history.moment(5) as moment:
        last_seq = history.head_seq
        await append(log, pod("late"))
        await until(lambda: history.head_seq == last_seq + 1)
        with patience():
            assert await image_at(history, None) != snapshot.encode(moment.state)
        assert moment.seq == 5


def segmented(name: str = "walk-6", each: int = 40) -> MemoryLog:
    """A recorded log with a segment closed after every so many of its records, all archived."""
    made = Segmented()
    for at, record in enumerate(read_log(name), 1):
        made.take(record)
        if not at % each:
            made.close()
            made.archived(len(made.closed))
    log = MemoryLog()
    log.core.records.extend(made.records)
    log.core._last_on_subject.update({record.subject: record.seq for record in made.records})
    return log


def ends_of(log: MemoryLog) -> list[int]:
    """The last record of each closed segment."""
    events = [e for record in log.core.records for e in events_of(record)]
    return [event.last_seq for event in events if isinstance(event, SegmentClosed)]


@pytest.mark.parametrize("is_kept", [False, True], ids=["in memory", "in files"])
async def test_what_has_left_the_log_is_where_its_past_begins(
    is_kept: bool, tmp_path: Path, often: None
) -> None:
    log = segmented()
    images = folds(log.core.records)
    directory = tmp_path if is_kept else None
    for left in (ends_of(log)[0], ends_of(log)[1]):
        log.core.first_seq = left + 1
        async with following(log, directory=directory) as history:
            assert history.base_seq == left
            assert history.is_filled
            for seq in (left - 3, left, left + 1, left + 30, len(log.core.records)):
                async with history.moment(seq) as moment:
                    assert moment.seq == max(seq, left)
                    assert snapshot.encode(moment.state) == images[max(seq, left)]
                    assert moment.time_ms > 0
                    assert moment.gone_seq == left
                    frame = await anyio.to_thread.run_sync(frame_of, moment)
                    assert ("left NATS" in frame.text) == (seq <= left)
            used = await view_of(history, "usage")
            assert used.from_ms >= min(r.time_ns for r in log.core.records) // 1_000_000
            missing = await view_of(history, "record", {"seq": str(left)})
            assert isinstance(missing, NotFound)
            assert await history.entries(range(1, left + 1)) == ()
            (first,) = await history.entries((left, left + 1))
            assert first.seq == left + 1
            for node_name in ("n0", "n1"):
                seqs = await history.about(("node", node_name), len(log.core.records))
                assert seqs == sorted(set(seqs))
                assert all(seq > left for seq in seqs) or is_kept


async def test_records_that_leave_the_log_while_it_is_followed_leave_its_past(often: None) -> None:
    log = segmented()
    left = ends_of(log)[1]
    async with following(log) as history:
        async with history.moment(left - 5) as moment:
            assert moment.seq == left - 5
        gone = Envelope(at_ms=1, by="archiver", events=(SegmentsDropped(last_seq=left),))
        await log.append(subjects.ARCHIVE, encode(gone), msg_id="gone")
        log.core.first_seq = left + 1
        await until(lambda: history.base_seq == left)
        images = folds(log.core.records)
        for seq in (left - 5, left + 7, len(log.core.records)):
            async with history.moment(seq) as moment:
                assert snapshot.encode(moment.state) == images[max(seq, left)]


def test_what_is_indexed_later_precedes_what_was_indexed() -> None:
    """An index of all records, and one made of two parts, the newer one first, say the same."""
    records = read_log("walk-6")
    whole, newer, older = Index(), Index(), Index()
    newer.begin(70)
    for record in records:
        envelope = kept.envelope_of(record)
        whole.take(record, envelope)
        (older if record.seq <= 70 else newer).take(record, envelope)
    newer.precede(older)
    assert newer.times_ms == whole.times_ms
    assert newer.first_seq == 1
    assert [mark.seq for mark in newer.marks] == [mark.seq for mark in whole.marks]
    for first, last in ((1, 122), (3, 69), (69, 71), (70, 122), (80, 100)):
        assert newer.events_between(first, last) == whole.events_between(first, last)
    again = Index()
    again.add(newer.part(1, newer.last_seq))
    assert again.events_between(1, 122) == whole.events_between(1, 122)


def test_a_card_that_was_unhealthy_before_the_index_begins_is_not_marked() -> None:
    ill = node(cards=[card(0, healthy=False), card(1)])
    index = Index(5)
    index.begin_with([ill])
    seen = Envelope(at_ms=1, by="test", events=(ill,))
    index.take(Record(5, subjects.FACTS, b"", 1_000_000, "5"), seen)
    assert not index.marks
