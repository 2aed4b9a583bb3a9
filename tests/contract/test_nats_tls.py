"""TLS of the NATS servers, with the shipped configuration: who gets in, and who does not."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from tests.contract.manifests import KUSTOMIZATIONS, ROOT, Object, needs_kubectl, of_kind, rendered
from tests.contract.nats_shipped import (
    SINGLE,
    admit,
    credentials_of,
    on_loopback,
    running,
    tls_of,
)
from tests.contract.nats_three import CLUSTER, cluster_texts, free_ports, pid_of
from tests.waiting import PATIENCE_S, patience, until

from allotment.adapters.log import certificates
from allotment.adapters.log.certificates import (
    CA,
    CERTIFICATE,
    KEY,
    LOCAL_NAMES,
    VALID_DAYS,
    new_certificates,
    write_certificates,
)
from allotment.adapters.log.connection import Connection, NatsUnavailable, connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.log.nats_users import READER, inbox_of
from allotment_cli.main import main
from allotment_cli.setup.nats_setup import SECRET, names_of

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    admit(tmp_path)
    with running([on_loopback(SINGLE.read_text(), tmp_path / "store")], tmp_path) as ((url, _),):
        yield url


def as_service(folder: Path, ca: Path | None) -> dict[str, Any]:
    key = credentials_of(folder, "scorer").nkey_seed_file
    known = Credentials(nkey_seed_file=key, tls_ca_file=None if ca is None else str(ca))
    return {"credentials": known, "inbox_prefix": inbox_of("scorer")}


def another_ca(folder: Path, names: tuple[str, ...] = LOCAL_NAMES) -> Path:
    write_certificates(folder, new_certificates(names, NOW))
    return folder / CA


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_client_that_knows_the_ca_speaks_tls(url: str, tmp_path: Path, scheme: str) -> None:
    address = f"{scheme}://{urlsplit(url).netloc}"
    async with connect(address, "x", **as_service(tmp_path, tls_of(tmp_path) / CA)) as connection:
        assert connection.client.tls_version in ("TLSv1.2", "TLSv1.3")
        served = x509.load_pem_x509_certificate((tls_of(tmp_path) / CERTIFICATE).read_bytes())
        assert connection.certificate_ends_s == int(served.not_valid_after_utc.timestamp())


async def test_a_server_that_ends_a_connection_is_no_noise_on_stderr(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio warned that its own stream "returning true from eof_received()" has no effect."""
    async with connect(url, "x", **as_service(tmp_path, tls_of(tmp_path) / CA)) as connection:
        os.kill(pid_of(tmp_path, 0), signal.SIGTERM)
        await until(lambda: not connection.connected)
    assert not [record for record in caplog.records if "eof_received" in record.getMessage()]


async def test_doctor_warns_before_the_certificate_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "VALID_DAYS", 12)
    admit(tmp_path)
    environment = {
        "ALLOT_NATS_NKEY": str(credentials_of(tmp_path, READER).nkey_seed_file),
        "ALLOT_NATS_CA": str(tls_of(tmp_path) / CA),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with running([on_loopback(SINGLE.read_text(), tmp_path / "store")], tmp_path) as ((url, _),):
        known = credentials_of(tmp_path, "watcher")
        prefix = inbox_of("watcher")
        async with connect(url, "watcher", credentials=known, inbox_prefix=prefix) as connection:
            await JetStreamLog.open(connection, allow_unsynced=True)
        runner = CliRunner(env=environment)
        asked = ["doctor", "--nats", url, "-o", "json"]
        done = await anyio.to_thread.run_sync(lambda: runner.invoke(main, asked))
    found = {one["code"]: one for one in json.loads(done.stdout)["findings"]}
    assert re.search(r"expires in 1[12]d", found["CertificateExpires"]["message"])
    assert "nats-setup --replace-certificate" in found["CertificateExpires"]["remedy"]
    assert "NobodyActive" in found  # no service runs here


@pytest.mark.parametrize("scheme", ["nats", "tls"])
@pytest.mark.parametrize("which", ["none", "another"])
async def test_a_client_that_does_not_know_the_ca_says_so_and_ends(
    url: str, tmp_path: Path, scheme: str, which: str
) -> None:
    """Also one that waits for a server for ever, as the services do."""
    ca = another_ca(tmp_path / "another") if which == "another" else None
    address = f"{scheme}://{urlsplit(url).netloc}"
    said = r"the certificate of the NATS server is not accepted: .*ALLOT_NATS_CA has to name the CA"
    with patience(), pytest.raises(NatsUnavailable, match=said):
        async with connect(address, "x", connect_within_s=None, **as_service(tmp_path, ca)):
            pass


async def test_a_service_says_in_a_line_which_ca_it_needs(url: str, tmp_path: Path) -> None:
    seed = credentials_of(tmp_path, "filter").nkey_seed_file
    given = {
        "ALLOT_NATS_URL": f"tls://{urlsplit(url).netloc}",
        "ALLOT_NATS_NKEY": str(seed),
        "ALLOT_NATS_CA": str(another_ca(tmp_path / "another")),
        "ALLOT_HTTP_PORT": "0",
        "ALLOT_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
    }
    with patience():
        done = await anyio.run_process(
            [sys.executable, "-m", "allotment_filter"], env=os.environ | given, check=False
        )
    *_, last = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert last.startswith("allotment-filter: crashed: NatsUnavailable: no connection to tls://")
    assert last.endswith("ALLOT_NATS_CA has to name the CA that signed it")


async def test_a_server_of_another_name_is_not_accepted(tmp_path: Path) -> None:
    admit(tmp_path)
    ca = another_ca(tls_of(tmp_path), ("allotment-nats",))
    with (
        running([on_loopback(SINGLE.read_text(), tmp_path / "store")], tmp_path) as ((url, _),),
        patience(),
        pytest.raises(NatsUnavailable, match="is not accepted: IP address mismatch"),
    ):
        async with connect(url, "x", connect_within_s=None, **as_service(tmp_path, ca)):
            pass


def test_the_server_takes_no_plaintext(url: str) -> None:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), PATIENCE_S) as client:
        stream = client.makefile("rwb")
        assert told(stream.readline())["tls_required"] is True
        stream.write(b'CONNECT {"verbose":true}\r\nPING\r\n')
        stream.flush()
        assert b"PONG" not in stream.read(), "and the connection is closed"


def told(line: bytes) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(line.removeprefix(b"INFO "))
    return info


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_server_without_tls_gets_nothing(
    nats_server: NatsServer, tmp_path: Path, scheme: str
) -> None:
    """Whoever answers in the server's place could leave TLS out."""
    ca = another_ca(tmp_path)
    address = f"{scheme}://{urlsplit(nats_server.url).netloc}"
    known = [Credentials(tls_ca_file=str(ca))] + [Credentials()] * (scheme == "tls")
    for credentials in known:
        with pytest.raises(NatsUnavailable, match="does not offer TLS"):
            async with connect(address, "x", credentials=credentials, connect_within_s=1):
                pass


async def test_a_new_ca_ends_a_service_that_knows_the_old_one(tmp_path: Path) -> None:
    """It reads its files when it starts again."""
    admit(tmp_path)
    (port,) = free_ports(1)
    text = on_loopback(SINGLE.read_text(), tmp_path / "store")
    text = text.replace('listen: "127.0.0.1:-1"', f'listen: "127.0.0.1:{port}"')
    ca = tmp_path / "old.crt"
    ca.write_bytes((tls_of(tmp_path) / CA).read_bytes())
    with running([text], tmp_path) as ((url, _),):
        stack = connect(url, "x", **as_service(tmp_path, ca))
        connection = await stack.__aenter__()
    try:
        another_ca(tls_of(tmp_path))
        with running([text], tmp_path), patience():
            lost = await connection.wait_lost()
        assert "the certificate of the NATS server is not accepted" in str(lost)
    finally:
        await stack.__aexit__(None, None, None)


async def test_a_changed_certificate_is_read_at_sighup(url: str, tmp_path: Path) -> None:
    another_ca(tls_of(tmp_path))
    os.kill(pid_of(tmp_path, 0), signal.SIGHUP)
    known = as_service(tmp_path, tls_of(tmp_path) / CA)
    with patience():
        while True:
            with contextlib.suppress(NatsUnavailable):
                async with connect(url, "x", **known):
                    break


async def test_a_hung_server_is_noticed_and_left(url: str, tmp_path: Path) -> None:
    """SIGSTOP with our socket buffer full; a socket under TLS needs to be dropped below it."""
    known = as_service(tmp_path, tls_of(tmp_path) / CA)
    pid = pid_of(tmp_path, 0)
    try:
        with patience():
            async with connect(url, "x", ping_interval_s=0.25, **known) as connection:
                await stop_and_fill(pid, connection)
                await until(lambda: not connection.connected)
                os.kill(pid, signal.SIGCONT)
                await until(lambda: connection.connected)
                await stop_and_fill(pid, connection)
    finally:
        os.kill(pid, signal.SIGCONT)


async def stop_and_fill(pid: int, connection: Connection) -> None:
    os.kill(pid, signal.SIGSTOP)
    while await connection.send("elsewhere", b"x" * 65536):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("stranger", ["of another CA", "without TLS"])
async def test_a_server_with_no_certificate_of_this_ca_does_not_join(
    tmp_path: Path, stranger: str
) -> None:
    admit(tmp_path)
    texts = cluster_texts(tmp_path)
    here, elsewhere = str(tls_of(tmp_path)), tmp_path / "elsewhere"
    if stranger == "of another CA":
        another_ca(elsewhere)
        texts[2] = texts[2].replace(here, str(elsewhere))
    else:
        texts[2], count = re.subn(r"tls \{[^}]*\}", "", texts[2])
        assert count == 1
    said = tmp_path / "said.log"
    texts[2] += f'\nlogfile: "{said}"\n'
    with running(texts, tmp_path) as servers, patience():
        monitors = [monitor for _, monitor in servers]
        while await routes(monitors[0]) != {"nats-1"}:  # noqa: ASYNC110 - another process
            await anyio.sleep(0.1)
        for url, _ in servers:
            address = urlsplit(url)
            async with await anyio.connect_tcp(str(address.hostname), address.port or 0) as client:
                assert "connect_urls" not in told((await client.receive()).partition(b"\r\n")[0])
        errors = r"TLS route handshake error|Router connection closed"
        while len(re.findall(errors, said.read_text())) < 3:  # noqa: ASYNC110 - a log file
            await anyio.sleep(0.1)
        assert [await routes(monitor) for monitor in monitors] == [{"nats-1"}, {"nats-0"}, set()]


async def routes(monitor: str) -> set[str]:
    """The names of the servers that a server has routes to."""

    def ask() -> set[str]:
        with urllib.request.urlopen(f"{monitor}/routez", timeout=PATIENCE_S) as answer:
            return {route["remote_name"] for route in json.load(answer)["routes"]}

    return await anyio.to_thread.run_sync(ask)


def hosts(where: str) -> set[str]:
    """By which names clients ask for a server, and servers for each other."""
    texts = [
        found["data"]["ALLOT_NATS_URL"]
        for found in of_kind(where, "ConfigMap")
        if "ALLOT_NATS_URL" in found["data"]
    ]
    assert texts
    texts.append(" ".join(re.findall(r'"nats://([^"]+)"', CLUSTER.read_text())))
    return {re.sub(r"^\w+://|:\d+$", "", one) for text in texts for one in re.split("[, ]", text)}


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
def test_the_certificate_has_the_names_that_are_asked_for(where: str) -> None:
    made = new_certificates(names_of("allotment-system"), NOW)
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    ca = x509.load_pem_x509_certificate(made.ca.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts(where) <= set(names.get_values_for_type(x509.DNSName))
    certificate.verify_directly_issued_by(ca)
    for one in (certificate, ca):
        assert (one.not_valid_after_utc - NOW.replace(microsecond=0)).days == VALID_DAYS
        assert one.not_valid_before_utc < NOW


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
def test_with_cert_manager_nothing_else_makes_the_secret(where: str, tmp_path: Path) -> None:
    up = os.path.relpath(ROOT, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [f"{up}/{where}"],
                "components": [f"{up}/deploy/components/cert-manager"],
            }
        )
    )
    found = rendered(str(tmp_path))
    (job,) = [one for one in found if one["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--no-certificate"
    issued: dict[str, Object] = {
        one["spec"]["secretName"]: one["spec"] for one in found if one["kind"] == "Certificate"
    }
    server = issued[SECRET]
    assert [*server["dnsNames"], *server["ipAddresses"]] == names_of("allotment-system")
    assert {"server auth", "client auth"} <= set(server["usages"])
    issuers = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "Issuer"}
    authority = issuers[server["issuerRef"]["name"]]["ca"]["secretName"]
    assert issued[authority]["isCA"] is True
    assert "selfSigned" in issuers[issued[authority]["issuerRef"]["name"]]


async def test_the_connection_of_a_refused_client_is_closed(tmp_path: Path) -> None:
    """Also while the server leaves its end open. A writer that is dropped open warns, and warnings
    fail a test."""
    admit(tmp_path)
    ended = anyio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls_of(tmp_path) / CERTIFICATE, tls_of(tmp_path) / KEY)
        writer.write(b'INFO {"max_payload": 1048576, "tls_required": true}\r\n')
        await writer.drain()
        await writer.start_tls(context)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        ended.set()
        writer.transport.abort()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        ca = Credentials(tls_ca_file=str(tls_of(tmp_path) / CA))
        with pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
            async with connect(url, "nobody", credentials=ca):
                pass
        with patience():
            await ended.wait()
