"""`allot nats-users`: new keys for the users of NATS, as manifests for kubectl."""

import sys
from typing import Any

import click
import yaml

from allotment.adapters.log.nats_users import (
    NAMESPACE,
    PUBLIC_KEYS,
    SEED,
    USERS,
    keys_conf,
    new_keys,
    secret_of,
)

PUBLIC = "allotment-nats-keys"
"""The ConfigMap with the public keys, which the NATS servers read."""


@click.command()
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    default=NAMESPACE,
    show_default=True,
    help="Where NATS runs.",
)
def nats_users(namespace: str) -> None:
    """Make a key for each user of NATS and print them as manifests.

    Each service gets a Secret of its own, the servers a ConfigMap with the public keys. The Job of
    the manifests creates the first keys (allot nats-setup). How to replace them without a pause:
    "New keys" in deploy/README.
    """
    keys = new_keys()
    manifests = [manifest("ConfigMap", PUBLIC, namespace, {PUBLIC_KEYS.name: keys_conf(keys)})]
    manifests += [
        manifest("Secret", secret_of(user), namespace, {SEED: keys[user].seed}) for user in USERS
    ]
    yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)


def manifest(kind: str, name: str, namespace: str, content: dict[str, str]) -> dict[str, Any]:
    """A Secret or ConfigMap of Allotment."""
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "allotment"},
        },
        "stringData" if kind == "Secret" else "data": content,
    }
