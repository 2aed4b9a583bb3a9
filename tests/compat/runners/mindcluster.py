"""Ascend 310P chips through MindCluster: one node, and pods that ask for AI cores of it."""

import json
from collections.abc import Mapping
from typing import Any

from allotment.core.ledger.ledger import Card
from allotment_proto.volcano import keys
from allotment_proto.volcano import mindcluster as wire
from tests.compat.file import Vector
from tests.compat.runners.base import CannotRun, Fields, compared
from tests.compat.runners.world import NODE, World, inventory_of, policy_of

FAMILY = wire.FAMILY
KIND = "Ascend310P"
INFO = f"{keys.CLUSTER_INFO_DEVICE_PREFIX}0"


def scenario(vector: Vector) -> Fields:
    """Steps in order on one node. A refusal is Volcano's code 1, whatever the reason."""
    expected = dict(vector.expected)
    expected.pop("freeAfter_format", None)
    wanted = expected.pop("steps")
    world = _node(vector.input)
    out = compared(expected, {})
    said = [_step(world, step) for step in vector.input["steps"]]
    out["steps"] = (len(wanted), len(said))
    for number, (step, got) in enumerate(zip(wanted, said, strict=False)):
        if vector.nondeterministic:
            step, got = _any_chip(step), _any_chip(got)
        out |= _compared(step, got, f"steps[{number}].")
    return out


def _node(given: Mapping[str, Any]) -> World:
    chips, per_chip = given["chips"], given["per_chip"]
    names = ",".join(f"{KIND}-{number}" for number in range(chips))
    info = {f"{keys.DEVICE_INFO_PREFIX}{NODE}": {"DeviceList": {keys.npu_healthy(KIND): names}}}
    node = {
        "name": NODE,
        "capacity": {keys.NPU_CORE: str(chips * per_chip["aicore"])},
        "labels": {
            keys.LABEL_SERVER_TYPE: given["server_type"],
            keys.LABEL_ACCELERATOR: f"huawei-{KIND}",
            keys.LABEL_CHIP_NAME: "310P3",
        },
        "device_info": {f"{keys.MINDX_NAMESPACE}/{INFO}/{INFO}": json.dumps(info)},
    }
    inventory = inventory_of(FAMILY, node)
    if inventory is None:
        raise CannotRun(f"{given['server_type']} with {chips} chips is no node of MindCluster")
    world = World(FAMILY, inventory, policy_of("binpack"))
    start = f"{per_chip['aicore']}/{per_chip['aicpu']}/{per_chip['free_dvpp']}"
    if any(_free(card) != start for card in world.cards):
        raise CannotRun(f"chips of {given['server_type']} are not {start} when nothing is used")
    return world


def _step(world: World, step: Mapping[str, Any]) -> dict[str, Any]:
    cores = str(step.get("cores", 0))
    amounts = {keys.NPU_CORE: cores}
    pod = {
        "name": step["pod"],
        "labels": {keys.LABEL_RING: keys.RING_310P, **(step.get("labels") or {})},
        "containers": [{"limits": amounts, "requests": amounts}],
    }
    said: dict[str, Any] = {"op": step["op"], "npu-core": None, "error": None, "code": 0}
    match step["op"]:
        case "filter":
            found = world.fit(world.fact(pod))
            refusal = found if isinstance(found, str) else None
        case "allocate":
            answer = world.allocate(pod)
            refusal = answer if isinstance(answer, str) else None
            said["npu-core"] = None if isinstance(answer, str) else answer.get(keys.NPU_CORE)
        case "release" | "sub":
            refusal = None
            if not world.bind_fails(step["pod"]):
                world.remove(step["pod"])
        case other:
            raise CannotRun(f"step {other!r} is none of filter, allocate, release, sub")
    if refusal is not None:
        said |= {"code": 1, "error": refusal}
    return {**said, "freeAfter": [_free(card) for card in world.cards]}


def _free(card: Card) -> str:
    """AI cores, AI CPUs and the media engine that are free."""
    cpu, engine = card.fact.slots, "yes"
    for held in card.holders.values():
        template = wire.TEMPLATES.get(held.instance)
        if template is None:
            return "0/0/null"
        cpu -= template.cpu
        if template.dvpp == "yes":
            engine = "no"
        elif template.dvpp == "null" and engine == "yes":
            engine = "null"
    return f"{card.free_cores_pct}/{cpu}/{engine}"


def _any_chip(step: Mapping[str, Any]) -> dict[str, Any]:
    """The step as if chips had no numbers: which of equal chips is taken is chance."""
    out = dict(step)
    if out.get("freeAfter") is not None:
        out["freeAfter"] = sorted(out["freeAfter"])
    if out.get("npu-core"):
        chips, dash, template = out["npu-core"].partition("-")
        out["npu-core"] = f"{len(chips.split(','))} chips{dash}{template}"
    return out


def _compared(expected: Mapping[str, Any], said: Mapping[str, Any], place: str) -> Fields:
    """Texts are Volcano's: what counts is that both refuse. Not every refusal has a message."""
    rest = dict(expected)
    refusal = said["error"]
    out: Fields = {}
    if "error" in rest:
        text = rest.pop("error")
        out[f"{place}error"] = (text, text if bool(text) == (refusal is not None) else refusal)
    elif refusal is not None and expected["op"] == "allocate":
        out[f"{place}error"] = (None, refusal)
    if text := rest.pop("message", ""):
        out[f"{place}message"] = (text, text if refusal is not None else "")
    return {**out, **compared(rest, said, place)}
