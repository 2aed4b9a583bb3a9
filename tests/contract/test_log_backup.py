"""From one server to three, by the shipped files and the documented commands: nothing is lost."""

import contextlib
import json
import os
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result
from tests.contract.nats_shipped import SINGLE, admit, credentials_of, on_loopback, running
from tests.contract.nats_three import by_watcher, cluster_texts, three_servers
from tests.waiting import patience

from allotment.adapters.log.backup import CONTENT, DESCRIPTION
from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.log import JetStreamLog, LogMissing
from allotment.core.logport import Landed, LogMisconfigured, LogUnavailable, Record
from allotment_cli.main import main
from allotment_proto import subjects

pytestmark = pytest.mark.anyio
RECORDS = 40
LIMIT = 64 * 1024 * 1024


async def allot(folder: Path, url: str, *words: str, user: str = "admin") -> Result:
    """`allot log …` as somebody who holds this key."""
    known = credentials_of(folder, user)
    key = {"ALLOT_NATS_NKEY": known.nkey_seed_file, "ALLOT_NATS_CA": known.tls_ca_file}
    command = ["log", "--nats", url, *words]
    return await anyio.to_thread.run_sync(lambda: CliRunner(env=key).invoke(main, command))


async def records_of(log: JetStreamLog) -> list[Record]:
    found: list[Record] = []
    async with aclosing(log.read(1, await log.last_seq())) as batches:
        async for batch in batches:
            found += batch
    return found


async def found(connection: Connection, monitor_url: str) -> JetStreamLog:
    """The log, once the cluster has a leader that knows of it; never made."""
    while True:
        try:
            return await JetStreamLog.open(
                connection, replicas=3, monitor_url=monitor_url, makes=False
            )
        except LogMissing:
            raise
        except (LogUnavailable, LogMisconfigured):
            await anyio.sleep(0.2)


async def test_a_log_goes_from_one_server_to_three(tmp_path: Path) -> None:
    admit(tmp_path)
    saved = tmp_path / "saved"
    single = on_loopback(SINGLE.read_text(), tmp_path / "store-0")
    with running([single], tmp_path) as ((url, monitor_url),), patience():
        async with connect([url], "test", **by_watcher(tmp_path)) as connection:
            log = await JetStreamLog.open(connection, monitor_url=monitor_url, max_bytes=LIMIT)
            for n in range(RECORDS):
                landed = await log.append(subjects.CONFIG, b"%d" % n * 9, msg_id=f"{n}")
                assert isinstance(landed, Landed)
            before = await records_of(log)
        done = await allot(tmp_path, url, "backup", str(saved))
        assert done.exit_code == 0, done.output
        assert f"records 1 to {RECORDS}" in done.output
    with contextlib.ExitStack() as stack, patience():
        servers = three_servers(stack, tmp_path)
        urls = [url for url, _ in servers]
        async with connect(urls, "test", **by_watcher(tmp_path)) as connection:
            with pytest.raises(LogMissing):
                await found(connection, servers[0][1])
            done = await allot(tmp_path, urls[1], "restore", str(saved), "--replicas", "3")
            assert done.exit_code == 0, done.output
            log = await found(connection, servers[0][1])
            assert await records_of(log) == before, "sequences and times, too"
            landed = await log.append(subjects.CONFIG, b"more", msg_id="more")
            assert landed == Landed(RECORDS + 1)
            again = await allot(tmp_path, urls[0], "restore", str(saved), "--replicas", "3")
            assert again.exit_code == 2
            assert "already in use" in again.output
            assert await log.last_seq() == RECORDS + 1
    kept = tmp_path / "store-0/jetstream/LOG/streams" / subjects.STREAM
    assert kept.is_dir(), "the single server's log is left where it was"


def test_servers_of_a_cluster_keep_clear_of_a_single_servers_store(tmp_path: Path) -> None:
    """A server that joins a cluster deletes the streams in its store that the cluster lacks."""
    (cluster, *_) = cluster_texts(tmp_path)
    assert f'store_dir: "{tmp_path}/store-0/cluster"' in cluster
    assert cluster.index("include") < cluster.index("jetstream {"), "the later one counts"


async def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    admit(tmp_path)
    single = on_loopback(SINGLE.read_text(), tmp_path / "store")
    other = tmp_path / "other"
    with running([single], tmp_path) as ((url, _),), patience():
        async with connect([url], "test", **by_watcher(tmp_path)) as connection:
            await JetStreamLog.open(connection, allow_unsynced=True)
        assert (await allot(tmp_path, url, "backup", str(other))).exit_code == 0
        data = bytearray((other / CONTENT).read_bytes())
        data[len(data) // 2] ^= 1
        (other / CONTENT).write_bytes(data)
        said = await allot(tmp_path, url, "restore", str(other))
        assert (said.exit_code, "is damaged" in said.output) == (2, True)
        described = json.loads((other / DESCRIPTION).read_text())
        described["config"]["name"] = "OTHER"
        (other / DESCRIPTION).write_text(json.dumps(described))
        said = await allot(tmp_path, url, "restore", str(other))
        assert (said.exit_code, "a backup of OTHER" in said.output) == (2, True)
        assert (await allot(tmp_path, url, "backup", str(other))).exit_code == 2, "it is there"


async def test_a_full_log_is_given_room_with_the_administrators_key(tmp_path: Path) -> None:
    admit(tmp_path)
    single = on_loopback(SINGLE.read_text(), tmp_path / "store")
    big = os.urandom(4000)
    with running([single], tmp_path) as ((url, _),), patience():
        async with connect([url], "test", **by_watcher(tmp_path)) as connection:
            log = await JetStreamLog.open(connection, allow_unsynced=True, max_bytes=6000)
            assert isinstance(await log.append(subjects.CONFIG, big, msg_id="1"), Landed)
            refused = await log.append(subjects.CONFIG, big, msg_id="2")
            assert not isinstance(refused, Landed)
            assert refused.reason == "full"
            for words, user, said in (
                (("limit", "1Ki"), "admin", "already"),
                (("limit", "lots"), "admin", "not a quantity"),
                (("limit", "1Ti"), "admin", "insufficient storage"),
                (("limit", "1Mi"), "reader", ""),
            ):
                done = await allot(tmp_path, url, *words, user=user)
                assert (done.exit_code, said in done.output) == (2, True), done.output
            done = await allot(tmp_path, url, "limit", "1Mi")
            assert done.exit_code == 0, done.output
            assert isinstance(await log.append(subjects.CONFIG, big, msg_id="2"), Landed)
