"""The common part of policies that look ahead: nodes have a value, and a pod goes where it drops
least.

Such a policy defines what a node's cards and host are worth to a mix of typical pods. All else
follows: it prefers the card whose charge costs least (of equals the one with the least free), a
node scores by the cost of the choice, and of equal nodes the fullest one wins: the least CPU
(milli) + 16 × free milli-cards left, so that 128 CPUs weigh as much as 8 cards. The loops of the
board do the same for many nodes at once (`allotment_board.values`).

Device requests of one pod are scored one after the other, each with the shapes of its family; the
first one carries the pod's CPU and memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.ledger.partitions import Piece, Table
from allotment.core.placement.devices import by_family
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.policies.base import Points
from allotment.core.placement.policies.typical import Mix, card_milli, cards_of, room
from allotment.core.placement.rules.points import LEFTOVER_MOST
from allotment_proto.facts import CardFact, DeviceRequest, PodRequest, Policy

MILLI_CPU_PER_MILLI_CARD = 16
_PARTS_MOST = 1 << 17


class Host(NamedTuple):
    """Free CPU (milli) and memory (bytes) of one node."""

    cpu_milli: int
    memory_bytes: int


class Valued(ABC):
    """A policy that values nodes. Subclasses define a node's value and the score of a change."""

    name = ""
    order = "preferred"

    def __init__(self, mix: Mix = ()) -> None:
        self.mix = mix
        self._parts: dict[tuple[CardFact, Table, int, int, int], tuple[int, ...]] = {}

    @abstractmethod
    def part(self, family: str, free: Free) -> tuple[int, ...]:
        """One card's part in the sums from which `worth` values its node."""

    @abstractmethod
    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The value of the family's cards with this much of the host free."""

    @abstractmethod
    def micro(self, gain: int) -> int:
        """Micro-points, from 0 to 100 points, for a change of the value."""

    def prefer(
        self,
        node: Node,
        request: PodRequest,
        wanted: DeviceRequest,
        cards: Sequence[Free],
        policy: Policy,
    ) -> Sequence[Free]:
        if not cards:
            return cards
        known = {free.card.fact.id: free for free in cards}
        family = wanted.family
        full = [known.get(free.card.fact.id, free) for free in cards_of(node, policy)[family]]
        before, after = _hosts(node, request, wanted)
        sums = self._sums(family, full)
        worth = self.worth(family, sums, before)
        known_micro: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

        def rank(free: Free) -> tuple[int, int]:
            now, then = self._part(family, free), self._part(family, _charged(free, wanted, policy))
            micro = known_micro.get((now, then))
            if micro is None:
                changed = [each - a + b for each, a, b in zip(sums, now, then, strict=True)]
                micro = self.micro(self.worth(family, changed, after) - worth)
                known_micro[now, then] = micro
            return -micro, card_milli(free)

        return sorted(cards, key=rank)

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        families = {name: list(cards) for name, cards in cards_of(node, policy).items()}
        micro = 0
        if not picks:
            before, after = Host(node.cpu_milli_free, node.memory_bytes_free), _after(node, request)
            micro = self.micro(
                sum(
                    self._value(name, cards, after) - self._value(name, cards, before)
                    for name, cards in families.items()
                )
            )
        for wanted, ids in _asks(request, picks):
            cards = families[wanted.family]
            charged = [_charged(f, wanted, policy) if f.card.fact.id in ids else f for f in cards]
            before, after = _hosts(node, request, wanted)
            gain = self._value(wanted.family, charged, after)
            micro += self.micro(gain - self._value(wanted.family, cards, before))
            families[wanted.family] = charged
        left = sum(card_milli(free) for cards in families.values() for free in cards)
        cpu_milli = _after(node, request).cpu_milli
        leftover = room(cpu_milli) + MILLI_CPU_PER_MILLI_CARD * left
        return Points(micro, min(leftover, LEFTOVER_MOST))

    def _value(self, family: str, cards: Sequence[Free], host: Host) -> int:
        return self.worth(family, self._sums(family, cards), host) if cards else 0

    def _sums(self, family: str, cards: Sequence[Free]) -> list[int]:
        return [sum(column) for column in zip(*(self._part(family, f) for f in cards), strict=True)]

    def _part(self, family: str, free: Free) -> tuple[int, ...]:
        # Most cards of a node have not changed since the last call, and checking each shape of the
        # mix against a card is the expensive part.
        key = free.card.fact, free.card.table, free.slots, free.memory_mib, free.cores_pct
        known = self._parts.get(key)
        if known is None:
            if len(self._parts) >= _PARTS_MOST:
                self._parts.clear()
            known = self._parts[key] = self.part(family, free)
        return known


def _asks(
    request: PodRequest, picks: Sequence[Pick]
) -> Iterator[tuple[DeviceRequest, frozenset[str]]]:
    """The device requests in order, each with its cards' ids."""
    done = 0
    for group in by_family(request).values():
        for wanted in group:
            yield wanted, frozenset(p.card.fact.id for p in picks[done : done + wanted.count])
            done += wanted.count


def _hosts(node: Node, request: PodRequest, wanted: DeviceRequest) -> tuple[Host, Host]:
    """The host before and after a device request."""
    after = _after(node, request)
    first = next(group[0] for group in by_family(request).values())
    if wanted is not first:
        return after, after
    return Host(node.cpu_milli_free, node.memory_bytes_free), after


def _after(node: Node, request: PodRequest) -> Host:
    return Host(
        node.cpu_milli_free - request.cpu_milli, node.memory_bytes_free - request.memory_bytes
    )


def _charged(free: Free, wanted: DeviceRequest, policy: Policy) -> Free:
    """A copy of the card with one unit of the request charged, if it has the room."""
    twin = free.copy()
    piece = twin.piece(wanted, policy.mig_order)
    if piece is None:
        need_mib = need_memory_mib(wanted, free.card.fact.memory_mib, free.card.table)
        twin.charge(Piece((), need_mib, wanted.cores_pct, free.state))
    else:
        twin.take(wanted, piece)
    return twin
