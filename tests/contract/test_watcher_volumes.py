"""Pods with claims wait for what claims, volumes and classes say; others are told at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import msgspec
import pytest
from aiohttp import web
from tests.contract.kube_server import client_of, listing, refuse, scripted, stream
from tests.unit.kube_json import Json, container, node_json, pod_json
from tests.waiting import patience

from allotment.adapters.log.recorder import Recorder
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_proto.facts import Attachment, Expression, NodeTerm, Policy
from allotment_watcher.__main__ import Context
from allotment_watcher.normalise import Lens, node_fact, pod_through
from allotment_watcher.normalise.volumes import Wanted
from allotment_watcher.objects import NodeObject, PodObject
from allotment_watcher.observer import Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings
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


async def told(
    server: Server,
    tmp_path: Path,
    number: int,
    reported: Reported | None = None,
    news_after: int = 1,
) -> list[Any]:
    """The first facts that the watcher tells of the server's pods."""
    facts: list[Any] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = server.answer
        log = MagicMock()
        said = {"refusals": Refusals(log), "settings": WatcherSettings()}
        context = cast(Context, SimpleNamespace(log=log, ready=lambda *_: None, **said))
        put = lambda events, *, awaited=True: facts.extend(events)  # noqa: E731
        recorder = cast(Recorder, SimpleNamespace(put=put))
        volumes = VolumeWatch(
            context,
            client,
            lambda: observer.volumes_changed(),
            lambda node: observer.limits_changed(node),
        )
        observer = Observer(
            context,
            Policy(),
            reported or Reported(ClusterState()),
            recorder,
            (),
            volumes,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(volumes.run)
            group.start_soon(observer.run, client)
            with patience():
                while len(facts) < number:
                    await anyio.sleep(0.02)
                    if len(facts) >= news_after:
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


async def test_a_claim_that_serves_one_pod_at_a_time_is_named_of_pods_with_a_node_too(
    tmp_path: Path,
) -> None:
    """Also of those that were seen before claims were looked at."""
    runs = named(pod_json(container(), volumes=CLAIM, nodeName="n1"), "a")
    waits = named(pod_json(container(), volumes=CLAIM), "b")
    server = Server(
        pods=[runs, waits],
        persistentvolumeclaims=[claim(volumeName="pv", accessModes=["ReadWriteOncePod"])],
        persistentvolumes=[VOLUME],
    )
    facts = await told(server, tmp_path, 3)
    assert {fact.name: fact.request.company.sole for fact in facts} == {
        "a": ("team-a/data",),
        "b": ("team-a/data",),
    }


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


def csi_node(name: str, count: int | None) -> Json:
    allocatable = None if count is None else {"count": count}
    drivers = [{"name": "ebs", "nodeID": "i-1", "allocatable": allocatable}]
    return named({"metadata": {}, "spec": {"drivers": drivers}}, name)


EBS: Json = {
    "metadata": {"name": "pv", "uid": "v", "resourceVersion": "6"},
    "spec": {"csi": {"driver": "ebs", "volumeHandle": "vol-1"}},
}
VOLUMES = (Attachment("ebs", "team-a/data"),)


def attaching(*csi_nodes: Json) -> Server:
    """A node, a pod that runs there and one that waits, with the same claim."""
    return Server(
        nodes=[named(node_json(), "n1")],
        pods=[
            named(pod_json(container(), volumes=CLAIM, nodeName="n1"), "runs"),
            named(pod_json(container(), volumes=CLAIM), "waits"),
        ],
        persistentvolumeclaims=[claim(volumeName="pv")],
        persistentvolumes=[EBS],
        csinodes=list(csi_nodes),
    )


async def test_limits_of_nodes_are_told_and_so_are_the_volumes_that_count(tmp_path: Path) -> None:
    facts = await told(attaching(csi_node("n1", 25)), tmp_path, 5)
    last = {fact.name: fact for fact in facts}
    assert last["n1"].volume_limits == (("ebs", 25),)
    assert [last[pod].request.attachments for pod in ("runs", "waits")] == [VOLUMES, VOLUMES]
    assert [fact.name for fact in facts].count("waits") == 1


async def test_volumes_without_a_limit_anywhere_do_not_reach_the_log(tmp_path: Path) -> None:
    facts = await told(attaching(csi_node("n1", None)), tmp_path, 3)
    assert {fact.name for fact in facts} == {"n1", "runs", "waits"}
    assert not any(f.request.attachments for f in facts if f.name != "n1")


async def test_a_limit_that_changes_is_news_of_the_node_alone(tmp_path: Path) -> None:
    server = attaching(csi_node("n1", 25))
    fewer = csi_node("n1", 3)
    fewer["metadata"]["resourceVersion"] = "79"
    server.news["csinodes"] = [("MODIFIED", fewer)]
    facts = await told(server, tmp_path, 6, news_after=5)
    assert facts[-1].name == "n1"
    assert facts[-1].volume_limits == (("ebs", 3),)


async def test_without_the_right_to_read_csi_nodes_pods_are_placed(tmp_path: Path) -> None:
    server = attaching(csi_node("n1", 25))
    server.forbidden = "csinodes"
    facts = await told(server, tmp_path, 3)
    assert [fact.problem for fact in facts if fact.name == "waits"] == [None]


async def test_what_was_told_before_stays_while_nobody_knows_better(tmp_path: Path) -> None:
    """After a restart nothing is told twice, only because volumes are not listed yet."""
    node = node_fact(msgspec.convert(named(node_json(), "n1"), NodeObject))
    runs = msgspec.convert(
        named(pod_json(container(), volumes=CLAIM, nodeName="n1"), "runs"), PodObject
    )
    state = ClusterState()
    apply(state, msgspec.structs.replace(node, volume_limits=(("ebs", 25),)), 1)
    apply(state, pod_through(Lens(Policy()), runs, Wanted(attachments=VOLUMES)), 2)
    reported = Reported(state)
    server = attaching(csi_node("n1", 25))
    (fact,) = await told(server, tmp_path, 1, reported)
    assert fact.name == "waits"
