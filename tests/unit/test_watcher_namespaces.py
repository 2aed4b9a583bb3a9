"""Namespaces that name a queue: when the pods in them are told, and with which queue."""

import json
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import msgspec

from allotment.adapters.kube.watch_events import (
    Added,
    Deleted,
    Identity,
    Modified,
    Synced,
    Undecodable,
)
from allotment.adapters.log.recorder import Recorder
from allotment.core.jobs import keys
from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import Policy
from allotment_watcher import objects
from allotment_watcher.__main__ import Context
from allotment_watcher.namespace_watch import NamespaceWatch
from allotment_watcher.observer import Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings
from tests.unit.kube_json import container, pod_json


class Told:
    """Pods and namespaces as they are seen, and what was told of the pods: group and queue."""

    def __init__(self, *, group_pods: bool = True) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.version = 0
        settings = WatcherSettings(group_pods=group_pods)
        context = cast(
            Context, SimpleNamespace(log=MagicMock(), ready=lambda *_: None, settings=settings)
        )
        recorder = cast(Recorder, SimpleNamespace(put=self.put))
        self.namespaces = NamespaceWatch(context, lambda n: self.observer.namespace_changed(n))
        self.observer = Observer(
            context,
            Policy(),
            Reported(ClusterState()),
            recorder,
            namespaces=self.namespaces,
        )

    def put(self, events: list[Any], *, awaited: bool = True) -> None:
        self.told += [(fact.name, fact.group, fact.queue) for fact in events]

    def pod(self, name: str, node: str = "", **annotations: str) -> None:
        self.version += 1
        document = pod_json(container(), annotations=annotations, nodeName=node)
        document["metadata"].update(name=name, uid=name, resourceVersion=str(self.version))
        seen = msgspec.json.decode(json.dumps(document), type=objects.PodObject)
        anyio.run(self.observer.on_pod, Added(Identity("team-a", name, name), seen))

    def pod_goes(self, name: str) -> None:
        anyio.run(self.observer.on_pod, Deleted(Identity("team-a", name, name)))

    def namespace(self, queue: str | None) -> None:
        annotations = None if queue is None else {keys.POD_QUEUE: queue}
        seen = objects.NamespaceObject(objects.Meta("team-a", annotations=annotations))
        anyio.run(self.namespaces.on_event, Modified(Identity("", "team-a", "u"), seen))

    def news(self) -> list[tuple[str, str, str]]:
        news, self.told = self.told, []
        return news


def test_a_pod_is_told_once_its_namespace_is_known() -> None:
    told = Told()
    told.pod("p")
    told.pod("gone")
    told.pod("tied", **{keys.GROUP_NAME: "g"})
    told.pod_goes("gone")
    assert [fact for fact in told.news() if fact[0] != "gone"] == [("tied", "team-a/g", "")]
    told.namespace("q")
    assert told.news() == [("p", "team-a/podgroup-p", "q")]


def test_pods_that_wait_are_told_again_when_their_namespace_names_another_queue() -> None:
    told = Told()
    told.namespace(None)
    told.pod("p")
    told.pod("own", **{keys.POD_QUEUE: "own"})
    assert told.news() == [("p", "", "default"), ("own", "team-a/podgroup-own", "own")]
    told.namespace("q")
    assert told.news() == [("p", "team-a/podgroup-p", "q")]
    told.namespace("q")
    assert told.news() == []
    told.pod("p", **{keys.GROUP_NAME: "podgroup-p"})
    told.news()
    told.namespace("r")
    assert told.news() == []


def test_a_pod_that_was_placed_stays_in_the_queue_in_which_it_was() -> None:
    told = Told(group_pods=False)
    told.namespace("q")
    told.pod("p")
    assert told.news() == [("p", "", "q")]
    told.namespace("r")
    assert told.news() == [("p", "", "r")]
    told.pod("p", node="n")
    assert told.news() == [("p", "", "r")]
    told.namespace("s")
    assert told.news() == []
    told.pod("p", node="n", other="x")
    assert all(queue == "r" for _, _, queue in told.news())


def test_namespaces_that_went_or_cannot_be_read() -> None:
    told = Told()
    told.namespace("q")
    assert told.namespaces.queue_of("team-a") == "q"
    odd = Undecodable("", "team-a", "u", b"", "odd")
    anyio.run(told.namespaces.on_event, odd)
    assert told.namespaces.queue_of("team-a") == "q", "as it was last read"
    anyio.run(told.namespaces.on_event, Undecodable("", "odd", "u", b"", "odd"))
    assert told.namespaces.queue_of("odd") == ""
    anyio.run(told.namespaces.on_event, Deleted(Identity("", "team-a", "u")))
    assert told.namespaces.queue_of("team-a") is None
    assert not told.namespaces.settled.is_set()
    anyio.run(told.namespaces.on_event, Synced("5", 1))
    assert told.namespaces.settled.is_set()
