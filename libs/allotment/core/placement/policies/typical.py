"""What typical pods request, learned from observed pods, and how much of a node they could use.

A *mix* is a handful of shapes with the share of pods that have them. `root_mix` keeps distinct
sizes (cards, card types), each with the mean CPU and memory of its pods.

A card is 1000 milli, whatever its size in MiB. Pods with several device requests are left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt
from typing import NamedTuple

import msgspec

from allotment.core.ledger.model import Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import Rules, card_refusal
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.rules.points import KIB_BITS
from allotment_proto.facts import (
    Constraints,
    DeviceRequest,
    PodRequest,
    Policy,
    Selection,
    Typical,
)

CARD_MILLI = 1000
PPM = 1_000_000
SHAPES_MOST = 16
CARDS_MOST = 1024
"""More cards than a node has: larger counts and worths are capped at this."""
UNITS_MOST = 1000
"""More pods than share a card: larger counts are capped at this."""
MEMORY_MOST, CORES_MOST = (1 << 31) - 2, (1 << 13) - 2
"""The most memory (MiB) and compute (%) of a card that count."""
HOST_MOST = 1 << 40
"""The most CPU (milli) and memory (KiB), free or requested, that count: products fit 64 bits."""


Mix = tuple[Typical, ...]


def root_mix(pods: Mapping[PodRequest, int], card_mib: int, most: int | None = SHAPES_MOST) -> Mix:
    """The sizes with most pods, each pod counted by the fourth root of the cards that it requests,
    with their mean CPU and memory (floored): a job of eight cards counts 1.7 times a job of one
    card.

    `pods` has the number of pods by request. `card_mib` is the memory of a usual card, to which
    amounts of memory are compared. At most `most` sizes.
    """
    counts, mean = by_size(pods)
    roots = {size: n * _fourth_root(worth_milli_of(size, card_mib)) for size, n in counts.items()}
    counted = {size: n for size, n in roots.items() if n}
    return most_frequent(counted, mean, card_mib, most, 100)


def _fourth_root(worth_milli: int) -> int:
    """A hundred times the fourth root, floored."""
    return isqrt(isqrt(worth_milli * 100**4))


def by_size(
    pods: Mapping[PodRequest, int],
) -> tuple[dict[PodRequest, int], Callable[[PodRequest], PodRequest]]:
    """The number of pods with devices by size, and a function from a size to one with the means of
    its pods.
    """
    counts: dict[PodRequest, int] = {}
    sums: dict[PodRequest, tuple[int, int]] = {}
    for request, number in pods.items():
        if len(request.devices) == 1:
            size = size_of(request)
            cpu, memory = sums.get(size, (0, 0))
            counts[size] = counts.get(size, 0) + number
            sums[size] = (
                cpu + number * request.cpu_milli,
                memory + number * request.memory_bytes,
            )

    def mean(size: PodRequest) -> PodRequest:
        cpu_milli, memory_bytes = (amount // counts[size] for amount in sums[size])
        return msgspec.structs.replace(size, cpu_milli=cpu_milli, memory_bytes=memory_bytes)

    return counts, mean


def size_of(request: PodRequest) -> PodRequest:
    """The request reduced to the cards that it wants, and how many."""
    devices = tuple(
        msgspec.structs.replace(wanted, container=0, container_name="")
        for wanted in request.devices
    )
    selection = Selection(
        use_types=request.selection.use_types, nouse_types=request.selection.nouse_types
    )
    return PodRequest(devices=devices, selection=selection, constraints=Constraints())


def most_frequent(
    counts: Mapping[PodRequest, int],
    finish: Callable[[PodRequest], PodRequest],
    card_mib: int,
    most: int | None,
    pct: int,
) -> Mix:
    """The shapes with the highest counts, as few as make up `pct` of all."""
    kept: list[tuple[PodRequest, int]] = []
    total, seen = sum(counts.values()), 0
    for request, number in sorted(counts.items(), key=lambda item: (-item[1], repr(item[0]))):
        if seen * 100 >= total * pct or len(kept) == most:
            break
        kept.append((request, number))
        seen += number
    return tuple(
        Typical(finish(request), PPM * number // seen, worth_milli_of(request, card_mib))
        for request, number in kept
    )


def worth_milli_of(request: PodRequest, card_mib: int) -> int:
    """The cards that a pod requests, in milli-cards; `card_mib` is the memory of a usual one."""
    worth = 0
    for wanted in request.devices:
        share = CARD_MILLI * wanted.memory_pct // 100
        if wanted.memory_mib:
            share = CARD_MILLI * wanted.memory_mib // max(card_mib, 1)
        if wanted.cores_pct == CORES_WHOLE_PCT:
            share = CARD_MILLI
        worth += min(wanted.count, CARDS_MOST) * min(share, CARD_MILLI)
    return worth


# ---- what a mix can use, in plain loops


def card_milli(free: Free) -> int:
    """The free part of a card's memory, from 0 (also if it is over-committed) to 1000."""
    size = max(min(free.card.fact.memory_mib, MEMORY_MOST), 1)
    return CARD_MILLI * max(min(free.memory_mib, MEMORY_MOST), 0) // size


def room(amount: int) -> int:
    """An amount that a host has free, or that a shape requests, capped at `HOST_MOST`."""
    return max(min(amount, HOST_MOST), 0)


def usable_milli(cards: Iterable[Free], cpu_milli: int, shape: Typical) -> int:
    """The idle parts of a node's cards that a shape can use: of all cards that would take it, if
    there are enough and CPU for one pod is free.
    """
    ask = shape.ask
    if ask is None or room(cpu_milli) < room(shape.request.cpu_milli):
        return 0
    good = [card_milli(free) for free in cards if takes(free, ask, shape.request.selection)]
    return sum(good) if len(good) >= ask.count else 0


def fill_milli(free: Free, shape: Typical) -> int:
    """How much of a card one unit of a shape's request fills: of memory or compute, the larger
    part.
    """
    fact, ask = free.card.fact, shape.ask
    assert ask is not None
    need_mib = need_memory_mib(ask, fact.memory_mib, free.card.table)
    return unit_milli(ask, need_mib, fact.memory_mib, fact.cores_pct)


def unit_milli(ask: DeviceRequest, need_mib: int, memory_mib: int, cores_pct: int) -> int:
    """The same for a unit that needs `need_mib` of a card with `memory_mib`."""
    if ask.cores_pct == CORES_WHOLE_PCT:
        return CARD_MILLI
    memory = CARD_MILLI * max(need_mib, 0) // max(min(memory_mib, MEMORY_MOST), 1)
    return min(max(memory, CARD_MILLI * ask.cores_pct // max(cores_pct, 1)), CARD_MILLI)


def takes_one(ask: DeviceRequest) -> bool:
    """Whether a card counts as taking at most one unit of a request, however much is free."""
    return ask.count > 1 or ask.cores_pct == CORES_WHOLE_PCT


def units(free: Free, shape: Typical) -> int:
    """How many units of a shape's request the card takes; at most one of shapes of several
    cards.
    """
    ask = shape.ask
    if ask is None or not takes(free, ask, shape.request.selection):
        return 0
    if takes_one(ask):
        return 1
    fact = free.card.fact
    found = min(free.slots, UNITS_MOST)
    need_mib = need_memory_mib(ask, fact.memory_mib, free.card.table)
    if need_mib > 0:
        found = min(found, min(free.memory_mib, MEMORY_MOST) // need_mib)
    if ask.cores_pct > 0:
        found = min(found, min(free.cores_pct, CORES_MOST) // ask.cores_pct)
    return found


def is_dead(free: Free, shapes: Sequence[Typical]) -> bool:
    """Whether the card takes none of the shapes, though it would take one if it were idle."""
    if any(units(free, shape) for shape in shapes):
        return False
    idle, fact = free.copy(), free.card.fact
    idle.slots, idle.memory_mib, idle.cores_pct = fact.slots, fact.memory_mib, fact.cores_pct
    return any(units(idle, shape) for shape in shapes)


def card_ppm(free: Free) -> int:
    """Like `card_milli`, but from 0 to 1,000,000."""
    size = max(min(free.card.fact.memory_mib, MEMORY_MOST), 1)
    return PPM * max(min(free.memory_mib, MEMORY_MOST), 0) // size


def filled_milli(many: int, fill: int, cpu_milli: int, memory_kib: int, shape: Typical) -> int:
    """How much of a node's cards pods of one shape would fill if they took all they can: the cards
    take `many` units of its request, which fill `fill`.

    Free CPU and memory limit it in proportion: CPU for half of these pods is room for half of it.
    """
    ask = shape.ask
    number = 1 if ask is None else max(ask.count, 1)
    pods = many // number
    if not pods:
        return 0
    milli = most = fill * (pods * number) // many
    for free_amount, need in (
        (cpu_milli, shape.request.cpu_milli),
        (memory_kib, shape.request.memory_bytes >> KIB_BITS),
    ):
        if need:
            most = min(most, milli * room(free_amount) // (room(need) * pods))
    return most


def takes(free: Free, ask: DeviceRequest, selection: Selection) -> bool:
    """Whether the card takes one unit of a request."""
    return card_refusal(free, ask, Rules(selection, by_amount=True), FAMILIES[ask.family]) is None


# ---- fragmentation: how much of what is idle the mix cannot use


class Fragmentation(NamedTuple):
    """Idle parts of cards, and how much of them a pod of the mix is not expected to be able to use.

    In 10⁻⁹ cards (milli × ppm).
    """

    stranded_nano: int
    idle_nano: int


def _fragmentation(node: Node, mix: Mix, policy: Policy) -> Fragmentation:
    """The fragmentation of one node; all idle parts are stranded if the mix is empty."""
    stranded, idle = 0, 0
    for family, cards in cards_of(node, policy).items():
        milli = sum(map(card_milli, cards))
        idle += PPM * milli
        stranded += PPM * milli
        for shape in mix:
            if shape.ask is not None and shape.ask.family == family:
                stranded -= shape.weight_ppm * usable_milli(cards, node.cpu_milli_free, shape)
    return Fragmentation(stranded, idle)


def cluster_fragmentation(nodes: Iterable[Node], mix: Mix, policy: Policy) -> Fragmentation:
    """The sum over nodes; nodes without a fact have no cards."""
    parts = [_fragmentation(node, mix, policy) for node in nodes]
    return Fragmentation(sum(p.stranded_nano for p in parts), sum(p.idle_nano for p in parts))


def cards_of(node: Node, policy: Policy) -> dict[str, Sequence[Free]]:
    """A node's cards by family, as booked."""
    return {
        family: [Free(card) for card in ledger.cards]
        for family, ledger in node.ledgers.items()
        if family in policy.families
    }
