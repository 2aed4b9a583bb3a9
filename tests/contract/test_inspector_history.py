"""The inspector's history: every sequence is what a fold from the beginning makes of it, however
one comes there, and what is kept for that is bounded.
"""

import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import aiohttp
import anyio.to_thread
import pytest
from tests.build import card, decided, node, placement, pod
from tests.inspecting import append, following, served
from tests.memory_log import MemoryLog
from tests.recorded import A_FEW, read_log
from tests.waiting import patience, until

from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.core.explain.history import concerned
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogUnavailable, Record, digest_of
from allotment_inspector import history as history_module
from allotment_inspector import index as index_module
from allotment_inspector.history import History
from allotment_inspector.index import Index
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import (
    Envelope,
    Event,
    GroupGone,
    NodeGone,
    PodGone,
)

pytestmark = pytest.mark.anyio


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
    """Checkpoints and stepping stones as often as a long log has them."""
    monkeypatch.setattr(history_module, "CHECKPOINT_EVENTS", 7)
    monkeypatch.setattr(history_module, "STONE_WORTH", 1)
    monkeypatch.setattr(history_module, "STONE_BEHIND", 2)


async def image_at(history: History, seq: int | None) -> bytes:
    async with history.moment(seq) as moment:
        return snapshot.encode(moment.state)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", A_FEW)
async def test_every_moment_is_the_fold_from_the_beginning(name: str) -> None:
    log = recorded(name)
    wanted = folds(log.core.records)
    last = len(wanted) - 1
    async with following(log) as history:
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
async def test_what_is_kept_is_bounded() -> None:
    log = recorded()
    wanted = folds(log.core.records)
    async with following(log) as roomy:
        all_bytes, all_kept = roomy.checkpoint_bytes, roomy.checkpoints
    assert all_kept > 8
    async with following(log, bytes_max=all_bytes // 4) as history:
        assert history.checkpoint_bytes <= all_bytes // 4
        assert 0 < history.checkpoints < all_kept // 2
        assert history.thinned
        for seq in (0, 1, 50, len(wanted) - 1):
            assert await image_at(history, seq) == wanted[seq]


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
    await store.save(seq, folds(records)[seq], digest_of(records[seq - 1]))
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
            async with session.get(f"{address}/queues/none") as answer:
                assert "1 to 80 are still being read" in await answer.text()
            log.times_at.clear()
            await until(lambda: history.is_filled)
            async with session.get(f"{address}/queues/none") as answer:
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
        assert log.reads == [(1, 80), (30, 80), (30, 80), (50, 80)]
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
        for uid in {event_uid for event_uid in whole.index._about if event_uid[0] == "pod"}:
            assert history.index.seqs(*uid) == whole.index.seqs(*uid)


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
        assert index.seqs("pod", "a") == (2, decision, gone)
        assert index.seqs("pod", "b") == (2, decision)
        assert index.seqs("node", "n1") == (1, decision, ill, again, 7)
        assert index.uids_of("default", "pod-a") == ("a",)
        assert [(mark.seq, mark.kind) for mark in index.marks] == [(ill, "ill"), (7, "gone")]
        assert index.marked(ill, 1) == 7
        assert index.marked(7, -1) == ill
        assert index.marked(ill, -1) is None
        assert [one.node.name for one in index.gone_between(0, 7)] == ["n1"]
        assert index.gone_between(0, 6) == []


async def test_the_index_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "RECORDS_MAX", 100)
    monkeypatch.setattr(concerned, "_THINGS_MAX", 40)
    monkeypatch.setattr(concerned, "_SEQS_PER_THING_MAX", 20)
    monkeypatch.setattr(index_module, "MARKS_MAX", 16)
    log = MemoryLog()
    for number in range(300):
        ill = node(cards=[card(0, healthy=bool(number % 2))], rv=number)
        await append(log, ill, pod(f"p{number}"))
    index = Index()
    for record in log.core.records:
        index.take(record, decode_envelope(record.payload, record.subject))
    assert index.last_seq == 300
    assert len(index.times_ms) <= 100
    assert index.first_seq == 301 - len(index.times_ms)
    assert len(index._about) <= 40
    assert len(index._uids) <= 41
    assert len(index.marks) <= 16
    about = index.seqs("node", "n1")
    assert len(about) <= 20
    assert (about[0], about[-1]) == (1, 300), "how it began, and how it stands"
    assert index.uids_of("default", "pod-p299") == ("p299",)


def test_the_index_forgets_whom_it_heard_of_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups too, and nodes that went: nodes come and go for ever where they are rented."""
    monkeypatch.setattr(concerned, "_THINGS_MAX", 40)
    index = Index()

    def group(name: str) -> GroupGone:
        return GroupGone(uid=name, namespace="default", name=name, rv=1)

    def take(seq: int, *events: Event) -> None:
        envelope = Envelope(at_ms=1, by="test", events=events)
        index.take(Record(seq, subjects.FACTS, b"", seq * 1_000_000, str(seq)), envelope)

    take(1, node("stays", cards=[card(0, healthy=False)]), pod("alive"), group("asked"))
    for number in range(300):
        rented = node(f"rented-{number}", cards=[card(0, healthy=False)])
        take(2 * number + 2, rented, group(f"g{number}"), pod(f"p{number}"))
        take(
            2 * number + 3, NodeGone(name=rented.name, uid="u", rv=1), pod("alive"), group("asked")
        )
    assert len(index._about) <= 40
    assert index.seqs("node", "stays") == (1,)
    assert index.seqs("pod", "alive")[0] == index.seqs("group", "default/asked")[0] == 1
    assert index.uids_of("default", "pod-alive") == ("alive",)
    assert not index.seqs("pod", "p0")
    assert not index.seqs("group", "default/g0")
    assert not index.seqs("node", "rented-0")


def test_indexes_that_are_joined_are_bounded_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concerned, "_THINGS_MAX", 40)
    before, later = Index(), Index(first_seq=2)
    for index, names in ((before, ("both", *map(str, range(38)))), (later, ("both", "new"))):
        events = tuple(pod(name) for name in names)
        envelope = Envelope(at_ms=1, by="test", events=events)
        seq = index.first_seq
        index.take(Record(seq, subjects.FACTS, b"", seq, str(seq)), envelope)
    before.join(later)
    assert before.seqs("pod", "both") == (1, 2)
    more = Index(first_seq=3)
    events = tuple(pod(f"m{number}") for number in range(30))
    envelope = Envelope(at_ms=1, by="test", events=events)
    more.take(Record(3, subjects.FACTS, b"", 3, "3"), envelope)
    before.join(more)
    assert len(before._about) <= 40
    assert before.seqs("pod", "both") == (1, 2), "heard of later than the others"
    assert before.seqs("pod", "m29") == (3,)


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
