"""Node shapes: what the YAML means, and what is said about every way to get it wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NodeSource
from allotment_local.nodes.annotations import ALLOCATE_TIME, Mistake, duration_s
from allotment_local.nodes.device_map import shipped
from allotment_local.nodes.inventory import read_hardware
from allotment_local.nodes.objects import card_id, node_objects
from allotment_local.nodes.shape_reader import (
    ShapesError,
    default_shapes,
    parse_shapes,
    read_shapes,
)
from allotment_proto.volcano import keys, vgpu

NOW = "2026-01-01T00:00:00Z"


def nodes(text: str) -> dict[str, dict[str, Any]]:
    made = node_objects(parse_shapes(text, "nodes.yaml"), NOW)
    return {node["metadata"]["name"]: node for node in made}


def problems(text: str) -> list[str]:
    with pytest.raises(ShapesError) as caught:
        parse_shapes(text, "nodes.yaml")
    return caught.value.problems


def test_the_default_cluster_is_mixed() -> None:
    made = {node["metadata"]["name"]: node for node in node_objects(default_shapes(), NOW)}
    shown = {
        name: {k: v for k, v in node["status"]["allocatable"].items() if "/" in k}
        for name, node in made.items()
    }
    assert shown == {
        "gpu-rtx4090": vgpu_amounts(80, 8 * 24564, 800),
        "gpu-a100": vgpu_amounts(80, 8 * 40960, 800),
        "gpu-v100": vgpu_amounts(40, 4 * 32768, 400),
        "gpu-t4": vgpu_amounts(40, 4 * 15360, 400),
        "gpu-mig": vgpu_amounts(28, 4 * 81920, 400),
        "gpu-mps": vgpu_amounts(20, 2 * 46068, 200),
        "gpu-whole": {"nvidia.com/gpu": "8"},
        "gpu-share": {keys.GPU_MEMORY: str(4 * 16384), keys.GPU_NUMBER: "4"},
        "npu-910b": {"huawei.com/Ascend910B3": "32"},
        "npu-310p": {keys.NPU_CORE: "32"},
        "cpu": {},
    }
    registers = (
        (node["metadata"].get("annotations") or {}).get(keys.NODE_VGPU_REGISTER)
        for node in made.values()
    )
    assert {vgpu.decode_register(text).cards[0].model for text in registers if text} == {
        "NVIDIA-NVIDIA GeForce RTX 4090",
        "NVIDIA-NVIDIA A100-PCIE-40GB",
        "NVIDIA-Tesla V100-SXM2-32GB",
        "NVIDIA-Tesla T4",
        "NVIDIA-NVIDIA A100-SXM4-80GB",
        "NVIDIA-NVIDIA L40S",
    }


def vgpu_amounts(number: int, memory_mib: int, cores: int) -> dict[str, str]:
    return {
        keys.VGPU_NUMBER: str(number),
        keys.VGPU_MEMORY: str(memory_mib),
        keys.VGPU_CORES: str(cores),
    }


def test_a_node_says_how_long_its_device_plugins_take() -> None:
    made = nodes("- {name: slow, allocate_ms: 300}\n- {name: quick, allocate_ms: 0}\n- {name: any}")
    times = {
        name: (node["metadata"].get("annotations") or {}).get(ALLOCATE_TIME)
        for name, node in made.items()
    }
    assert times == {"slow": "300ms", "quick": "0ms", "any": None}


def test_a_prefix_makes_several_nodes_with_cards_of_their_own() -> None:
    made = nodes(
        """
        - prefix: g
          count: 3
          gpus: {model: Tesla T4, count: 2, memory_mib: 15360}
          cpu: 8
          memory: 64Gi
          labels: {zone: a}
          taints: [{key: gpu, value: "yes", effect: NoExecute}, {key: other}]
        """
    )
    assert list(made) == ["g-0", "g-1", "g-2"]
    node = made["g-1"]
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "Tesla-T4"
    assert node["spec"]["taints"] == [
        {"key": "gpu", "value": "yes", "effect": "NoExecute"},
        {"key": "other", "effect": "NoSchedule"},
    ]
    ids = {
        card.id
        for each in made.values()
        for card in vgpu.decode_register(
            each["metadata"]["annotations"][keys.NODE_VGPU_REGISTER]
        ).cards
    }
    assert ids == {card_id(name, index) for name in made for index in (0, 1)}
    assert len(ids) == 6


def test_every_family_reads_its_default_node_without_a_complaint() -> None:
    config = shipped()
    for node in node_objects(default_shapes(), NOW):
        metadata, status = node["metadata"], node["status"]
        hardware = read_hardware(node, config)
        chips = tuple(card.index for card in hardware.chips)
        listed = ",".join(f"Ascend310P-{index}" for index in chips)
        source = NodeSource(
            metadata.get("annotations") or {},
            status["capacity"],
            status["allocatable"],
            metadata["name"],
            metadata["labels"],
            config,
            {
                "mindx-dl/mindx-dl-deviceinfo-npu-310p/DeviceInfoCfg": json.dumps(
                    {"DeviceList": {"huawei.com/Ascend310P": listed}}
                )
            },
        )
        found = [family.inventory(source) for family in FAMILIES.values()]
        assert [problems for _, problems in found] == [()] * len(found), metadata["name"]
        cards = [card for inventory, _ in found if inventory for card in inventory.cards]
        books = (hardware.vgpu, hardware.gpushare, hardware.ascend, hardware.chips)
        assert [card.id for card in cards] == [card.id for part in books for card in part]


def test_card_ids_never_change() -> None:
    """Examples and recorded logs name cards."""
    assert card_id("gpu-t4", 0) == "GPU-e8257a7c-5d10-5cb5-b728-359ce8443ff8"


def test_the_plugins_prefix_may_be_written_or_left_out() -> None:
    for model in ("Tesla T4", "NVIDIA-Tesla T4"):
        text = f"- {{name: n, gpus: {{model: {model}, count: 1, memory_mib: 1}}}}"
        register = nodes(text)["n"]["metadata"]["annotations"][keys.NODE_VGPU_REGISTER]
        assert vgpu.decode_register(register).cards[0].model == "NVIDIA-Tesla T4"


GPUS = "gpus: {model: M, count: 1, memory_mib: 1}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "nodes.yaml:1: the document is missing; wanted: a list of nodes: - name: gpu-0 …"),
        ("{}", "nodes.yaml:1: the document is {}; wanted: a list of nodes: - name: gpu-0 …"),
        ("- name: [", "nodes.yaml:1: not valid YAML: expected the node content, but found '<str"),
        ("- a", "nodes.yaml:1: [0] is 'a'; wanted: a mapping of names to values"),
        ("- {cpu: 1}", "nodes.yaml:1: [0].name is missing; wanted: either name, or prefix w"),
        ("- name: N", "nodes.yaml:1: [0].name is 'N'; wanted: lower case letters, digits, -"),
        (
            "- name: n\n  count: 2",
            "nodes.yaml:2: [0].count is 2; wanted: prefix instead of name for several nodes",
        ),
        ("- prefix: n\n  count: 0", "nodes.yaml:2: [0].count is 0; wanted: a whole number from 1 "),
        (
            "- name: n\n  kind: gpu",
            "nodes.yaml:2: [0].kind is 'gpu'; wanted: one of vgpu, gpushare",
        ),
        ("- name: n\n  kind: vgpu", "nodes.yaml:1: [0].gpus is missing; wanted: the cards, as k"),
        (
            f"- name: n\n  {GPUS}\n  kind: cpu",
            "nodes.yaml:2: [0].gpus is '…'; wanted: no gpus on a",
        ),
        (
            "- name: n\n  allocate_ms: -1",
            "nodes.yaml:2: [0].allocate_ms is -1; wanted: a whole numbe",
        ),
        (
            "- name: n\n  cpu: many",
            "nodes.yaml:2: [0].cpu is 'many'; wanted: cores like 64 or 500m",
        ),
        (
            "- name: n\n  memory: -1Gi",
            "nodes.yaml:2: [0].memory is '-1Gi'; wanted: bytes like 256G",
        ),
        ("- name: n\n  spped: 1", "nodes.yaml:2: [0].spped is not known; known are name, prefix"),
        ("- name: n\n  labels: {a: 1}", "nodes.yaml:2: [0].labels.a is 1; wanted: a text like"),
        (
            "- name: n\n  taints: {}",
            "nodes.yaml:2: [0].taints is {}; wanted: a list of {key, value",
        ),
        (
            "- name: n\n  taints:\n  - {key: k, effect: Never}",
            "nodes.yaml:3: [0].taints[0].effect is 'Never'; wanted: one of NoSchedule",
        ),
        ("- name: n\n  name: m", "nodes.yaml:2: [0].name: 'name' is repeated; wanted: each key"),
        ("- name: n\n- name: n", "nodes.yaml:2: [1]: 'n' is taken; wanted: a name for each node"),
        (
            "- name: n\n  gpus:\n    model: a,b\n    count: 1\n    memory_mib: 1",
            "nodes.yaml:3: [0].gpus.model is 'a,b'; wanted: a card's name, without , : or ;",
        ),
        (
            "- name: n\n  gpus: {model: M, count: 1.5, memory_mib: 1}",
            "nodes.yaml:2: [0].gpus.count is 1.5; wanted: a whole number from 1 to 64",
        ),
        (
            "- name: n\n  gpus: {model: M, count: 1, memory_mib: 1, resource: nvidia.com/gpu}",
            "nodes.yaml:2: [0].gpus.resource is 'nvidia.com/gpu'; wanted: a resource like nvidia.c",
        ),
        (
            "- name: n\n  gpus: {model: Tesla T4, count: 1, memory_mib: 1, mode: mig}",
            "nodes.yaml:2: [0].gpus.model is 'Tesla T4'; wanted: with mode mig a model that has a "
            "table in the device configuration: A30, A100-SXM4-40GB",
        ),
        (
            "- name: n\n  gpus: {model: M, count: 1, memory_mib: 1, mode: shared}",
            "nodes.yaml:2: [0].gpus.mode is 'shared'; wanted: one of hami-core, mig, mps",
        ),
        (
            "- name: n\n  kind: whole\n  gpus: {model: M, count: 1, memory_mib: 1, mode: mps}",
            "nodes.yaml:3: [0].gpus.mode is 'mps'; wanted: no mode on a node of kind whole",
        ),
        ("- name: n\n  kind: ascend", "nodes.yaml:1: [0].npus is missing; wanted: the chips, as"),
        (
            "- name: n\n  npus: {chip: Ascend310P, count: 1, memory_mib: 1}",
            "nodes.yaml:2: [0].npus is '…'; wanted: no npus on a node of kind cpu",
        ),
        (
            "- name: n\n  kind: ascend\n  npus: {chip: 910B, count: 1, memory_mib: 1}",
            "nodes.yaml:3: [0].npus.chip is '910B'; wanted: a chip like Ascend910B3",
        ),
        (
            "- name: n\n  kind: ascend\n  npus: {chip: Ascend910B3, count: 4, memory_mib: 1, "
            "networks: 3}",
            "nodes.yaml:3: [0].npus.networks is 3; wanted: as many chips in each: a divisor of 4",
        ),
        (
            "- name: n\n  kind: ascend\n  npus: {chip: Ascend910B3, count: 4, memory_mib: 1, "
            "soft: maybe}",
            "nodes.yaml:3: [0].npus.soft is 'maybe'; wanted: true or false",
        ),
        (
            "- name: n\n  kind: mindcluster\n  npus: {chip: Ascend310P, count: 4, cores: 9}",
            "nodes.yaml:3: [0].npus.chip is 'Ascend310P with 9 cores'; wanted: Ascend310P with 8 c",
        ),
        (
            "- name: n\n  kind: mindcluster\n  npus: {chip: Ascend310P, count: 4, memory_mib: 9}",
            "nodes.yaml:3: [0].npus.memory_mib is not known; known are chip, count, cores",
        ),
        (
            "- prefix: n\n  count: 5000\n- name: x",
            "nodes.yaml:1: the document is 5001; wanted: at m",
        ),
    ],
)
def test_every_mistake_is_named_with_its_place(text: str, expected: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(expected)


def test_all_mistakes_are_reported_at_once() -> None:
    assert len(problems("- name: N\n  cpu: x\n- name: n\n  kind: k\n- 7")) == 4


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShapesError, match=r"gone\.yaml: cannot be read"):
        read_shapes(tmp_path / "gone.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5.0),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("0", 0.0),
        ("1.5s", 1.5),
        ("+.5s", 0.5),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert duration_s("key", text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1d", "5 s", "9999999h", "1s!", "ms5"])
def test_what_is_no_duration_is_a_mistake(text: str) -> None:
    assert isinstance(duration_s("key", text), Mistake)
