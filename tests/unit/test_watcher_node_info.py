"""MindCluster's ConfigMaps: each node is given its own part, and hears of no other's changes."""

import json

import pytest

from allotment.core.placement.devices.base import BrokenInfo
from allotment.core.placement.devices.mindcluster import MindclusterInfo
from allotment_proto.facts import PluginUse, Policy
from allotment_proto.volcano.mindcluster_node import decode_device_infos
from allotment_watcher.node_info import NodeInfo, path_of

CLUSTER = "cluster-info-device-0"


def entry(chips: str, updated: int = 1) -> dict[str, object]:
    return {"DeviceList": {"huawei.com/Ascend310P": chips}, "UpdateTime": updated, "SuperPodID": 0}


def cluster_info(**nodes: dict[str, object]) -> dict[str, str]:
    document = {f"mindx-dl-deviceinfo-{node}": info for node, info in nodes.items()}
    return {CLUSTER: json.dumps({**document, "else": 1})}


def test_one_config_map_of_all_nodes_is_taken_apart() -> None:
    info = NodeInfo(MindclusterInfo())
    data = cluster_info(a=entry("Ascend310P-0"), b=entry("Ascend310P-1"))
    assert info.seen("mindx-dl", CLUSTER, data) == {"a", "b"}
    assert info.seen("mindx-dl", CLUSTER, data) == set()
    changed = cluster_info(a=entry("Ascend310P-0"), b=entry("Ascend310P-1,Ascend310P-2"))
    assert info.seen("mindx-dl", CLUSTER, changed) == {"b"}
    assert info.seen("mindx-dl", CLUSTER, cluster_info(b=entry("Ascend310P-1"))) == {"a", "b"}
    assert info.of("a") == {}
    assert info.gone("mindx-dl", CLUSTER) == {"b"}
    assert info.gone("mindx-dl", CLUSTER) == set()


def test_a_node_is_given_its_part_in_the_layout_of_the_whole() -> None:
    info = NodeInfo(MindclusterInfo())
    info.seen("mindx-dl", CLUSTER, cluster_info(a=entry("Ascend310P-0"), b=entry("Ascend310P-1")))
    ((place, text),) = info.of("b").items()
    assert place == f"mindx-dl/{CLUSTER}/{CLUSTER}"
    found, problems = decode_device_infos(CLUSTER, {CLUSTER: text}, "Ascend310P")
    assert problems == ()
    assert {node: part.available for node, part in found.items()} == {"b": (1,)}


def test_a_config_map_of_one_node() -> None:
    info, name = NodeInfo(MindclusterInfo()), "mindx-dl-deviceinfo-n.example"
    data = {"DeviceInfoCfg": json.dumps({"DeviceInfo": entry("Ascend310P-0")})}
    assert info.seen("kube-system", name, data) == {"n.example"}
    assert info.of("n.example") == {f"kube-system/{name}/DeviceInfoCfg": data["DeviceInfoCfg"]}


def test_config_maps_of_other_things_say_nothing() -> None:
    info = NodeInfo(MindclusterInfo())
    assert info.seen("mindx-dl", "cluster-info-node-cm", {"cluster-info-node-cm": "{}"}) == set()
    assert info.seen("mindx-dl", "kube-root-ca.crt", {"ca.crt": "x"}) == set()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (CLUSTER, {}, f"ConfigMap mindx-dl/{CLUSTER} has no key {CLUSTER}"),
        (CLUSTER, {CLUSTER: "["}, "is no JSON map of nodes"),
        (CLUSTER, {CLUSTER: "[]"}, "is no JSON map of nodes"),
        (CLUSTER, {CLUSTER: "[" * 100_000}, "is no JSON map of nodes"),
        ("mindx-dl-deviceinfo-n", {}, "has no key DeviceInfoCfg"),
    ],
)
def test_what_was_said_before_stays_when_it_breaks(
    name: str, data: dict[str, str], said: str
) -> None:
    info = NodeInfo(MindclusterInfo())
    info.seen("mindx-dl", CLUSTER, cluster_info(a=entry("Ascend310P-0")))
    before = info.of("a")
    with pytest.raises(BrokenInfo, match=said):
        info.seen("mindx-dl", name, data)
    assert info.of("a") == before != {}


def test_the_policy_says_where_to_look() -> None:
    path = path_of(MindclusterInfo(), Policy())
    assert path == "/api/v1/namespaces/mindx-dl/configmaps?labelSelector=mx-consumer-volcano%3Dtrue"
    own = PluginUse("init-params", arguments=(("useClusterInfoManager", False),))
    path = path_of(MindclusterInfo(), Policy(configurations=(own,)))
    assert path == "/api/v1/namespaces/kube-system/configmaps?labelSelector=mx-consumer-cim%3Dtrue"
    assert path_of(MindclusterInfo(), Policy(families=("vgpu",))) is None
