"""The log of a real cluster: NATS found through its API server, which carries the connection.

What is needed of the kubeconfig's user, in the namespace of the services: list `pods`, get and
create `pods/portforward`, and get the Secret with the reader's key.
"""

import base64
import binascii
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.kube.config import KubeConfigError
from allotment.adapters.kube.portforward import LOOPBACK, Forward, forwarded
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.adapters.log.nats_users import NAMESPACE, READER, SEED, secret_of
from allotment.answers import local
from allotment.answers.kubeconfig import Choice
from allotment.answers.screen import Screen
from allotment.core.errors import AllotError

NATS = "app.kubernetes.io/name=nats,app.kubernetes.io/part-of=allotment"
"""The labels of the servers' pods, as they are shipped."""
SERVICES = (
    "app.kubernetes.io/part-of=allotment,"
    "app.kubernetes.io/component in"
    " (watcher,filter,scorer,binder,scheduler,controller,archiver,inspector)"
)
PORT, HTTP_PORT = 4222, 8080
TIMEOUT_S = 20.0
T = TypeVar("T")


class Reached(NamedTuple):
    """Where NATS can be reached as long as this is open, and the reader's seed, if one is used."""

    url: str
    seed: str | None
    forward: Forward


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] | None = None

    @property
    def is_ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.conditions or ())


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


@asynccontextmanager
async def reached(choice: Choice, screen: "Screen", user: str = READER) -> AsyncIterator[Reached]:
    """NATS of this cluster, and the user's key. Raises `AllotError` saying what is not there or not
    allowed.
    """
    try:
        async with connect(choice.kubeconfig, choice.context, timeout_s=TIMEOUT_S) as client:
            namespace, pods = await _servers(client)
            seed = None if _names_a_key() else await seed_in(client, namespace, user)
            screen.note(f"log: of {client.address.url}, by way of pod {namespace}/{pods[0]}")
            async with forwarded(client, namespace, pods, PORT) as forward:
                yield Reached(f"nats://{LOOPBACK}:{forward.local_port}", seed, forward)
    except KubeConfigError as error:
        raise AllotError(str(error), "name a cluster with --context, or run: allot up") from error


async def services(choice: Choice) -> list[dict[str, Any]]:
    """What each service of this cluster says of itself, as in a row of `allot status`.

    Raises `AllotError` where that is not allowed.
    """
    rows: dict[str, dict[str, Any]] = {}
    try:
        async with connect(choice.kubeconfig, choice.context, timeout_s=TIMEOUT_S) as client:
            namespace, _ = await _servers(client)
            path = f"/api/v1/namespaces/{namespace}/pods"
            async with anyio.create_task_group() as asking:
                for pod in await _pods(client, path, SERVICES, "the services"):
                    asking.start_soon(_ask, client, namespace, pod, rows)
    except KubeConfigError as error:
        raise AllotError(str(error), "name a cluster with --context, or run: allot up") from error
    return [rows[name] for name in sorted(rows)]


async def _ask(
    client: KubeClient, namespace: str, pod: _Pod, rows: dict[str, dict[str, Any]]
) -> None:
    name = pod.metadata.name
    async with forwarded(client, namespace, [name], HTTP_PORT) as forward:
        row = await local.ask_service(f"{LOOPBACK}:{forward.local_port}")
        if not row["ready"] and forward.problem:
            row["detail"] = f"it cannot be asked: {forward.problem}"
    log = f"kubectl -n {namespace} logs {name}"
    rows[name] = {**row, "name": name, "log": log}


def _names_a_key() -> bool:
    return bool(os.environ.get("ALLOT_NATS_NKEY") or os.environ.get("ALLOT_NATS_CREDS"))


async def _servers(client: KubeClient) -> tuple[str, list[str]]:
    """The namespace and the pods of the servers, ready ones first."""
    found = await _pods(client, f"/api/v1/namespaces/{NAMESPACE}/pods")
    if not found:  # installed elsewhere, or not at all
        found = await _pods(client, "/api/v1/pods")
    running = [pod for pod in found if pod.status.phase == "Running"]
    if not running:
        where = f"{client.address.url} ({client.address.source})"
        state = "none runs" if found else "it has no such pods"
        raise AllotError(
            f"no NATS of Allotment in the cluster at {where}: {state} (labels {NATS})",
            "is this the right cluster (--context)? install it: deploy/README.md; or run: allot up",
        )
    places = sorted({pod.metadata.namespace for pod in running})
    if len(places) > 1:  # any user who may create pods may set these labels
        raise AllotError(
            f"pods with the labels {NATS} run in several namespaces: {', '.join(places)}",
            "say which is the log: kubectl port-forward -n NAMESPACE POD 4222, and --nats with its "
            "address",
        )
    running.sort(key=lambda pod: (not pod.status.is_ready, pod.metadata.name))
    namespace = running[0].metadata.namespace
    return namespace, [pod.metadata.name for pod in running]


async def _pods(
    client: KubeClient, path: str, labels: str = NATS, what: str = "NATS"
) -> list[_Pod]:
    answer = await client.list(path, {"labelSelector": labels}, timeout_s=TIMEOUT_S)
    return _decoded(answer, f"pods of {what}", "list", _Pods).items or []


async def seed_in(client: KubeClient, namespace: str, user: str) -> str | None:
    """The user's seed in a namespace's Secret; None without the Secret. Raises `AllotError`."""
    name = secret_of(user)
    answer = await client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    if isinstance(answer, Refused) and answer.status == 404:
        return None
    secret = _decoded(answer, f"secret {namespace}/{name}", "get", _Secret)
    try:
        return base64.b64decode((secret.data or {})[SEED], validate=True).decode()
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise AllotError(
            f"secret {namespace}/{name} has no key under {SEED}",
            'replace the keys: "New keys" in deploy/README.md',
        ) from error


def _decoded(answer: KubeResult, what: str, verb: str, kind: type[T]) -> T:
    if isinstance(answer, Ok):
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            raise AllotError(f"{what} cannot be read: {error}") from error
    if isinstance(answer, Refused):
        raise AllotError(
            f"{what}: the API server says: {answer.message}",
            f"reading the log needs the right to {verb} them; deploy/README.md has a Role for it",
        )
    raise AllotError(
        f"{what}: the API server gave no answer: {answer.message}",
        "check --context and --kubeconfig, or start local mode: allot up",
    )
