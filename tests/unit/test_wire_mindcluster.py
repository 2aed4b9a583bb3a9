"""Ascend 310P through MindCluster: nodes, templates, annotations."""

import json

import pytest

from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import keys, mindcluster
from allotment_proto.volcano import mindcluster_node as nodes

LABELS = {
    keys.LABEL_SERVER_TYPE: "Ascend310P-8",
    keys.LABEL_ACCELERATOR: "huawei-Ascend310P",
    keys.LABEL_CHIP_NAME: "310P3",
}
LIST = {
    "huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1,Ascend310P-2c-100-3",
    "huawei.com/Ascend310P-Unhealthy": "Ascend310P-3",
    "huawei.com/Ascend310P-Recovering": "",
}
INFO = nodes.DeviceInfo((0, 1), (3,), (), 17)


@pytest.mark.parametrize(
    ("cores", "level", "dvpp", "names"),
    [
        (1, None, None, ("vir01",)),
        (1, "high", "yes", ("vir01",)),
        (2, None, None, ("vir02_1c",)),
        (2, "high", None, ("vir02", "vir02_1c")),
        (4, "low", "null", ("vir04_3c",)),
        (4, "high", None, ("vir04", "vir04_3c")),
        (4, None, "yes", ("vir04_4c_dvpp",)),
        (4, "high", "yes", ("vir04_4c_dvpp",)),
        (4, "high", "no", ("vir04_3c_ndvpp",)),
        (3, None, None, ()),
        (8, "high", None, ()),
    ],
)
def test_templates(cores: int, level: str | None, dvpp: str | None, names: tuple[str, ...]) -> None:
    labels = {keys.LABEL_VNPU_LEVEL: level, keys.LABEL_VNPU_DVPP: dvpp}
    given = {key: value for key, value in labels.items() if value is not None}
    assert mindcluster.templates_for(cores, given) == (names, ())
    assert all(mindcluster.TEMPLATES[name].cores == cores for name in names)


def test_labels_that_cannot_be_meant() -> None:
    names, (warning,) = mindcluster.templates_for(2, {keys.LABEL_VNPU_LEVEL: "mid"})
    assert (names, warning.code) == (("vir02_1c",), "UnknownLevel")
    names, (problem,) = mindcluster.templates_for(2, {keys.LABEL_VNPU_DVPP: "maybe"})
    assert (names, problem.code) == ((), "InvalidRequest")
    assert "'maybe'; wanted: yes, no or null" in problem.message


@pytest.mark.parametrize(
    ("cores", "per_chip", "chips"), [(8, 8, 1), (16, 8, 2), (4, 8, 0), (0, 8, 0), (10, 10, 1)]
)
def test_whole_chips(cores: int, per_chip: int, chips: int) -> None:
    assert mindcluster.whole_chips(cores, per_chip) == chips


@pytest.mark.parametrize("name", ["cluster-info-device-0", "mindx-dl-deviceinfo-n1"])
def test_device_information_of_either_layout(name: str) -> None:
    entry = {"DeviceList": LIST, "UpdateTime": 17}
    if name.startswith("cluster"):
        data = {name: json.dumps({"mindx-dl-deviceinfo-n1": {**entry, "SuperPodID": -2}, "x": 1})}
    else:
        data = {"DeviceInfoCfg": json.dumps({"DeviceInfo": entry, "CheckCode": "abc"})}
    assert nodes.decode_device_infos(name, data, "Ascend310P") == ({"n1": INFO}, ())


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("cluster-info-device-0", {}, "has no key cluster-info-device-0"),
        ("mindx-dl-deviceinfo-n1", {"DeviceInfoCfg": "{"}, "is not JSON"),
        ("mindx-dl-deviceinfo-n1", {"DeviceInfoCfg": "[]"}, "wanted: a mapping"),
        (
            "mindx-dl-deviceinfo-n1",
            {"DeviceInfoCfg": '{"DeviceList": {"huawei.com/Ascend310P": "Ascend910-0"}}'},
            "chip names like Ascend310P-0",
        ),
        (
            "mindx-dl-deviceinfo-n1",
            {"DeviceInfoCfg": '{"DeviceList": {"huawei.com/Ascend310P": 3}}'},
            "wanted: a text",
        ),
    ],
)
def test_broken_device_information(name: str, data: dict[str, str], says: str) -> None:
    found, (problem,) = nodes.decode_device_infos(name, data, "Ascend310P")
    assert found == {}
    assert problem.code == "BrokenDeviceInfo"
    assert says in problem.message


def test_other_config_maps_tell_of_no_devices() -> None:
    assert nodes.decode_device_infos("mindx-dl-nodeinfo-n1", {}, "Ascend310P") == ({}, ())


def test_a_node() -> None:
    base = {keys.NPU_BASE_DEVICES: '{"Ascend310P-0": {}, "Ascend310P-3": {}, "Ascend310P-1": {}}'}
    node = nodes.decode_node({**LABELS, "servertype": "dual310P-8"}, base, 24, INFO)
    assert node.problems == ()
    assert (node.kind, node.cores_per_chip, node.cpu_per_chip, node.dual) == (
        "Ascend310P",
        8,
        7,
        True,
    )
    assert [(c.id, c.index, c.slots, c.cores_pct, c.healthy) for c in node.cards] == [
        ("0", 0, 7, 8, True),
        ("1", 1, 7, 8, True),
        ("3", 3, 7, 8, False),
    ]
    bare = nodes.decode_node(LABELS, {}, 24, INFO)
    assert bare.cards == node.cards
    assert len(nodes.decode_node(LABELS, {}, 32, INFO).cards) == 3, "the fourth may be in use"


@pytest.mark.parametrize(
    ("labels", "annotations", "cores", "info", "says"),
    [
        ({"servertype": "Ascend310P"}, {}, 24, INFO, "like Ascend310P-8"),
        ({"servertype": "Ascend310P-0"}, {}, 24, INFO, "like Ascend310P-8"),
        ({"accelerator": "huawei"}, {}, 24, INFO, "like huawei-Ascend310P"),
        ({"servertype": "Ascend310P-9"}, {}, 27, INFO, "with 9 AI cores a chip is not known"),
        ({}, {}, 20, INFO, "a multiple of 8"),
        ({}, {}, 0, INFO, "a multiple of 8"),
        ({}, {}, 24, None, "is missing; is Huawei's"),
        ({}, {}, 8, INFO, "so 1 chips, but 3 are named"),
        ({}, {keys.NPU_BASE_DEVICES: '{"Ascend310P-0": 1}'}, 24, INFO, "but 1 are named"),
        ({}, {keys.NPU_BASE_DEVICES: "nonsense"}, 24, INFO, "is not JSON"),
    ],
)
def test_nodes_that_are_not_valid(
    labels: dict[str, str],
    annotations: dict[str, str],
    cores: int,
    info: nodes.DeviceInfo | None,
    says: str,
) -> None:
    node = nodes.decode_node({**LABELS, **labels}, annotations, cores, info)
    assert node.cards == ()
    assert any(says in problem.message for problem in node.problems)


def test_a_chip_name_must_be_said() -> None:
    labels = {key: value for key, value in LABELS.items() if key != keys.LABEL_CHIP_NAME}
    (problem,) = nodes.decode_node(labels, {}, 24, INFO).problems
    assert problem.place == "node: label node.kubernetes.io/npu.chip.name"


@pytest.mark.parametrize(
    ("text", "chips", "template"),
    [("0", ("0",), ""), ("0,1", ("0", "1"), ""), ("1-vir01", ("1",), "vir01")],
)
def test_npu_core(text: str, chips: tuple[str, ...], template: str) -> None:
    assert mindcluster.decode_npu_core(text) == mindcluster.Assignment(chips, template)
    held = tuple(Holding("mindcluster", 0, chip, 0, 1, template) for chip in reversed(chips))
    assert mindcluster.binding_annotations(held, 7) == {
        "huawei.com/npu-core": text,
        "predicate-time": "7000000000",
    }


@pytest.mark.parametrize(
    "text", ["", "a", "0,0", "01", "0-", "0-vir99", "0,1-vir01", "-vir01", "٣", "99999"]
)
def test_other_npu_cores_are_refused(text: str) -> None:
    problem = mindcluster.decode_npu_core(text)
    assert isinstance(problem, Problem)
    assert "wanted: chips like 0,1 or a piece like 0-vir02" in problem.message
