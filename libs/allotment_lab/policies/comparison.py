"""What placement papers compare best-fit with: dot-product, gpu-packing and gpu-clustering.

All take the fullest card that suffices and differ in how they score nodes. A card counts 1000 milli
of memory, whatever its size; 128 CPUs weigh as much as 8 cards. The formulas are those that Weng et
al. (USENIX ATC 2023) compare with, in integers. gpu-packing and gpu-clustering leave many nodes
equal and have no rule for that; a checksum of the node's name decides, so that neither the fullest
nor the first by name (often a run of machines of one kind) has an edge that is not the policy's.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

from allotment.core.ledger.model import Node
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.policies.base import ByOrder, Points
from allotment.core.placement.policies.best_fit import Charged, charged
from allotment.core.placement.policies.typical import CARD_MILLI, room
from allotment.core.placement.policies.valued import MILLI_CPU_PER_MILLI_CARD
from allotment.core.placement.rules.points import LEFTOVER_MOST, POINT_MICRO
from allotment_proto.facts import PodRequest, Policy

_CARDS_MILLI_MOST = 8 * CARD_MILLI
_DOT_PER_POINT = 327_680_000
"""milli-CPU² a point: two nodes of 128 CPUs, or of 8 cards, make 50 points."""


class _Compared(ByOrder, ABC):
    """A policy that looks at a device request with the node before and its chosen cards."""

    name = ""
    order = "fullest"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        cpu_free = room(node.cpu_milli_free)
        micro, leftover = self._bare(node.name, cpu_free, request)
        for number, cards in enumerate(charged(node, request, picks, policy)):
            cpu_milli = 0 if number else request.cpu_milli
            points, rest = self._score(cpu_free, cpu_milli, cards)
            micro, leftover = micro + points, leftover + rest
        return Points(micro, min(leftover, LEFTOVER_MOST))

    # ---- what a policy says

    def _bare(self, name: str, cpu_free: int, request: PodRequest) -> tuple[int, int]:
        return 0, _tie(name)

    @abstractmethod
    def _score(self, cpu_free: int, cpu_milli: int, cards: Charged) -> tuple[int, int]:
        """Points and leftover of one device request."""


class DotProduct(_Compared):
    """The node whose free amounts, as a direction, are least like the request: 100 points less the
    dot product, rounded down to whole points; of equals the first by name.
    """

    name = "dot-product"

    def _bare(self, name: str, cpu_free: int, request: PodRequest) -> tuple[int, int]:
        if request.devices:
            return 0, 0
        return _dot_micro(min(cpu_free, _DOT_MOST) * min(request.cpu_milli, _DOT_MOST)), 0

    def _score(self, cpu_free: int, cpu_milli: int, cards: Charged) -> tuple[int, int]:
        cpu = min(cpu_free, _DOT_MOST) * min(cpu_milli, _DOT_MOST)
        scale = MILLI_CPU_PER_MILLI_CARD**2
        return _dot_micro(cpu + scale * sum(cards.idle_milli) * sum(cards.taken_milli)), 0


class GpuPacking(_Compared):
    """Cards in use first, then idle cards of nodes in use, then idle nodes; of the first kind those
    with the least free, of the others those that break up or leave the fewest idle cards.
    """

    name = "gpu-packing"

    def _score(self, cpu_free: int, cpu_milli: int, cards: Charged) -> tuple[int, int]:
        idle = sum(milli == CARD_MILLI for milli in cards.idle_milli)
        had = [cards.idle_milli[at] for at in cards.chosen]
        broken = sum(milli == CARD_MILLI for milli in had)
        if idle == len(cards.idle_milli):
            points = max(33 - idle, idle)
        elif broken:
            points = max(50 - broken, 33)
        else:
            points = max(100 - sum(milli // 10 for milli in had) // 10, 50)
        return POINT_MICRO * min(points, 100), 0


class GpuClustering(_Compared):
    """Pods with shares and pods with whole cards keep to themselves: 75 points on a node with only
    the pod's kind, 50 with both, 25 on an idle one, else none; and up to 25 for cards in use.
    """

    name = "gpu-clustering"

    def _score(self, cpu_free: int, cpu_milli: int, cards: Charged) -> tuple[int, int]:
        used = [(n, milli) for n, milli in zip(cards.holders, cards.idle_milli, strict=True) if n]
        whole = any(n == 1 and not milli for n, milli in used)
        share = any(n > 1 or milli for n, milli in used)
        mine, other = (whole, share) if cards.taken_milli[0] == CARD_MILLI else (share, whole)
        base = (50 if other else 75) if mine else (0 if other else 25)
        free = _CARDS_MILLI_MOST - sum(cards.idle_milli)
        return POINT_MICRO * (base + max(25 * free // _CARDS_MILLI_MOST, 0)), 0


_DOT_MOST = 1 << 30
"""Products of two such amounts fit 64 bits."""


def _dot_micro(product: int) -> int:
    return POINT_MICRO * max(100 + -product // _DOT_PER_POINT, 0)


@lru_cache(maxsize=1 << 17)
def _tie(name: str) -> int:
    return crc32(name.encode()) & LEFTOVER_MOST
