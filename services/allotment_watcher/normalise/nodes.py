"""A node as the log tells it."""

from collections.abc import Container, Iterable, Iterator, Mapping

from allotment.core import reasons, units
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NOTHING, NodeSource
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import NodeObserved
from allotment_proto.facts import Inventory, Problem, Taint
from allotment_watcher import objects
from allotment_watcher.normalise.amounts import bounded, texts
from allotment_watcher.normalise.images import images_of_node
from allotment_watcher.normalise.lens import BUILT_IN, CPU, MEMORY, NOT_COUNTED, PODS


def node_fact(
    node: objects.NodeObject,
    config: DeviceConfig = BUILT_IN,
    device_info: Mapping[str, str] = NOTHING,
    wanted_images: Container[str] = (),
) -> NodeObserved:
    """A node as the log tells it. Broken amounts count as 0 and are listed as problems."""
    meta = node.metadata
    status = node.status or objects.NodeStatus()
    spec = node.spec or objects.NodeSpec()
    problems: list[Problem] = []
    allocatable = texts(status.allocatable)
    source = NodeSource(
        meta.annotations or {},
        texts(status.capacity),
        allocatable,
        meta.name,
        meta.labels or {},
        config,
        device_info,
    )
    inventories = []
    for family in FAMILIES.values():
        inventory, found = family.inventory(source)
        problems.extend(found)
        if inventory is not None:
            inventories.append(inventory)

    def amount(name: str, text: str) -> int:
        try:
            value = units.milli(text) if name == CPU else units.whole_up(text)
            return bounded(value)
        except units.QuantityError as error:
            problems.append(Problem("BrokenQuantity", f"status.allocatable {name}", str(error)))
            return 0

    amounts = {name: amount(name, text) for name, text in sorted(allocatable.items())}
    twice = tuple(_listed_twice(inventories, amounts, source))
    problems.extend(
        Problem(
            reasons.CARDS_LISTED_TWICE,
            f"status.allocatable {resource}",
            f"is {amounts[resource]}, and the node's cards are registered to be shared, too "
            f"({family}); if these are other cards, the label {resource}.count has to say how many "
            "the node has in all",
        )
        for resource, family in twice
    )
    conditions = {c.type: c.status for c in status.conditions or ()}
    return NodeObserved(
        name=meta.name,
        uid=meta.uid,
        rv=objects.version(meta.resource_version),
        labels=tuple(sorted((meta.labels or {}).items())),
        taints=tuple(sorted(_taints(spec.taints or ()), key=lambda t: (t.key, t.effect, t.value))),
        unschedulable=bool(spec.unschedulable),
        ready=conditions.get("Ready", "True") == "True",
        cpu_milli=amounts.get(CPU, 0),
        memory_bytes=amounts.get(MEMORY, 0),
        pods=amounts.get(PODS, 0),
        extended=tuple((n, v) for n, v in amounts.items() if n not in NOT_COUNTED),
        inventories=tuple(inventories),
        problems=tuple(problems),
        images=images_of_node(node, wanted_images),
        listed_twice=twice,
    )


def _listed_twice(
    inventories: Iterable[Inventory], amounts: Mapping[str, int], node: NodeSource
) -> Iterator[tuple[str, str]]:
    """The resources that count the cards of an inventory once more, each with its family."""
    for inventory in inventories:
        family = FAMILIES[inventory.family]
        for resource in family.counted_again:
            listed = amounts.get(resource, 0)
            has = units.natural(node.labels.get(f"{resource}.count", "")) or 0
            is_own = resource in family.resources(node.config)
            if listed and inventory.cards and not is_own and has < listed + len(inventory.cards):
                yield resource, family.name


def _taints(taints: Iterable[objects.TaintObject]) -> list[Taint]:
    return [Taint(t.key, t.value or "", t.effect) for t in taints]
