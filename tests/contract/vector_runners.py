"""What our code says to a vector, next to what the vector expects: field → (expected, got)."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import yaml
from tests import build
from tests.contract.vectors import Vector

from allotment.core import policy as policy_file
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import (
    Chosen,
    ContainerSource,
    Free,
    NodeSource,
    Pick,
    PodSource,
    card_refusal,
    choose_cards,
)
from allotment.core.ledger import Card, Ledger
from allotment.core.predicates import Fit, fits
from allotment.core.reasons import GPU_MODEL_MISMATCH, GPU_NOT_SELECTED
from allotment.core.scores import score
from allotment.core.state import ClusterState, apply
from allotment_local.nodes.books import Books
from allotment_local.nodes.inventory import Hardware
from allotment_local.nodes.pending import Pending, Waiting
from allotment_local.nodes.plugins import Plugins
from allotment_proto.events import (
    BindFailed,
    PodGone,
    PodObserved,
    PolicyLoaded,
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

Fields = dict[str, tuple[Any, Any]]
NODE = "node-1"
IGNORED = frozenset(
    (
        "op",
        "message",  # Volcano's texts: ours are reason codes
        "error",
        "metrics",
        "metricsAfterExisting",
        "reservation",
    )
)


def pod_source(pod: dict[str, Any]) -> PodSource:
    def containers(key: str) -> list[ContainerSource]:
        return [
            ContainerSource(f"c{i}", c.get("limits") or {}, c.get("requests") or {})
            for i, c in enumerate(pod.get(key) or ())
        ]

    return PodSource(
        pod.get("annotations") or {}, containers("containers"), containers("initContainers")
    )


def pending_pod(pod: dict[str, Any], family: str) -> PodObserved:
    """The fact that a watcher would record: the request, or what is wrong with it."""
    source = pod_source(pod)
    wanted, problem = FAMILIES[family].requests(source)
    chosen, problems = selection.decode(source.annotations)
    if problem is None and wanted and problems:
        problem = problems[0]
    request = PodRequest(devices=wanted, selection=chosen)
    return build.pod(pod.get("uid", "p"), request, problem=problem)


class Scene:
    """One node with its device objects, as a scenario builds it, played on the real fold."""

    def __init__(self, family: str, inventory: Inventory, policy: str) -> None:
        self.family = family
        self.state = ClusterState()
        self.seq = 0
        self.policy = Policy(device_policy=policy, device_weight=1)
        self.observe(PolicyLoaded(policy=self.policy, source="vector", text_sha256=""))
        self.observe(build.node(NODE, 0, inventories=(inventory,), pods=1_000))

    def observe(self, event: Any) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)

    def add(self, pod: dict[str, Any]) -> None:
        """A pod that is bound, by whomever, as its annotations say."""
        holdings, _ = FAMILIES[self.family].holdings(pod_source(pod))
        fact = pending_pod(pod, self.family)
        ended = pod.get("phase") in ("Succeeded", "Failed")
        self.observe(
            msgspec.structs.replace(
                fact,
                node=NODE,
                holdings=holdings,
                phase=pod["phase"] if ended else "Running",
                rv=self.seq,
            )
        )

    def fit(self, fact: PodObserved) -> Fit | str:
        if fact.problem is not None:
            return fact.problem.code
        return fits(self.state.nodes[NODE], fact.request, self.policy)

    def answer(self, pod: dict[str, Any]) -> dict[str, Any]:
        """A filter step."""
        fact = pending_pod(pod, self.family)
        found = self.fit(fact)
        said: dict[str, Any] = {
            "hasRequest": bool(fact.request.devices),
            "code": 0 if isinstance(found, Fit) else 2,
        }
        if isinstance(found, Fit):
            points = score(self.state.nodes[NODE], fact.request, found, self.policy)
            said["score"] = dict(points.terms)["device"] / 1_000_000
            said["wouldAllocate"] = vgpu.encode_assignment(_holdings(found))
        return said

    def allocate(self, pod: dict[str, Any]) -> dict[str, Any]:
        fact = pending_pod(pod, self.family)
        found = self.fit(fact)
        self.observe(fact)
        if not isinstance(found, Fit):
            return {"annotations": None}
        holdings = _holdings(found)
        place = build.placement(fact.uid, NODE, cpu_milli=0, memory_bytes=0)
        self.observe(build.decided(msgspec.structs.replace(place, holdings=holdings)))
        if not holdings:
            return {"annotations": {}}
        return {"annotations": FAMILIES[self.family].annotations(NODE, holdings, 1, 1)}

    def release(self, pod: dict[str, Any]) -> None:
        """What was reserved is given back; what is bound goes with its pod."""
        uid = pod["uid"]
        held = self.state.pods[uid].allocation if uid in self.state.pods else None
        if held is not None and held.phase == "reserved":
            self.observe(
                BindFailed(
                    uid=uid,
                    namespace="",
                    name="",
                    node=NODE,
                    decision=held.seq,
                    code="",
                    message="",
                )
            )
        else:
            self.observe(PodGone(uid=uid, namespace="", name="", rv=self.seq))

    def cards(self) -> list[Card]:
        return self.state.nodes[NODE].ledgers[self.family].cards

    def books(self) -> list[dict[str, Any]]:
        """The state of the cards, as the vectors write it."""
        if self.family == gpushare.FAMILY:
            return [
                {
                    "id": card.fact.index,
                    "idle": max(card.free_memory_mib, 0),
                    "memory": card.fact.memory_mib,
                    "pods": sorted({uid for uid, _ in card.holders}),
                }
                for card in self.cards()
                if card.fact.healthy
            ]
        return [
            {
                "index": card.fact.index,
                "uuid": card.fact.id,
                "usedNum": card.used_slots,
                "usedMem": card.used_memory_mib,
                "usedCore": card.used_cores_pct,
                "pods": _by_pod(card),
            }
            for card in self.cards()
        ]


def _holdings(found: Fit) -> tuple[Holding, ...]:
    return tuple(held for chosen in found.chosen for held in chosen.holdings)


def _by_pod(card: Card) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (uid, _), held in card.holders.items():
        sums = found.setdefault(uid, {"core": 0, "mem": 0, "group": ""})
        sums["core"] += held.cores_pct
        sums["mem"] += held.memory_mib
    return found


def scenario(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    family = gpushare.FAMILY if "strategy" in given else vgpu.FAMILY
    node = given["node"]
    source = NodeSource(
        node.get("annotations") or {}, node.get("capacity") or {}, node.get("allocatable") or {}
    )
    inventory, _ = FAMILIES[family].inventory(source)
    out: Fields = {"registered": (expected["registered"], inventory is not None)}
    if inventory is None or not expected["registered"]:
        return out
    scene = Scene(family, inventory, given.get("policy") or "none")
    if "mode" in expected:
        out["mode"] = (expected["mode"], inventory.mode)
    out["devices"] = (_wanted_devices(expected["devices"]), _devices(scene))
    for pod in given["existing"]:
        scene.add(pod)
    if "stateAfterExisting" in expected:
        out["stateAfterExisting"] = (expected["stateAfterExisting"], scene.books())
    for number, step in enumerate(given["steps"]):
        said = _step(scene, step)
        for key, value in expected["steps"][number].items():
            if key not in IGNORED:
                out[f"steps[{number}].{key}"] = (_plain(key, value), _plain(key, said.get(key)))
    return out


def _step(scene: Scene, step: dict[str, Any]) -> dict[str, Any]:
    pod, said = step["pod"], {}
    match step["op"]:
        case "filter":
            return scene.answer(pod)
        case "allocate":
            said = scene.allocate(pod)
        case "add":
            scene.add(pod)
        case "sub":
            scene.observe(PodGone(uid=pod["uid"], namespace="", name="", rv=scene.seq))
        case "release":
            said = {"removeKeys": sorted(written(scene.family))}
            scene.release(pod)
        case other:
            raise NotImplementedError(f"scenario step {other!r}")
    return {**said, "state": scene.books()}


def written(family: str) -> set[str]:
    """The keys of the annotations that a pod of this family gets."""
    holding = Holding(family, 0, "0", 1, 1)
    return set(FAMILIES[family].annotations(NODE, (holding,), 1, 1))


def _plain(key: str, value: Any) -> Any:
    """Times are times whatever they are; scores are compared to a hundred-thousandth."""
    if key == "annotations" and value:
        stamps = (keys.VGPU_TIME, keys.BIND_TIME, keys.PREDICATE_TIME)
        return {k: "<time>" if k in stamps else v for k, v in value.items()}
    if key == "score" and value is not None:
        return round(value, 4)
    return value


def _wanted_devices(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    drop = ("migGroups", "idle", "pods")
    return [{k: v for k, v in device.items() if k not in drop} for device in devices]


def _devices(scene: Scene) -> list[dict[str, Any]]:
    facts = [card.fact for card in scene.cards()]
    if scene.family == gpushare.FAMILY:
        return [{"id": f.index, "memory": f.memory_mib} for f in facts if f.healthy]
    return [
        {
            "index": f.index,
            "uuid": f.id,
            "count": f.slots,
            "memory": f.memory_mib,
            "type": f.model,
            "health": f.healthy,
        }
        for f in facts
    ]


# One function of upstream at a time


def _scene_of(given: dict[str, Any]) -> Scene:
    """Cards with something used already: the first of made-up holders has all the amounts."""
    facts, holdings = [], []
    for device in given["devices"]:
        facts.append(
            build.card(
                device["index"],
                id=device["uuid"],
                slots=device["count"],
                memory_mib=device["memory"],
                model=device.get("type", build.MODEL),
                healthy=device.get("health", True),
            )
        )
        for number in range(device["used_num"]):
            amounts = (device["used_mem"], device["used_core"]) if number == 0 else (0, 0)
            holdings.append(Holding(vgpu.FAMILY, number, device["uuid"], *amounts))
    inventory = Inventory(vgpu.FAMILY, given["mode"], tuple(facts))
    scene = Scene(vgpu.FAMILY, inventory, given.get("policy") or "none")
    there = build.pod("there", PodRequest(), node=NODE, holdings=tuple(holdings))
    scene.observe(there)
    return scene


def vgpu_filter(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    scene = _scene_of(given)
    found = scene.fit(pending_pod(given["pod"], vgpu.FAMILY))
    said = scene.answer(given["pod"])
    said["fit"] = isinstance(found, Fit)
    if isinstance(found, Fit):
        said["uuid"] = _holdings(found)[0].card
        said["device_index"] = found.chosen[0].picks[0][0].fact.index
    out: Fields = {
        key: (_plain(key, value), _plain(key, said.get(key)))
        for key, value in expected.items()
        if key not in ("score_at_most", "error_contains")
    }
    if "score_at_most" in expected:
        out["score_at_most"] = (True, said["score"] <= expected["score_at_most"])
    return out


def vgpu_allocate_sequence(vector: Vector) -> Fields:
    given, expected = vector["input"], vector["expected"]
    scene = _scene_of(given)
    cards: list[str] = []
    fitted: list[bool] = []
    for pod in given["pods"]:
        fact = pending_pod(pod, vgpu.FAMILY)
        found = scene.fit(fact)
        fitted.append(isinstance(found, Fit))
        cards.extend(held.card for held in (_holdings(found) if isinstance(found, Fit) else ()))
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


def select_pending_pod(vector: Vector) -> Fields:
    given = vector["input"]
    pending = Pending()
    for pod in given["pods"]:
        annotations = {f"volcano.sh/{key}": value for key, value in pod.items() if key != "name"}
        pending.observe(
            {
                "metadata": {
                    "uid": pod["name"],
                    "name": pod["name"],
                    "namespace": "default",
                    "annotations": annotations,
                },
                "spec": {"containers": []},
            }
        )
    found = pending.pick_vgpu(given["node"], given["gpu_amount"])
    return {"pod": (vector["expected"]["pod"], found.name if found else None)}


class OnePod:
    """The pod that the plugin picked, in place of the store and of the list of waiting pods."""

    def __init__(self, devices: str) -> None:
        self.annotations = {keys.DEVICES_TO_ALLOCATE: devices}

    def pick_vgpu(self, node: str, amount: int) -> Waiting:
        return Waiting("default", "p", "p", (amount,), 1)

    def get(self, *place: Any) -> dict[str, Any]:
        return {"metadata": {"annotations": self.annotations}}

    def merge_patch(self, *place_and_patch: Any) -> None:
        self.annotations.update(place_and_patch[-1]["metadata"]["annotations"])


def allocated(devices: str) -> dict[str, str]:
    """The pod's annotations after the fake plugin has served its first group of devices."""
    cards = {entry.card for group in vgpu.decode_assignment(devices)[0] for entry in group}
    facts = tuple(build.card(i, id=card) for i, card in enumerate(sorted(cards)))
    pod: Any = OnePod(devices)
    plugins = Plugins(NODE, Hardware(vgpu=facts), pod, pod, Books())
    plugins.allocate(keys.VGPU_NUMBER, devices.split(";")[0].count(":"))
    annotations: dict[str, str] = pod.annotations
    return annotations


def erase_next_device_request(vector: Vector) -> Fields:
    got = allocated(vector["input"]["text"])[keys.DEVICES_TO_ALLOCATE]
    return {"text": (vector["expected"]["text"], got)}


def mark(vector: Vector) -> Fields:
    entry_type = "NVIDIA" if vector["function"] == "mark_success" else "OTHER"
    annotations = allocated(f"GPU-a,{entry_type},1,0:")
    wanted = vector["expected"]["annotations"]
    return {
        "annotations": (wanted, {key: annotations.get(key) for key in wanted}),
        "node_annotation_removed": (vector["expected"]["node_annotation_removed"], None),
    }


def allocation_complete(vector: Vector) -> Fields:
    """The text is what remains: it follows a group that is served now."""
    annotations = allocated("GPU-z,NVIDIA,1,0:" + vector["input"]["devices-to-allocate"])
    is_complete = annotations.get(keys.BIND_PHASE) == keys.PHASE_SUCCESS
    return {"complete": (vector["expected"]["complete"], is_complete)}


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
