"""Ascend chips for tests: nodes and pods as their device plugins and users write them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.ascend import slice_mode
from allotment.core.placement.devices.base import ContainerSource, NodeSource, PodSource
from allotment_proto.device_config import AscendChip, AscendTemplate, DeviceConfig
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Inventory, PodRequest, Problem, Selection
from allotment_proto.volcano import keys
from tests import build

P310 = AscendChip(
    common_word="Ascend310P",
    chip_name="310P3",
    resource_name="huawei.com/Ascend310P",
    resource_memory_name="huawei.com/Ascend310P-memory",
    memory_allocatable_mib=21527,
    memory_capacity_mib=24576,
    ai_core=8,
    ai_cpu=7,
    templates=(
        AscendTemplate("vir01", 3072, 1, 1),
        AscendTemplate("vir02", 6144, 2, 2),
        AscendTemplate("vir04", 12288, 4, 4),
    ),
)
B910 = AscendChip(
    common_word="Ascend910B3",
    chip_name="910B3",
    resource_name="huawei.com/Ascend910B3",
    resource_memory_name="huawei.com/Ascend910B3-memory",
    memory_allocatable_mib=65536,
    memory_capacity_mib=65536,
    ai_core=20,
    ai_cpu=7,
    templates=(
        AscendTemplate("vir05_1c_16g", 16384, 5, 1),
        AscendTemplate("vir10_3c_32g", 32768, 10, 3),
    ),
)
CONFIG = DeviceConfig(ascend=(B910, P310))
SIZES = {P310.common_word: (7, 21527, 8), B910.common_word: (4, 65536, 20)}
"""Slots, MiB and AI cores of a chip as it registers."""


def entry(card_id: str, word: str = "Ascend310P", network: int = -1, **changes: Any) -> Any:
    """One chip in a register."""
    slots, memory_mib, cores = SIZES[word]
    values = {"id": card_id, "count": slots, "devmem": memory_mib, "devcore": cores, "type": word}
    info = {"custominfo": {"NetworkID": network}} if network >= 0 else {}
    return {**values, "health": True, **info, **changes}


def ascend_source(
    *entries: Any, annotations: Mapping[str, str] | None = None, config: DeviceConfig = CONFIG
) -> NodeSource:
    """A node on which the plugins of all kinds registered these chips."""
    words = {item["type"] for item in entries}
    registers = {
        keys.hami_register(word): json.dumps([item for item in entries if item["type"] == word])
        for word in words
    }
    allocatable = {f"huawei.com/{word}": "28" for word in words}
    return NodeSource({**registers, **(annotations or {})}, {}, allocatable, "n1", config=config)


def npu_source(
    chips: int = 2,
    cores: int = 8,
    unhealthy: Sequence[int] = (),
    annotations: Mapping[str, str] | None = None,
    **changes: Any,
) -> NodeSource:
    """A node of MindCluster with so many chips."""
    device_list = {
        "huawei.com/Ascend310P": ",".join(f"Ascend310P-{n}" for n in range(chips)),
        "huawei.com/Ascend310P-Unhealthy": ",".join(f"Ascend310P-{n}" for n in unhealthy),
    }
    name = "cluster-info-device-0"
    values: dict[str, Any] = {
        "annotations": annotations or {},
        "capacity": {keys.NPU_CORE: str(chips * cores)},
        "allocatable": {keys.NPU_CORE: str(chips * cores)},
        "name": "n1",
        "labels": {
            keys.LABEL_SERVER_TYPE: f"Ascend310P-{cores}",
            keys.LABEL_ACCELERATOR: "huawei-Ascend310P",
            keys.LABEL_CHIP_NAME: "310P3",
        },
        "device_info": {
            f"mindx-dl/{name}/{name}": json.dumps(
                {"mindx-dl-deviceinfo-n1": {"DeviceList": device_list, "UpdateTime": 1}}
            )
        },
    }
    return NodeSource(**{**values, **changes})


def inventory(family: str, source: NodeSource) -> Inventory:
    """The cards of a node on which nothing is wrong."""
    found, problems = FAMILIES[family].inventory(source)
    assert found is not None
    assert problems == ()
    return found


def node(name: str, *inventories: Inventory, **changes: Any) -> NodeObserved:
    return build.node(name, 0, inventories=inventories, **changes)


def pod_source(
    *limits: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    config: DeviceConfig = CONFIG,
) -> PodSource:
    """A pod with a container for each of these limits."""
    containers = [ContainerSource(f"c{n}", one, one) for n, one in enumerate(limits)]
    return PodSource(annotations or {}, containers, [], labels or {}, config)


def request(family: str, source: PodSource) -> PodRequest:
    """What a pod with a good request asks for."""
    wanted, problem = FAMILIES[family].requests(source)
    assert problem is None
    assert wanted
    mode = slice_mode(source.annotations) if family == "ascend" else None
    return build.request(*wanted, selection=Selection(mode=mode))


def problem_of(family: str, source: PodSource) -> Problem:
    """What is wrong with a pod's request."""
    wanted, problem = FAMILIES[family].requests(source)
    assert problem is not None
    assert wanted == ()
    return problem


def pod(uid: str, family: str, source: PodSource, **changes: Any) -> PodObserved:
    return build.pod(uid, request(family, source), **changes)


def asks(word: str = "Ascend310P", number: int = 1, **amounts: int) -> dict[str, str]:
    """Limits like ``asks(memory=3072, core=20)``."""
    name = f"huawei.com/{word}"
    return {name: str(number), **{f"{name}-{key}": str(n) for key, n in amounts.items()}}


def npu(cores: int) -> dict[str, str]:
    return {keys.NPU_CORE: str(cores)}


SOFT = {keys.VNPU_MODE: keys.MODE_HAMI_CORE}
