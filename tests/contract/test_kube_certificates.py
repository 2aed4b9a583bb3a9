"""Which API servers' certificates are accepted: as kubectl does, whatever Python runs."""

import ssl
from pathlib import Path

import pytest
from tests.contract.authorities import DAY, NOW, Issued, old_authority, server_of
from tests.contract.kube_server import kubeconfig, reply, scripted

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.result import Ok, Unknown

pytestmark = pytest.mark.anyio


@pytest.fixture
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13's default, on any Python."""
    made = ssl.create_default_context

    def strict(cafile: str | None = None) -> ssl.SSLContext:
        context = made(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr("ssl.create_default_context", strict)


async def _ask(tmp_path: Path, server: Issued, authority: Issued) -> Ok | Unknown:
    """Get something from a server with this certificate, knowing only the authority."""
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "cert.pem").write_bytes(server.pem)
    (tmp_path / "key.pem").write_bytes(server.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with scripted(tls) as script:
        script.otherwise = reply({"gitVersion": "v1.36.1"})
        path = kubeconfig(tmp_path / "kubeconfig", script.url, authority=tmp_path / "ca.pem")
        async with connect(path) as client:
            got = await client.get("/version")
    assert isinstance(got, Ok | Unknown)
    return got


@pytest.mark.usefixtures("_strict")
async def test_an_authority_without_key_usage_and_key_identifiers_is_accepted(
    tmp_path: Path,
) -> None:
    authority = old_authority()
    got = await _ask(tmp_path, server_of(authority), authority)
    assert isinstance(got, Ok), got


@pytest.mark.usefixtures("_strict")
async def test_another_authority_host_or_time_is_not(tmp_path: Path) -> None:
    authority = old_authority()
    for server, said in (
        (server_of(old_authority()), "certificate verify failed"),
        (server_of(authority, address="127.0.0.2"), "certificate is not valid for '127.0.0.1'"),
        (server_of(authority, until=NOW - DAY), "certificate has expired"),
    ):
        got = await _ask(tmp_path, server, authority)
        assert isinstance(got, Unknown)
        assert said in got.message
