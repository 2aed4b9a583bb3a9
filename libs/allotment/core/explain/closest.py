"""What nearly takes a waiting pod: the closest cards, what they lack, who holds it; fragmentation.

Only cards that the pod accepts count (selected, of a wanted model, healthy) on nodes that accept
the pod: on others no release would help.
"""

from collections.abc import Iterator

from allotment.core import reasons
from allotment.core.explain.schema import Closest, Fragmentation, Holder
from allotment.core.explain.views import MIB, card_name, holders_of, whole_of
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.state import ClusterState, Node
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import card_refusal, mode_fits, rules_of
from allotment.core.placement.devices.free import Free, need_cores_pct, need_memory_mib
from allotment.core.placement.rules.predicates import accepts, extended_lack
from allotment.core.placement.rules.switches import switches_of
from allotment_proto.facts import DeviceRequest, PodRequest

CLOSEST_SHOWN = 3


def closest(state: ClusterState, request: PodRequest) -> list[Closest]:
    """The cards that lack least, in permille of the card; for counted resources the nodes."""
    ranked: list[tuple[int, str, int, Closest]] = []
    for node, card, wanted, code in _cards(state, request):
        if code in reasons.BUSY:
            distance, entry = _lack(state, node, card, wanted, code)
            ranked.append((distance, node.name, card.fact.index, entry))
    if not request.devices:
        ranked += [(lack, node, 0, entry) for lack, node, entry in _counted(state, request)]
    ranked.sort(key=lambda item: item[:3])
    return [entry for *_, entry in ranked[:CLOSEST_SHOWN]]


def fragmentation(state: ClusterState, request: PodRequest) -> Fragmentation | None:
    """None unless the free memory of suitable cards would do if it were in one piece."""
    free, largest, needed = 0, 0, 0
    for _, card, wanted, code in _cards(state, request):
        if wanted is not request.devices[0] or not (code is None or code in reasons.BUSY):
            continue
        memory_mib = max(card.free_memory_mib, 0)
        free += memory_mib
        enough_compute = card.free_cores_pct >= max(wanted.cores_pct, 1) and card.free_slots > 0
        if enough_compute:
            largest = max(largest, memory_mib)
        need = need_memory_mib(wanted, card.fact.memory_mib)
        needed = min(needed, need) if needed else need
    if not needed or free < needed or largest >= needed:
        return None
    return Fragmentation(
        free_bytes=free * MIB, largest_usable_bytes=largest * MIB, needed_bytes=needed * MIB
    )


def holders(state: ClusterState, card: Card) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            namespace=h.namespace,
            name=h.name,
            memory_bytes=h.memory_bytes,
            compute_percent=h.compute_percent,
            instance=h.instance,
        )
        for h in holders_of(state, card)
    )


def _cards(
    state: ClusterState, request: PodRequest
) -> Iterator[tuple[Node, Card, DeviceRequest, str | None]]:
    """Every card of every node that accepts the pod, with what it answers to each container."""
    switches = switches_of(state.policy)
    for node in state.nodes.values():
        fact = node.fact
        if fact is None or not fact.ready or accepts(node, request, switches):
            continue
        rules = rules_of(request, state.policy, node.name)
        for family, asks in by_family(request).items():
            ledger = node.ledgers.get(family)
            if ledger is None or ledger.blocked or not mode_fits(request.selection, ledger.mode):
                continue
            for card in ledger.cards:
                for wanted in asks:
                    code = card_refusal(Free(card), wanted, rules, FAMILIES[family])
                    yield node, card, wanted, code


def _lack(
    state: ClusterState, node: Node, card: Card, wanted: DeviceRequest, code: str
) -> tuple[int, Closest]:
    fact = card.fact
    memory_mib = need_memory_mib(wanted, fact.memory_mib, card.table) - card.free_memory_mib
    cores_pct = need_cores_pct(wanted, fact.cores_pct) - card.free_cores_pct
    short: dict[str, int] = {}
    if memory_mib > 0:
        short["memoryBytes"] = memory_mib * MIB
    if cores_pct > 0:
        short["computePercent"] = cores_pct
    if card.free_slots < 1:
        short["slots"] = 1 - card.free_slots
    if code == reasons.NO_FITTING_INSTANCE and not short:
        short["instances"] = 1
    if wanted.cores_pct == CORES_WHOLE_PCT and card.holders:
        short["otherHolders"] = len(card.holders)
    distance = (
        max(memory_mib, 0) * 1000 // max(fact.memory_mib, 1)
        + max(cores_pct, 0) * 10
        + (1000 if card.free_slots < 1 else 0)
    )
    return distance, Closest(
        node=node.name,
        device=card_name(card),
        reason=code,
        free_memory_bytes=card.free_memory_mib * MIB,
        free_compute_percent=card.free_cores_pct,
        compute_whole=whole_of(card),
        free_slots=card.free_slots,
        short=short,
        holders=holders(state, card),
    )


def _counted(state: ClusterState, request: PodRequest) -> Iterator[tuple[int, str, Closest]]:
    """Nodes that list a counted resource but have too little of it left."""
    switches = switches_of(state.policy)
    for node in state.nodes.values():
        fact = node.fact
        if fact is None or not fact.ready or accepts(node, request, switches):
            continue
        for name, amount in request.extended:
            free = node.extended_free.get(name)
            code = extended_lack(node, name, amount)
            if free is None or code is None:
                continue
            holding = [
                Holder(
                    namespace=state.pods[a.uid].fact.namespace,
                    name=state.pods[a.uid].fact.name,
                    memory_bytes=0,
                    compute_percent=0,
                    instance="",
                )
                for a in node.allocations.values()
                if name in dict(a.extended)
            ]
            holding.sort(key=lambda h: (h.namespace, h.name))
            yield (
                amount - free,
                node.name,
                Closest(
                    node=node.name,
                    device=name,
                    reason=code,
                    free_count=free,
                    short={"count": amount - free},
                    holders=tuple(holding),
                ),
            )
