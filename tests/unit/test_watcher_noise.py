"""Heartbeats and status noise make no event, and what is kept of a pod is its fact."""

import json
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import msgspec
import pytest

from allotment.adapters.kube_watch import Added, Deleted, Identity, Modified
from allotment.adapters.recorder import Recorder
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import ContainerSource, PodSource
from allotment_cli.bench import big_cluster
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Policy
from allotment_proto.volcano import selection
from allotment_watcher import objects
from allotment_watcher.__main__ import Context, Watcher
from allotment_watcher.diary import Diary
from allotment_watcher.normalise import ASKED
from tests.unit.kube_json import Json, container, pod_json

POD = Identity("team-a", "p", "uid-p")


class Told:
    """A watcher, and what it put into the log's queue."""

    def __init__(self) -> None:
        self.put: list[Any] = []
        context = SimpleNamespace(log=MagicMock(), ready=lambda *_: None)
        recorder = SimpleNamespace(put=self.put.extend)
        self.watcher = Watcher(cast(Context, context), Policy(), Diary(), cast(Recorder, recorder))

    def nodes(self, *texts: str) -> None:
        for text in texts:
            node = msgspec.json.decode(text, type=objects.NodeObject)
            identity = Identity("", node.metadata.name, node.metadata.uid)
            anyio.run(self.watcher.on_node, Modified(identity, node))

    def pods(self, *texts: str) -> None:
        for text in texts:
            pod = msgspec.json.decode(text, type=objects.PodObject)
            identity = Identity("", pod.metadata.name, pod.metadata.uid)
            anyio.run(self.watcher.on_pod, Added(identity, pod))


def test_heartbeats_of_a_node_make_no_event() -> None:
    told = Told()
    told.nodes(*(big_cluster.node(3, version, beat=10 * version) for version in range(1, 20)))
    [fact] = told.put
    assert isinstance(fact, NodeObserved)
    assert len(fact.inventories[0].cards) == big_cluster.CARDS


@pytest.mark.parametrize("kind", [0, 5, 7, 9])
def test_status_noise_of_a_pod_makes_no_event(kind: int) -> None:
    told = Told()
    told.pods(*(big_cluster.pod(10 * kind + 3, 10, version, beat=version) for version in range(9)))
    [fact] = told.put
    assert isinstance(fact, PodObserved)
    assert fact.problem is None
    assert bool(fact.holdings) == (kind in (0, 5))
    assert bool(fact.node) == (kind != 9)


def two_containers(limits_of_second: Json) -> str:
    vgpu = {"volcano.sh/vgpu-number": 1}
    return json.dumps(pod_json(container("a", vgpu), container("b", limits_of_second)))


def test_another_policy_reads_again_what_it_reads_otherwise() -> None:
    told = Told()
    told.pods(two_containers({"volcano.sh/vgpu-number": 1}))
    assert told.put[0].problem is not None
    told.watcher.use(Policy(multi_container=True))
    assert [fact.problem for fact in told.put[1:]] == [None]
    anyio.run(told.watcher.on_pod, Deleted(POD))
    told.put.clear()
    told.watcher.use(Policy())
    assert told.put == []


def test_another_policy_reads_no_other_pod_again() -> None:
    told = Told()
    told.pods(two_containers({"cpu": "1"}))
    told.put.clear()
    told.watcher.use(Policy(multi_container=True))
    assert told.put == []


class Asked(dict[str, str]):
    """Annotations that remember for which of them they were asked."""

    def __init__(self, annotations: dict[str, str]) -> None:
        super().__init__(annotations)
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def test_what_a_pod_asks_for_is_read_from_no_other_annotation() -> None:
    """Requests are remembered per kind of pod, by these annotations and the spec."""
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/gpu-memory": "5"}
    for given in ({}, dict.fromkeys(ASKED, "1")):
        annotations = Asked(given)
        for family in FAMILIES.values():
            family.requests(PodSource(annotations, [ContainerSource("c", limits, {})], []))
        selection.decode(annotations)
        assert annotations.names <= ASKED
