"""What pods hold according to their annotations, whoever wrote them; and what cannot be told."""

from typing import Any

import pytest

from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import Family, PodSource
from allotment_proto.device_config import DeviceConfig, Nvidia
from allotment_proto.events import PodObserved
from allotment_proto.facts import DeviceRequest, Holding, Policy, Problem
from tests.unit.kube_json import Json, container, pod_json, refused, seen

IDS = "volcano.sh/vgpu-ids-new"
ONE = {"volcano.sh/vgpu-number": 1}
TWO = {"volcano.sh/vgpu-number": 2}


def runs(limits: Any, annotations: Json, *more: Json, phase: str = "Running") -> PodObserved:
    main = container(limits=limits)
    document = pod_json(main, *more, annotations=annotations, nodeName="n1")
    document["status"] = {"phase": phase}
    return seen(document)


def broken(fact: PodObserved) -> Problem:
    assert fact.broken is not None
    return fact.broken


def test_a_piece_that_cannot_be_read_breaks_the_pod_and_the_rest_is_charged() -> None:
    fact = runs(TWO, {IDS: "GPU-a,NVIDIA,3000,50:GPU-b,NVIDIA:"})
    assert fact.holdings == (Holding("vgpu", 0, "GPU-a", 3000, 0),)
    assert fact.problem is None
    said = broken(fact)
    assert IDS in said.place
    assert "'GPU-b,NVIDIA' is not card,type,memory,cores" in said.message


@pytest.mark.parametrize(
    "text", ["", "garbage", ":", "GPU-a,NVIDIA,many,5:", "GPU-a[x],NVIDIA,1,1:"]
)
def test_an_annotation_that_names_no_card_for_a_container_that_asks(text: str) -> None:
    fact = runs(ONE, {IDS: text})
    assert fact.holdings == ()
    assert IDS in broken(fact).place


def test_of_a_pod_that_runs_only_the_family_that_wrote_on_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pod is seen several times in its life: what its kind asks for is known by then."""
    assigned = {IDS: "GPU-a,NVIDIA,3000,50:"}
    before = runs(ONE, assigned)
    read: list[tuple[str, str]] = []

    def counted(method: str, plain: Any) -> Any:
        def read_by(family: Family, pod: PodSource) -> Any:
            read.append((family.name, method))
            return plain(family, pod)

        return read_by

    for family in FAMILIES.values():
        for method in ("holdings", "requests"):
            plain = getattr(type(family), method)
            monkeypatch.setattr(type(family), method, counted(method, plain))
    assert runs(ONE, assigned) == before
    assert read == [("vgpu", "holdings")]
    read.clear()
    runs(ONE, {})
    assert read == []


def test_it_is_told_what_a_container_asks_for_whose_cards_nobody_can_read() -> None:
    small = {
        "volcano.sh/vgpu-number": 1,
        "volcano.sh/vgpu-memory": 1000,
        "volcano.sh/vgpu-cores": 5,
    }
    asked = DeviceRequest("vgpu", 0, "main", 1, 1000, 0, 5)
    assert runs(small, {IDS: "garbage"}).unplaced == (asked,)
    assert runs(small, {IDS: "GPU-a,NVIDIA,1000,5:"}).unplaced == ()
    assert runs(small, {IDS: "garbage"}, phase="Failed").unplaced == ()
    assert runs(TWO, {IDS: "garbage"}).unplaced == (DeviceRequest("vgpu", 0, "main", 2, 0, 100, 0),)
    index = {"volcano.sh/gpu-memory": 500}, {"volcano.sh/gpu-index": "x"}
    assert runs(*index).unplaced == (DeviceRequest("gpushare", 0, "", 1, 500, 0, 0),)


def test_of_limits_that_nobody_can_read_whole_cards_are_told() -> None:
    """No more of them than kubelet can give: a limit that is no number closes no node."""
    fact = runs({**TWO, "volcano.sh/vgpu-memory-percentage": 101}, {IDS: "GPU-b,NVIDIA:"})
    assert fact.unplaced == (DeviceRequest("vgpu", 0, "main", 2, 0, 100, 100),)
    assert IDS in broken(fact).place


def test_of_very_many_requests_the_rest_is_a_whole_card() -> None:
    more = [container(f"c{number}", limits=ONE) for number in range(100)]
    fact = runs(ONE, {IDS: "garbage"}, *more)
    assert len(fact.unplaced) == 65
    assert (fact.unplaced[-1].memory_pct, fact.unplaced[-1].cores_pct) == (100, 100)


def test_what_no_container_misses_breaks_nothing() -> None:
    assert runs(ONE, {IDS: "GPU-a,NVIDIA,1,2:GPU-b,NVIDIA:"}).broken is None
    assert runs({"cpu": "1"}, {IDS: "GPU-b,NVIDIA:"}).broken is None
    assert runs({"volcano.sh/vgpu-number": 0}, {IDS: ""}).broken is None


def test_a_pod_without_annotations_holds_nothing_and_is_not_broken() -> None:
    """It was bound past every device scheduler: its device plugin does not let it start."""
    fact = runs(TWO, {})
    assert (fact.holdings, fact.broken) == ((), None)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_who_has_ended_holds_up_nobody(phase: str) -> None:
    assert runs(ONE, {IDS: "garbage"}, phase=phase).broken is None


def test_a_pod_that_waits_is_not_broken_by_what_is_left_on_it() -> None:
    document = pod_json(container(limits=ONE), annotations={IDS: "garbage"})
    assert seen(document).broken is None


def test_every_container_of_a_pod_bound_by_others_is_charged_and_checked() -> None:
    side = container("side", ONE)
    fact = runs(ONE, {IDS: "GPU-a,NVIDIA,1,2:;GPU-a,NVIDIA,3,4:"}, container("web"), side)
    assert fact.holdings == (Holding("vgpu", 0, "GPU-a", 1, 0), Holding("vgpu", 2, "GPU-a", 3, 0))
    assert fact.broken is None
    half = runs(ONE, {IDS: "GPU-a,NVIDIA,1,2:;GPU-b,3:"}, side)
    assert [h.card for h in half.holdings] == ["GPU-a"]
    assert "'GPU-b,3'" in broken(half).message
    missing = runs(ONE, {IDS: "GPU-a,NVIDIA,1,2:"}, side)
    assert "names no card for container 'side'; wanted: 1" in broken(missing).message


def test_a_request_that_nobody_could_have_made_is_broken_by_its_annotation_alone() -> None:
    memory_only = {"volcano.sh/vgpu-memory": 100}
    assert runs(memory_only, {IDS: "GPU-a,NVIDIA,100,0:"}).broken is None
    assert "GPU-a" in broken(runs(memory_only, {IDS: "GPU-a,NVIDIA,lots,0:"})).message


def test_indexes_that_cannot_be_read_break_a_pod_too() -> None:
    assert runs({"volcano.sh/gpu-memory": 5}, {"volcano.sh/gpu-index": "0"}).broken is None
    fact = runs({"volcano.sh/gpu-number": 2}, {"volcano.sh/gpu-index": "0,two"})
    assert [h.card for h in fact.holdings] == ["0"]
    assert "'two' is not a card index" in broken(fact).message
    assert (
        "names no card for the pod"
        in broken(runs({"volcano.sh/gpu-memory": 5}, {"volcano.sh/gpu-index": ""})).message
    )


LEFT = "volcano.sh/devices-to-allocate"


@pytest.mark.parametrize(
    ("annotations", "phase"),
    [
        ({"volcano.sh/bind-phase": "failed"}, "failed"),
        ({"volcano.sh/bind-phase": "success", LEFT: ""}, "success"),
        ({"volcano.sh/bind-phase": "success", LEFT: "GPU-a,NVIDIA,1,0:"}, "allocating"),
        ({"volcano.sh/bind-phase": "failed", LEFT: "GPU-a,NVIDIA,1,0:"}, "allocating"),
        (
            {
                "volcano.sh/bind-phase": "failed",
                LEFT: "GPU-a,NVIDIA,1,0:",
                "volcano.sh/vgpu-time": "18446744073709551615",
            },
            "failed",
        ),
        ({"volcano.sh/bind-phase": "allocating", LEFT: ";"}, "success"),
        ({"volcano.sh/bind-phase": "failed", LEFT: ""}, "failed"),
        ({"hami.io/bind-phase": "allocating"}, "allocating"),
        ({"volcano.sh/gpu-assigned": "true"}, "success"),
        ({"volcano.sh/gpu-assigned": "false"}, ""),
        ({"huawei.com/npu-core": "0"}, ""),
        ({"huawei.com/npu-core": "0", "huawei.com/AscendReal": "Ascend310P-0"}, "success"),
    ],
)
def test_what_each_device_plugin_says_of_a_bound_pod(annotations: Json, phase: str) -> None:
    assert runs(None, annotations).bind_phase == phase


def test_resources_go_by_the_names_that_the_configuration_gives_them() -> None:
    config = DeviceConfig(nvidia=Nvidia(count_name="nvidia.com/gpu", memory_percentage_name=""))
    gpu = {"nvidia.com/gpu": 1, "volcano.sh/vgpu-memory-percentage": 50}
    document = pod_json(container("a", gpu), container("b", {"nvidia.com/gpu": 1}))
    fact = seen(document, Policy(multi_container=True), config)
    assert [d.container for d in fact.request.devices] == [0, 1]
    assert fact.request.extended == (
        ("nvidia.com/gpu", 2),
        ("volcano.sh/vgpu-memory-percentage", 50),
    )
    refused(seen(document, config=config), "containers a, b", "only one such container")
    assert seen(document).request.devices == ()


@pytest.mark.parametrize(
    ("kind", "asks", "said"),
    [
        ("memory", "volcano.sh/gpu-number", "serves volcano.sh/gpu-memory only"),
        ("number", "volcano.sh/gpu-memory", "serves volcano.sh/gpu-number only"),
    ],
)
def test_gpu_sharing_serves_what_is_switched_on(kind: str, asks: str, said: str) -> None:
    document = pod_json(container(limits={asks: 1}))
    refused(seen(document, Policy(gpushare_kind=kind)), asks, said, "deviceshare.GPU")
    other = "number" if kind == "memory" else "memory"
    for served in ("", other):
        fact = seen(document, Policy(gpushare_kind=served))
        assert fact.problem is None
        assert isinstance(fact.request.devices[0], DeviceRequest)
