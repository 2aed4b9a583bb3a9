"""Pods with claims wait for what claims, volumes and classes say; others are told at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from aiohttp import web
from tests.contract.kube_server import client_of, listing, refuse, scripted, stream
from tests.unit.kube_json import Json, container, pod_json

from allotment.adapters.recorder import Recorder
from allotment.core import reasons
from allotment_proto.facts import Expression, NodeTerm, Policy
from allotment_watcher.__main__ import Context
from allotment_watcher.diary import Diary
from allotment_watcher.observer import Observer
from allotment_watcher.volume_watch import VolumeWatch

pytestmark = pytest.mark.anyio
CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


class Server:
    """Lists what it has; one kind may be forbidden. Watches say nothing until `news` is filled."""

    def __init__(self, **objects: list[Json]) -> None:
        self.objects = objects
        self.forbidden = ""
        self.lists: list[str] = []
        self.news: dict[str, list[tuple[str, Json]]] = {}
        self.stirred = anyio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind == self.forbidden:
            return await refuse(403, "Forbidden")(request)
        if not request.query.get("watch"):
            self.lists.append(kind)
            return await listing(*self.objects.get(kind, []))(request)
        if kind in self.news:
            await self.stirred.wait()
            return await stream(*self.news.pop(kind), hold=True)(request)
        return await stream(hold=True)(request)


def named(document: Json, name: str) -> Json:
    document["metadata"].update(name=name, uid=f"uid-{name}", resourceVersion="78")
    return document


def claim(**spec: Any) -> Json:
    return {
        "metadata": {"name": "data", "namespace": "team-a", "uid": "c", "resourceVersion": "5"},
        "spec": spec,
        "status": {"phase": "Bound" if spec.get("volumeName") else "Pending"},
    }


VOLUME: Json = {
    "metadata": {"name": "pv", "uid": "v", "resourceVersion": "6"},
    "spec": {
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    },
}


async def told(server: Server, tmp_path: Path, number: int) -> list[Any]:
    """The first facts that the watcher tells of the server's pods."""
    facts: list[Any] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = server.answer
        log = SimpleNamespace(warning=lambda *_, **__: None)
        context = cast(Context, SimpleNamespace(log=log, ready=lambda *_: None))
        put = lambda events, *, awaited=True: facts.extend(events)  # noqa: E731
        recorder = cast(Recorder, SimpleNamespace(put=put))
        volumes = VolumeWatch(context, client, lambda: observer.volumes_changed())
        observer = Observer(context, Policy(), Diary(), recorder, None, volumes)
        async with anyio.create_task_group() as group:
            group.start_soon(volumes.run)
            group.start_soon(observer.run, client)
            with anyio.fail_after(10):
                while len(facts) < number:
                    await anyio.sleep(0.02)
                    if facts:
                        server.stirred.set()
            group.cancel_scope.cancel()
    return facts


async def test_a_pod_with_a_claim_is_told_with_its_volumes_reach(tmp_path: Path) -> None:
    server = Server(
        pods=[named(pod_json(container(), volumes=CLAIM), "a")],
        persistentvolumeclaims=[claim(volumeName="pv")],
        persistentvolumes=[VOLUME],
    )
    (fact,) = await told(server, tmp_path, 1)
    assert fact.problem is None
    assert fact.request.constraints.volumes == ((NodeTerm((Expression("zone", "In", ("a",)),)),),)


async def test_a_claim_that_waits_for_the_pods_node_is_named(tmp_path: Path) -> None:
    made_later: Json = {
        "metadata": {"name": "fast", "uid": "s", "resourceVersion": "7"},
        "provisioner": "x",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    server = Server(
        pods=[named(pod_json(container(), volumes=CLAIM), "a")],
        persistentvolumeclaims=[claim(storageClassName="fast")],
        storageclasses=[made_later],
    )
    (fact,) = await told(server, tmp_path, 1)
    assert (fact.problem, fact.claims) == (None, ("data",))


async def test_a_missing_claim_is_said_and_the_pod_is_told_again_when_it_is_there(
    tmp_path: Path,
) -> None:
    server = Server(
        pods=[named(pod_json(container(), volumes=CLAIM), "a")], persistentvolumes=[VOLUME]
    )
    server.news["persistentvolumeclaims"] = [("ADDED", claim(volumeName="pv"))]
    first, second = await told(server, tmp_path, 2)
    assert first.problem.code == reasons.VOLUME_NOT_READY
    assert "does not exist" in first.problem.message
    assert second.problem is None
    assert second.request.constraints.volumes


async def test_without_the_right_to_look_a_pod_with_claims_says_so(tmp_path: Path) -> None:
    server = Server(pods=[named(pod_json(container(), volumes=CLAIM), "a")])
    server.forbidden = "storageclasses"
    (fact,) = await told(server, tmp_path, 1)
    assert fact.problem.code == reasons.VOLUME_NOT_READY
    assert "storageclasses" in fact.problem.message
    assert "rbac.yaml" in fact.problem.message


async def test_nobody_asks_for_volumes_while_no_pod_of_ours_waits_for_one(tmp_path: Path) -> None:
    elsewhere = pod_json(container(), volumes=CLAIM)
    elsewhere["spec"]["schedulerName"] = "other"
    server = Server(
        pods=[
            named(pod_json(container()), "plain"),
            named(elsewhere, "others"),
            named(pod_json(container(), volumes=CLAIM, nodeName="n1"), "runs"),
        ]
    )
    facts = await told(server, tmp_path, 3)
    assert all(fact.problem is None for fact in facts)
    assert set(server.lists) == {"pods", "nodes"}
