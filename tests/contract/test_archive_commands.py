"""`allot log archive`, `verify` and `restore` on a real server."""

import json
from pathlib import Path

import anyio
import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.contract.archiving import archiver, filled
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import running
from tests.recorded import read_log
from tests.segmenting import Segmented, segmented

from allotment.adapters.kube.client import connect as kube_client
from allotment.adapters.kube.kept_text import KeptText
from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.identity import Identity
from allotment_archiver.settings import Keeps
from allotment_cli.main import main

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (60, 120, 180, 240, 400)


@pytest.fixture(scope="module")
def grown() -> Segmented:
    return segmented(read_log("churn-best-fit"), CLOSED_AFTER)


async def allot(server: NatsServer, cache: Path, *words: str) -> Result:
    environ = {"XDG_CACHE_HOME": str(cache), "ALLOT_NATS_URL": server.url}
    runner = CliRunner(env=environ)
    return await anyio.to_thread.run_sync(lambda: runner.invoke(main, list(words)))


async def test_the_closed_segments_are_archived_by_hand(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        done = await allot(own_nats_server, tmp_path, "log", "archive")
        assert done.exit_code == 2
        assert "give --archive URL" in done.output
        url = str(tmp_path / "archive")
        done = await allot(own_nats_server, tmp_path, "log", "archive", "--archive", url)
        assert done.exit_code == 0, done.output
        assert "5 segments archived, 0 left NATS" in done.output
        done = await allot(own_nats_server, tmp_path, "log", "archive", "--drop")
        assert "0 segments archived, 3 left NATS" in done.output
        assert await log.first_seq() == grown.closed[2].last_seq + 1


async def test_a_sound_log_is_verified(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        done = await allot(own_nats_server, tmp_path, "log", "verify", "-o", "json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["liveDecisions"] > 100
        await archiver(log, tmp_path / "archive").run()
        end = await log.last_seq()
        done = await allot(own_nats_server, tmp_path, "log", "verify")
        assert done.exit_code == 0, done.output
        assert "segment 5" in done.output
        assert f"NATS: records {grown.closed[2].last_seq + 1} to {end}" in done.output
        assert "sound; the chain's head is" in done.output
        url = str(tmp_path / "archive")
        alone = ["log", "verify", "--no-live", "--archive", url, "-o", "json"]
        done = await allot(own_nats_server, tmp_path, *alone)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["chain"] == grown.closed[4].chain


async def test_each_damage_is_named(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
    files = sorted((tmp_path / "archive").glob("*.allotment"))
    kept = [path.read_bytes() for path in files]

    async def problems() -> list[str]:
        words = ("log", "verify", "--no-fold", "-o", "json")
        done = await allot(own_nats_server, tmp_path, *words)
        assert done.exit_code == 1, done.output
        for path, data in zip(files, kept, strict=True):
            path.write_bytes(data)
        return [one["text"] for one in json.loads(done.stdout)["problems"]]

    flipped = bytearray(kept[1])
    flipped[len(flipped) // 2] ^= 4
    files[1].write_bytes(flipped)
    (found,) = await problems()
    assert files[1].name in found
    assert f"first bad record: {grown.closed[0].last_seq + 1}" in found
    files[2].unlink()
    found = (await problems())[0]
    assert found.startswith("segment 3: records")
    files[0].write_bytes(kept[1])
    files[1].write_bytes(kept[0])
    found = "\n".join(await problems())
    assert f"{files[0].name}: it holds {files[1].name}" in found


async def test_an_altered_record_in_nats_is_named(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    grown = segmented(read_log("churn-best-fit"), CLOSED_AFTER)
    one = grown.records[199]
    grown.records[199] = type(one)(200, one.subject, one.payload + b" ", one.time_ns, one.msg_id)
    async with filled(own_nats_server, grown):
        done = await allot(own_nats_server, tmp_path, "log", "verify", "-o", "json")
        assert done.exit_code == 1, done.output
        (found,) = json.loads(done.stdout)["problems"]
        assert 190 < found["firstSeq"] <= 200
        assert "another head of the chain" in found["text"]


async def test_a_log_is_restored_into_an_empty_server(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    """Its newest segments are in NATS again, all others in the archive; the state is the same."""
    url, end = str(tmp_path / "archive"), str(grown.closed[4].last_seq)
    async with filled(own_nats_server, grown) as log:
        wanted = await allot(own_nats_server, tmp_path / "a", "replay", "--to", end)
        await archiver(log, tmp_path / "archive", Keeps(drops=False)).run()
    empty = NatsServer(tmp_path / "empty")
    await anyio.to_thread.run_sync(empty.start)
    try:
        words = ["log", "restore", "--archive", url, "--segments", "2"]
        done = await allot(empty, tmp_path / "b", *words)
        assert done.exit_code == 0, done.output
        first = grown.closed[2].last_seq + 1
        assert f"restored: records {first} to {end}" in done.output
        assert grown.closed[4].chain in done.output
        done = await allot(empty, tmp_path / "b", "log", "verify", "--archive", url)
        assert done.exit_code == 0, done.output
        found = await allot(empty, tmp_path / "b", "replay", "--to", end, "--archive", url)
        assert found.output == wanted.output
        assert "state sha256" in found.output
        done = await allot(empty, tmp_path / "b", "ledger", "--at", "70", "--archive", url)
        assert done.exit_code == 0, done.output
        done = await allot(empty, tmp_path / "b", *words)
        assert done.exit_code == 0, "run again, it changes nothing"
        async with connect(empty.url, "test") as connection:
            log = await JetStreamLog.open(connection)
            assert (await log.first_seq(), await log.last_seq()) == (first, int(end))
            await JetStream(connection).request(f"STREAM.DELETE.{log.stream}")
            await JetStreamLog.open(connection)
        done = await allot(empty, tmp_path / "b", *words)
        assert done.exit_code == 2
        assert "restore into a NATS that has none" in done.output
    finally:
        await anyio.to_thread.run_sync(empty.stop)


async def known(url: str, tmp_path: Path, namespace: str, identity: Identity) -> Path:
    """Keep the identity of a log as the watcher does; the kubeconfig of that cluster."""
    config = kubeconfig(tmp_path / "kubeconfig", url)
    async with kube_client(config) as client:
        kept = KeptText(client, namespace, "allotment-log")
        await kept.write(msgspec.json.encode(identity).decode())
    return config


async def test_the_head_that_the_cluster_keeps_is_compared(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    namespace = "allotment-system"
    dropped, end = grown.closed[0].last_seq - 7, len(grown.records)
    url = str(tmp_path / "archive")
    async with filled(own_nats_server, grown) as log, running() as api:
        await archiver(log, tmp_path / "archive").run()
        for seq, head, code, said in (
            (end, grown.head(end), 0, f"its head at record {end} is in this log"),
            (dropped, grown.head(dropped), 0, f"its head at record {dropped} is in this log"),
            (end, grown.head(end - 1), 1, f"and this log has {grown.head(end)} there"),
            (dropped, "00" * 32, 1, f"and this log has {grown.head(dropped)} there"),
            (end + 50, grown.head(end), 1, "its end is lost, or it is another log"),
            (end, "", 0, "names no head of the chain yet"),
        ):
            config = await known(api.url, tmp_path, namespace, Identity("x", seq, "", head))
            words = ["log", "--kubeconfig", str(config), "verify", "--no-fold"]
            done = await allot(own_nats_server, tmp_path, *words)
            assert done.exit_code == code, done.output
            assert said in done.output
            assert f"ConfigMap {namespace}/allotment-log" in done.output
        last = grown.closed[-1]
        alone = ["verify", "--no-live", "--no-fold", "--archive", url, "-o", "json"]
        for seq, compared in ((last.last_seq, last.last_seq), (end, 0)):
            await known(api.url, tmp_path, namespace, Identity("x", seq, "", grown.head(seq)))
            done = await allot(
                own_nats_server, tmp_path, "log", "--kubeconfig", str(config), *alone
            )
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["knownSeq"] == compared


async def test_without_a_cluster_it_is_said_that_no_head_is_compared(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown), running() as api:
        done = await allot(own_nats_server, tmp_path, "log", "verify", "--no-fold")
        assert done.exit_code == 0, done.output
        assert "no head that a cluster keeps is compared: no API server is named" in done.output
        await api.post("/api/v1/namespaces", {"metadata": {"name": "tenant"}})
        config = await known(api.url, tmp_path, "tenant", Identity("x", 1, "", "00" * 32))
        words = ["log", "--kubeconfig", str(config), "verify", "--no-fold"]
        done = await allot(own_nats_server, tmp_path, *words)
        assert done.exit_code == 0, done.output
        assert "the cluster has no ConfigMap allotment-system/allotment-log" in done.output
