"""Ways to make a mix of typical pods, and what a node has room for, for policies to compare with.

Each takes how many pods asked for what, and the memory of a usual card, against which amounts of
memory are held. At most `most` shapes, and no more than make up 95 % of what is counted.
"""

from collections.abc import Mapping

import msgspec

from allotment.core.placement.policies.typical import (
    CARD_MILLI,
    CARDS_MOST,
    SHAPES_MOST,
    Mix,
    by_size,
    most_frequent,
    room,
    size_of,
    worth_milli_of,
)
from allotment.core.placement.rules.points import KIB_BITS
from allotment_proto.facts import PodRequest, Typical

_TYPICAL_PCT = 95


def exact_mix(pods: Mapping[PodRequest, int], card_mib: int, most: int | None = SHAPES_MOST) -> Mix:
    """The most frequent shapes, pods without devices included; memory of the host is left out.
    (Weng et al., USENIX ATC 2023, section 3.)
    """
    counts: dict[PodRequest, int] = {}
    for request, number in pods.items():
        if len(request.devices) <= 1:
            key = msgspec.structs.replace(size_of(request), cpu_milli=request.cpu_milli)
            counts[key] = counts.get(key, 0) + number
    return most_frequent(counts, lambda request: request, card_mib, most, _TYPICAL_PCT)


def mean_mix(pods: Mapping[PodRequest, int], card_mib: int, most: int | None = SHAPES_MOST) -> Mix:
    """The most frequent sizes of pods with devices, each with its mean CPU and memory (floored):
    a few of these say as much as many exact shapes.
    """
    counts, mean = by_size(pods)
    return most_frequent(counts, mean, card_mib, most, _TYPICAL_PCT)


def card_mix(pods: Mapping[PodRequest, int], card_mib: int, most: int | None = SHAPES_MOST) -> Mix:
    """The sizes for whose pods most cards are asked, each with its mean CPU and memory."""
    counts, mean = by_size(pods)
    cards = {size: number * worth_milli_of(size, card_mib) for size, number in counts.items()}
    counted = {size: milli for size, milli in cards.items() if milli}
    return most_frequent(counted, mean, card_mib, most, _TYPICAL_PCT)


def headroom_milli(good: int, cpu_milli: int, memory_bytes: int, shape: Typical) -> int:
    """The worth of the pods of a size that a node still has room for, one on a card, if so many
    cards take it.

    Free CPU and memory limit it in proportion: CPU for half a pod is room for half of its worth.
    """
    ask = shape.ask
    if ask is None:
        return 0
    worth = min(shape.worth_milli, CARDS_MOST * CARD_MILLI)
    most = worth * (good // max(ask.count, 1))
    for free, need in (
        (cpu_milli, shape.request.cpu_milli),
        (memory_bytes >> KIB_BITS, shape.request.memory_bytes >> KIB_BITS),
    ):
        if need:
            most = min(most, room(free) * worth // room(need))
    return most
