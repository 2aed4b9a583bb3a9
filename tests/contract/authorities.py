"""Certificate authorities and certificates of API servers, as clusters have them."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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


def builder(
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
    made = builder(name, key, name).add_extension(x509.BasicConstraints(True, None), True)
    return Issued(made.sign(key, hashes.SHA256()), key)


def server_of(
    authority: Issued, *, address: str = "127.0.0.1", until: datetime.datetime = NOW + DAY
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = builder("server", key, str(issuer), until).add_extension(names, False)
    return Issued(made.sign(authority.key, hashes.SHA256()), key)
