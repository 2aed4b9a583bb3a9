"""Reserves the room that evictions free as an amount: cards and host resources of a node, not the
node.

Each node is considered as it will be: without the pods that are ending, and with the preemptors
that are nominated for it on the cards found for them. Another pod may use what is free now if it
leaves each of them its room. So preemptors of one batch that are nominated for one node do not
reject one another, in whatever order their victims end.

A preemptor whose room a fact took has no reservation. One with rules about other pods reserves its
whole node against all pods that are not nominated for it, because amounts cannot express such
rules.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allotment.core.ledger.evictions import ending
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.state import allocation_of, covers
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import card_refusal, rules_of
from allotment.core.placement.devices.free import Free
from allotment.core.placement.rules.bounds import (
    Bounds,
    Excluded,
    bounded,
    bounds_of,
    by_itself,
)
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.queues.limits import Kept
from allotment.core.reasons import KEPT_FOR_PREEMPTOR
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import ALONE, Holding, PodRequest

Cards = tuple[tuple[str, str, str], ...]
"""Node, family, card id."""


def put_promised(state: ClusterState, node: Node, uid: str, holdings: tuple[Holding, ...]) -> bool:
    """Charge a nominated pod on a copy of its node, on the cards that were found for it, or on
    others if these have no room; False if the node has none.
    """
    request = _amounts(state.pods[uid].fact.request)
    placement = on_trial(uid, node.name, request, holdings)
    only: dict[tuple[str, int], set[str]] = {}
    for held in holdings:
        only.setdefault((held.family, held.container), set()).add(held.card)
    found = fits(node, request, state.policy, only=only) if holdings else None
    if not isinstance(found, Fit) or not covers(node, placement):
        found = fits(node, request, state.policy)
        if not isinstance(found, Fit):
            return False
        chosen = tuple(held for each in found.chosen for held in each.holdings)
        placement = on_trial(uid, node.name, request, chosen)
    node.charge(allocation_of(placement, 0))
    return True


class KeptRoom:
    """The room that reservations for preemptors leave to others, on a state with this round's
    placements.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._assumed: dict[str, list[Placement]] = {}
        """By node."""
        self._ending: dict[str, list[str]] | None = None
        """By node, computed when first needed."""
        self._found = {
            uid: (name, nominated.holdings.get(uid, ()))
            for nominated in state.nominated.values()
            for uid, name in nominated.nodes.items()
        }
        """By pod, the node that it is nominated for, and the cards that were found for it."""
        self._known: dict[str, dict[object, tuple[bool, Cards]]] = {}
        """By node, results that hold until the node changes: for a request and the pods with
        reservations there, whether the whole node is reserved, and which of its cards are.
        """

    def add(self, placement: Placement) -> None:
        """Count a new placement."""
        self._assumed.setdefault(placement.node, []).append(placement)
        self._known.pop(placement.node, None)

    def take_back(self, placement: Placement) -> None:
        """Remove the newest placement of its node."""
        last = self._assumed[placement.node].pop()
        assert last is placement
        self._known.pop(placement.node, None)

    def within(self, pod: PodObserved, kept: Sequence[Kept], only: str = "") -> PodObserved:
        """The pod, with a request that excludes what is reserved for others; `only`: it can go to
        this node alone.
        """
        shut: dict[str, str] = {}
        cards: list[tuple[str, str, str]] = []
        for name, uids, text in self._by_node(kept, only):
            if self._is_kept_whole(pod.uid, name, uids):
                shut[name] = text
                continue
            known = self._known.setdefault(name, {})
            asked = _amounts(pod.request)
            key = asked, tuple(uids)
            found = known.get(key)
            if found is None:
                found = known[key] = self._left(name, uids, asked)
            if found[0]:
                shut[name] = text
            else:
                cards += found[1]
        return _without(pod, shut, cards)

    def takes(self, placement: Placement, kept: Sequence[Kept]) -> bool:
        """Whether a placement leaves the others their room."""
        for _, uids, _ in self._by_node(kept, placement.node):
            if self._is_kept_whole(placement.uid, placement.node, uids):
                return False
            node = self._future(placement.node)
            promised = self._put(node.fork(), uids)
            if not covers(node, placement):
                return not promised  # a pod that is ending still occupies what this placement uses
            node.charge(allocation_of(placement, 0))
            if self._put(node, promised) != promised:
                return False
        return True

    def without(self, pod: PodObserved, placement: Placement) -> PodObserved:
        """The pod, with a request that excludes this place: other cards, or another node."""
        node = placement.node
        cards = {(node, held.family, held.card) for held in placement.holdings}
        new = sorted(cards - set(pod.request.selection.avoided))
        return _without(pod, {} if new else {node: ""}, new)

    def _by_node(self, kept: Sequence[Kept], only: str) -> Iterator[tuple[str, list[str], str]]:
        """The nodes with reservations, the uids that have them, and a text that names them."""
        uids: dict[str, list[str]] = {}
        texts: dict[str, str] = {}
        for one in kept:
            for uid, name in one.pods:
                if only not in ("", name) or name not in self._state.nodes:
                    continue
                if all(each.uid != uid for each in self._assumed.get(name, ())):
                    uids.setdefault(name, []).append(uid)
                    texts.setdefault(name, one.text)
        for name in sorted(uids):
            yield name, uids[name], texts[name]

    def _is_kept_whole(self, uid: str, name: str, uids: Iterable[str]) -> bool:
        pods = self._state.pods
        if all(pods[each].fact.request.company == ALONE for each in uids):
            return False
        return self._found.get(uid, ("", ()))[0] != name

    def _left(self, name: str, uids: Sequence[str], asked: PodRequest) -> tuple[bool, Cards]:
        """Whether the whole node is reserved against the request, and which of its cards are."""
        state = self._state
        now = self._now(name)
        if not isinstance(fits(now, asked, state.policy), Fit):
            return False, ()  # it does not fit even without reservations
        future = self._future(name)
        if not self._put(future, uids):
            return False, ()
        if not isinstance(fits(future, asked, state.policy), Fit):
            return True, ()
        cards = tuple(self._cards_kept(future, uids, asked))
        if not cards:
            return False, ()
        return not isinstance(fits(now, _avoiding(asked, cards), state.policy), Fit), cards

    def _cards_kept(
        self, future: Node, uids: Iterable[str], asked: PodRequest
    ) -> Iterator[tuple[str, str, str]]:
        rules = rules_of(asked, self._state.policy, future.name)
        held = (h for u in uids if u in future.allocations for h in future.allocations[u].holdings)
        for family, card_id in dict.fromkeys((h.family, h.card) for h in held):
            card = future.ledgers[family].by_id[card_id]
            if any(
                wanted.family == family
                and card_refusal(Free(card), wanted, rules, FAMILIES[family]) is not None
                for wanted in asked.devices
            ):
                yield future.name, family, card_id

    def _now(self, name: str) -> Node:
        node = self._state.nodes[name].fork()
        for placement in self._assumed.get(name, ()):
            node.charge(allocation_of(placement, 0))
        return node

    def _future(self, name: str) -> Node:
        """The node without the pods that are ending, with this round's placements."""
        if self._ending is None:
            self._ending = {}
            for uid in ending(self._state):
                held = self._state.pods[uid].allocation
                assert held is not None
                self._ending.setdefault(held.node, []).append(uid)
        node = self._now(name)
        for uid in self._ending.get(name, ()):
            node.release(node.allocations[uid])
        return node

    def _put(self, node: Node, uids: Iterable[str]) -> list[str]:
        """Charge those of these pods that have room, one after the other, and return them."""
        return [u for u in uids if put_promised(self._state, node, u, self._found[u][1])]


def _amounts(request: PodRequest) -> PodRequest:
    """The request without its rules about other pods and without what is held for others."""
    return by_itself(request)


def _avoiding(request: PodRequest, cards: Iterable[tuple[str, str, str]]) -> PodRequest:
    avoided = tuple(sorted({*request.selection.avoided, *cards}))
    selection = msgspec.structs.replace(request.selection, avoided=avoided)
    return msgspec.structs.replace(request, selection=selection)


def _without(
    pod: PodObserved, shut: Mapping[str, str], cards: Sequence[tuple[str, str, str]]
) -> PodObserved:
    """The pod, with a request for none of these nodes and cards."""
    request = _avoiding(pod.request, cards) if cards else pod.request
    if shut:
        bounds: Bounds = bounds_of(request)
        by_text: dict[str, set[str]] = {}
        for name, text in shut.items():
            by_text.setdefault(text, set()).add(name)
        more = tuple(
            Excluded(KEPT_FOR_PREEMPTOR, frozenset(names), text) for text, names in by_text.items()
        )
        request = bounded(request, bounds._replace(excluded=(*bounds.excluded, *more)))
    return pod if request is pod.request else msgspec.structs.replace(pod, request=request)


def on_trial(uid: str, node: str, request: PodRequest, holdings: tuple[Holding, ...]) -> Placement:
    """A placement for trials, without a score."""
    return Placement(
        uid=uid,
        namespace="",
        name="",
        node=node,
        holdings=holdings,
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        extended=request.extended,
        score_micro=0,
        terms=(),
        runners_up=(),
        feasible=0,
        nodes=0,
    )
