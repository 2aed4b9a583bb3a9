"""The Kubernetes API server that a command speaks to, and the messages for its refusals.

--kubeconfig, --context  >  KUBECONFIG  >  the local mode that runs at --home  >  kubectl's default
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.kube.config import KubeConfigError
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.answers import local
from allotment.answers.screen import UNSEEN, Screen
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.jobs import keys

PAGE_OBJECTS = 500
TIMEOUT_S = 20.0
JOBS, GROUPS, QUEUES, COMMANDS = "jobs", "podgroups", "queues", "commands"
KINDS = {
    JOBS: (keys.BATCH, "Job"),
    GROUPS: (keys.SCHEDULING, "PodGroup"),
    QUEUES: (keys.SCHEDULING, "Queue"),
    COMMANDS: (keys.BUS, "Command"),
}
"""Resource → API version and kind."""

T = TypeVar("T")


class Access(NamedTuple):
    """Which cluster is meant: without a kubeconfig and a context what kubectl would take."""

    home: Path
    kubeconfig: Path | None = None
    context: str | None = None


def access_of(origin: Origin) -> tuple[str, Access | None]:
    """The API server of the log that is read, or why there is none to ask."""
    if origin.cluster is not None:
        return "", Access(origin.home, *origin.cluster)
    if origin.file is not None:
        return "an exported log has no API server", None
    if origin.nats:
        return "no API server is named: --context, --kubeconfig", None
    return "", Access(origin.home, local.addresses(origin.home).kubeconfig)


@asynccontextmanager
async def open_cluster(access: Access, screen: Screen = UNSEEN) -> AsyncIterator["Cluster"]:
    """The cluster of these options. Raises `AllotError` for a configuration that cannot be used."""
    kubeconfig = access.kubeconfig
    if kubeconfig is None and access.context is None and not os.environ.get("KUBECONFIG"):
        kubeconfig = _of_local_mode(access.home, screen)
    try:
        async with connect(
            kubeconfig, access.context, timeout_s=TIMEOUT_S, throttle_wait_s_max=TIMEOUT_S
        ) as client:
            yield Cluster(client)
    except KubeConfigError as error:
        remedy = "name a cluster with --kubeconfig, or run: allot up"
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            remedy = (
                "not every service has an account; in its pods, ask where one has: "
                "kubectl -n allotment-system exec deploy/allotment-controller -- allot …"
            )
        raise AllotError(str(error), remedy) from error


def _of_local_mode(home: Path, screen: Screen) -> Path | None:
    found = local.addresses(home)
    if not found.apiserver:
        return None
    screen.note(f"cluster: local mode at {home}")
    return found.kubeconfig


class Cluster:
    """Requests whose every other end than success is a `AllotError`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, resource: str, namespace: str, name: str, kind: type[T]) -> T:
        """One object; `namespace` is empty for what is cluster-wide."""
        answer = await self._client.get(path_of(resource, namespace, name))
        return _read(answer, _named(resource, namespace, name), kind)

    async def list(
        self, path: str, what: str, kind: type[T], params: Mapping[str, str] | None = None
    ) -> list[T]:
        """Everything of a collection, page by page."""
        found: list[T] = []
        asked = {**(params or {}), "limit": str(PAGE_OBJECTS)}
        while True:
            page = _read(await self._client.list(path, asked), what, _Page)
            found += [_decoded(item, what, kind) for item in page.items or ()]
            if not page.metadata.more:
                return found
            asked["continue"] = page.metadata.more

    async def find(self, path: str, what: str, kind: type[T]) -> T | None:
        """One object of any kind; None if it does not exist."""
        answer = await self._client.get(path)
        if isinstance(answer, Refused) and answer.status == 404:
            return None
        return _read(answer, what, kind)

    async def create(self, resource: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        named = body["metadata"].get("name") or body["metadata"]["generateName"]
        answer = await self._client.create(path_of(resource, namespace), body)
        return _read(answer, _named(resource, namespace, named), dict[str, Any])

    async def patch(self, resource: str, name: str, body: dict[str, Any]) -> None:
        """Merge into an object that is cluster-wide."""
        answer = await self._client.patch(path_of(resource, "", name), body)
        _read(answer, _named(resource, "", name), dict[str, Any])

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        """Delete the very object that was looked at."""
        answer = await self._client.delete(path_of(resource, namespace, name), uid)
        _read(answer, _named(resource, namespace, name), dict[str, Any])

    async def command(self, action: str, resource: str, about: Any) -> str:
        """Ask the controllers to do something with an object; returns the Command's name."""
        version, kind = KINDS[resource]
        target = {
            "apiVersion": version,
            "kind": kind,
            "name": about.name,
            "uid": about.uid,
            "controller": True,
        }
        namespace = about.namespace or "default"
        body = {
            "apiVersion": keys.BUS,
            "kind": "Command",
            "metadata": {
                "generateName": f"{about.name}-{action.lower()}-",
                "namespace": namespace,
                "ownerReferences": [target],
            },
            "target": target,
            "action": action,
        }
        made = await self.create(COMMANDS, namespace, body)
        return str(made["metadata"]["name"])


def path_of(resource: str, namespace: str, name: str = "") -> str:
    """The path of an object, or without a name of a collection (without a namespace: of all)."""
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    path = f"/apis/{KINDS[resource][0]}{inside}/{resource}"
    return f"{path}/{quote(name, safe='')}" if name else path


class _More(msgspec.Struct):
    more: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _More = msgspec.field(default_factory=_More)


def _named(resource: str, namespace: str, name: str) -> str:
    kind = KINDS[resource][1].lower()
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _read(answer: KubeResult, what: str, kind: type[T]) -> T:
    match answer:
        case Ok(body=body):
            return _decoded(body, what, kind)
        case Refused(status=404, details=details) if details.get("kind") == "namespaces":
            raise AllotError(f"{what}: {answer.message}")
        case Refused(status=404, details=details) if details.get("name"):
            word = what.partition(" ")[0]
            remedy = f"see: allot {word} list" if word in ("job", "queue") else ""
            raise AllotError(f"{what} does not exist", remedy)
        case Refused(status=404):
            raise AllotError(
                f"{what}: the cluster does not have this kind of object",
                "install its definition: kubectl apply -f deploy/base/crds",
            )
        case Refused():
            raise AllotError(f"{what}: the API server says: {answer.message}")
        case _:
            raise AllotError(
                f"{what}: the API server gave no answer: {answer.message}",
                "check --kubeconfig, or start local mode: allot up",
            )


def _decoded(body: bytes | msgspec.Raw, what: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise AllotError(f"{what} cannot be read: {error}") from error
