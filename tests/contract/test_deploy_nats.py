"""The NATS configurations we ship, read and run by a real nats-server."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
import yaml
from tests.contract.manifests import ROOT
from tests.contract.nats_shipped import (
    SINGLE,
    admit,
    credentials_of,
    on_loopback,
    restart,
    running,
    with_certificates,
)
from tests.contract.nats_three import (
    CLUSTER,
    by_watcher,
    pid_of,
    three_servers,
)
from tests.waiting import PATIENCE_S, patience, until

from allotment.adapters.log.connection import Connection, NatsUnavailable, connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.monitor import check_synced
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_server import find_binary
from allotment.adapters.log.nats_users import READER, inbox_of, seed_file, write_keys
from allotment.adapters.log.versions import check_server_version
from allotment.core.logport import Landed, LogMisconfigured, LogUnavailable
from allotment_proto import subjects

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
FORM_S = 30.0


@pytest.mark.parametrize("conf", [SINGLE, CLUSTER], ids=lambda path: path.name)
def test_the_server_takes_the_file_as_it_is(conf: Path, tmp_path: Path) -> None:
    admit(tmp_path)
    for path in (SINGLE, CLUSTER):  # side by side, as in the ConfigMap
        (tmp_path / path.name).write_text(with_certificates(path.read_text(), tmp_path))
    done = subprocess.run(
        [find_binary().path, "-t", "-c", tmp_path / conf.name],
        env={**os.environ, "SERVER_NAME": "nats-0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_monitoring_pages_are_within_the_pod() -> None:
    """They name every inbox and consumer, and ask nobody who they are."""
    conf = SINGLE.read_text()
    assert 'http: "127.0.0.1:8222"' in conf
    assert conf.count("8222") == CLUSTER.read_text().count("8222") + 1
    for path in (ROOT / "deploy").rglob("*.yaml"):
        for line in path.read_text().splitlines():
            assert "8222" not in line or "http://127.0.0.1:8222/healthz" in line, path
    statefulset = yaml.safe_load((ROOT / "deploy/nats/statefulset.yaml").read_text())
    (container,) = statefulset["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"][:2] == ["wget", "-q"]


def test_the_image_is_a_server_that_needs_no_warning() -> None:
    statefulset = yaml.safe_load((ROOT / "deploy/nats/statefulset.yaml").read_text())
    (container,) = statefulset["spec"]["template"]["spec"]["containers"]
    name, _, tag = container["image"].partition(":")
    assert name == "nats"
    version, _, variant = tag.partition("-")
    assert variant == "alpine", "the health check of compose.yaml needs its wget"
    assert check_server_version(f"{version}.99") == ()


@pytest.mark.anyio
async def test_one_server_syncs_before_it_answers(tmp_path: Path) -> None:
    admit(tmp_path)
    text = on_loopback(SINGLE.read_text(), tmp_path / "store")
    with running([text], tmp_path) as ((url, monitor_url),):
        assert await check_synced(monitor_url, replicas=1, allow_unsynced=False) == ((), ())
        async with connect([url], "test", **by_watcher(tmp_path)) as connection:
            assert connection.client.max_payload == MAX_PAYLOAD_BYTES
            log = await JetStreamLog.open(connection, monitor_url=monitor_url)
            assert log.warnings == ()


@pytest.mark.anyio
@pytest.mark.slow
async def test_three_servers_keep_three_copies(tmp_path: Path) -> None:
    """And the log goes on when one of them is gone, as in a rolling update."""
    admit(tmp_path)
    with contextlib.ExitStack() as stack, patience():
        servers = three_servers(stack, tmp_path)
        urls = [url for url, _ in servers]
        async with connect(urls, "test", **by_watcher(tmp_path)) as connection:
            log = await open_when_formed(connection, servers[0][1])
            assert isinstance(await log.append(subjects.CONFIG, b"1", msg_id="1"), Landed)
        async with connect(urls[1:], "test", **by_watcher(tmp_path)) as connection:
            os.kill(pid_of(tmp_path, 0), signal.SIGKILL)
            log = await open_when_formed(connection, servers[1][1])
            assert isinstance(await log.append(subjects.CONFIG, b"2", msg_id="2"), Landed)
            assert await log.last_seq() == 2
            async with contextlib.aclosing(log.follow(0)) as batches:
                await anext(batches)
                await until(lambda: log.copies_behind == 1)


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_reader_gets_each_record_once_while_the_leader_is_killed(tmp_path: Path) -> None:
    """It has no consumer: what its questions went to is gone, and the next leader is asked."""
    admit(tmp_path)
    seen: list[int] = []
    with contextlib.ExitStack() as stack, patience():
        servers = three_servers(stack, tmp_path)
        urls = [url for url, _ in servers]
        async with (
            connect(urls, "test", **by_watcher(tmp_path)) as writing,
            connect(
                urls,
                READER,
                credentials=credentials_of(tmp_path, READER),
                inbox_prefix=inbox_of(READER),
            ) as reading,
        ):
            log = await open_when_formed(writing, servers[0][1])

            async def read() -> None:
                asked = await JetStreamLog.to_read(JetStream(reading))
                assert asked is not None
                async with contextlib.aclosing(asked.follow(0)) as batches:
                    async for batch in batches:
                        seen.extend(record.seq for record in batch)
                        if len(seen) >= 60:
                            return

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                for number in range(1, 61):
                    if number == 30:
                        info = await JetStream(writing).stream_info(subjects.STREAM)
                        assert info is not None
                        leader = int(info["cluster"]["leader"].removeprefix("nats-"))
                        os.kill(pid_of(tmp_path, leader), signal.SIGKILL)
                    appended = await log.append(subjects.CONFIG, b"x", msg_id=f"{number}")
                    assert isinstance(appended, Landed)
    assert seen == list(range(1, 61))


@pytest.mark.anyio
@pytest.mark.slow
async def test_keys_are_replaced_while_records_are_appended(tmp_path: Path) -> None:
    """In the order of "New keys" in deploy/README.md: a server, the services, the other servers."""
    seeds = admit(tmp_path)
    old_seed = tmp_path / "old.nk"
    with contextlib.ExitStack() as stack, patience():
        servers = three_servers(stack, tmp_path)
        urls = [url for url, _ in servers]
        old_seed.write_bytes(seed_file(seeds, "watcher").read_bytes())
        old = {**by_watcher(tmp_path), "credentials": known_by(tmp_path, old_seed)}
        async with connect(urls, "old", **old) as connection:
            log = await open_when_formed(connection, servers[0][1])
            write_keys(seeds)
            urls[2] = restart(stack, tmp_path, 2)
            await appends(log, "while the first server has new keys")
            with pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
                async with connect(urls[:2], "early", **by_watcher(tmp_path)):
                    pass
            for _ in range(5):  # the client tries the servers in a random order
                async with connect(urls, "new", **by_watcher(tmp_path)) as replaced:
                    assert replaced.server == urlsplit(urls[2]).netloc
            async with connect(urls, "new", **by_watcher(tmp_path)) as replaced:
                await appends(log, "before the service is replaced")
                log = await open_when_formed(replaced, servers[0][1])
                await appends(log, "after it")
        async with connect(urls, "new", **by_watcher(tmp_path)) as replaced:
            log = await open_when_formed(replaced, servers[0][1])
            for number in (1, 0):
                urls[number] = restart(stack, tmp_path, number)
                await appends(log, f"while server {number} has new keys")
            with pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
                async with connect(urls, "late", **old):
                    pass


async def appends(log: JetStreamLog, when: str) -> None:
    for number in range(20):
        landed = await log.append(subjects.CONFIG, b"x", msg_id=f"{when} {number}")
        assert isinstance(landed, Landed), (when, number, landed)


def known_by(folder: Path, seed: Path) -> Credentials:
    known = credentials_of(folder, "watcher")
    return msgspec.structs.replace(known, nkey_seed_file=str(seed))


async def open_when_formed(connection: Connection, monitor_url: str) -> JetStreamLog:
    """The log, three times; servers that have not found each other yet cannot make it."""
    while True:
        try:
            return await JetStreamLog.open(connection, replicas=3, monitor_url=monitor_url)
        except (LogUnavailable, LogMisconfigured):
            await anyio.sleep(0.2)
