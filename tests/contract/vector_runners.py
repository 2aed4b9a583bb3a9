"""What our code says to a vector, next to what the vector expects: field → (expected, got)."""

from collections.abc import Callable, Sequence
from typing import Any

import yaml
from tests import build
from tests.contract.vector_plugin import (
    allocation_complete,
    erase_next_device_request,
    mark,
    select_pending_pod,
)
from tests.contract.vector_scene import (
    NODE,
    Fields,
    Scene,
    holdings_of,
    pending_pod,
    plain,
    pod_source,
    scenario,
    scene_of,
    written,
)
from tests.contract.vectors import Vector

from allotment.core import policy as policy_file
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import (
    Chosen,
    Free,
    Pick,
    card_refusal,
    choose_cards,
)
from allotment.core.ledger import Card, Ledger
from allotment.core.predicates import Fit
from allotment.core.reasons import GPU_MODEL_MISMATCH, GPU_NOT_SELECTED
from allotment.core.scores import score
from allotment_proto.events import (
    BindFailed,
)
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
    PodRequest,
    Policy,
    Selection,
)
from allotment_proto.volcano import gpushare, keys, selection, vgpu


def vgpu_filter(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    scene = scene_of(given)
    found = scene.fit(pending_pod(given["pod"], vgpu.FAMILY))
    said = scene.answer(given["pod"])
    said["fit"] = isinstance(found, Fit)
    if isinstance(found, Fit):
        said["uuid"] = holdings_of(found)[0].card
        said["device_index"] = found.chosen[0].picks[0][0].fact.index
    out: Fields = {
        key: (plain(key, value), plain(key, said.get(key)))
        for key, value in expected.items()
        if key not in ("score_at_most", "error_contains")
    }
    if "score_at_most" in expected:
        out["score_at_most"] = (True, said["score"] <= expected["score_at_most"])
    return out


def vgpu_allocate_sequence(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    scene = scene_of(given)
    cards: list[str] = []
    fitted: list[bool] = []
    for pod in given["pods"]:
        fact = pending_pod(pod, vgpu.FAMILY)
        found = scene.fit(fact)
        fitted.append(isinstance(found, Fit))
        cards.extend(held.card for held in (holdings_of(found) if isinstance(found, Fit) else ()))
        scene.allocate(pod)
    said = {
        "fits": fitted,
        "all_same_device": len(set(cards)) == 1,
        "same_device": len(set(cards)) == 1,
    }
    return {key: (value, said[key]) for key, value in expected.items()}


def decode_container_devices(vector: Vector) -> Fields:
    groups, _ = vgpu.decode_assignment(vector["input"]["text"])
    got = [
        {"uuid": e.card, "type": e.type, "mem": e.memory_mib, "core": e.cores_pct}
        for group in groups
        for e in group
    ]
    return {"devices": (vector["expected"]["devices"], got)}


def encode_node_devices(vector: Vector) -> Fields:
    facts = tuple(
        CardFact(d["id"], i, d["type"], d["count"], d["devmem"], 100, d["health"], d["mode"])
        for i, d in enumerate(vector["input"]["devices"])
    )
    return {"text": (vector["expected"]["text"], vgpu.encode_register(facts))}


def add_pod_usage(vector: Vector) -> Fields:
    given = vector["input"]
    facts = tuple(build.card(d["index"], id=d["uuid"]) for d in given["devices"])
    scene = Scene(vgpu.FAMILY, Inventory(vgpu.FAMILY, given["mode"], facts), "none")
    scene.add({"uid": "p", "annotations": given["pod_annotations"]})
    there = any(card.holders for card in scene.cards())
    return {"pod_on_some_device": (vector["expected"]["pod_on_some_device"], there)}


def container_requests(vector: Vector) -> Fields:
    requests, _ = FAMILIES[vgpu.FAMILY].requests(pod_source(vector["input"]))
    got = [{"nums": r.count, "mem": r.memory_mib} for r in requests]
    return {"requests": (vector["expected"]["requests"], got)}


def gpushare_amount(vector: Vector) -> Fields:
    requests, _ = FAMILIES[gpushare.FAMILY].requests(pod_source(vector["input"]))
    by_memory = vector["function"] == "gpushare_pod_memory"
    got = sum(r.memory_mib if by_memory else r.count for r in requests)
    return {"value": (vector["expected"]["value"], got)}


def _shared(given: dict[str, Any]) -> Ledger:
    facts = tuple(
        CardFact(str(d["id"]), d["id"], gpushare.MODEL, 1_000, d["memory"], 100, True, "")
        for d in given["devices"]
    )
    ledger = Ledger(Inventory(gpushare.FAMILY, "", facts))
    for pod in given["pods"]:
        held = Holding(gpushare.FAMILY, 0, str(pod["device"]), pod["gpu_memory"], 0)
        ledger.charge(pod["uid"], held)
    return ledger


def gpushare_idle_memory(vector: Vector) -> Fields:
    got = {c.fact.id: max(c.free_memory_mib, 0) for c in _shared(vector["input"]).cards}
    return {"idle": (vector["expected"]["idle"], got)}


def _by_index(cards: Sequence[Free], wanted: DeviceRequest) -> Sequence[Free]:
    return cards


def gpushare_candidates(vector: Vector) -> Fields:
    ledger = _shared(vector["input"])
    wanted = build.wants(vector["input"]["request"], 0, family=gpushare.FAMILY)
    family = FAMILIES[gpushare.FAMILY]
    got = [
        card.fact.index
        for card in ledger.cards
        if not isinstance(
            choose_cards(
                ledger, [wanted], Selection(), family, _by_index, only=frozenset((card.fact.id,))
            ),
            str,
        )
    ]
    return {"device_ids": (vector["expected"]["device_ids"], got)}


def _one_card(device: dict[str, Any]) -> Ledger:
    fact = build.card(0, memory_mib=device["memory"], slots=device["count"])
    ledger = Ledger(Inventory(vgpu.FAMILY, "hami-core", (fact,)))
    for uid, used in device.get("pods", {}).items():
        ledger.charge(uid, build.holding("GPU-0", used["used_mem"], used["used_core"]))
    return ledger


def _one_card_books(ledger: Ledger, pod: str = "") -> dict[str, Any]:
    card = ledger.cards[0]
    return {
        "used_num": card.used_slots,
        "used_mem": card.used_memory_mib,
        "used_core": card.used_cores_pct,
        "pod_present": (pod, 0) in card.holders,
    }


def _subset(expected: dict[str, Any], got: dict[str, Any], place: str = "") -> Fields:
    return {place + key: (value, got[key]) for key, value in expected.items()}


def hamicore(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    ledger = _one_card(given["device"])
    holding = build.holding("GPU-0", given["mem"], given["core"])
    names = given.get("pods") or [given["pod"]]
    for name in names:
        ledger.charge(name, holding)
    if vector["function"] != "hamicore_add_sub_add":
        return _subset(expected, _one_card_books(ledger, names[-1]))
    ledger.release(names[0], holding)
    out = _subset(expected["after_sub"], _one_card_books(ledger, names[0]), "after_sub.")
    ledger.charge(names[0], holding)
    return {**out, **_subset(expected["after_readd"], _one_card_books(ledger, names[0]), "again.")}


def card_allowed(vector: Vector) -> Fields:
    given = vector["input"]
    chosen, problems = selection.decode(given["pod_annotations"])
    card = Card(
        build.card(
            0, id=given.get("device_uuid", "GPU-0"), model=given.get("card_type", build.MODEL)
        )
    )
    code = card_refusal(Free(card), build.wants(), chosen, FAMILIES[vgpu.FAMILY])
    refused = code in (GPU_MODEL_MISMATCH, GPU_NOT_SELECTED) or bool(problems)
    return {"allowed": (vector["expected"]["allowed"], not refused)}


def vgpu_device_score(vector: Vector) -> Fields:
    given = vector["input"]
    device = given["device"]
    card = Card(build.card(0, memory_mib=device["memory"]))
    free_mib = device["memory"] - device["used_mem"]
    pick = Pick(card, device["used_num"] == 0, device["used_mem"], free_mib)
    state = build.state_of(build.node(NODE))
    asked = PodRequest()
    found = Fit((Chosen((), (pick,)),))
    policy = Policy(device_policy=given["policy"] or "none", device_weight=1)
    points = dict(score(state.nodes[NODE], asked, found, policy).terms)["device"]
    return {"score": (float(vector["expected"]["score"]), points / 1_000_000)}


def plugin_arguments(vector: Vector) -> Fields:
    plugin = {"name": "deviceshare", "arguments": vector["input"]}
    text = yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": [plugin]}]})
    parsed = policy_file.parse(text, "vector", ("volcano",)).policy
    said = {
        "schedule_policy": parsed.device_policy,
        "schedule_weight": parsed.device_weight,
    }
    return _subset(vector["expected"], said)


def release(vector: Vector) -> Fields:
    """A committed pod keeps its place whatever an outcome says; a speculative one never had our
    annotations on the API server, and the keys that upstream takes back are the ones we write."""
    given, expected = vector["input"], vector["expected"]
    family = gpushare.FAMILY if vector["function"].startswith("gpushare") else vgpu.FAMILY
    removed = expected.get("keys_to_remove", expected.get("keys_to_remove_include"))
    if removed is not None:
        missing = set(removed) - written(family)
        others = set(expected.get("other_annotations_kept", ())) & written(family)
        return {"keys_to_remove": ((set(), set()), (missing, others))}
    state = build.state_of(
        build.node(NODE, [build.card(0, id="GPU-aaaa")]),
        build.pod("p", node=NODE, holdings=(build.holding("GPU-aaaa", 80, 0),)),
        BindFailed(uid="p", namespace="", name="", node=NODE, decision=0, code="", message=""),
    )
    assert given["pod_annotations"][keys.BIND_PHASE] == keys.PHASE_SUCCESS
    return {"annotations_kept": (True, state.pods["p"].allocation is not None)}


def only_our_annotations(vector: Vector) -> Fields:
    """What upstream merges into the Binding or the task, next to what a Binding of ours carries."""
    field = "binding_annotations" if "binding_annotations" in vector["expected"] else "result"
    ours = dict.fromkeys(written(vgpu.FAMILY), ...)
    return {field: (vector["expected"][field], ours)}


RUNNERS: dict[str, Callable[[Vector], Fields]] = {
    "scenario": scenario,
    "vgpu_filter": vgpu_filter,
    "vgpu_allocate_sequence": vgpu_allocate_sequence,
    "decode_container_devices": decode_container_devices,
    "encode_node_devices": encode_node_devices,
    "add_pod_usage": add_pod_usage,
    "container_requests": container_requests,
    "gpushare_pod_memory": gpushare_amount,
    "gpushare_pod_number": gpushare_amount,
    "gpushare_idle_memory": gpushare_idle_memory,
    "gpushare_candidates": gpushare_candidates,
    "hamicore_add_pod": hamicore,
    "hamicore_add_pod_sequence": hamicore,
    "hamicore_add_sub_add": hamicore,
    "gpu_type_allowed": card_allowed,
    "gpu_uuid_allowed": card_allowed,
    "vgpu_device_score": vgpu_device_score,
    "plugin_arguments": plugin_arguments,
    "vgpu_release": release,
    "gpushare_release": release,
    "binding_object": only_our_annotations,
    "task_annotations": only_our_annotations,
    "select_pending_pod": select_pending_pod,
    "erase_next_device_request": erase_next_device_request,
    "mark_success": mark,
    "mark_failed": mark,
    "allocation_complete": allocation_complete,
}
