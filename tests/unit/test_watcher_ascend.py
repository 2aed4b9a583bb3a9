"""Kubernetes JSON → facts: Ascend chips through HAMi and through MindCluster."""

import json

from allotment_proto.facts import Holding, Selection
from tests.unit.kube_json import Json, container, node, node_json, pod_json, refused, seen

CHIP = "huawei.com/Ascend310P"
ALLOCATED = "hami.io/Ascend310P-devices-allocated"
NPU = "huawei.com/npu-core"


def chips(memory: int | None = None) -> Json:
    return {CHIP: 1} if memory is None else {CHIP: 1, f"{CHIP}-memory": memory}


def test_several_containers_may_have_ascend_chips() -> None:
    fact = seen(pod_json(container("a", chips(3000)), container("b", chips())))
    assert fact.problem is None
    assert [(d.family, d.container, d.templates) for d in fact.request.devices] == [
        ("ascend", 0, ("vir01",)),
        ("ascend", 1, ()),
    ]
    assert fact.request.extended == ((CHIP, 2),)


def test_only_ascends_own_annotation_selects_ascend_chips() -> None:
    of_nvidia = {"volcano.sh/vgpu-mode": "nonsense", "nvidia.com/use-gputype": ""}
    document = pod_json(container(limits=chips(3000)), annotations=of_nvidia)
    assert (seen(document).problem, seen(document).request.selection) == (None, Selection())
    document["metadata"]["annotations"] = {"huawei.com/vnpu-mode": "hami-core"}
    assert seen(document).request.selection == Selection(mode="hami-core")


def test_what_a_pod_holds_of_chips_or_cannot_say() -> None:
    def runs(text: str) -> Json:
        return pod_json(
            container("a", chips()),
            container("b", chips(3000)),
            annotations={ALLOCATED: text},
            nodeName="n1",
        )

    fact = seen(runs("C-0,Ascend310P,21527,0:;C-1,Ascend310P,3072,0:;"))
    assert [(h.container, h.card, h.memory_mib) for h in fact.holdings] == [
        (0, "C-0", 21527),
        (1, "C-1", 3072),
    ]
    assert fact.broken is None
    fact = seen(runs("C-0,Ascend310P,21527,0:;C-1,Ascend310P:;"))
    assert [h.card for h in fact.holdings] == ["C-0"]
    assert fact.broken is not None
    assert ALLOCATED in fact.broken.place
    assert "C-1,Ascend310P" in fact.broken.message


def test_the_labels_of_a_pod_choose_the_template_of_mindcluster() -> None:
    """Pods of one spec and several labels are not of one kind."""
    document = pod_json(container(limits={NPU: 2}, requests={NPU: 2}))
    assert seen(document).request.devices[0].templates == ("vir02_1c",)
    document["metadata"]["labels"] = {"vnpu-level": "high"}
    assert seen(document).request.devices[0].templates == ("vir02", "vir02_1c")
    document["metadata"]["labels"] = {"vnpu-dvpp": "perhaps"}
    document["spec"]["containers"][0] = container(limits={NPU: 4}, requests={NPU: 4})
    refused(seen(document), "vnpu-dvpp", "wanted: yes, no or null")


def test_what_a_pod_holds_through_mindcluster() -> None:
    document = pod_json(container(limits={NPU: 8}), nodeName="n1", annotations={NPU: "3"})
    assert seen(document).holdings == (Holding("mindcluster", 0, "3", 0, 8),)
    document["metadata"]["annotations"] = {NPU: "3-vir99"}
    fact = seen(document)
    assert fact.holdings == ()
    assert fact.broken is not None
    assert NPU in fact.broken.place


def test_the_chips_of_a_node_are_those_of_its_device_information() -> None:
    document = node_json(None, {NPU: "16"})
    document["metadata"]["labels"] = {
        "servertype": "Ascend310P-8",
        "accelerator": "huawei-Ascend310P",
        "node.kubernetes.io/npu.chip.name": "310P3",
    }
    entry = {"DeviceList": {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"}}
    text = json.dumps({"mindx-dl-deviceinfo-n.example": entry})
    info = {"mindx-dl/cluster-info-device-0/cluster-info-device-0": text}
    (inventory,) = node(document, device_info=info).inventories
    assert [card.id for card in inventory.cards] == ["0", "1"]
    without = node(document)
    assert without.inventories == ()
    assert "device information" in without.problems[0].place
