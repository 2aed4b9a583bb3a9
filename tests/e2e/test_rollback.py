"""`helm rollback` across a change of the number of NATS servers, and back: no record is lost.

Helm restores the objects of the release before, and with them a server that has an older log. The
services reject it; at most a watcher that still runs has added facts to it. The newer log stays on
the volumes of the three servers. They are killed, so a copy that NATS cannot read again shows, too.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import find_binary
from tests.bench.failover import SERVERS, ThreeServers, ThreeStack
from tests.contract.nats_shipped import credentials_of
from tests.contract.nats_three import by_watcher
from tests.e2e.audit import assert_sound
from tests.e2e.stack import ROLES, vgpu
from tests.waiting import PATIENCE_S, until_so

QUIET_S = 8.0
"""Longer than anything takes to be scheduled, or a lease to be lost."""
pytestmark = pytest.mark.slow


class Changing(ThreeServers):
    """One server on the volume of the first of three, or those three."""

    def start(self) -> None:
        super().start()  # with the files that all need
        self.change(1)

    def change(self, count: int) -> None:
        """End all, and start so many."""
        self.stop()
        self._running.clear()
        if count == 1:
            self._running[0] = subprocess.Popen(
                [find_binary().path, "-c", self.folder / "include-0.conf"],
                env={"SERVER_NAME": "nats-0"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            until_so(lambda: self.is_healthy(0))
        else:
            for number in SERVERS:
                self.start_one(number)
            until_so(lambda: all(self.is_healthy(number) for number in SERVERS))


class Release(ThreeStack):
    """One replica of each service."""

    nats: Changing

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scheduling = self._services = ROLES
        self._controlled = False
        self.nats = Changing(directory / "three")
        self._log_replicas(1)

    def _start(self) -> None:
        super(ThreeStack, self)._start()

    def _log_replicas(self, count: int) -> None:
        for role in ROLES:
            self.options[role] = [*self.options[role][:-1], str(count)]

    def end_services(self) -> None:
        for role in ROLES:
            self.kill(role)

    def start_services(self, log_replicas: int) -> None:
        self._log_replicas(log_replicas)
        for role in ROLES:
            self.start(role, wait=False)
        for role in ROLES:
            self.processes[role].announce()

    def last_seq(self) -> int:
        """Of the log that the servers have now."""
        return anyio.run(self._last_seq)

    async def _last_seq(self) -> int:
        url = self.nats.url.split(",")[0]
        async with connect([url], "test", **by_watcher(self.nats.folder)) as connection:
            return await (await JetStreamLog.open(connection, makes=False)).last_seq()

    def allot(self, *words: str) -> bool:
        """Whether `allot log …` succeeds with the administrator's key."""
        known = credentials_of(self.nats.folder, "admin")
        key = {"ALLOT_NATS_NKEY": known.nkey_seed_file, "ALLOT_NATS_CA": known.tls_ca_file}
        command = [sys.executable, "-m", "allotment_cli.main", "log"]
        done = subprocess.run(
            [*command, "--nats", self.nats.url.split(",")[0], *words],
            env={**os.environ, **{name: str(path) for name, path in key.items()}},
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode == 0


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    with Release(tmp_path / "release") as running:
        yield running


def test_a_rollback_to_one_server_schedules_nothing_and_loses_nothing(release: Release) -> None:
    release.create_pod("before", vgpu(1000))
    release.until(lambda: "before" in release.bound(), "a pod is bound")
    release.until(lambda: release.kept().get("seq", 0) > 0, "how far the log has come is kept")
    saved = str(release.directory / "saved")
    release.end_services()
    assert release.allot("backup", saved)
    release.nats.change(3)
    release.until(lambda: release.allot("restore", saved, "--replicas", "3"), "it is restored")
    release.start_services(3)
    release.create_pod("between", vgpu(1000))
    release.until(lambda: "between" in release.bound(), "it goes on with three servers")
    newest = release.last_seq()
    release.until(lambda: release.kept().get("seq", 0) >= newest, "how far it has come is kept")

    release.nats.change(1)  # the rollback: first the servers, then the services
    assert release.last_seq() < newest
    release.create_pod("after", vgpu(1000))
    time.sleep(QUIET_S)
    assert "after" not in release.bound()
    release.end_services()
    release.start_services(1)
    for service in ("watcher", "binder"):
        release.until(lambda one=service: "LogLost" in release.trouble(one), service)  # type: ignore[misc]
    assert "after" not in release.bound()

    release.end_services()
    release.nats.change(3)  # and forward again, to the release before
    release.start_services(3)
    release.until(lambda: "after" in release.bound(), "the newer log goes on")
    assert_sound(release)
