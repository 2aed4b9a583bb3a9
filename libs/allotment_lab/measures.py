"""How full a cluster is and how much of it is stranded, in milli-cards: integers until printed.

A card is 1000 milli. What is taken of it is the larger of its memory share and its compute share,
since either may keep others away. What is stranded of it: see `core.placement.policies.typical`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import model_wanted
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.policies.typical import CARD_MILLI, PPM, Mix, card_milli
from allotment_lab.policies import MIXES
from allotment_lab.policies.mixes import exact_mix
from allotment_proto.events import MixLearned, NodeObserved
from allotment_proto.facts import CardFact, DeviceRequest, PodRequest, Selection, Typical

NEVER = 1 << 60
"""More than any card has free."""


def typical(requests: Iterable[PodRequest], nodes: Iterable[NodeObserved]) -> Mix:
    """The shapes that 95 % of the pods have, against which fragments are measured."""
    return exact_mix(Counter(requests), _mean_card_mib(nodes), most=None)


def learned(
    policy: str, requests: Sequence[PodRequest], nodes: Iterable[NodeObserved]
) -> tuple[MixLearned, ...]:
    """What a policy that looks ahead would have learned of a workload; empty for the others."""
    make = MIXES.get(policy)
    if make is None:
        return ()
    mix = make(Counter(requests), _mean_card_mib(nodes))
    return (MixLearned(policy=policy, mix=mix, pods=len(requests)),)


def _mean_card_mib(nodes: Iterable[NodeObserved]) -> int:
    sizes = [card.memory_mib for node in nodes for b in node.inventories for card in b.cards]
    return sum(sizes) // max(len(sizes), 1)


def node_milli(node: Node) -> int:
    """What is taken of a node's cards."""
    taken = 0
    for ledger in node.ledgers.values():
        for card in ledger.cards:
            if card.holders:
                memory = CARD_MILLI * card.used_memory_mib // (card.fact.memory_mib or 1)
                cores = CARD_MILLI * card.used_cores_pct // (card.fact.cores_pct or 1)
                taken += min(max(memory, cores), CARD_MILLI)
    return taken


def capacity_milli(nodes: Iterable[NodeObserved]) -> int:
    """All cards of the nodes."""
    return CARD_MILLI * sum(len(books.cards) for node in nodes for books in node.inventories)


def idle_cards(state: ClusterState) -> int:
    """How many cards have no holder."""
    return sum(
        not card.holders
        for node in state.nodes.values()
        for books in node.ledgers.values()
        for card in books.cards
    )


class Wanted:
    """How many milli-cards a request asks for, whichever cards it will get.

    An amount of memory is held against the mean of the cards that the request accepts.
    """

    def __init__(self, nodes: Iterable[NodeObserved]) -> None:
        self._cards: Counter[tuple[str, str, int]] = Counter(
            (books.family, card.model, card.memory_mib)
            for node in nodes
            for books in node.inventories
            for card in books.cards
        )
        self._known: dict[PodRequest, int] = {}

    def milli(self, request: PodRequest) -> int:
        known = self._known.get(request)
        if known is None:
            known = self._known[request] = self._milli(request)
        return known

    def _milli(self, request: PodRequest) -> int:
        total = 0
        for ask in request.devices:
            memory = 10 * ask.memory_pct
            if ask.memory_mib:
                memory = CARD_MILLI * ask.memory_mib // self._mean_mib(request, ask.family)
            total += ask.count * min(max(memory, 10 * ask.cores_pct), CARD_MILLI)
        return total

    def _mean_mib(self, request: PodRequest, family: str) -> int:
        def mean(cards: Mapping[tuple[str, str, int], int]) -> int:
            total = sum(key[2] * many for key, many in cards.items())
            return total // max(sum(cards.values()), 1)

        mine = {key: many for key, many in self._cards.items() if key[0] == family}
        accepted = {key: n for key, n in mine.items() if model_wanted(key[1], request.selection)}
        return max(mean(accepted or mine), 1)


def fragmented_milli(state: ClusterState, mix: Mix) -> int:
    """The idle parts of all cards that a typical pod is expected not to be able to use.

    The same as `typical.cluster_fragmentation`, which asks card by card, on columns.
    """
    cards = _Cards(state)
    usable_nano = sum(shape.weight_ppm * cards.usable_milli(shape) for shape in mix)
    return int(cards.idle_milli.sum()) - usable_nano // PPM


class _Cards:
    """All cards as columns: which node each is on, its kind, what is free."""

    def __init__(self, state: ClusterState) -> None:
        nodes = [node for node in state.nodes.values() if node.fact is not None and node.ledgers]
        self._cpu_milli_free = np.array([node.cpu_milli_free for node in nodes], np.int64)
        self._kinds: dict[tuple[str, CardFact], int] = {}
        rows = [
            (at, self._kind(family, card.fact), *_free(card))
            for at, node in enumerate(nodes)
            for family, books in node.ledgers.items()
            if family in state.policy.families
            for card in books.cards
        ]
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        self._node, self._of_kind, *self._free, self.idle_milli = columns

    def _kind(self, family: str, fact: CardFact) -> int:
        alike = msgspec.structs.replace(fact, id="", index=0)
        return self._kinds.setdefault((family, alike), len(self._kinds))

    def usable_milli(self, shape: Typical) -> int:
        """The idle parts of the cards that take the shape, on nodes with enough of them and CPU."""
        request, ask = shape.request, shape.ask
        if ask is None or not self._kinds:
            return 0
        needs = np.array([_needs(*kind, ask, request.selection) for kind in self._kinds])
        need = needs.take(self._of_kind, axis=0).T
        good = np.logical_and.reduce([f >= n for f, n in zip(self._free, need, strict=True)])
        fits = self._cpu_milli_free >= request.cpu_milli
        fits &= np.bincount(self._node, good, len(fits)) >= ask.count
        return int(self.idle_milli[good & fits.take(self._node)].sum())


def _free(card: Card) -> tuple[int, int, int, int]:
    """Slots, memory, compute, and the idle part."""
    return card.free_slots, card.free_memory_mib, card.free_cores_pct, card_milli(Free(card))


def _needs(
    family: str, fact: CardFact, ask: DeviceRequest, selection: Selection
) -> tuple[int, int, int]:
    """What one unit of the request needs free on a card of this kind, as thresholds."""
    takes = fact.healthy and ask.family == family and model_wanted(fact.model, selection)
    slots = fact.slots if ask.cores_pct == CORES_WHOLE_PCT else 1
    cores = max(ask.cores_pct, 1)
    return (slots if takes else NEVER), need_memory_mib(ask, fact.memory_mib), cores
