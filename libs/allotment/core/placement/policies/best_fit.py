"""Best fit: the node that keeps the least free, CPU and cards together.

It takes the fullest card that suffices. A card counts 1000 milli of memory, whatever its size; 128
CPUs weigh as much as 8 cards. The formula is the one that Weng et al. (USENIX ATC 2023) compare
with, in integers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.devices import by_family
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.policies.base import ByOrder, Points
from allotment.core.placement.policies.typical import card_milli, cards_of, room
from allotment.core.placement.policies.valued import MILLI_CPU_PER_MILLI_CARD
from allotment.core.placement.rules.points import FULL_MICRO, LEFTOVER_MOST
from allotment_proto.facts import PodRequest, Policy

_FIT_MICRO = 390
"""What a free milli-CPU costs; 128 CPUs and 8 cards cost just under 100 points."""


class BestFit(ByOrder):
    name = "best-fit"
    order = "fullest"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        idle = sum(card_milli(f) for cards in cards_of(node, policy).values() for f in cards)
        left = max(room(node.cpu_milli_free) - request.cpu_milli, 0)
        left += MILLI_CPU_PER_MILLI_CARD * idle
        micro = max(FULL_MICRO - _FIT_MICRO * left, 0)
        for cards in charged(node, request, picks, policy):
            taken = MILLI_CPU_PER_MILLI_CARD * sum(cards.taken_milli)
            micro, left = micro + _FIT_MICRO * taken, left - taken
        return Points(micro, min(left, LEFTOVER_MOST))


class Charged(NamedTuple):
    """A family's cards on one node before a device request, and the ones chosen."""

    idle_milli: list[int]
    taken_milli: list[int]
    """What the chosen cards allocate, in the order of `chosen`."""
    chosen: list[int]
    holders: list[int]


def charged(
    node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
) -> Iterator[Charged]:
    """Per device request, the family's cards before it and those chosen."""
    families = cards_of(node, policy)
    done = 0
    for group in by_family(request).values():
        for wanted in group:
            cards = families[wanted.family]
            at = {free.card.fact.id: index for index, free in enumerate(cards)}
            chosen = [at[p.card.fact.id] for p in picks[done : done + wanted.count]]
            done += wanted.count
            idle = [card_milli(free) for free in cards]
            used = [free.used_slots for free in cards]
            for index in chosen:
                piece = cards[index].piece(wanted, policy.mig_order)
                assert piece is not None
                cards[index].take(wanted, piece)
            taken = [idle[index] - card_milli(cards[index]) for index in chosen]
            yield Charged(idle, taken, chosen, used)
