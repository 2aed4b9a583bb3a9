"""Which API servers' certificates are accepted: as kubectl does, whatever Python runs."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.contract.kube_server import kubeconfig, reply, scripted

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.result import Ok, Unknown

pytestmark = pytest.mark.anyio
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Issued:
    """A certificate with its key; `sign` makes another one below it."""

    def __init__(self, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.cert = cert
        self.key = key

    @property
    def pem(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, until: datetime.datetime = NOW + DAY
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 10 * DAY)
        .not_valid_after(until)
    )


def old_authority(name: str = "kubernetes") -> Issued:
    """A CA with neither keyUsage nor key identifiers, as older EKS, GKE and MicroK8s have."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key, name).add_extension(x509.BasicConstraints(True, None), True)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def server_of(
    authority: Issued, *, address: str = "127.0.0.1", until: datetime.datetime = NOW + DAY
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    builder = _builder("server", key, str(issuer), until).add_extension(names, False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


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
