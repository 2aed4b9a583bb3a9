"""Nodes and cards that are held back because pods did not start there (`ledger.health`).

They become bounds of a pod's request, checked once everything else fits. A node on trial takes one
lone pod at a time, and only if no other node takes it. Members of a gang are never used for a
trial: if one failed, all others would lose their place.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.ledger.model import ClusterState, Health, Node
from allotment.core.placement.rules.bounds import Excluded, bounded, bounds_of
from allotment.core.reasons import NODE_FAILING
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import PodRequest

_Card = tuple[str, str, str]
"""Node, family, card id."""
_NAMED = 3


def is_concerned(request: PodRequest) -> bool:
    """Whether a request needs something that device plugins allocate."""
    return bool(request.devices) or any(n and "/" in name for name, n in request.extended)


def without_failing(request: PodRequest, pod: PodObserved, state: ClusterState) -> PodRequest:
    """The request without the nodes and cards that are held back; the same object if none is."""
    if not state.health or not is_concerned(request):
        return request
    is_gang = state.is_gang(pod.group)
    nodes: list[str] = []
    cards: list[_Card] = []
    for place, health in state.health.items():
        if not health.since or not health.concerns(pod.namespace):
            continue
        name, family, _ = place
        if family:
            cards.append(place)
        elif not health.trial_seq or is_gang or state.nodes[name].has_volunteer(health):
            nodes.append(name)
    return without(request, nodes, cards)


def if_possible(request: PodRequest, pod: PodObserved, state: ClusterState) -> PodRequest:
    """The request without nodes on trial, nodes on which similar pods failed (`_has_failed`), and
    cards that are held back for several namespaces; the same object if there are none.
    """
    if not state.health or not is_concerned(request):
        return request
    nodes = [
        name
        for (name, family, _), health in state.health.items()
        if not family
        and ((health.times and health.concerns(pod.namespace)) or _has_failed(health, pod))
    ]
    cards = [
        place
        for place, health in state.health.items()
        if place[1] and health.since and len(health.namespaces) > 1
    ]
    return without(request, nodes, cards)


def _has_failed(health: Health, pod: PodObserved) -> bool:
    """Whether pods of the same owner failed there, or pods with the same image, in its own
    namespace or in several others: another node shows whether the node or the image is at fault.
    """
    spaces = {s.namespace for s in health.counted if s.has_died and s.image == pod.image}
    is_of_owner = any(strike.owner == pod.owner for strike in health.counted)
    return pod.namespace in spaces or len(spaces) > 1 or (bool(pod.owner) and is_of_owner)


def without_tried(
    request: PodRequest, pod: PodObserved, state: ClusterState, assumed: Iterable[Placement]
) -> PodRequest:
    """The request without the nodes on trial to which the same batch has already sent a pod."""
    if not state.health or not is_concerned(request):
        return request
    tried = [
        placement.node
        for placement in assumed
        if _is_on_trial(state, placement.node, pod.namespace)
        and is_concerned(state.pods[placement.uid].fact.request)
    ]
    return without(request, tried)


def _is_on_trial(state: ClusterState, name: str, namespace: str) -> bool:
    """Whether a node takes a namespace's pods one at a time."""
    health = state.health.get((name, "", ""))
    return health is not None and bool(health.trial_seq) and health.concerns(namespace)


def has_volunteer(state: ClusterState, node: Node, namespace: str) -> bool:
    """Whether such a node, with what is assumed on it, has a pod that has yet to start."""
    return _is_on_trial(state, node.name, namespace) and node.has_volunteer(
        state.health[node.name, "", ""]
    )


def without(request: PodRequest, nodes: Sequence[str], cards: Sequence[_Card] = ()) -> PodRequest:
    """The request without these nodes and cards."""
    if cards:
        avoided = tuple(sorted({*request.selection.avoided, *cards}))
        selection = msgspec.structs.replace(request.selection, avoided=avoided)
        request = msgspec.structs.replace(request, selection=selection)
    if nodes:
        bounds = bounds_of(request)
        excluded = Excluded(NODE_FAILING, frozenset(nodes), _text(sorted(set(nodes))))
        request = bounded(request, bounds._replace(excluded=(*bounds.excluded, excluded)))
    return request


def _text(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    one, is_are = ("node", "is") if len(names) == 1 else ("nodes", "are")
    return (
        f"{one} {', '.join(names[:_NAMED])}{more} {is_are} held back because pods did not start "
        "there: allot doctor has the records"
    )
