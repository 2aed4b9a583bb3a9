"""Which models a pod accepts of cards that are only counted, like ``nvidia.com/gpu: 1``.

Kubelet chooses the cards of such a resource, so a node matches as a whole or not at all, by the
model in its product label (``nvidia.com/gpu.product``; `card_names` has the rule). A node that
lists such cards without a model matches no list of types, neither of wanted nor of unwanted ones,
because its model is unknown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices.choosing import model_wanted
from allotment.core.placement.rules import card_names
from allotment_proto.events import NodeObserved
from allotment_proto.facts import PodRequest, Selection

_MODELS_SHOWN = 5
_UNKNOWN = ""
"""The model of cards whose node has no label for it."""


def has_wrong_model(fact: NodeObserved, labels: Mapping[str, str], request: PodRequest) -> bool:
    """Whether the node lists counted cards that the pod requests, of a model that it rejects."""
    chosen = request.selection
    if not chosen.counted:
        return False
    spelled = card_names.spelled(chosen)
    return any(
        model == _UNKNOWN or not model_wanted(model, spelled)
        for model in models_of(fact, labels, chosen)
    )


def models_text(fact: NodeObserved, labels: Mapping[str, str], request: PodRequest) -> str:
    """The models of the counted cards that the pod requests, by the node's labels, as text."""
    models = set(models_of(fact, labels, request.selection))
    return ", ".join(_shown(model) for model in sorted(models))


def models_note(
    state: ClusterState, request: PodRequest, counts: Iterable[tuple[str, int]]
) -> tuple[str, ...]:
    """The models in the cluster, for a pod that was rejected because of theirs."""
    chosen = request.selection
    if not chosen.counted or reasons.GPU_MODEL_MISMATCH not in dict(counts):
        return ()
    number: Counter[str] = Counter()
    for node in state.nodes.values():
        if node.fact is not None:
            number.update(set(models_of(node.fact, node.labels, chosen)))
    listed = [f"{_shown(model)} ({count})" for model, count in sorted(number.items())]
    more = f" and {len(listed) - _MODELS_SHOWN} more" if len(listed) > _MODELS_SHOWN else ""
    words = chosen.use_types if chosen.use_types is not None else chosen.nouse_types or ()
    asked = "wanted" if chosen.use_types is not None else "not wanted"
    named, shown = ", ".join(chosen.counted), ", ".join(listed[:_MODELS_SHOWN])
    return (f"models of {named} by nodes: {shown}{more}; {asked}: {', '.join(words)}",)


def models_of(fact: NodeObserved, labels: Mapping[str, str], chosen: Selection) -> Iterator[str]:
    """The models of the counted cards that the pod requests and the node lists; `_UNKNOWN` if its
    labels name none.
    """
    listed = [name for name, amount in fact.extended if amount > 0]
    asked = [resource for resource in chosen.counted if resource in listed]
    cards = card_names.discover(labels, listed) if asked else ()
    for resource in asked:
        models = [card.name for card in cards if card.resource == resource]
        if not models and card_names.is_card(resource):
            models = [_UNKNOWN]
        yield from models


def _shown(model: str) -> str:
    return model or f"not said (no label {card_names.EXAMPLE})"
