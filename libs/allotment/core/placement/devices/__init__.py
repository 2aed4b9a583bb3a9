"""Device families, one file each, and how cards are chosen on a node.

The door is `FAMILIES`: code that needs something of a family calls its `Family` (`base`), so only
this package, `ledger.partitions`, local mode and the wire formats in `proto` name a family; a test
enforces it. A new family is a subclass of `Family` and an entry in `FAMILIES`; if its cards are
allocated in pieces, it also has rules in `ledger.partitions.holdings`. `choosing` decides which
card takes a request, the same way for all; `free` is what a card has left while a pod is placed.

All checks are thresholds. A card takes a request if `free >= need` in slots, memory and compute.
Percentages resolve per card, compute 100 needs an idle card, compute 0 needs a card that is not
used up. Families differ in how cards are registered, requested, recorded, acknowledged, counted and
shown, not in this rule. GPU number is a request for idle cards with all their compute, so it shares
a ledger with GPU memory.

Pods that keep apart carry tags. `PodObserved.tags` are what others may want to keep apart from (its
group, the exclusivity rules that it matches), `PodRequest.apart` are the tags that a pod keeps
apart from. Cards count the tags of their holders, so exclusivity is part of the fold, not of a
session.
"""

from itertools import combinations

from allotment.core.placement.devices.ascend import Ascend
from allotment.core.placement.devices.base import Family, Switch
from allotment.core.placement.devices.gpushare import Gpushare
from allotment.core.placement.devices.mindcluster import Mindcluster
from allotment.core.placement.devices.vgpu import Vgpu
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import DeviceRequest, PodRequest

FAMILIES: dict[str, Family] = {
    family.name: family for family in (Gpushare(), Vgpu(), Mindcluster(), Ascend())
}
"""Every family by name, in the order in which a pod's requests are placed."""
SWITCHES: dict[str, tuple[Switch, Family]] = {
    switch.argument: (switch, family) for family in FAMILIES.values() for switch in family.switches
}
"""The switches of the families, by argument of plugin `deviceshare`."""
EXCLUSIVE_SWITCHES = tuple(
    (one.argument, other.argument)
    for (one, _), (other, _) in combinations(SWITCHES.values(), 2)
    if one.cards and one.cards == other.cards
)
"""Pairs of switches that Volcano does not allow together: both would keep books of the same
cards.
"""


def by_family(request: PodRequest) -> dict[str, list[DeviceRequest]]:
    """The device requests grouped by family, families in the order of `FAMILIES`."""
    groups: dict[str, list[DeviceRequest]] = {}
    for name in FAMILIES:
        wanted = [r for r in request.devices if r.family == name]
        if wanted:
            groups[name] = wanted
    return groups


def memory_units(config: DeviceConfig) -> dict[str, int]:
    """The resources that are amounts of card memory, and the bytes of one unit of each."""
    found: dict[str, int] = {}
    for family in FAMILIES.values():
        found.update(family.memory_resources(config))
    found.pop("", None)
    return found


def cards_asked(request: PodRequest) -> int:
    """How many cards a pod asks for."""
    return sum(ask.count for ask in request.devices) + sum(
        amount for name, amount in request.extended if name.endswith("/gpu")
    )
