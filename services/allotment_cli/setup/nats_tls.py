"""`allot nats-tls`: the certificate of the NATS servers, as a Secret of the cluster."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import click

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.config import KubeConfigError
from allotment.adapters.kube.result import Ok, Refused
from allotment.adapters.log.certificates import (
    CA,
    CERTIFICATE,
    KEY,
    LOCAL_NAMES,
    VALID_DAYS,
    new_certificates,
)
from allotment.adapters.log.nats_users import NAMESPACE
from allotment.core.errors import AllotError
from allotment_cli.options.source import complete_context

SECRET = "allotment-nats-tls"
SERVICE = "allotment-nats"
SERVERS_MAX = 3
TIMEOUT_S = 20.0


def names_of(namespace: str) -> list[str]:
    """The names under which clients and other servers know a server."""
    hosts = [SERVICE, *(f"{SERVICE}-{number}.{SERVICE}" for number in range(SERVERS_MAX))]
    suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    return [host + suffix for host in hosts for suffix in suffixes] + list(LOCAL_NAMES)


@click.command()
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    default=NAMESPACE,
    show_default=True,
    help="Where NATS runs.",
)
@click.option(
    "--kubeconfig",
    envvar="ALLOT_KUBECONFIG",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which cluster (default: KUBECONFIG, ~/.kube/config; in a pod, the pod's own).",
)
@click.option(
    "--context",
    envvar="ALLOT_KUBE_CONTEXT",
    shell_complete=complete_context,
    help="Context of the kubeconfig.",
)
def nats_tls(namespace: str, kubeconfig: Path | None, context: str | None) -> None:
    """Create the Secret with the TLS certificate of the NATS servers, unless it exists.

    The manifests run this as a Job. An existing Secret is neither read nor changed.
    """
    click.echo(anyio.run(create, namespace, kubeconfig, context))


async def create(namespace: str, kubeconfig: Path | None, context: str | None) -> str:
    """What became of it, in a sentence. Raises `AllotError`."""
    secret = _secret(namespace, datetime.now(UTC))
    path = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        async with connect(kubeconfig, context, timeout_s=TIMEOUT_S) as client:
            answer = await client.create(path, secret)
    except KubeConfigError as error:
        raise AllotError(str(error), "name a cluster with --context or --kubeconfig") from error
    if isinstance(answer, Ok):
        return f"secret {namespace}/{SECRET} created; it is valid for {VALID_DAYS} days"
    if isinstance(answer, Refused) and answer.reason == "AlreadyExists":
        return f"secret {namespace}/{SECRET} exists already and was not changed"
    raise AllotError(
        f"secret {namespace}/{SECRET} cannot be created: {answer.message}",
        "check the namespace, and that the account may create secrets there",
    )


def _secret(namespace: str, now: datetime) -> dict[str, Any]:
    made = new_certificates(names_of(namespace), now)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "allotment"},
        },
        "type": "kubernetes.io/tls",
        "stringData": {CA: made.ca, CERTIFICATE: made.certificate, KEY: made.key},
    }
