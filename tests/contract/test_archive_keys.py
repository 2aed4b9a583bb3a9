"""`allot log archive`, `verify` and `restore`, and the inspector, on NATS with the users and keys
that we ship: each with the key of its own user, and with no other right than that user has.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result
from tests.contract.archiving import archiver
from tests.contract.nats_shipped import SINGLE, admit, credentials_of, on_loopback, running, tls_of
from tests.inspecting import following, view_of
from tests.recorded import read_log
from tests.segmenting import Segmented, segmented

from allotment.adapters.log.certificates import CA
from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_users import (
    ADMIN,
    ARCHIVER,
    INSPECTOR,
    READER,
    inbox_of,
    seed_file,
)
from allotment.core.logport import Landed
from allotment_archiver.settings import Keeps
from allotment_cli.main import main

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (60, 120, 180, 240, 400)


@pytest.fixture(scope="module")
def grown() -> Segmented:
    return segmented(read_log("churn-best-fit"), CLOSED_AFTER)


class Shipped:
    """A server as shipped, and where the users' keys are."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    @asynccontextmanager
    async def by(self, user: str) -> AsyncIterator[Connection]:
        async with connect(
            self._url,
            user,
            credentials=credentials_of(self._folder, user),
            inbox_prefix=inbox_of(user),
            connect_within_s=30.0,
        ) as connection:
            yield connection
            assert not connection.permission_errors

    @asynccontextmanager
    async def log_by(self, user: str) -> AsyncIterator[JetStreamLog]:
        async with self.by(user) as connection:
            log = await JetStreamLog.to_read(JetStream(connection))
            assert log is not None
            yield log

    async def fill(self, grown: Segmented) -> None:
        async with self.by(ADMIN) as connection:
            log = await JetStreamLog.open(connection, allow_unsynced=True)
            for record in grown.records:
                landed = await log.append(record.subject, record.payload, msg_id=record.msg_id)
                assert landed == Landed(record.seq)

    async def allot(self, user: str, *words: str) -> Result:
        """A command with the key of a user, new to this log."""
        environ = {
            "XDG_CACHE_HOME": str(self._folder / f"cache-{user}"),
            "ALLOT_NATS_URL": self._url,
            "ALLOT_NATS_NKEY": str(seed_file(self._folder / "users", user)),
            "ALLOT_NATS_CA": str(tls_of(self._folder) / CA),
        }
        runner = CliRunner(env=environ)
        return await anyio.to_thread.run_sync(lambda: runner.invoke(main, list(words)))


@contextmanager
def shipped(folder: Path) -> Iterator[Shipped]:
    folder.mkdir()
    admit(folder)
    text = on_loopback(SINGLE.read_text(), folder / "store")
    with running([text], folder) as ((url, _),):
        yield Shipped(url, folder)


async def test_each_step_works_with_the_key_of_its_user(grown: Segmented, tmp_path: Path) -> None:
    url, ends = str(tmp_path / "archive"), [one.last_seq for one in grown.closed]
    with shipped(tmp_path / "one") as nats:
        await nats.fill(grown)
        done = await nats.allot(ADMIN, "log", "archive", "--archive", url, "--drop")
        assert done.exit_code == 0, done.output
        assert "5 segments archived, 3 left NATS" in done.output
        done = await nats.allot(READER, "log", "verify", "-o", "json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["liveFirstSeq"] == ends[2] + 1
        done = await nats.allot(READER, "ledger", "--at", "70", "-o", "json")
        assert done.exit_code == 0, done.output
        wanted = done.stdout
    with shipped(tmp_path / "two") as nats:
        words = ["log", "restore", "--archive", url, "--segments", "2"]
        done = await nats.allot(ADMIN, *words)
        assert done.exit_code == 0, done.output
        assert f"restored: records {ends[2] + 1} to {ends[4]}" in done.output
        done = await nats.allot(ADMIN, *words)
        assert done.exit_code == 0, "run again, it changes nothing"
        for user in (READER, ADMIN):
            done = await nats.allot(user, "log", "verify", "--archive", url)
            assert done.exit_code == 0, done.output
            assert grown.closed[4].chain in done.output
        done = await nats.allot(READER, "ledger", "--at", "70", "-o", "json", "--archive", url)
        assert done.stdout == wanted, done.output
        done = await nats.allot(ADMIN, "log", "limit", "1Gi")
        assert done.exit_code == 0, done.output


async def test_a_reader_can_neither_archive_nor_restore(grown: Segmented, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    with shipped(tmp_path / "one") as nats:
        await nats.fill(grown)
        done = await nats.allot(READER, "log", "archive", "--archive", url, "--drop")
        assert done.exit_code == 2, done.output
        assert "administrator" in done.output
        done = await nats.allot(ADMIN, "log", "archive", "--archive", url)
        assert done.exit_code == 0, done.output
    with shipped(tmp_path / "two") as nats:
        done = await nats.allot(READER, "log", "restore", "--archive", url)
        assert done.exit_code == 2, done.output
        assert "administrator" in done.output


async def test_archiver_and_inspector_work_with_their_keys(
    grown: Segmented, tmp_path: Path
) -> None:
    with shipped(tmp_path / "one") as nats:
        await nats.fill(grown)
        async with nats.log_by(ARCHIVER) as log:
            await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
            assert await log.first_seq() == grown.closed[3].last_seq + 1
        async with nats.log_by(INSPECTOR) as log, following(log, directory=tmp_path) as history:
            assert history.base_seq == 0
            async with history.moment(70) as moment:
                assert moment.seq == 70
            assert (await view_of(history, "record", {"seq": "50"})).seq == 50
            await history.asked_back(30)
            assert history.kept.base < grown.closed[4].last_seq
