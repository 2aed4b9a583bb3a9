"""The world of a vector: a cluster of ours, driven by the steps that a vector lists."""

from typing import Any

import msgspec
from tests import build
from tests.contract.vectors import Vector

from allotment.core.devices import FAMILIES
from allotment.core.devices.base import (
    ContainerSource,
    NodeSource,
    PodSource,
)
from allotment.core.ledger import Card
from allotment.core.predicates import Fit, fits
from allotment.core.scores import score
from allotment.core.state import ClusterState, apply
from allotment_proto.events import (
    BindFailed,
    PodGone,
    PodObserved,
    PolicyLoaded,
)
from allotment_proto.facts import (
    Holding,
    Inventory,
    PodRequest,
    Policy,
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
            said["wouldAllocate"] = vgpu.encode_assignment(holdings_of(found))
        return said

    def allocate(self, pod: dict[str, Any]) -> dict[str, Any]:
        fact = pending_pod(pod, self.family)
        found = self.fit(fact)
        self.observe(fact)
        if not isinstance(found, Fit):
            return {"annotations": None}
        holdings = holdings_of(found)
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


def holdings_of(found: Fit) -> tuple[Holding, ...]:
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
                out[f"steps[{number}].{key}"] = (plain(key, value), plain(key, said.get(key)))
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


def plain(key: str, value: Any) -> Any:
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


def scene_of(given: dict[str, Any]) -> Scene:
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
