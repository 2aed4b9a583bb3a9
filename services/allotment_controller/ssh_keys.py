"""Pairs of keys for the Job plugin ssh."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from allotment.core.jobs.plugins.ssh import KeyPair

RSA_BITS = 2048


def new_keys() -> KeyPair:
    """A new pair of RSA keys, as ssh reads them. Takes up to a second of arithmetic."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private.decode(), public.decode() + "\n")
