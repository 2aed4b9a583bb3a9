"""Kubernetes JSON → facts: the cards that pods ask for, choose and hold."""

import json
from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment_proto.events import PodObserved
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    PodRequest,
    Policy,
    Selection,
)
from allotment_proto.observed import Standing
from allotment_proto.volcano import keys
from allotment_watcher import objects
from allotment_watcher.normalise import unreadable_pod_fact
from tests.unit.kube_json import (
    Json,
    annotated,
    asks,
    container,
    pod_json,
    refused,
    seen,
)


def test_vgpu_shares_by_amount_by_percentage_and_whole() -> None:
    number = {"volcano.sh/vgpu-number": 2}
    shares = {
        "amount": {**number, "volcano.sh/vgpu-memory": "3k", "volcano.sh/vgpu-cores": 50},
        "percentage": {**number, "volcano.sh/vgpu-memory-percentage": 30},
        "nothing said": number,
    }
    found = {name: asks(limits).request.devices for name, limits in shares.items()}
    assert found == {
        "amount": (DeviceRequest("vgpu", 0, "main", 2, 3000, 0, 50),),
        "percentage": (DeviceRequest("vgpu", 0, "main", 2, 0, 30, 0),),
        "nothing said": (DeviceRequest("vgpu", 0, "main", 2, 0, 100, 0),),
    }


def test_a_count_of_zero_asks_for_nothing() -> None:
    fact = asks({"volcano.sh/vgpu-number": 0})
    assert (fact.request.devices, fact.problem) == ((), None)


def test_two_gpu_containers_are_refused_unless_the_policy_allows_them() -> None:
    gpu = {"volcano.sh/vgpu-number": 1}
    document = pod_json(container("a", gpu), container("web"), container("b", gpu))
    refused(
        seen(document),
        "containers a, b",
        "only one such container",
        "`allotment.MultiContainerEnable: true`",
    )
    fact = seen(document, Policy(multi_container=True))
    assert [d.container for d in fact.request.devices] == [0, 2]
    assert fact.problem is None


@pytest.mark.parametrize("is_sidecar", [False, True])
@pytest.mark.parametrize(
    "asked",
    [
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1000},
        {"volcano.sh/gpu-memory": 1000},
        {"volcano.sh/gpu-number": 1},
        {"huawei.com/Ascend310P": 1},
        {"huawei.com/npu-core": 2},
    ],
)
def test_init_containers_and_sidecars_get_no_devices(asked: Json, is_sidecar: bool) -> None:
    """A device plugin knows of containers only: kubelet would refuse the pod after its Binding."""
    more = {"restartPolicy": "Always"} if is_sidecar else {}
    first = container("first", asked, **more)
    for document in (
        pod_json(container("a", asked), initContainers=[first]),
        pod_json(container("a"), initContainers=[first]),
    ):
        fact = seen(document, Policy(multi_container=True))
        refused(fact, reasons.INVALID_REQUEST, "first", "init container", "ask in a container")
    none = container("first", dict.fromkeys(asked, 0), **more)
    assert seen(pod_json(container("a", asked), initContainers=[none])).problem is None


def test_two_containers_that_share_gpu_memory_are_refused_or_one_request() -> None:
    share = {"volcano.sh/gpu-memory": 1000}
    document = pod_json(container("a", share), container("web"), container("b", share))
    refused(seen(document), "containers a, b", "only one such container")
    fact = seen(document, Policy(multi_container=True))
    assert fact.problem is None
    assert fact.request.devices == (DeviceRequest("gpushare", 0, "", 1, 2000, 0, 0),)


def test_selections_are_read() -> None:
    fact = annotated(
        {
            "nvidia.com/use-gputype": " A100, ,V100 ",
            "nvidia.com/nouse-gputype": "ignored beside use",
            "volcano.sh/vgpu-use-gpuuuid": "GPU-1",
            "volcano.sh/vgpu-nouse-gpuuuid": "GPU-2,GPU-3",
            "volcano.sh/vgpu-mode": "hami-core",
            "volcano.sh/gpu-index": "2,0, 2",
        }
    )
    assert fact.request.selection == Selection(
        mode="hami-core",
        use_types=("A100", "V100"),
        use_ids=("GPU-1",),
        nouse_ids=("GPU-2", "GPU-3"),
        indexes=(0, 2),
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("volcano.sh/vgpu-mode", "soft", "'soft'; wanted: hami-core or mig or mps"),
        ("volcano.sh/vgpu-mode", "", "''; wanted: hami-core or mig"),
        ("nvidia.com/use-gputype", " , ", "a comma list of card types"),
        ("nvidia.com/nouse-gputype", "", "a comma list of card types"),
        ("volcano.sh/gpu-index", "0,two", "'two' is not a card index"),
        ("volcano.sh/gpu-index", "-1", "'-1' is not a card index"),
        ("volcano.sh/gpu-index", "", "card indexes like 0,2"),
    ],
)
def test_an_annotation_value_that_says_nothing_is_refused(key: str, value: str, words: str) -> None:
    refused(annotated({key: value}), key, words)


def test_card_annotations_of_a_pod_without_cards_mean_nothing() -> None:
    fact = annotated({"volcano.sh/vgpu-mode": "nonsense"}, limits={"cpu": "1"})
    assert fact.problem is None


# Pods that are bound


def bound(limits: Any, annotations: Json, *more: Json) -> PodObserved:
    main = container(limits=limits, requests={"cpu": "1"})
    return seen(pod_json(main, *more, annotations=annotations, nodeName="n1"))


def test_a_bound_pod_holds_what_its_annotations_say() -> None:
    fact = bound(
        {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 3000, "volcano.sh/vgpu-cores": 50},
        {
            "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,3000,50:GPU-b,NVIDIA,3000,50:",
            "volcano.sh/bind-phase": "allocating",
        },
    )
    assert (fact.node, fact.bind_phase) == ("n1", "allocating")
    assert fact.holdings == (
        Holding("vgpu", 0, "GPU-a", 3000, 50),
        Holding("vgpu", 0, "GPU-b", 3000, 50),
    )


def test_annotations_of_an_unbound_pod_hold_nothing() -> None:
    fact = annotated(
        {
            "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,3000,50:",
            "volcano.sh/bind-phase": "success",
        }
    )
    assert (fact.holdings, fact.bind_phase) == ((), "")


def test_a_shared_card_is_held_by_index() -> None:
    fact = bound({"volcano.sh/gpu-memory": 4096}, {"volcano.sh/gpu-index": "3"})
    assert fact.holdings == (Holding("gpushare", 0, "3", 4096, 0),)
    assert fact.problem is None
    assert fact.request.selection == Selection()  # the index it got is not one it asked for


def test_broken_annotations_of_a_bound_pod_are_no_reason_to_refuse_it() -> None:
    fact = bound(
        {"volcano.sh/vgpu-number": 1},
        {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA:GPU-b,NVIDIA,1,2:", "volcano.sh/vgpu-mode": "?"},
    )
    assert fact.holdings == (Holding("vgpu", 0, "GPU-b", 1, 0),)
    assert fact.problem is None


def test_a_running_pod_that_we_would_refuse_still_takes_its_part_of_the_host() -> None:
    """Volcano binds pods with two GPU containers; their CPU must not be given away again."""
    gpu = {"volcano.sh/vgpu-number": 1}
    fact = bound(
        gpu,
        {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,100,1:;GPU-b,NVIDIA,200,2:"},
        container("side", gpu, {"cpu": "2"}),
    )
    assert fact.request.cpu_milli == 3000
    assert fact.request.extended == (("volcano.sh/vgpu-number", 2),)
    assert [h.card for h in fact.holdings] == ["GPU-a", "GPU-b"]
    broken = bound({"cpu": "x"}, {}, container("side", {"memory": "y"}))
    assert broken.request == PodRequest()


def test_an_unreadable_pod_is_refused_and_never_displaces_what_was_read() -> None:
    fact = unreadable_pod_fact("ns", "p", "u", objects.PodGlimpse(), "Expected `str`, got `int`")
    refused(fact, "cannot be read: Expected `str`")
    assert fact.rv == 0


@pytest.mark.parametrize("amount", [True, [], {"a": 1}])
def test_an_amount_of_a_foreign_type_makes_the_object_undecodable(amount: Any) -> None:
    document = json.dumps(pod_json(container(limits={"cpu": amount})))
    with pytest.raises(msgspec.ValidationError, match="limits"):
        msgspec.json.decode(document, type=objects.PodObject)


MINE = {
    keys.VGPU_NODE: "n",
    keys.VGPU_IDS: "GPU-0,NVIDIA,3000,50:",
    keys.DEVICES_TO_ALLOCATE: "GPU-0,NVIDIA,3000,50:",
    keys.BIND_PHASE: keys.PHASE_ALLOCATING,
}
SHARE = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000, "volcano.sh/vgpu-cores": 50}


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, None),
        ({keys.DEVICES_TO_ALLOCATE: ""}, None),
        ({keys.DEVICES_TO_ALLOCATE: ";"}, None),
        ({keys.VGPU_NODE: "m"}, Standing("m", "vgpu", 1, (Holding("vgpu", 0, "GPU-0", 3000, 50),))),
        (
            {keys.DEVICES_TO_ALLOCATE: "GPU-0,NVIDIA,9000,50:"},
            Standing("n", "vgpu", 1, (Holding("vgpu", 0, "GPU-0", 9000, 50),)),
        ),
        (
            {
                keys.DEVICES_TO_ALLOCATE: "GPU-0,NVIDIA,9000,50:",
                keys.VGPU_IDS: "GPU-0,NVIDIA,9000,50:",
            },
            Standing("n", "vgpu", 1, (Holding("vgpu", 0, "GPU-0", 9000, 50),)),
        ),
        ({keys.DEVICES_TO_ALLOCATE: "x,y:a,b:"}, Standing("n", "vgpu", 2)),
    ],
)
def test_a_record_that_its_pod_may_not_have_is_told(
    changes: dict[str, str], stands: Standing | None
) -> None:
    """Also one that the plugin cannot read: it fails whoever asks for so many devices."""
    document = pod_json(container("main", SHARE), annotations={**MINE, **changes}, nodeName="n")
    assert seen(document).standing == stands


def test_a_pod_without_a_node_and_without_cards_has_a_record_all_the_same() -> None:
    document = pod_json(container("main"), annotations=MINE)
    mine = (Holding("vgpu", 0, "GPU-0", 3000, 50),)
    assert seen(document).standing == Standing("n", "vgpu", 1, mine)
    document["spec"]["schedulerName"] = "other"
    assert seen(document).standing == Standing("n", "vgpu", 1, mine)
