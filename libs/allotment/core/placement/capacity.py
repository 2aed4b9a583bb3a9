"""How many pods of one request a node can hold at most: a bound, without trying.

The least of what its host and its cards have room for; cards are counted one by one, each as often
as its free slots, memory and compute allow, and a pod that wants several cards at once takes that
many of the sum. More than that can never be placed; fewer may be. `board_capacity` is the same on
columns.
"""

from allotment.core.ledger.model import Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import Rules, card_refusal, rules_of
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment_proto.facts import DeviceRequest, PodRequest, Policy


def node_holds_at_most(node: Node, request: PodRequest, policy: Policy) -> int:
    """The bound for a node on which the request fits."""
    bounds = [node.pods_free]
    for free, amount in (
        (node.cpu_milli_free, request.cpu_milli),
        (node.memory_bytes_free, request.memory_bytes),
        *((node.extended_free.get(name, 0), amount) for name, amount in request.extended),
    ):
        if amount:
            bounds.append(free // amount)
    rules = rules_of(request, policy, node.name)
    for wanted in request.devices:
        cards = node.ledgers[wanted.family].cards
        times = sum(_times(Free(card), wanted, rules) for card in cards)
        bounds.append(times // wanted.count)
    return min(bounds)


def _times(free: Free, wanted: DeviceRequest, rules: Rules) -> int:
    """How often one card can take one unit of a request."""
    if card_refusal(free, wanted, rules, FAMILIES[wanted.family]) is not None:
        return 0
    bounds = [1 if wanted.cores_pct == CORES_WHOLE_PCT else free.slots]
    memory_mib = need_memory_mib(wanted, free.card.fact.memory_mib, free.card.table)
    if memory_mib:
        bounds.append(free.memory_mib // memory_mib)
    if wanted.cores_pct:
        bounds.append(free.cores_pct // wanted.cores_pct)
    card = free.card
    if card.partitioner is not None:
        bounds.append(card.partitioner.most(card.fact, card.table, card.state, wanted))
    return min(bounds)
