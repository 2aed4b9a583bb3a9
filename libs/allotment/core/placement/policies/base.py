"""A device policy: which cards it prefers on a node, and how good the node then is.

A policy is plain Python on one node's ledgers, called by `predicates.fits` and `scores.score`. The
board may have loops for it that give the same integers for many nodes at once.

Points are micro-points: 0 … `FULL_MICRO` per card. Of nodes with equal points the one with the
smallest leftover wins (best fit), then the first by name.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from allotment.core.ledger.model import Node
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.devices.free import Free
from allotment_proto.facts import DeviceRequest, PodRequest, Policy


class Points(NamedTuple):
    micro: int
    leftover: int
    """What the choice leaves unused, smaller is better: at least 0; counted up to 2²³ − 1."""


class DevicePolicy(Protocol):
    """One way to choose. `order` is the order of cards for families that leave the choice to the
    policy.
    """

    name: str
    order: str

    def prefer(
        self,
        node: Node,
        request: PodRequest,
        wanted: DeviceRequest,
        cards: Sequence[Free],
        policy: Policy,
    ) -> Sequence[Free]:
        """The cards (given by index), the best first. Called if `order` is ``preferred``."""

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        """How good the node is with these cards chosen (none for a pod without devices)."""


class ByOrder:
    """For policies whose cards come in one of the plain orders."""

    def prefer(
        self,
        node: Node,
        request: PodRequest,
        wanted: DeviceRequest,
        cards: Sequence[Free],
        policy: Policy,
    ) -> Sequence[Free]:
        return cards
