"""The NATS configurations we ship, run on loopback."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.contract.manifests import ROOT
from tests.waiting import PATIENCE_S

from allotment.adapters.log.certificates import (
    CA,
    LOCAL_NAMES,
    new_certificates,
    write_certificates,
)
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_server import find_binary
from allotment.adapters.log.nats_users import seed_file, write_keys

SINGLE = ROOT / "deploy/nats/nats.conf"
RIGHTS = ROOT / "deploy/nats/authorization.conf"


def admit(folder: Path) -> Path:
    """Put keys, rights and certificates beside the configuration, as they are in the container; the
    seeds.
    """
    seeds = folder / "users"
    write_certificates(tls_of(folder), new_certificates(LOCAL_NAMES, datetime.now(UTC)))
    (folder / "keys").symlink_to(write_keys(seeds).parent)
    (folder / RIGHTS.name).write_bytes(RIGHTS.read_bytes())
    return seeds


def tls_of(folder: Path) -> Path:
    return folder / "tls"


def credentials_of(folder: Path, user: str) -> Credentials:
    """A user's key, and the CA of the servers that run in `folder`."""
    seed = str(seed_file(folder / "users", user))
    return Credentials(nkey_seed_file=seed, tls_ca_file=str(tls_of(folder) / CA))


def on_loopback(text: str, store: Path) -> str:
    """The same configuration, on free loopback ports, with a store and certificates of the test's
    own.
    """
    for shipped, here in (
        ('"0.0.0.0:4222"', '"127.0.0.1:-1"'),
        ('"127.0.0.1:8222"', '"127.0.0.1:-1"'),
        ('"/data"', json.dumps(str(store))),
    ):
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    return with_certificates(text, store.parent)


def with_certificates(text: str, folder: Path) -> str:
    assert "/etc/nats/tls/" in text
    return text.replace("/etc/nats/tls/", f"{tls_of(folder)}/")


@contextlib.contextmanager
def running(texts: Sequence[str], folder: Path) -> Iterator[list[tuple[str, str]]]:
    """A server for each configuration; (client, monitoring) addresses of each."""
    with contextlib.ExitStack() as stack:
        processes = []
        for number, text in enumerate(texts):
            conf = folder / f"server-{number}.conf"
            conf.write_text(f"{text}\nports_file_dir: {json.dumps(str(folder))}\n")
            processes.append(start(stack, folder, number))
        yield [addresses_of(folder, process) for process in processes]


def start(stack: contextlib.ExitStack, folder: Path, number: int) -> "subprocess.Popen[bytes]":
    """The server with the configuration `server-NUMBER.conf`, until the stack ends."""
    conf, pid = folder / f"server-{number}.conf", folder / f"{number}.pid"
    process = subprocess.Popen(
        [find_binary().path, "-c", conf, "--pid", pid],
        env={**os.environ, "SERVER_NAME": f"nats-{number}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(end, process)
    return process


def restart(stack: contextlib.ExitStack, folder: Path, number: int) -> str:
    """End that server as Kubernetes does and start it again; its client address, which is new."""
    pid = int((folder / f"{number}.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    return addresses_of(folder, start(stack, folder, number))[0]


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class ServerEnded(Exception):
    """Raised for a server that ended as it began: somebody has taken its port meanwhile."""


def addresses_of(folder: Path, process: "subprocess.Popen[bytes]") -> tuple[str, str]:
    """What the server says that it listens on, once it does. Raises `ServerEnded`."""
    ports = folder / f"nats-server_{process.pid}.ports"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerEnded(f"the nats-server {process.pid} ended with {process.returncode}")
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):  # not written yet
            listed = json.loads(ports.read_text())
            return listed["nats"][0], listed["monitoring"][0]
        time.sleep(0.02)
    raise AssertionError(f"the nats-server {process.pid} did not listen within {PATIENCE_S} s")
