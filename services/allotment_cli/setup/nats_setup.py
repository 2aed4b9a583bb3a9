"""`allot nats-setup`: the keys of NATS's users and the servers' certificate, in a cluster."""

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.kube.config import KubeConfigError
from allotment.adapters.kube.kept_text import KeptText, TextUnavailable
from allotment.adapters.kube.result import Ok, Refused
from allotment.adapters.log.certificates import (
    CA,
    CERTIFICATE,
    KEY,
    LOCAL_NAMES,
    VALID_DAYS,
    new_certificates,
)
from allotment.adapters.log.nats_users import (
    ADMIN,
    NAMESPACE,
    PUBLIC_KEYS,
    SEED,
    USERS,
    Key,
    new_key,
    public_conf,
    public_keys,
    secret_of,
)
from allotment.answers.in_cluster import seed_in
from allotment.core.errors import AllotError
from allotment_cli.options.source import complete_context
from allotment_cli.setup.nats_users import PUBLIC, manifest

SECRET = "allotment-nats-tls"
SERVICE = "allotment-nats"
NEXT_CERTIFICATE, NEXT_KEY, OLD_CA = "next.crt", "next.key", "old-ca.crt"
"""In the Secret while a certificate is replaced; no pod mounts them."""
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
@click.option("--no-keys", is_flag=True, help="Do not create keys.")
@click.option("--no-certificate", is_flag=True, help="Do not create the certificate.")
@click.option(
    "--replace-certificate",
    is_flag=True,
    help="Instead: take the next of the three steps to a certificate of a new CA.",
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
def nats_setup(
    namespace: str,
    no_keys: bool,
    no_certificate: bool,
    replace_certificate: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Create the keys of NATS's users and the TLS certificate of its servers that do not exist yet.

    The manifests run this as a Job. Existing keys and certificates are not changed, except with
    --replace-certificate.
    """

    async def create() -> list[str]:
        done = []
        async with connect(kubeconfig, context, timeout_s=TIMEOUT_S) as client:
            if replace_certificate:
                return [await next_certificate(client, namespace, datetime.now(UTC))]
            if not no_certificate:
                done.append(await create_certificate(client, namespace, datetime.now(UTC)))
            if not no_keys:
                done.append(await create_keys(client, namespace))
        return done

    try:
        for line in anyio.run(create):
            click.echo(line)
    except KubeConfigError as error:
        raise AllotError(str(error), "name a cluster with --context or --kubeconfig") from error


async def create_certificate(client: KubeClient, namespace: str, now: datetime) -> str:
    """Create the certificate's Secret, unless it exists; what was done, in a sentence.

    Raises `AllotError`.
    """
    made = new_certificates(names_of(namespace), now)
    content = {CA: made.ca, CERTIFICATE: made.certificate, KEY: made.key}
    secret = {**manifest("Secret", SECRET, namespace, content), "type": "kubernetes.io/tls"}
    if await _created(client, namespace, secret):
        return f"secret {namespace}/{SECRET} created; it is valid for {VALID_DAYS} days"
    return f"secret {namespace}/{SECRET} exists already and was not changed"


async def next_certificate(client: KubeClient, namespace: str, now: datetime) -> str:
    """Take the next step to a certificate of a new CA; what was done and comes next, in a sentence.

    First the new CA is accepted along with the old one, then the servers get the new certificate,
    then the old CA is dropped. Whatever was restarted in between accepts what is not restarted yet.

    Raises `AllotError`.
    """
    name, path = f"{namespace}/{SECRET}", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
    found = await client.get(path)
    if not isinstance(found, Ok):
        raise AllotError(f"secret {name} cannot be read: {found.message}", "run allot nats-setup")
    secret = msgspec.json.decode(found.body)
    data = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
    changed: dict[str, str | None]
    if NEXT_CERTIFICATE in data:
        changed = {CERTIFICATE: data[NEXT_CERTIFICATE], KEY: data[NEXT_KEY]}
        changed |= {NEXT_CERTIFICATE: None, NEXT_KEY: None}
        text = "2 of 3: the servers get the new certificate; now restart the servers"
    elif OLD_CA in data:
        changed = {CA: data[CA].removeprefix(data[OLD_CA]), OLD_CA: None}
        text = "3 of 3: the old CA is dropped; now restart the servers and the services"
    else:
        made = new_certificates(names_of(namespace), now)
        old = f"{data[CA].rstrip()}\n"
        changed = {CA: old + made.ca, OLD_CA: old}
        changed |= {NEXT_CERTIFICATE: made.certificate, NEXT_KEY: made.key}
        text = "1 of 3: a new CA is accepted as well; now restart the servers and the services"
    encoded = {
        key: text and base64.b64encode(text.encode()).decode() for key, text in changed.items()
    }
    version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
    written = await client.patch(path, {"metadata": version, "data": encoded})
    if not isinstance(written, Ok):
        raise AllotError(f"secret {name} cannot be changed: {written.message}", "run it again")
    return f"secret {name}: {text}"


async def create_keys(client: KubeClient, namespace: str) -> str:
    """Create a key for each user without one; what was done, in a sentence. Raises `AllotError`.

    The ConfigMap with the public keys is written last. So after an interrupted run the next one
    completes it from the seeds that exist already.
    """
    servers = KeptText(client, namespace, PUBLIC, PUBLIC_KEYS.name)
    try:
        known = public_keys(await servers.read() or "")
        made = {}
        for user in USERS:
            if user == ADMIN and user in known:
                continue  # the administrator may keep the seed elsewhere
            public = await _key(client, namespace, user, known.get(user))
            if public != known.get(user):
                made[user] = public
        if made:
            await servers.write(public_conf(known | made))
    except TextUnavailable as error:
        raise AllotError(str(error), "check the account's rights on ConfigMaps there") from error
    if not made:
        return f"all NATS users of {namespace} have keys already; none was changed"
    return (
        f"keys created in {namespace} for the NATS users {', '.join(made)}; if NATS runs already,"
        f" restart it: kubectl -n {namespace} rollout restart statefulset {SERVICE}"
    )


async def _key(client: KubeClient, namespace: str, user: str, known: str | None) -> str:
    """The public key of a user: of a new Secret, or of the existing one, whose seed is read only if
    the servers do not know its public key.
    """
    key = new_key()
    secret = manifest("Secret", secret_of(user), namespace, {SEED: key.seed})
    if await _created(client, namespace, secret):
        return key.public
    if known is not None:
        return known
    seed = await seed_in(client, namespace, user)
    try:
        return Key.of((seed or "").strip()).public
    except ValueError as error:
        name = f"{namespace}/{secret_of(user)}"
        raise AllotError(f"secret {name}: {error}", f"delete secret {name}") from error


async def _created(client: KubeClient, namespace: str, secret: dict[str, Any]) -> bool:
    """Create a Secret; false if there is one of that name. Raises `AllotError`."""
    answer = await client.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    if isinstance(answer, Ok):
        return True
    if isinstance(answer, Refused) and answer.reason == "AlreadyExists":
        return False
    raise AllotError(
        f"secret {namespace}/{secret['metadata']['name']} cannot be created: {answer.message}",
        "check the namespace, and that the account may create secrets there",
    )
