"""What Huawei's and HAMi's components put on the Node objects of Ascend chips."""

import json
import uuid

from allotment_local.nodes.device_map import chip_named, shipped
from allotment_local.nodes.shapes import MINDCLUSTER, NodeShape, Npus
from allotment_proto.facts import CardFact
from allotment_proto.volcano import ascend, keys

SOFT_CORES_PCT = 100
_CHIP_NAMES = uuid.UUID("0f6b5d52-7f6e-5a0c-9a0a-6f0b1f6c8a57")
"""Chip ids are derived from this and the node's name: the same in every run."""


def chip_id(node: str, index: int) -> str:
    """An id like a driver's, the same for the same node and index in every run."""
    text = uuid.uuid5(_CHIP_NAMES, f"{node}/{index}").hex.upper()
    return "-".join((text[:8], text[8:16], text[16:24], text[24:], f"{index:08X}"))


def resource_name(common_word: str) -> str:
    """The resource by which chips of a kind are counted, as the shipped configuration has it."""
    chip = chip_named(shipped(), common_word)
    return f"huawei.com/{common_word}" if chip is None else chip.resource_name


def annotations(shape: NodeShape) -> dict[str, str]:
    """What the plugins write on a node of this shape; nothing if it has no Ascend chips."""
    npus = shape.npus
    if npus is None:
        return {}
    if shape.kind == MINDCLUSTER:
        names = [f"{npus.chip}-{index}" for index in range(npus.count)]
        return {keys.NPU_BASE_DEVICES: base_devices(names)}
    register = ascend.encode_register(_register(shape.name, npus))
    out = {keys.hami_register(npus.chip): register}
    if npus.soft:
        out[keys.HAMI_SOFT_SLICING] = "true"
    return out


def base_devices(names: list[str]) -> str:
    """Annotation `baseDeviceInfos` for chips of these names."""
    return json.dumps({name: {"IP": "", "SuperDeviceID": 0} for name in names})


def labels(shape: NodeShape) -> dict[str, str]:
    npus = shape.npus
    if npus is None:
        return {}
    out = {
        keys.LABEL_ACCELERATOR: f"huawei-{npus.chip}",
        keys.LABEL_CHIP_NAME: npus.chip.removeprefix("Ascend"),
    }
    if shape.kind == MINDCLUSTER:
        out[keys.LABEL_SERVER_TYPE] = f"{npus.chip}-{npus.cores}"
    return out


def offered(shape: NodeShape) -> dict[str, str]:
    """What kubelet lists of the node's Ascend chips."""
    npus = shape.npus
    if npus is None:
        return {}
    if shape.kind == MINDCLUSTER:
        return {keys.NPU_CORE: str(npus.count * npus.cores)}
    return {resource_name(npus.chip): str(npus.count * npus.slots)}


def _register(node: str, npus: Npus) -> tuple[CardFact, ...]:
    wired = npus.count // npus.networks if npus.networks else 0
    return tuple(
        CardFact(
            id=chip_id(node, index),
            index=index,
            model=npus.chip,
            slots=npus.slots,
            memory_mib=npus.memory_mib,
            cores_pct=SOFT_CORES_PCT if npus.soft else npus.cores,
            healthy=True,
            mode="",
            network=index // wired if wired else -1,
        )
        for index in range(npus.count)
    )
