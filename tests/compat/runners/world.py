"""The world of a vector: one node and its pods, on the fold, placed by the product's own rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import BOUND, ENDED, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import ContainerSource, NodeSource, PodSource
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.rules.scores import score
from allotment_binder import bindings
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import (
    BindFailed,
    Decided,
    DevicesConfigured,
    Event,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    PolicyLoaded,
)
from allotment_proto.facts import Holding, Inventory, Policy
from allotment_proto.volcano import device_config, exclusive, keys
from allotment_watcher.normalise import Lens, pod_fact
from allotment_watcher.normalise import devices as devices_of_pods
from allotment_watcher.objects import PodObject
from tests.compat import configs
from tests.compat.runners.base import CannotRun

NODE = "node-1"
SCHEDULER = "volcano"
LISTED = "listed"
"""Volcano's choice of MIG geometries: the first configured that will do."""
MICRO = 1_000_000
POINTS_DIGITS = 4
"""Scores are compared to so many digits: ours are whole millionths of a point."""
DEFAULT = DeviceConfig()


def pod_source(pod: Mapping[str, Any], config: DeviceConfig = DEFAULT) -> PodSource:
    """A vector's pod, as device families read pods."""

    def containers(key: str) -> list[ContainerSource]:
        return [
            ContainerSource(f"c{number}", c.get("limits") or {}, c.get("requests") or {})
            for number, c in enumerate(pod.get(key) or ())
        ]

    return PodSource(
        pod.get("annotations") or {},
        containers("containers"),
        containers("initContainers"),
        pod.get("labels") or {},
        config,
    )


def pod_object(pod: Mapping[str, Any], node: str, version: int) -> PodObject:
    """A vector's pod, as the API server would show it."""

    def containers(key: str) -> list[dict[str, Any]]:
        return [
            {"name": f"c{number}", "resources": container}
            for number, container in enumerate(pod.get(key) or ())
        ]

    uid = pod.get("uid") or pod.get("name") or "p"
    name = pod.get("name") or uid
    metadata = {
        "name": name,
        "namespace": pod.get("namespace") or "default",
        "uid": uid,
        "resourceVersion": str(version),
        "annotations": pod.get("annotations"),
        "labels": pod.get("labels"),
        "deletionTimestamp": pod.get("deletionTimestamp"),
    }
    spec = {
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        "nodeName": node or None,
        "schedulerName": SCHEDULER,
    }
    ended = pod.get("phase") in ENDED
    phase = pod["phase"] if ended else ("Running" if node else "Pending")
    return msgspec.convert(
        {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PodObject
    )


def node_source(node: Mapping[str, Any], config: DeviceConfig = DEFAULT) -> NodeSource:
    """A vector's node, as device families read nodes."""
    return NodeSource(
        node.get("annotations") or {},
        node.get("capacity") or {},
        node.get("allocatable") or {},
        node.get("name", NODE),
        node.get("labels") or {},
        config,
        node.get("device_info") or {},
    )


def config_of(given: Mapping[str, Any]) -> DeviceConfig:
    """The device configuration of a vector's scheduler; without a text the built-in one."""
    text = given.get("config")
    if text is None:
        return device_config.default()
    parsed = configs.parse(text)
    if parsed.config is None:
        said = "; ".join(f"{p.place} {p.message}" for p in parsed.problems)
        raise CannotRun(f"the device configuration is refused: {said}")
    return parsed.config


def policy_of(word: str | None, shares_by: str | None = None) -> Policy:
    """The policy under which a vector's scheduler ran: a word that is none means no preference.

    `shares_by` is what GPU sharing serves, ``memory`` or ``number``; both if it is not said.
    """
    known = word if word in ("binpack", "spread") else "none"
    return Policy(
        scheduler_names=(SCHEDULER,),
        device_policy=known,
        device_weight=1,
        host_weight=0,
        families=tuple(FAMILIES),
        multi_container=True,
        mig_order=LISTED,
        gpushare_kind=shares_by or "",
    )


class World:
    """One node with its cards, as a vector sets it up. Pods come, are placed, and go.

    With a `chip` only what pods want of chips of that name is asked.
    """

    def __init__(
        self,
        family: str,
        inventory: Inventory,
        policy: Policy,
        config: DeviceConfig = DEFAULT,
        node: str = NODE,
        *,
        chip: str | None = None,
    ) -> None:
        self.family = family
        self.name = node
        self.chip = chip
        self.policy = policy
        self.config = config
        self.state = ClusterState()
        self.seq = 0
        self.observe(PolicyLoaded(policy=policy, source="vector", text_sha256=""))
        self.observe(DevicesConfigured(config=config, source="vector", text_sha256=""))
        self.observe(
            NodeObserved(
                name=node,
                uid=node,
                rv=1,
                cpu_milli=0,
                memory_bytes=0,
                pods=1_000,
                inventories=(inventory,),
            )
        )

    def observe(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)

    def fact(self, pod: Mapping[str, Any], node: str = "") -> PodObserved:
        """What the watcher would record of a pod, bound to `node` if one is given.

        But a pod that is bound holds all that its annotations claim, as with Volcano: many vectors
        give such pods no limits, and the watcher counts no more than the limits ask for.
        """
        seen = pod_fact(pod_object(pod, node, self.seq), self.policy, self.config)
        # Vectors ask one kind of device alone: what else a pod wants is another question.
        devices = seen.request.devices
        if self.chip is not None:
            devices = tuple(wanted for wanted in devices if wanted.chip == self.chip)
        request = msgspec.structs.replace(
            seen.request, devices=devices, cpu_milli=0, memory_bytes=0, extended=()
        )
        seen = msgspec.structs.replace(seen, request=request)
        if not node:
            return seen
        source = pod_source(pod, self.config)
        claimed, _ = FAMILIES[self.family].holdings(source)
        group = exclusive.group_key(seen.namespace, source.annotations)
        tags = devices_of_pods.tags(Lens(self.policy, self.config), source, group, request, claimed)
        return msgspec.structs.replace(seen, holdings=claimed, tags=tags)

    def add(self, pod: Mapping[str, Any]) -> None:
        """A pod that is bound, by whomever, as its annotations say."""
        self.observe(self.fact(pod, self.name))

    def fit(self, fact: PodObserved) -> Fit | str:
        """Where the pod's cards would be, or the reason code of the refusal."""
        if fact.problem is not None:
            return fact.problem.code
        return fits(self.state.nodes[self.name], fact.request, self.policy)

    def points(self, fact: PodObserved, found: Fit) -> float:
        terms = score(self.state.nodes[self.name], fact.request, found, self.policy).terms
        return round(dict(terms)["device"] / MICRO, POINTS_DIGITS)

    def allocate(self, pod: Mapping[str, Any]) -> dict[str, str] | str:
        """Reserve what fits; the annotations of the Binding, or the reason code of the refusal."""
        fact = self.fact(pod)
        found = self.fit(fact)
        self.observe(fact)
        if isinstance(found, str):
            return found
        placement = Placement(
            uid=fact.uid,
            namespace=fact.namespace,
            name=fact.name,
            node=self.name,
            holdings=holdings_of(found),
            cpu_milli=0,
            memory_bytes=0,
            extended=(),
            score_micro=0,
            terms=(),
            runners_up=(),
            feasible=1,
            nodes=1,
            stamp_s=self.seq,
        )
        self.observe(
            Decided(
                cycle="c",
                basis=self.seq,
                checked=0,
                policy=0,
                batch=(fact.uid,),
                placements=(placement,),
            )
        )
        allocation = self.state.pods[fact.uid].allocation
        if allocation is None:
            raise CannotRun(f"the books do not cover what was chosen for pod {fact.name}")
        written = bindings.annotations(allocation, self.seq)
        for ours in (keys.LOG_SEQ, keys.TRACEPARENT):
            del written[ours]
        return written

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        self.observe(PodGone(uid=uid, namespace="", name="", rv=self.seq))

    def bind_fails(self, uid: str) -> bool:
        """The outcome "not bound" of a pod's reservation. Whether it gave the cards back."""
        pod = self.state.pods.get(uid)
        held = pod.allocation if pod is not None else None
        if held is None:
            return False
        self.observe(
            BindFailed(
                uid=uid,
                namespace="",
                name="",
                node=held.node,
                decision=held.seq,
                code="",
                message="",
            )
        )
        return held.phase != BOUND

    def queued(self, pod: Mapping[str, Any]) -> dict[str, int]:
        """What a bound pod counts for in its queue: the sums over its cards, in thousandths."""
        nvidia = self.config.nvidia
        held = self.fact(pod, self.name).holdings
        sums = {
            nvidia.memory_name: sum(holding.memory_mib for holding in held),
            nvidia.cores_name: sum(holding.cores_pct for holding in held),
        }
        return {name: 1000 * amount for name, amount in sums.items()} if held else {}

    @property
    def cards(self) -> Sequence[Card]:
        return self.state.nodes[self.name].ledgers[self.family].cards


def holdings_of(found: Fit) -> tuple[Holding, ...]:
    return tuple(held for chosen in found.chosen for held in chosen.holdings)


def held_by_pod(card: Card) -> Mapping[str, Sequence[Holding]]:
    found: dict[str, list[Holding]] = {}
    for (uid, _, _), held in card.holders.items():
        found.setdefault(uid, []).append(held)
    return found


def group_on_cards(fact: PodObserved) -> str:
    """The group from which others may keep apart on a card, as ``<namespace>/<name>``."""
    marks = (tag.partition(":") for tag in fact.tags)
    return next((name for kind, _, name in marks if kind == "group"), "")


def written_keys(family: str, chip: str = "") -> set[str]:
    """The keys of the annotations that a pod of this family gets in its Binding."""
    holding = Holding(family, 0, "0", 1, 1, f"{chip}/" if chip else "")
    return set(FAMILIES[family].annotations(NODE, (holding,), 1, 1))


def inventory_of(
    family: str, node: Mapping[str, Any], config: DeviceConfig = DEFAULT
) -> Inventory | None:
    """The cards of a vector's node."""
    return FAMILIES[family].inventory(node_source(node, config))[0]
