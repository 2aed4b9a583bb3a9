"""One card, one book: nodes that list their cards twice, to be allocated whole and in shares.

Two device plugins run there, one that shares cards and one that only counts them, and neither sees
what the other allocates. Kubelet chooses the cards of a counted resource, so it is unknown which
are left: while one of them is held, no card of the node is shared, and while a share is held, none
is allocated whole. Both are thresholds, so that the board can check the same: a node that lists its
cards once has 1 for either; one that lists them twice has minus the number held of the other kind.
"""

from typing import NamedTuple

from allotment.core import reasons
from allotment.core.ledger.model import Node
from allotment.core.placement.devices import FAMILIES
from allotment_proto.events import NodeObserved, Placement
from allotment_proto.facts import PodRequest

_NO_NEED = -(1 << 62)
_WHOLE = frozenset[str]().union(*(family.counted_again for family in FAMILIES.values()))
_SHARED = frozenset(name for name, family in FAMILIES.items() if family.counted_again)


class Spare(NamedTuple):
    """What a node has for pods that want shares of cards, and for pods that want whole ones; or
    what a pod needs of both.
    """

    for_shares: int
    for_whole: int


_ONCE = Spare(1, 1)


def spare_of(node: Node) -> Spare:
    """What a node has."""
    twice = () if node.fact is None else node.fact.listed_twice
    if not twice:
        return _ONCE
    assert node.fact is not None
    listed, free = dict(node.fact.extended), node.extended_free
    whole = sum(listed[name] - free[name] for name in {resource for resource, _ in twice})
    ledgers = [node.ledgers[family] for family in {family for _, family in twice}]
    shares = sum(len(card.holders) for ledger in ledgers for card in ledger.cards)
    return Spare(-whole, -shares)


def taken_by(fact: NodeObserved, placement: Placement) -> Spare:
    """How many shares and how many whole cards of such a node a placement takes."""
    twice = fact.listed_twice
    resources, families = {name for name, _ in twice}, {family for _, family in twice}
    return Spare(
        sum(held.family in families for held in placement.holdings),
        sum(amount for name, amount in placement.extended if name in resources),
    )


def need_of(request: PodRequest) -> Spare:
    """What a pod needs. A pod that wants both fits only where these are different cards."""
    wants_shares = any(ask.family in _SHARED for ask in request.devices)
    wants_whole = any(amount and name in _WHOLE for name, amount in request.extended)
    if wants_shares and wants_whole:
        return _ONCE
    return Spare(0 if wants_shares else _NO_NEED, 0 if wants_whole else _NO_NEED)


def card_lack(node: Node, request: PodRequest) -> str | None:
    """Why a node cannot allocate such cards, if the reason is what is held of the other kind."""
    has, needs = spare_of(node), need_of(request)
    is_enough = has.for_shares >= needs.for_shares and has.for_whole >= needs.for_whole
    return None if is_enough else reasons.CARDS_IN_OTHER_USE
