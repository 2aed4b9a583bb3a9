"""One log of archive and stream: what left the stream is read from the archive, or named."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from allotment.adapters.archive import file as archive_file
from allotment.adapters.archive.store import Store
from allotment.adapters.archive.whole import WholeLog
from allotment.core.errors import AllotError
from allotment.core.ledger import snapshot
from allotment.core.logport import Record
from tests.recorded import read_log
from tests.segmenting import Segmented, put, segmented

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (100, 200, 300)


class Stream:
    """The records of a log from one on."""

    identity = "test"

    def __init__(self, log: Segmented) -> None:
        self.log = log
        self.first = 1

    async def first_seq(self) -> int:
        return self.first

    async def last_seq(self) -> int:
        return len(self.log.records)

    async def last_on(self, subject: str) -> int:
        return max((r.seq for r in self.log.records if r.subject == subject), default=0)

    async def first_on(self, subject: str, from_seq: int) -> Record | None:
        from_seq = max(from_seq, self.first)
        found = (r for r in self.log.records[from_seq - 1 :] if r.subject == subject)
        return next(found, None)

    async def record(self, seq: int) -> Record | None:
        return self.log.records[seq - 1] if self.first <= seq <= len(self.log.records) else None

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        at = max(first_seq, self.first)
        while at <= min(last_seq, len(self.log.records)):
            batch = self.log.records[at - 1 : min(at + 9, last_seq)]
            at += len(batch)
            yield batch

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        assert after_seq + 1 >= self.first, "such records are not there"
        async with aclosing(self.read(after_seq + 1, len(self.log.records))) as batches:
            async for batch in batches:
                yield batch


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stream:
    """Three segments, all archived, of which two have left the stream."""
    monkeypatch.setattr(archive_file, "FRAME_BYTES", 10_000)
    log = segmented(read_log("churn-best-fit"), CLOSED_AFTER)
    store = Store(str(tmp_path / "archive"), makes=True)
    for number in (1, 2, 3):
        log.archived(number, store.uri(put(log, number, store, tmp_path).name))
    found = Stream(log)
    found.first = log.closed[1].last_seq + 1
    return found


async def read(log: WholeLog, first: int, last: int) -> list[Record]:
    found: list[Record] = []
    async with aclosing(log.read(first, last)) as batches:
        async for batch in batches:
            found += batch
    return found


async def test_archive_and_stream_are_one_log(stream: Stream) -> None:
    records, whole = stream.log.records, WholeLog(stream)
    assert await whole.first_seq() == 1
    assert await read(whole, 1, len(records) + 5) == records
    for first, last in ((50, 60), (95, 110), (stream.first - 1, stream.first), (400, 420)):
        assert await read(whole, first, last) == records[first - 1 : last]
    assert [await whole.record(seq) for seq in (1, 120, 400)] == [
        records[seq - 1] for seq in (1, 120, 400)
    ]
    assert await whole.record(len(records) + 1) is None
    followed: list[Record] = []
    async with aclosing(whole.follow(7)) as batches:
        async for batch in batches:
            followed += batch
    assert followed == records[7:]


async def test_a_record_that_leaves_while_it_is_read_comes_from_the_archive(
    stream: Stream,
) -> None:
    whole, purged_at = WholeLog(stream), stream.first
    stream.first = 1
    found: list[Record] = []
    async with aclosing(whole.read(1, 300)) as batches:
        async for batch in batches:
            found += batch
            stream.first = purged_at
    assert found == stream.log.records[:300]


async def test_the_nearest_checkpoint_is_found(stream: Stream) -> None:
    whole, closed = WholeLog(stream), stream.log.closed
    first, second, third = (each.last_seq for each in closed)
    for before, expected in (
        (len(stream.log.records), third),
        (third, second),
        (second + 1, second),
        (second, first),
    ):
        found = await whole.checkpoint(before)
        assert found is not None
        assert found.closed.last_seq == expected
        assert snapshot.decode(found.image).seq == expected
    assert await whole.checkpoint(first) is None
    late_ns = stream.log.records[second].time_ns + 1
    found = await whole.checkpoint(third + 1, late_ns)
    assert found is not None
    assert found.closed.last_seq in (first, second)


async def test_what_was_read_is_kept(stream: Stream, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert await read(WholeLog(stream, cache=cache), 1, 150) == stream.log.records[:150]
    (tmp_path / "archive").rename(tmp_path / "away")
    (tmp_path / "archive").mkdir()
    for path in (tmp_path / "away").iterdir():
        (tmp_path / "archive" / path.name).write_bytes(b"x" * path.stat().st_size)
        stat = path.stat()
        os.utime(tmp_path / "archive" / path.name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert await read(WholeLog(stream, cache=cache), 1, 150) == stream.log.records[:150]
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(AllotError, match="damaged"):
        await read(WholeLog(stream, cache=cache), 1, 150)


async def test_an_archive_that_is_away_is_named_with_records_place_and_remedy(
    stream: Stream, tmp_path: Path
) -> None:
    (tmp_path / "archive").rename(tmp_path / "away")
    with pytest.raises(AllotError) as caught:
        await read(WholeLog(stream), 5, 10)
    assert "records 1 to 10 have left NATS" in caught.value.message
    assert f"file://{tmp_path}/archive" in caught.value.message
    assert "--archive URL" in caught.value.remedy
    copy = WholeLog(stream, str(tmp_path / "away"))
    assert await read(copy, 5, 10) == stream.log.records[4:10]
    assert await read(WholeLog(stream), stream.first, stream.first + 3), "those are in the stream"


async def test_an_archive_that_begins_later_is_named(stream: Stream, tmp_path: Path) -> None:
    first = min((tmp_path / "archive").iterdir())
    first.unlink()
    whole, begins = WholeLog(stream), stream.log.closed[0].last_seq + 1
    assert await whole.first_seq() == begins
    assert await read(whole, begins, begins + 5)
    with pytest.raises(AllotError, match=f"begins with record {begins}"):
        await read(whole, 5, 300)


async def test_checkpoints_are_looked_for_where_a_segment_begins(stream: Stream) -> None:
    """A server looks through all records between for the next one on a subject."""
    stream.first, looked_through = 1, list[int]()
    first_on = stream.first_on

    async def counted(subject: str, from_seq: int) -> Record | None:
        found = await first_on(subject, from_seq)
        if found is not None:  # that there is none it knows
            looked_through.append(found.seq - from_seq)
        return found

    stream.first_on = counted  # type: ignore[method-assign]
    for number, before_seq in enumerate((150, 250, 390)):
        found = await WholeLog(stream).checkpoint(before_seq)
        assert found is not None
        assert found.closed == stream.log.closed[number]
    assert await WholeLog(stream).checkpoint(50) is None
    assert max(looked_through) < 20 < min(stream.log.closed[0].last_seq, 100)


async def test_for_records_that_have_left_the_stream_is_not_asked_each_time(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    record = stream.record

    async def counted(seq: int) -> Record | None:
        asked.append(seq)
        return await record(seq)

    monkeypatch.setattr(stream, "record", counted)
    whole = WholeLog(stream)
    for seq in (7, 8, 90, stream.first, 9):
        assert await whole.record(seq) == stream.log.records[seq - 1]
    assert 7 in asked
    assert not {8, 9, 90} & set(asked)
