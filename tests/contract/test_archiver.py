"""The archiver and a real server: what is closed is archived, and only then leaves NATS."""

import os
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.contract.archiving import archiver, filled
from tests.recorded import read_log
from tests.segmenting import Segmented, segmented

from allotment.adapters.archive.file import SegmentBroken
from allotment.adapters.archive.store import ArchiveUnreachable, Store
from allotment.adapters.archive.verify import verify
from allotment.adapters.archive.whole import WholeLog
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.identity import Identity, _difference
from allotment.core.logport import Landed, Record, digest_of
from allotment_archiver.archiving import Unwritten
from allotment_archiver.settings import Keeps
from allotment_proto import subjects

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (60, 120, 180, 240)


@pytest.fixture(scope="module")
def grown() -> Segmented:
    return segmented(read_log("churn-best-fit"), CLOSED_AFTER)


async def contents(log: JetStreamLog | WholeLog) -> list[tuple[int, str, bytes, str]]:
    found: list[Record] = []
    async with aclosing(log.read(1, await log.last_seq())) as batches:
        async for batch in batches:
            found += batch
    return [(r.seq, r.subject, r.payload, r.msg_id) for r in found]


async def test_segments_are_archived_and_leave(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        before = await contents(log)
        one = archiver(log, tmp_path / "archive")
        await one.run()
        assert (one.archived, one.dropped, one.waiting) == (4, 2, 0)
        assert await log.first_seq() == grown.closed[1].last_seq + 1
        files = Store(str(tmp_path / "archive")).list()
        assert [stored.number for stored in files] == [1, 2, 3, 4]
        whole = WholeLog(log)
        assert (await contents(whole))[: len(before)] == before
        assert await whole.first_seq() == 1
        await one.run()
        assert (one.archived, one.dropped) == (4, 2), "nothing is left to do"
        again = archiver(log, tmp_path / "archive", Keeps(live_segments=1))
        await again.run()
        assert (again.archived, again.dropped) == (0, 1)
        assert await log.first_seq() == grown.closed[2].last_seq + 1
        assert (await contents(WholeLog(log)))[: len(before)] == before


async def test_the_log_in_nats_stays_as_large_through_many_segments(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """A month of a busy cluster in small: each segment is archived as it is closed."""
    grown, recorded = Segmented(), read_log("churn-best-fit")
    taken, reach = list[int](), 0
    async with filled(own_nats_server, grown) as log:
        one = archiver(log, tmp_path / "archive")
        for start in range(0, len(recorded), 20):
            for record in recorded[start : start + 20]:
                grown.take(record)
            grown.close()
            for record in grown.records[reach:]:
                landed = await log.append(record.subject, record.payload, msg_id=f"r/{record.seq}")
                assert landed == Landed(record.seq)
            taken.append(await log.taken_bytes())
            await one.run()
            reach = await log.last_seq()
            async with aclosing(log.read(len(grown.records) + 1, reach)) as batches:
                said = [record async for batch in batches for record in batch]
            for record in said:  # what the archiver wrote
                grown.take(msgspec.structs.replace(record, seq=-record.seq))
        assert one.archived == len(taken) > 25
        assert one.dropped >= one.archived - 3
        assert max(taken[-10:]) < 1.2 * max(taken[3:13]), taken


async def test_a_log_whose_known_record_has_left_is_the_same_log(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    """As where the watcher, which keeps the identity, was away for weeks."""
    async with filled(own_nats_server, grown) as log:
        record = await log.record(20)
        assert record is not None
        known = Identity(log.identity, 20, digest_of(record))
        await archiver(log, tmp_path / "archive").run()
        assert await log.record(20) is None
        assert await _difference(known, log) == ""
        other = Identity("ALLOTMENT_LOG@2020", 20, digest_of(record))
        assert (await _difference(other, log)).startswith("LogReplaced")


@pytest.mark.parametrize(
    "keeps",
    [Keeps(drops=False), Keeps(live_segments=4), Keeps(live_bytes=1 << 30), Keeps(live_days=10**6)],
)
async def test_what_is_to_be_kept_stays(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path, keeps: Keeps
) -> None:
    async with filled(own_nats_server, grown) as log:
        one = archiver(log, tmp_path / "archive", keeps)
        await one.run()
        assert (one.archived, one.dropped) == (4, 0)
        assert await log.first_seq() == 1


async def test_what_the_next_record_must_follow_stays(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """No outcome comes after the second segment: that one and those after it stay."""
    recorded = [
        record
        for at, record in enumerate(read_log("churn-best-fit"))
        if record.subject != subjects.OUTCOME or at < 100
    ]
    grown = segmented(recorded, CLOSED_AFTER)
    last = max(r.seq for r in grown.records if r.subject == subjects.OUTCOME)
    assert grown.closed[1].first_seq < last < grown.closed[1].last_seq
    async with filled(own_nats_server, grown) as log:
        one = archiver(log, tmp_path / "archive", Keeps(live_segments=1))
        await one.run()
        assert (one.archived, one.dropped) == (4, 1)
        assert await log.last_on(subjects.OUTCOME) == last


async def test_an_archive_that_is_away_holds_up_only_the_archiver(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        (tmp_path / "archive").write_text("no directory")
        one = archiver(log, tmp_path / "archive")
        with pytest.raises(ArchiveUnreachable, match=f"file://{tmp_path}/archive"):
            await one.run()
        assert await log.first_seq() == 1
        assert one.waiting == 4
        (tmp_path / "archive").unlink()
        await one.run()
        assert (one.archived, one.dropped) == (4, 2)


async def test_a_torn_file_is_written_again(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    """As after a crash in the middle, or a disk that lied."""
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(drops=False)).run()
    names = sorted(path.name for path in (tmp_path / "archive").glob("*.allotment"))
    whole = (tmp_path / "archive" / names[1]).read_bytes()
    (tmp_path / "archive" / names[1]).write_bytes(whole[: len(whole) // 2])
    other = NatsServer(tmp_path / "other")
    await anyio.to_thread.run_sync(other.start)
    try:
        async with filled(other, grown) as log:
            one = archiver(log, tmp_path / "archive")
            await one.run()
            assert one.archived == 4
            assert (tmp_path / "archive" / names[1]).stat().st_size >= len(whole) - 100
            for stored in Store(str(tmp_path / "archive")).list():
                verify(Store(str(tmp_path / "archive")).open(stored.name, stored.size_bytes))
    finally:
        await anyio.to_thread.run_sync(other.stop)


async def test_a_full_log_gets_room(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        jetstream = log._jetstream
        info = await jetstream.stream_info(log.stream)
        assert info is not None
        await jetstream.request(
            f"STREAM.UPDATE.{log.stream}",
            {**info["config"], "max_bytes": info["state"]["bytes"] + 10},
        )
        one = archiver(log, tmp_path / "archive")
        await one.run()
        assert (one.archived, one.dropped) == (4, 2)
        assert one.segments.dropped_seq == grown.closed[1].last_seq


async def test_a_full_log_that_must_not_drop_says_so(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        jetstream = log._jetstream
        info = await jetstream.stream_info(log.stream)
        assert info is not None
        await jetstream.request(
            f"STREAM.UPDATE.{log.stream}",
            {**info["config"], "max_bytes": info["state"]["bytes"] + 10},
        )
        with pytest.raises(Unwritten, match="allot log limit"):
            await archiver(log, tmp_path / "archive", Keeps(drops=False)).run()
        assert await log.first_seq() == 1


async def test_another_logs_archive_is_refused(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(drops=False)).run()
    other = NatsServer(tmp_path / "other")
    await anyio.to_thread.run_sync(other.start)
    try:
        async with filled(other, segmented(read_log("churn-binpack"), CLOSED_AFTER)) as log:
            with pytest.raises(SegmentBroken, match="another log's segment 1"):
                await archiver(log, tmp_path / "archive").run()
            assert await log.first_seq() == 1
    finally:
        await anyio.to_thread.run_sync(other.stop)


async def test_old_files_are_deleted_oldest_first(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive").run()
        for name in sorted(path.name for path in (tmp_path / "archive").glob("*.allotment"))[:1]:
            os.utime(tmp_path / "archive" / name, (1, 1))
        await archiver(log, tmp_path / "archive", Keeps(archive_days=30)).run()
        files = Store(str(tmp_path / "archive")).list()
        assert [stored.number for stored in files] == [2, 3, 4]
