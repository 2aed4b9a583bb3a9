"""The policies of Volcano's vgpu scoring: binpack, spread, and none.

binpack takes the fullest card and gives 100 points × used-after ÷ capacity a card; spread takes the
card with the fewest holders and gives 100 points a card that was idle; none takes cards by index
from the last and gives no points. Counted resources (`nvidia.com/gpu`) score likewise by their use
on the node. `Family.scoring` defines which cards of a family count, and by what. If chips report
their networks, containers whose first chips are on one network earn up to 10 points more. The loops
of the board do the same for many nodes at once (`allotment_board.choice.choose_cards`). Source:
volcano `vgpu` and `ascend/hami` scoring (deviceshare 5.1).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from allotment.core.ledger.model import Node
from allotment.core.placement.devices import FAMILIES, base, by_family
from allotment.core.placement.devices.choosing import Pick, is_wired
from allotment.core.placement.policies.base import ByOrder, Points
from allotment.core.placement.rules.points import (
    FULL_MICRO,
    NETWORK_MICRO,
    counted_share_micro,
    share_micro,
)
from allotment_proto.facts import DeviceRequest, PodRequest, Policy


class _ByUse(ByOrder, ABC):
    """For policies that score a card by its use, or not at all."""

    name = "none"
    order = "last"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        if picks:
            return self._of_cards(request, picks)
        assert node.fact is not None
        listed, free = dict(node.fact.extended), node.extended_free
        shares = (
            counted_share_micro(listed[name] - free[name] + amount, listed[name])
            for name, amount in request.extended
            if amount
        )
        return Points(sum(self._counted_micro(share) for share in shares), 0)

    def _of_cards(self, request: PodRequest, picks: Sequence[Pick]) -> Points:
        micro, leftover, done = 0, 0, 0
        networks: dict[str, list[int]] = {}
        for group in by_family(request).values():
            for wanted in group:
                mine = picks[done : done + wanted.count]
                done += wanted.count
                points = self._of_request(wanted, mine)
                micro, leftover = micro + points.micro, leftover + points.leftover
                if is_wired(wanted):
                    networks.setdefault(wanted.chip, []).append(mine[0].card.fact.network)
        return Points(micro + sum(map(_network_micro, networks.values())), leftover)

    def _of_request(self, wanted: DeviceRequest, picks: Sequence[Pick]) -> Points:
        match FAMILIES[wanted.family].scoring:
            case base.SCORE_FIRST:
                first, size = picks[0], picks[0].card.fact.memory_mib
                used = first.used_after_mib - first.charged_mib
                micro = self._micro(used, size, first.was_idle) if size else 0
            case base.SCORE_COMPUTE:
                micro = sum(
                    self._micro(size - pick.free_after_pct, size, pick.was_idle)
                    for pick in picks
                    if (size := pick.card.fact.cores_pct) and not pick.is_second_best
                )
                return Points(micro, sum(pick.free_after_pct for pick in picks))
            case _:
                micro = sum(
                    self._micro(pick.used_after_mib, pick.card.fact.memory_mib, pick.was_idle)
                    for pick in picks
                )
        return Points(micro, sum(pick.free_after_mib for pick in picks))

    # ---- what a policy defines

    @abstractmethod
    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        """Micro-points of one card."""

    def _counted_micro(self, share_micro: int) -> int:
        """Micro-points of a counted resource of which this share is in use."""
        return 0


class Unscored(_ByUse):
    """All nodes that fit are equal: best fit decides."""

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return 0


class Binpack(_ByUse):
    name = "binpack"
    order = "fullest"

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return share_micro(used, size)

    def _counted_micro(self, share_micro: int) -> int:
        return share_micro


class Spread(_ByUse):
    name = "spread"
    order = "emptiest"

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return FULL_MICRO if was_idle else 0

    def _counted_micro(self, share_micro: int) -> int:
        return FULL_MICRO - share_micro


def _network_micro(networks: Sequence[int]) -> int:
    """Micro-points for the networks of containers' first chips: 0 if one of them is unknown."""
    if not networks or min(networks) < 0:
        return 0
    return NETWORK_MICRO * max(map(networks.count, networks)) // len(networks)
