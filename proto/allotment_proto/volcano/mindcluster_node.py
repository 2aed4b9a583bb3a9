"""The nodes of MindCluster: chips by labels and by the device information of Huawei's components.

Source: volcano `ascend/mindcluster/ascend310p/vnpu` and its `init_policy.go` (deviceshare 2.7).
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from allotment_proto.facts import CardFact, Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano.mindcluster import is_chip
from allotment_proto.volcano.reading import Reading

BROKEN_NODE = "BrokenNpuNode"
BROKEN_INFO = "BrokenDeviceInfo"
AI_CPU = {
    ("310P", 8): 7,
    ("310P", 10): 7,
    ("910B1", 25): 6,
    ("910B2", 24): 6,
    ("910B2C", 24): 6,
    ("910B3", 20): 6,
    ("910B4", 20): 6,
}
"""AI CPUs of a chip by its name and AI cores."""


class DeviceInfo(msgspec.Struct, frozen=True):
    """What Huawei's components say of a node's chips, by number."""

    available: tuple[int, ...]
    unhealthy: tuple[int, ...] = ()
    recovering: tuple[int, ...] = ()
    updated_s: int = 0


class Node(msgspec.Struct, frozen=True):
    """A node's chips. With problems of code ``BrokenNpuNode`` there are none."""

    cards: tuple[CardFact, ...] = ()
    kind: str = ""
    cores_per_chip: int = 0
    cpu_per_chip: int = 0
    dual: bool = False
    problems: tuple[Problem, ...] = ()


def decode_node(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    npu_cores: int,
    info: DeviceInfo | None,
) -> Node:
    """The chips of a node that lists `npu_cores` of ``huawei.com/npu-core`` as its capacity.

    Chips are those of the annotation `baseDeviceInfos`; without it, those that `info` names, which
    may leave out chips in use. A card's id is the chip's number, `cores_pct` its AI cores, `slots`
    its AI CPUs (no piece takes less than one). A chip that is unhealthy or recovering is kept,
    marked.
    """
    reading = Reading("node", BROKEN_NODE)
    server = reading.text(labels, "label", keys.LABEL_SERVER_TYPE)
    cores = _second_field(server)
    if not (cores.isascii() and cores.isdigit() and len(cores) <= 3 and int(cores)):
        reading.fail(f"label {keys.LABEL_SERVER_TYPE}", server, "like Ascend310P-8")
        return Node(problems=tuple(reading.problems))
    per_chip = int(cores)
    accelerator = labels.get(keys.LABEL_ACCELERATOR, "")
    kind = _second_field(accelerator)
    if not kind:
        reading.fail(f"label {keys.LABEL_ACCELERATOR}", accelerator, "like huawei-Ascend310P")
    if keys.LABEL_CHIP_NAME not in labels:
        reading.say(f"label {keys.LABEL_CHIP_NAME}", "is missing; wanted: the chip's name")
    cpu = AI_CPU.get((kind.removeprefix("Ascend"), per_chip)) or AI_CPU.get(
        (labels.get(keys.LABEL_CHIP_NAME, "").removeprefix("Ascend"), per_chip), 0
    )
    if kind and not cpu:
        reading.say("labels", f"{kind} with {per_chip} AI cores a chip is not known")
    if npu_cores < 1 or npu_cores % per_chip:
        wanted = f"a multiple of {per_chip} (AI cores of a chip) above 0"
        reading.fail(f"capacity {keys.NPU_CORE}", npu_cores, wanted)
    if info is None:
        reading.say("device information", "is missing; is Huawei's device plugin running?")
        info = DeviceInfo(())
    base = _base_chips(reading, annotations, kind)
    chips = base or tuple(sorted({*info.available, *info.unhealthy, *info.recovering}))
    count = npu_cores // per_chip
    if not reading.problems and (len(chips) > count or (base is not None and len(base) < count)):
        reading.say(
            f"capacity {keys.NPU_CORE}",
            f"is {npu_cores}, so {count} chips, but {len(chips)} are named",
        )
    if reading.problems:
        return Node(problems=tuple(reading.problems))
    ailing = {*info.unhealthy, *info.recovering}
    cards = tuple(
        CardFact(
            id=str(chip),
            index=chip,
            model=kind,
            slots=cpu,
            memory_mib=0,
            cores_pct=per_chip,
            healthy=chip not in ailing,
            mode="",
        )
        for chip in chips
    )
    return Node(cards, kind, per_chip, cpu, server.startswith("dual"))


def decode_device_infos(
    name: str, data: Mapping[str, str], kind: str
) -> tuple[dict[str, DeviceInfo], tuple[Problem, ...]]:
    """Device information by node, from a ConfigMap of either layout; others hold none.

    ``cluster-info-device-…`` has all nodes under its own name as the key;
    ``mindx-dl-deviceinfo-<node>`` has one node under `DeviceInfoCfg`.
    """
    reading = Reading(f"ConfigMap {name}", BROKEN_INFO)
    found: dict[str, DeviceInfo] = {}
    if name.startswith(keys.CLUSTER_INFO_DEVICE_PREFIX):
        document = _json(reading, data, name)
        for key in sorted(document):
            if key.startswith(keys.DEVICE_INFO_PREFIX):
                entry = reading.mapping(document[key], key)
                found[key.removeprefix(keys.DEVICE_INFO_PREFIX)] = _info(reading, entry, key, kind)
    elif name.startswith(keys.DEVICE_INFO_PREFIX):
        document = _json(reading, data, keys.DEVICE_INFO_KEY)
        inner = document.get("DeviceInfo", document)
        entry = reading.mapping(inner, keys.DEVICE_INFO_KEY)
        node = name.removeprefix(keys.DEVICE_INFO_PREFIX)
        found[node] = _info(reading, entry, keys.DEVICE_INFO_KEY, kind)
    return ({} if reading.problems else found), tuple(reading.problems)


def _second_field(text: str) -> str:
    return text.split("-")[1] if "-" in text else ""


def _json(reading: Reading, data: Mapping[str, str], key: str) -> Mapping[str, Any]:
    if key not in data:
        reading.say("", f"has no key {key}")
        return {}
    try:
        document = json.loads(data[key], parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        reading.say(key, f"is not JSON: {error}")
        return {}
    return reading.mapping(document, key)


def _info(reading: Reading, entry: Mapping[str, Any], place: str, kind: str) -> DeviceInfo:
    listed = reading.mapping(entry.get("DeviceList"), f"{place}.DeviceList")

    def chips(key: str) -> tuple[int, ...]:
        return _chips(reading, reading.text(listed, f"{place}.DeviceList", key), place, kind)

    return DeviceInfo(
        available=chips(keys.npu_healthy(kind)),
        unhealthy=chips(keys.npu_unhealthy(kind)),
        recovering=chips(keys.npu_recovering(kind)),
        updated_s=reading.whole(entry, place, "UpdateTime", most=1 << 62),
    )


def _chips(reading: Reading, text: str, place: str, kind: str) -> tuple[int, ...]:
    """Chip numbers of a list of names; names with more parts are pieces, not chips."""
    found: set[int] = set()
    for name in (word.strip() for word in text.split(",")):
        parts = name.split("-")
        if len(parts) == 2 and parts[0] == kind and is_chip(parts[1]):
            found.add(int(parts[1]))
        elif name and len(parts) < 3:
            reading.fail(place, name, f"chip names like {kind}-0")
    return tuple(sorted(found))


def _base_chips(
    reading: Reading, annotations: Mapping[str, str], kind: str
) -> tuple[int, ...] | None:
    if keys.NPU_BASE_DEVICES not in annotations:
        return None
    document = _json(reading, annotations, keys.NPU_BASE_DEVICES)
    return _chips(reading, ",".join(document), f"annotation {keys.NPU_BASE_DEVICES}", kind)
