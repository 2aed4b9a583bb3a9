"""What is on the cards, as gauges: Volcano's names and our own, read off the books at one sequence.

Volcano's six have its names, labels and meaning (`vgpu/metrics.go`, deviceshare 9) and concern vGPU
cards only. They are computed from the state each time, so that they neither flicker nor outlive
their node (`kept_cards` does so for the nodes that changed). Two things differ: a pod counts once
on a card however many of its containers are there (Q11 charges each of them), and pods of one name
in several namespaces, which Volcano lets overwrite each other, are added up unless the namespace is
a label.

Our own are in bytes, for cards of every family.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.partitions.mig import largest_left_mib
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import MIB, Family

_DEVICE_LABELS = ("devID", "NodeName")
_POD_LABELS = (*_DEVICE_LABELS, "podName")
_NAMESPACE_LABEL = "podNamespace"
_CARD_LABELS = ("node", "device", "model")

Rows = dict[tuple[str, ...], int]
"""Values by label values, in the order of the labels."""


class Gauge(NamedTuple):
    """One metric: a row's value is to be divided by `divisor`."""

    name: str
    text: str
    labels: tuple[str, ...]
    rows: Rows
    divisor: int = 1
    is_counter: bool = False
    """It only grows; its name ends in ``_total``."""


def card_gauges(state: ClusterState) -> list[Gauge]:
    """All gauges about cards. Every gauge is there, also without rows."""
    return [*volcano_gauges(state), *own_gauges(state)]


def volcano_gauges(state: ClusterState) -> list[Gauge]:
    """Volcano's gauges. Memory is in the unit in which the device plugin registers it."""
    return _volcano_gauges(state, _by_name(state))


def own_gauges(state: ClusterState) -> list[Gauge]:
    """Our own gauges about cards of all families."""
    nodes = _by_name(state)
    return [*_own_gauges(state, nodes), largest_gauge(largest_free(state, nodes))]


def gauges_on(state: ClusterState, nodes: Iterable[Node]) -> list[Gauge]:
    """The gauges that have rows of single nodes, with those of these nodes: all of `card_gauges`
    but the last."""
    nodes = list(nodes)
    return [*_volcano_gauges(state, nodes), *_own_gauges(state, nodes)]


def _by_name(state: ClusterState) -> list[Node]:
    """All nodes, in the order of their names."""
    return [state.nodes[name] for name in sorted(state.nodes)]


def _volcano_gauges(state: ClusterState, nodes: list[Node]) -> list[Gauge]:
    families = [family for family in FAMILIES.values() if family.gauges]
    return [gauge for family in families for gauge in _gauges_of(family, state, nodes)]


def _gauges_of(family: Family, state: ClusterState, nodes: list[Node]) -> list[Gauge]:
    is_named = state.policy.namespace_in_metrics
    limit: Rows = {}
    shared: Rows = {}
    memory: Rows = {}
    cores: Rows = {}
    pod_memory: Rows = defaultdict(int)
    pod_cores: Rows = defaultdict(int)
    for node, name, card in _cards(nodes):
        if name != family.name:
            continue
        at = card.fact.id, node.name
        limit[at] = card.fact.memory_mib
        shared[at] = len({uid for uid, _, _ in card.holders})
        memory[at] = card.used_memory_mib
        cores[at] = card.used_cores_pct
        for (uid, _, _), holding in card.holders.items():
            pod = state.pods[uid].fact
            whose = (*at, pod.name, pod.namespace) if is_named else (*at, pod.name)
            pod_memory[whose] += card.charged_mib(holding)
            pod_cores[whose] += holding.cores_pct
    pod_labels = (*_POD_LABELS, _NAMESPACE_LABEL) if is_named else _POD_LABELS
    prefix = family.gauges
    return [
        Gauge(f"{prefix}_memory_limit", "memory of the card, as registered", _DEVICE_LABELS, limit),
        Gauge(f"{prefix}_shared_number", "pods on the card", _DEVICE_LABELS, shared),
        Gauge(f"{prefix}_allocated_memory", "memory in use, as registered", _DEVICE_LABELS, memory),
        Gauge(f"{prefix}_allocated_cores", "compute in use, percent", _DEVICE_LABELS, cores),
        Gauge(
            f"{prefix}_memory_allocation_for_a_certain_pod",
            "memory of the card that a pod has, as registered",
            pod_labels,
            dict(pod_memory),
        ),
        Gauge(
            f"{prefix}_core_allocation_for_a_certain_pod",
            "compute of the card that a pod has, percent",
            pod_labels,
            dict(pod_cores),
        ),
    ]


def _own_gauges(state: ClusterState, nodes: list[Node]) -> list[Gauge]:
    capacity: Rows = {}
    reserved: Rows = {}
    compute: Rows = {}
    sizes = _unit_bytes(state)
    for node, family, card in _cards(nodes):
        fact = card.fact
        unit = sizes.get(family, MIB)
        at = node.name, fact.id, fact.model
        capacity[at] = fact.memory_mib * unit
        reserved[at] = card.used_memory_mib * unit
        if fact.cores_pct:
            compute[at[:2]] = card.used_cores_pct * 1000 // fact.cores_pct
    return [
        Gauge(
            "allot_gpu_memory_capacity_bytes",
            "memory that pods can share on a card",
            _CARD_LABELS,
            capacity,
        ),
        Gauge(
            "allot_gpu_memory_reserved_bytes",
            "memory of a card that pods hold; of a MIG card that of their instances",
            _CARD_LABELS,
            reserved,
        ),
        Gauge(
            "allot_gpu_compute_reserved_ratio",
            "compute of a card that pods hold, of all it has",
            _CARD_LABELS[:2],
            compute,
            divisor=1000,
        ),
    ]


def largest_free(state: ClusterState, nodes: Iterable[Node]) -> dict[str, int]:
    """By model the most memory (bytes) that one pod can get on one card of these nodes."""
    largest: dict[str, int] = {}
    sizes = _unit_bytes(state)
    for node, family, card in _cards(nodes):
        free = _largest_free_mib(node, card) * sizes.get(family, MIB)
        model = card.fact.model
        largest[model] = max(largest.get(model, 0), free)
    return largest


def largest_gauge(largest: Mapping[str, int]) -> Gauge:
    """The gauge of what `largest_free` finds on all nodes."""
    return Gauge(
        "allot_largest_free_memory_bytes",
        "the most memory that one pod can still get on one card of a model",
        ("model",),
        {(model,): free for model, free in largest.items()},
    )


def _unit_bytes(state: ClusterState) -> dict[str, int]:
    return {name: f.memory_unit_bytes(state.devices) for name, f in FAMILIES.items()}


def node_gauge(state: ClusterState) -> Gauge:
    """Nodes by what they are; `gone`: pods hold something on it still."""
    rows: Rows = {("ready",): 0, ("cordoned",): 0, ("not_ready",): 0, ("gone",): 0}
    for node in state.nodes.values():
        fact = node.fact
        if fact is None:
            status = "gone"
        elif not fact.ready:
            status = "not_ready"
        else:
            status = "cordoned" if fact.unschedulable else "ready"
        rows[(status,)] += 1
    return Gauge("allot_nodes", "nodes by their status", ("status",), rows)


def _largest_free_mib(node: Node, card: Card) -> int:
    """The largest share, or the largest instance, that a new pod could get of a card."""
    fact = card.fact
    if node.blocked is not None or not fact.healthy or card.free_slots < 1:
        return 0
    if fact.cores_pct and card.free_cores_pct < 1:
        return 0
    if card.table:
        return largest_left_mib(card.table, card.state)
    return max(card.free_memory_mib, 0)


def _cards(nodes: Iterable[Node]) -> Iterator[tuple[Node, str, Card]]:
    """Every registered card of these nodes with its node and family."""
    for node in nodes:
        for family, ledger in node.ledgers.items():
            for card in ledger.cards:
                yield node, family, card
