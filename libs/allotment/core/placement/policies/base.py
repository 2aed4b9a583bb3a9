"""What a device policy is: which cards it prefers on a node, and how good the node then is.

Every policy exists twice: in plain Python over one node's ledgers (what `predicates.fits` and
`scores.score` call, and what is easy to check by hand), and for many nodes at once (what the board
calls): in the board's loops, or for those that are there for comparison in NumPy in its own file
(`OnColumns`). Both give the same integers; property tests hold them to that.

Points are micro-points: 0 … `FULL_MICRO` per card. Of nodes with equal points the one with the
smallest leftover wins (best fit), then the first by name.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from allotment.core.ledger.model import Node
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.board.shapes import Ask, Shape
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.devices.free import Free
from allotment_proto.facts import DeviceRequest, PodRequest, Policy


class Points(NamedTuple):
    micro: int
    leftover: int
    """What the choice leaves behind, smaller is better: at least 0; counted up to 2²³ − 1."""


class View:
    """Some nodes' columns while they are scored: positions `at` (M,), D cards each.

    `packed` and `keys` (M, D) follow what earlier device requests of the same pod took.
    """

    __slots__ = (
        "at",
        "columns",
        "first",
        "host",
        "keys",
        "networks",
        "packed",
        "taken",
    )

    def __init__(self, columns: Columns, at: Ints, first: Ints) -> None:
        self.columns = columns
        self.at = at
        self.first = first
        """(M,) where each node's cards begin in the flattened (M × D) arrays."""
        self.host: Ints = np.ascontiguousarray(columns.host.take(at, axis=0).T)
        """(R, M)"""
        self.packed: Ints = columns.packed.take(at, axis=0)
        self.keys: Ints = columns.keys.take(at, axis=0)
        self.taken: Bools | None = None
        """Cards (M, D) that earlier device requests of the pod have for themselves."""
        self.networks: dict[str, list[Ints]] = {}
        """By chip the networks (M,) of the first card of each container; see `basic`."""


class DevicePolicy(Protocol):
    """One way to choose. `order` is the word for families that leave the choice to the policy."""

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
        """The cards (given by index) from the best on. Asked if `order` is ``preferred``."""

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        """How good the node is with these cards chosen (none for a pod without devices)."""


@runtime_checkable
class OnColumns(DevicePolicy, Protocol):
    """A policy that takes cards in a plain order, and scores nodes in NumPy: M of them at once."""

    def bare(self, view: View, shape: Shape) -> tuple[Ints | None, Ints | None]:
        """The part of points and leftover (M,) that does not depend on the cards; None for 0."""

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        """Points and leftover of the cards chosen for one device request.

        Their keys and their places in the flattened arrays are (M,) if one card is asked for, else
        (M, k), as are the answers. The key −1 stands for a card that is missing.
        """


class ByOrder:
    """What policies share whose cards come in one of the plain orders: no choice of their own."""

    def prefer(
        self,
        node: Node,
        request: PodRequest,
        wanted: DeviceRequest,
        cards: Sequence[Free],
        policy: Policy,
    ) -> Sequence[Free]:
        return cards
