"""The certificate of the NATS servers, and the CA that signs it.

All servers share one certificate, for clients and for the routes between them. The CA's key is used
once and stored nowhere: it cannot sign another server. So there is nothing to renew, and
both certificates are valid equally long; a new one comes with a new CA.
"""

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from allotment.adapters.log.nats_users import write_closed

CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""The names of the files, which are those of a Secret by cert-manager."""
VALID_DAYS = 3650
CLOCKS_DIFFER_BY = timedelta(hours=1)
LOCAL_NAMES = ("localhost", "127.0.0.1")
"""For people who forward a port."""


class Certificates(NamedTuple):
    """PEM texts. The key is the secret."""

    ca: str
    certificate: str
    key: str


def new_certificates(names: Iterable[str], now: datetime) -> Certificates:
    """A CA, and a certificate for servers of these host names and IP addresses."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name, name = _name("allotment-nats-ca"), _name("allotment-nats")
    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _builder(ca_name, ca_key.public_key(), ca_name, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
        .add_extension(ca_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    # A server that opens a route is a client there, with the same certificate.
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    ca_reference = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id)
    certificate = (
        _builder(name, key.public_key(), ca_name, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, names))), critical=False)
        .add_extension(ca_reference, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificates(
        ca.public_bytes(pem).decode(), certificate.public_bytes(pem).decode(), secret.decode()
    )


def write_certificates(directory: Path, made: Certificates, key_mode: int = 0o600) -> None:
    """Write the three files. Raises OSError."""
    write_closed(directory / KEY, made.key, key_mode)
    write_closed(directory / CERTIFICATE, made.certificate, 0o644)
    write_closed(directory / CA, made.ca, 0o644)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER_BY)
        .not_valid_after(now + timedelta(days=VALID_DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
