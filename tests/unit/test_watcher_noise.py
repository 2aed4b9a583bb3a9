"""Heartbeats and status noise make no event, and what is kept of a pod is its fact."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from allotment.adapters.kube.watch_events import Synced, Undecodable
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import ContainerSource, PodSource
from allotment_lab.bench import big_cluster
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.volcano import device_config, selection
from allotment_watcher.normalise import ASKED, ASKED_LABELS
from allotment_watcher.throttle import CHANGE_EVERY_S, CHANGES_AT_ONCE, Throttle
from tests import build
from tests.unit.kube_json import container, pod_json
from tests.unit.watcher_told import Told


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


def test_what_a_pod_asks_for_is_read_from_no_other_annotation_or_label() -> None:
    """Requests are remembered per kind of pod, by these annotations, labels and the spec."""
    config = device_config.default()
    names = set[str]().union(*(family.resources(config) for family in FAMILIES.values()))
    for amount in ("1", "5"):
        limits = dict.fromkeys(names, amount)
        for given in ({}, dict.fromkeys(ASKED, "1")):
            annotations, labels = Asked(given), Asked(dict.fromkeys(ASKED_LABELS, "high"))
            containers = [ContainerSource("c", limits, limits)]
            for family in FAMILIES.values():
                family.requests(PodSource(annotations, containers, [], labels, config))
            selection.decode(annotations)
            assert annotations.names <= ASKED
            assert labels.names <= ASKED_LABELS


def test_what_a_pod_holds_is_read_from_no_annotation_but_its_familys_assignments() -> None:
    """Whoever wrote none of them is not asked about the pod."""
    config = device_config.default()
    places = {name: family.assignments(config) for name, family in FAMILIES.items()}
    names = set[str]().union(*(family.resources(config) for family in FAMILIES.values()))
    limits = dict.fromkeys(names, "1")
    containers = [ContainerSource("c", limits, limits)]
    for name, family in FAMILIES.items():
        others = set[str](ASKED).union(*places.values()) - places[name]
        pod = PodSource(dict.fromkeys(others, "GPU-a,NVIDIA,1,1:"), containers, [], {}, config)
        assert family.holdings(pod) == ((), ())


def changing(version: int, **changes: Any) -> str:
    """A pod of ours, whose owner gives it another label all the time."""
    pod = pod_json(container(requests={"cpu": "100m"}))
    pod["metadata"] |= {"resourceVersion": str(version), "labels": {"turn": str(version)}}
    pod["spec"] |= changes.pop("spec", {})
    return json.dumps(pod | changes)


def test_an_owner_cannot_fill_the_log_with_changes_of_one_pod() -> None:
    told = Told()
    told.pods(*(changing(version) for version in range(1, 1000)))
    assert len(told.put) == 1 + CHANGES_AT_ONCE
    assert len(told.observer.late) == 1
    told.observer.late.look()
    assert len(told.put) == 1 + CHANGES_AT_ONCE
    told.now_s += CHANGE_EVERY_S
    told.observer.late.look()
    assert told.put[-1].labels == (("turn", "999"),), "the last state is told, if late"
    assert not told.observer.late


def test_what_happens_to_a_pod_is_never_told_late() -> None:
    told = Told()
    told.pods(*(changing(version) for version in range(1, 100)))
    assert told.observer.late
    told.pods(changing(100, spec={"nodeName": "n1"}))
    assert (told.put[-1].node, told.put[-1].labels) == ("n1", (("turn", "100"),))
    assert not told.observer.late
    told.pods(changing(101, spec={"nodeName": "n1"}, status={"phase": "Succeeded"}))
    assert told.put[-1].phase == "Succeeded"


def test_nobody_is_told_what_a_pod_that_ended_looks_like() -> None:
    told = Told()
    ended = {"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}
    told.pods(*(changing(version, **ended) for version in range(1, 10)))
    assert len(told.put) == 1


def test_nobody_is_told_what_a_pod_of_another_scheduler_wants_before_it_has_a_node() -> None:
    told = Told()
    theirs = {"schedulerName": "default-scheduler"}
    told.pods(*(changing(version, spec=theirs) for version in range(1, 10)))
    assert len(told.put) == 1
    told.pods(changing(10, spec={**theirs, "nodeName": "n1"}))
    assert told.put[-1].labels == (("turn", "10"),)
    assert told.put[-1].request.cpu_milli == 100


def test_a_pod_that_cannot_be_read_any_more_is_not_told_as_it_was_before() -> None:
    told = Told()
    told.pods(*(changing(version) for version in range(1, 100)))
    assert told.observer.late
    before = len(told.put)
    for number in range(100):
        broken = Undecodable("default", "p", "uid-p", b"{}", f"broken {number}")
        anyio.run(told.observer.on_pod, broken)
    assert len(told.put) == before, "to break it is a change like others"
    told.now_s += CHANGE_EVERY_S
    told.observer.late.look()
    problem = told.put[-1].problem
    assert problem is not None
    assert "cannot be read: broken 99" in problem.message
    told.now_s += CHANGE_EVERY_S
    told.observer.late.look()
    assert len(told.put) == before + 1


def test_pods_that_went_while_nobody_watched_are_not_remembered() -> None:
    told = Told()
    told.pods(*(changing(version) for version in range(1, 100)))
    assert list(told.observer.throttle._free) == ["uid-p"]
    told.observer._pods.clear()  # as it lists anew
    anyio.run(told.observer.on_pod, Synced("1", 0))
    assert not told.observer.throttle._free


def test_the_first_acknowledgement_of_a_pods_plugin_is_never_told_late() -> None:
    """The next Binding of the node may wait for it; the owner may not use that up for others."""
    now_s = 0.0
    throttle = Throttle(lambda: now_s)
    waits = build.pod("a", node="n1", bind_phase="allocating")
    served = msgspec.structs.replace(waits, bind_phase="success")
    for number in range(100):
        throttle.allows(waits, msgspec.structs.replace(waits, labels=(("turn", str(number)),)))
    assert throttle.allows(waits, served)
    assert not throttle.allows(served, waits)
    assert not throttle.allows(waits, served), "one is free"
