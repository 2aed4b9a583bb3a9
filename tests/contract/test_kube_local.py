"""The client and the reflector against the local API server: the same rules as the real one."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest
from aiohttp import web
from tests.contract.kube_server import kubeconfig
from tests.waiting import patience

from allotment.adapters.kube.client import KubeClient, connect, pod_path
from allotment.adapters.kube.events import create_event, pod_event, refuse_pod, unschedulable_patch
from allotment.adapters.kube.result import Ok, Refused
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import (
    Added,
    Backoff,
    Deleted,
    Modified,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment_local.apiserver.__main__ import new_id, new_store, now
from allotment_local.apiserver.app import build_app

pytestmark = pytest.mark.anyio
PODS = "/api/v1/namespaces/default/pods"


class Spec(msgspec.Struct):
    nodeName: str = ""


class Pod(msgspec.Struct):
    spec: Spec


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[KubeClient]:
    app = build_app(new_store(), clock=now, ids=new_id)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with connect(kubeconfig(tmp_path / "kubeconfig", url)) as client:
            yield client
    finally:
        await runner.cleanup()


async def new_pod(client: KubeClient, name: str) -> str:
    container = {"name": "c", "image": "i"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "allotment", "containers": [container]},
    }
    answer = await client.create(PODS, body)
    assert isinstance(answer, Ok), answer
    return str(json.loads(answer.body)["metadata"]["uid"])


async def test_binding_lands_once_and_only_on_the_pod_it_was_meant_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as client:
        uid = await new_pod(client, "a")
        stranger = await client.bind("default", "a", "another-uid", "n1", {})
        assert isinstance(stranger, Refused)
        assert stranger.status == 409
        bound = await client.bind("default", "a", uid, "n1", {"allotment.dev/log-seq": "7"})
        assert isinstance(bound, Ok), bound
        again = await client.bind("default", "a", uid, "n2", {})
        assert isinstance(again, Refused)
        assert (again.status, again.reason) == (409, "Conflict")
        answer = await client.get(pod_path("default", "a"))
        assert isinstance(answer, Ok)
        found = json.loads(answer.body)
        assert found["spec"]["nodeName"] == "n1"
        assert found["metadata"]["annotations"]["allotment.dev/log-seq"] == "7"
        missing = await client.get(pod_path("default", "b"))
        assert isinstance(missing, Refused)
        assert (missing.status, missing.reason) == (404, "NotFound")


async def test_conditions_and_events_are_accepted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as client:
        uid = await new_pod(client, "a")
        patch = unschedulable_patch(uid, "Unschedulable", "0/3 nodes are available", 10**18)
        answer = await refuse_pod(client, "default", "a", patch)
        assert isinstance(answer, Ok), answer
        conditions = json.loads(answer.body)["status"]["conditions"]
        [scheduled] = [each for each in conditions if each["type"] == "PodScheduled"]
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        event = pod_event(
            namespace="default",
            pod="a",
            uid=uid,
            kind="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note="0/3 nodes are available",
            time_ns=10**18,
            unique=1,
            controller="allotment",
            instance="binder-0",
        )
        answer = await create_event(client, event)
        assert isinstance(answer, Ok), answer


async def test_the_reflector_follows_a_pods_life(tmp_path: Path) -> None:
    told: list[str] = []
    sender, receiver = anyio.create_memory_object_stream[str](100)

    async def on_event(event: WatchEvent[Pod]) -> None:
        match event:
            case Added() | Modified():
                kind = type(event).__name__
                await sender.send(f"{kind} {event.identity.name} {event.object.spec.nodeName}")
            case Deleted(identity=identity):
                await sender.send(f"Deleted {identity.name}")
            case Synced(objects=objects):
                await sender.send(f"Synced {objects}")
            case Undecodable(error=error):
                await sender.send(f"Undecodable {error}")

    async def until(words: str) -> None:
        with patience():
            while words not in told:
                told.append((await receiver.receive()).strip())

    async with (
        sender,
        receiver,
        cluster(tmp_path) as client,
        anyio.create_task_group() as group,
    ):
        uid = await new_pod(client, "a")
        problems: list[str] = []
        reflector = Reflector(
            client,
            "/api/v1/pods",
            msgspec.json.Decoder(Pod),
            on_event,
            random=Random(1),
            on_problem=problems.append,
            backoff=Backoff(first_s=0.01),
        )
        group.start_soon(reflector.run)
        await until("Synced 1")
        assert told == ["Added a", "Synced 1"]
        await new_pod(client, "b")
        await until("Added b")
        await client.bind("default", "a", uid, "n1", {})
        await until("Modified a n1")
        await client.delete(pod_path("default", "b"), grace_s=0)
        await until("Deleted b")
        assert problems == []
        group.cancel_scope.cancel()
