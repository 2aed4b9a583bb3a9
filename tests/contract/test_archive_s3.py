"""The archive in a bucket, by a stand-in for S3."""

from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.contract.archiving import archiver, filled
from tests.recorded import read_log
from tests.s3 import Bucket, bucket
from tests.segmenting import segmented

from allotment.adapters.archive.archive import Archive
from allotment.adapters.archive.store import ArchiveUnreachable, Store
from allotment.adapters.archive.whole import WholeLog
from allotment.adapters.log.nats_server import NatsServer

pytestmark = pytest.mark.anyio
URL = "s3://backups/of/allotment"


def use(monkeypatch: pytest.MonkeyPatch, found: Bucket) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": found.url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)


async def test_segments_go_to_a_bucket_and_are_read_from_there(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = segmented(read_log("churn-best-fit"), (60, 120, 180))
    async with bucket() as found, filled(own_nats_server, grown) as log:
        use(monkeypatch, found)
        one = archiver(log, URL)
        found.is_down = True
        with pytest.raises(ArchiveUnreachable, match=f"{URL} cannot be listed"):
            with anyio.fail_after(60):
                await one.run()
        assert await log.first_seq() == 1
        found.is_down = False
        await one.run()
        assert (one.archived, one.dropped) == (3, 1)
        assert len(found.objects) == 6, "three segments, each with its index"
        assert all(key.startswith("of/allotment/segment-0000") for key in found.objects)
        whole = WholeLog(log)
        records = [r async for batch in whole.read(1, len(grown.records)) for r in batch]
        assert [r.payload for r in records] == [r.payload for r in grown.records]
        archive = await Archive.open(URL)
        assert (archive.first_seq, archive.last_seq) == (1, grown.closed[2].last_seq)


async def test_a_large_file_goes_up_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bucket() as found:
        use(monkeypatch, found)
        store, path = Store(URL), tmp_path / "large"
        data = bytes(range(256)) * (80 * 1024)
        path.write_bytes(data)
        name = "segment-00000001-1-2.allotment"
        await anyio.to_thread.run_sync(store.put, path, name)
        assert found.objects[f"of/allotment/{name}"] == data
        assert await anyio.to_thread.run_sync(store.read, name, 300, 50) == data[300:350]
        assert await anyio.to_thread.run_sync(store.size, name) == len(data)
        assert await anyio.to_thread.run_sync(store.size, "none") is None
        await anyio.to_thread.run_sync(store.delete, name)
        assert not found.objects


async def test_a_bucket_that_is_not_there_says_what_to_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = Bucket()
    gone.url = "http://127.0.0.1:9"
    use(monkeypatch, gone)
    with anyio.fail_after(60), pytest.raises(ArchiveUnreachable) as caught:
        await anyio.to_thread.run_sync(Store(URL).list)
    for word in (URL, "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID"):
        assert word in str(caught.value)
