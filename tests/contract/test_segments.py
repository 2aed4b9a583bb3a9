"""A segment is closed once, with a checkpoint from which a fold goes on to the same state."""

import io
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
import zstandard
from tests import segmenting
from tests.memory_log import MemoryLog, MemoryLogCore
from tests.recorded import read_log
from tests.segmenting import segmented
from tests.waiting import until

from allotment.adapters.log import checkpoints
from allotment.adapters.log import fold as folds
from allotment.adapters.log.fold import BooksBroken, Fold, LevelUnknown
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.ledger import snapshot
from allotment.core.logport import AppendResult, LogDamaged, Record
from allotment_binder import closing
from allotment_binder.__main__ import WRITTEN
from allotment_binder.closing import Closer
from allotment_binder.fence import Fence
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import CheckpointPart, Envelope, LevelRaised, SegmentClosed

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small state has several parts; and so that no test waits for a second."""
    monkeypatch.setattr(checkpoints, "SLICE_BYTES", 4_000)
    monkeypatch.setattr(closing, "LOOK_EVERY_S", 0.01)


def filled(name: str = "walk-0") -> MemoryLogCore:
    """A log with the records of a recorded one."""
    core = MemoryLogCore(clock_ns=time.time_ns)
    for record in read_log(name):
        core.try_append(record.subject, record.payload, msg_id=record.msg_id)
    return core


def logger() -> Logger:
    return Logger(LogSink("binder", "0", stream=io.StringIO()))


@asynccontextmanager
async def followed(log: MemoryLog, *, whole: bool = False) -> AsyncIterator[Fold]:
    """A fold of the log; `whole`: from its first record, whatever checkpoint it has."""
    fold = Fold(log, logger(), None, None if whole else log.checkpoint)
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        yield fold
        group.cancel_scope.cancel()


def settings(instance: str, segment_bytes: int = 1 << 40) -> BinderSettings:
    return BinderSettings(instance=instance, segment_bytes=segment_bytes)


class Binder:
    """As much of a binder as closes segments: a fold, a life, and its closer."""

    def __init__(self, log: MemoryLog, name: str) -> None:
        self.log = log
        self.name = name
        self.fold = Fold(log, logger(), None, log.checkpoint)
        self.closer = Closer(log, self.fold, settings(name), logger())
        self.is_held = True

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.fold.run)
            await self.fold.caught_up.wait()
            fence = Fence(self.log, f"binder/{self.name}", WRITTEN, lambda: self.is_held, print)
            self.fold.listeners.append(fence.on_record)
            await fence.live(lambda: self.closer.run(fence), self.fold.wait_for)
            group.cancel_scope.cancel()


def has_closed(binder: Binder, count: int) -> bool:
    return binder.closer.closed == count


def knows_closed(binder: Binder) -> bool:
    return bool(binder.fold.state.segments.live)


def counted(log: MemoryLog) -> list[SegmentClosed]:
    """What was written of closed segments."""
    return [
        event
        for record in log.core.records
        if record.subject == subjects.CHECKPOINT
        for event in decode_envelope(record.payload).events
        if isinstance(event, SegmentClosed)
    ]


async def state_at(log: MemoryLog, seq: int | None = None) -> bytes:
    """The state of a fold from the first record."""
    core = MemoryLogCore()
    core.records = log.core.records[:seq]
    async with followed(MemoryLog(core), whole=True) as fold:
        return snapshot.encode(fold.state)


async def test_what_was_asked_for_is_closed_once_and_says_where_it_ends() -> None:
    log = MemoryLog(filled())
    before = log.core.last_seq
    binder = Binder(log, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(binder.run)
        await binder.fold.caught_up.wait()
        binder.closer.ask_to_close()
        await until(lambda: binder.closer.closed == 1)
        await until(lambda: log.core.last_on(subjects.DECISION) > counted(log)[0].last_seq)
        group.cancel_scope.cancel()
    (closed,) = counted(log)
    assert (closed.number, closed.first_seq) == (1, 1)
    assert closed.last_seq > before
    assert closed.parts > 2
    found = await log.checkpoint()
    assert found is not None
    assert found.image == await state_at(log, closed.last_seq)
    assert log.core.last_on(subjects.OUTCOME) > closed.last_seq, "it is looked up in the stream"
    async with followed(log) as late:
        assert late.state.seq == log.core.last_seq
        assert snapshot.encode(late.state) == await state_at(log)
        assert late.state.segments.open.first_seq == closed.last_seq + 1
    async with followed(log, whole=True) as whole, followed(log) as late:
        assert whole.chain_at(log.core.last_seq) == late.chain_at(log.core.last_seq) != ""
        assert whole.segment_bytes == late.segment_bytes > 0


async def test_a_large_segment_is_closed_by_itself_and_the_next_counts_from_there() -> None:
    log = MemoryLog(filled())
    binder = Binder(log, "a")
    binder.closer = Closer(log, binder.fold, settings("a", 1 << 20), logger())
    async with anyio.create_task_group() as group:
        group.start_soon(binder.run)
        await binder.fold.caught_up.wait()
        await anyio.sleep(0.1)
        assert not counted(log), "it is not large enough"
        for number in range(3):
            size = binder.fold.segment_bytes
            for one in range(200):
                payload = encode(Envelope(v=1, at_ms=1, by="x" * 8_000, events=()))
                await log.append(subjects.TIME, payload, msg_id=f"{number}.{one}")
            await until(partial(has_closed, binder, number + 1))
            assert binder.fold.segment_bytes < size + (1 << 20)
        group.cancel_scope.cancel()
    assert [each.number for each in counted(log)] == [1, 2, 3]
    assert [each.first_seq for each in counted(log)[1:]] == [
        each.last_seq + 1 for each in counted(log)[:2]
    ]


async def test_a_segment_is_closed_at_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog(filled())
    began_ns = log.core.records[0].time_ns
    now_ns = [began_ns + 7 * 86_400 * 10**9 - 1]
    monkeypatch.setattr(time, "time_ns", lambda: now_ns[0])
    binder = Binder(log, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(binder.run)
        await binder.fold.caught_up.wait()
        await anyio.sleep(0.1)
        assert not counted(log)
        now_ns[0] += 1
        await until(lambda: binder.closer.closed == 1)
        group.cancel_scope.cancel()


class Stuck(MemoryLog):
    """Of one binder's conditional appends to the log's own subjects one takes for ever: it arrives
    at once, or when it is let go.
    """

    def __init__(self, core: MemoryLogCore, at: int, *, arrives: bool) -> None:
        super().__init__(core)
        self.at, self.arrives = at, arrives
        self.stuck, self.go_on = anyio.Event(), anyio.Event()

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult:
        self.at -= not msg_id.startswith("life/")
        if self.at != -1 or self.stuck.is_set():
            return await super().compare_and_append(
                subject, payload, msg_id=msg_id, expected_seq=expected_seq
            )
        self.stuck.set()
        if self.arrives:
            await super().compare_and_append(
                subject, payload, msg_id=msg_id, expected_seq=expected_seq
            )
        await self.go_on.wait()
        return await super().compare_and_append(
            subject, payload, msg_id=msg_id, expected_seq=expected_seq
        )


async def steps_of_one_closing() -> int:
    """How many appends it takes."""
    log = MemoryLog(filled())
    binder = Binder(log, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(binder.run)
        await binder.fold.caught_up.wait()
        await until(lambda: log.core.last_on(subjects.SEGMENT) > 0)
        before = log.core.last_seq
        binder.closer.ask_to_close()
        await until(lambda: binder.closer.closed == 1)
        await until(lambda: log.core.last_on(subjects.DECISION) > counted(log)[0].last_seq)
        group.cancel_scope.cancel()
    return log.core.last_seq - before


@pytest.mark.parametrize("arrives", [False, True], ids=("later", "at once"))
@pytest.mark.parametrize("knew", [False, True], ids=("began after", "stood by"))
async def test_a_binder_that_is_frozen_at_any_step_is_followed_by_one_that_closes(
    arrives: bool, knew: bool
) -> None:
    for at in range(await steps_of_one_closing()):
        core = filled()
        log = Stuck(core, at, arrives=arrives)
        first, second = Binder(log, "a"), Binder(MemoryLog(core), "b")
        async with anyio.create_task_group() as group:
            group.start_soon(first.run)
            await first.fold.caught_up.wait()
            first.closer.ask_to_close()
            if knew:
                group.start_soon(second.fold.run)
                await second.fold.caught_up.wait()
            with anyio.fail_after(20):
                await log.stuck.wait()
            if not knew:
                group.start_soon(second.fold.run)
                await second.fold.caught_up.wait()
            fence = Fence(second.log, "binder/b", WRITTEN, lambda: True, print)
            second.fold.listeners.append(fence.on_record)

            async def live(second: Binder = second, fence: Fence = fence) -> None:
                await fence.live(lambda: second.closer.run(fence), second.fold.wait_for)

            group.start_soon(live)
            if not second.fold.state.segments.live:
                second.closer.ask_to_close()
            await until(partial(knows_closed, second))
            log.go_on.set()
            await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        async with followed(MemoryLog(core), whole=True) as whole:
            segments = whole.state.segments
            numbers = [each.closed.number for each in segments.live]
            assert numbers in ([1], [1, 2]), at  # two if the second was asked before it knew
            row = segments.live[-1]
            found = await MemoryLog(core).checkpoint()
            assert found is not None
            assert found.closed_seq == row.closed_seq, at
            assert found.image == await state_at(MemoryLog(core), row.closed.last_seq), at


async def forged(change: Callable[[SegmentClosed], SegmentClosed]) -> MemoryLog:
    """A log whose only checkpoint says something else than its binder found."""
    log = MemoryLog(filled())
    binder = Binder(log, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(binder.run)
        await binder.fold.caught_up.wait()
        binder.closer.ask_to_close()
        await until(lambda: binder.closer.closed == 1)
        group.cancel_scope.cancel()
    seq = log.core.last_on(subjects.CHECKPOINT)
    record = log.core.records[seq - 1]
    envelope = decode_envelope(record.payload)
    (closed,) = envelope.events
    assert isinstance(closed, SegmentClosed)
    changed = msgspec.structs.replace(envelope, events=(change(closed),))
    log.core.records[seq - 1] = msgspec.structs.replace(record, payload=encode(changed))
    return log


async def refused(log: MemoryLog, kind: type[Exception], *, whole: bool = True) -> str:
    """How a fold of a log ends."""
    with pytest.raises(ExceptionGroup) as raised:
        async with followed(log, whole=whole):
            pass
    found: Any = raised.value
    while isinstance(found, ExceptionGroup):
        (found,) = found.exceptions
    assert isinstance(found, kind)
    return str(found)


def with_digest(closed: SegmentClosed) -> SegmentClosed:
    return msgspec.structs.replace(closed, digest="0" * 64)


def with_chain(closed: SegmentClosed) -> SegmentClosed:
    return msgspec.structs.replace(closed, chain="0" * 64)


async def test_who_folded_to_another_state_stops_at_the_seam_and_says_so() -> None:
    text = await refused(await forged(with_digest), BooksBroken)
    assert "segment 1 ends with record" in text
    assert "to different states" in text


async def test_who_read_other_records_stops_at_the_seam_and_says_so() -> None:
    text = await refused(await forged(with_chain), LogDamaged)
    assert "read different records" in text


async def test_a_checkpoint_of_another_digest_is_no_start_and_stops_the_fold_at_the_seam() -> None:
    text = await refused(await forged(with_digest), BooksBroken, whole=False)
    assert "to different states" in text


def grown_with(closings: int) -> MemoryLog:
    """A log with segments closed in it, the last records in an open one."""
    recorded = read_log("walk-0")
    apart = len(recorded) // (closings + 1)
    grown = segmented(recorded, [apart * number for number in range(1, closings + 1)])
    core = MemoryLogCore(clock_ns=time.time_ns)
    for record in grown.records:
        core.try_append(record.subject, record.payload, msg_id=f"g/{record.seq}")
    return MemoryLog(core)


def torn(part: CheckpointPart) -> CheckpointPart:
    return msgspec.structs.replace(part, data=b"torn")


@pytest.mark.parametrize("damaged", [(3,), (2, 3), (1, 2, 3)])
async def test_a_start_passes_over_damaged_checkpoints_and_names_them(
    damaged: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As their binder wrote them: a record that was altered later is found by the chain."""
    numbers = itertools.count(1)

    def parts_of(image: bytes, closing: int) -> Iterator[CheckpointPart]:
        change = torn if next(numbers) in damaged else lambda part: part
        yield from map(change, checkpoints.parts_of(image, closing))

    monkeypatch.setattr(segmenting, "parts_of", parts_of)
    log = grown_with(3)
    before = [event.last_seq for event in counted(log)]
    closed = [record.seq for record in log.core.records if record.subject == subjects.CHECKPOINT]
    said = io.StringIO()
    fold = Fold(log, Logger(LogSink("binder", "0", stream=said)), None, log.checkpoint)
    started: list[int] = []
    fold.restored.append(lambda seq, image: started.append(seq))
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        group.cancel_scope.cancel()
    assert started == [before[number] for number in range(3 - len(damaged))][-1:]
    assert snapshot.encode(fold.state) == await state_at(log)
    for number in damaged:
        assert f'"record":{closed[number - 1]}' in said.getvalue().replace(" ", "")


async def test_a_part_that_is_altered_stops_who_passes_over_it() -> None:
    log = grown_with(3)
    seq = log.core.last_on(subjects.CHECKPOINT) - 1
    record = log.core.records[seq - 1]
    envelope = decode_envelope(record.payload)
    (part,) = envelope.events
    assert isinstance(part, CheckpointPart)
    payload = encode(msgspec.structs.replace(envelope, events=(torn(part),)))
    log.core.records[seq - 1] = msgspec.structs.replace(record, payload=payload)
    assert "read different records" in await refused(log, LogDamaged, whole=False)


async def test_a_start_beside_many_segments_reads_the_last_one_alone() -> None:
    log = grown_with(12)

    seqs: set[int] = set()

    class Counted(MemoryLog):
        async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
            async for batch in super().follow(after_seq):
                seqs.update(record.seq for record in batch)
                yield batch

        async def record(self, seq: int) -> Record | None:
            seqs.add(seq)
            return await super().record(seq)

        async def first_on(self, subject: str, from_seq: int) -> Record | None:
            record = await super().first_on(subject, from_seq)
            seqs.update(() if record is None else (record.seq,))
            return record

    async with followed(Counted(log.core)) as fold:
        assert fold.state.seq == log.core.last_seq
    assert min(seqs) == counted(log)[-1].last_seq + 1
    assert len(counted(log)) == 12


async def test_a_log_of_a_newer_level_stops_at_the_record_that_raises_it() -> None:
    log = MemoryLog(filled())
    raised = Envelope(v=1, at_ms=1, by="b", events=(LevelRaised(level=2),))
    await log.append(subjects.SEGMENT, encode(raised), msg_id="raise")
    text = await refused(log, LevelUnknown)
    assert "level 2" in text
    assert f"record {log.core.last_seq}" in text


async def test_a_binder_raises_the_level_to_its_own_and_never_lowers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MemoryLog(filled())

    async def ask(binder: Binder) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(binder.run)
            await binder.fold.caught_up.wait()
            await until(lambda: log.core.last_on(subjects.SEGMENT) > 0)
            binder.closer.ask_to_raise()
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()

    await ask(Binder(log, "a"))
    assert b"LevelRaised" not in b"".join(r.payload for r in log.core.records), "it is its own"
    for module in (closing, folds):
        monkeypatch.setattr(module, "ENVELOPE_VERSION", 2)
    await ask(Binder(log, "newer"))
    await ask(Binder(log, "newer"))
    async with followed(log) as fold:
        assert fold.state.segments.level == 2
    assert b"".join(r.payload for r in log.core.records).count(b"LevelRaised") == 1
    monkeypatch.undo()
    assert "level 2" in await refused(log, LevelUnknown)


def test_an_image_comes_back_from_parts_of_any_size() -> None:
    for size in (0, 1, 3_999, 4_000, 4_001, 40_000):
        image = bytes(index * 7 % 251 for index in range(size))
        parts = list(checkpoints.parts_of(image, 9))
        assert len(parts) == checkpoints.count_of(image)
        closed = SegmentClosed(
            number=1,
            at_ms=0,
            first_seq=1,
            last_seq=9,
            parts=len(parts),
            image_bytes=size,
            digest=checkpoints.digest_of_image(image),
            chain="",
        )
        assert checkpoints.image_of(closed, parts) == image
        with pytest.raises(LogDamaged):
            checkpoints.image_of(closed, parts[:-1])
        torn = [*parts[:-1], CheckpointPart(closing=9, index=parts[-1].index, data=b"torn")]
        with pytest.raises(LogDamaged):
            checkpoints.image_of(closed, torn)
        bomb = CheckpointPart(closing=9, index=0, data=zstandard.compress(bytes(1 << 20)))
        with pytest.raises(LogDamaged, match="more than"):
            checkpoints.image_of(closed, [bomb, *parts[1:]])
