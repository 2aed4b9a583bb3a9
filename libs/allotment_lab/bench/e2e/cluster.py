"""A namespace and nodes for one run of `allot bench e2e`, and their end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.result import Ok, Refused
from allotment.core.errors import AllotError
from allotment_cli.show.output import note
from allotment_lab.bench.e2e.load import BareClient
from allotment_lab.bench.e2e.pods import Body

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GONE_WITHIN_S = 30.0
_DELETE_NOW = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


@asynccontextmanager
async def namespace(client: KubeClient, name: str) -> AsyncIterator[str]:
    """A fresh namespace, deleted with all its pods and Events; the path of its pods."""
    path = f"{NAMESPACES}/{name}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    _check(NAMESPACES, await client.create(NAMESPACES, body))
    try:
        # Where no controller creates one, admission would refuse every pod.
        _check(path, await client.create(f"{path}/serviceaccounts", _ACCOUNT), 404, 409)
        yield f"{path}/pods"
    finally:
        with anyio.CancelScope(shield=True):
            await _empty(client, name)


async def _empty(client: KubeClient, name: str) -> None:
    path = f"{NAMESPACES}/{name}"
    events = f"/apis/events.k8s.io/v1/namespaces/{name}/events"
    for what in (f"{path}/pods", events, f"{path}/serviceaccounts"):
        await client.request("DELETE", what, body=_DELETE_NOW, timeout_s=120.0)
    await client.delete(path)
    with anyio.move_on_after(GONE_WITHIN_S):
        while not isinstance(answer := await client.get(path), Refused):
            if isinstance(answer, Ok):
                # Where no controller empties namespaces, we did, and say so.
                found = msgspec.json.decode(answer.body)
                found["spec"]["finalizers"] = []
                await client.replace(f"{path}/finalize", found)
            await anyio.sleep(0.2)
        return
    note(f"namespace {name} is still being deleted")


@asynccontextmanager
async def queues(client: KubeClient, run: str, count: int) -> AsyncIterator[list[str]]:
    """The names of so many queues of a run, deleted at the end; none where the cluster knows no
    queues.

    A kube-apiserver answers the first requests for a new definition with 429, so only "not found"
    means that there are none.
    """
    names = [f"{run}-{number}" for number in range(count)]
    answer = await client.get(QUEUES)
    if isinstance(answer, Refused) and answer.status == 404:
        note("the cluster has no queues: its pods are decided without one")
        names = []
    else:
        _check(QUEUES, answer)
    for name in names:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1},
        }
        _check(QUEUES, await client.create(QUEUES, body))
    try:
        yield names
    finally:
        with anyio.CancelScope(shield=True):
            for name in names:
                await client.delete(f"{QUEUES}/{name}")


@asynccontextmanager
async def nodes(bare: BareClient, objects: list[dict[str, Any]]) -> AsyncIterator[None]:
    """These Node objects on a cluster that has none of ours; deleted at the end."""
    names = [node["metadata"]["name"] for node in objects]
    bodies = [Body(node["metadata"]["name"], msgspec.json.encode(node)) for node in objects]
    try:
        await bare.create_all(NODES, bodies)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await bare.delete_all(NODES, names)
            except* AllotError as errors:
                note(f"nodes {names[0]} to {names[-1]} may be left: {errors.exceptions[0]}")


def _check(path: str, answer: object, *also: int) -> None:
    if isinstance(answer, Ok) or (isinstance(answer, Refused) and answer.status in also):
        return
    raise AllotError(f"{path}: {getattr(answer, 'message', answer)}")
