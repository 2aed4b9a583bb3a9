"""What a pod's words for card models mean in this cluster.

Volcano accepts a model if a word of the pod's list is a part of its name, so ``H20`` also matches
H200. Here a word means the models that have it as a whole word, if the cluster has any; otherwise,
as in Volcano, those of which it is a part.
"""

import msgspec

from allotment.core.ledger.model import CardModels, ClusterState
from allotment.core.placement.devices.choosing import is_called
from allotment.core.placement.rules.card_names import PRODUCT, label_value
from allotment_proto.facts import PodRequest


def in_whole_words(request: PodRequest, state: ClusterState) -> PodRequest:
    """The request, with those of its words marked that mean whole words; the same object if that
    makes no difference in the cluster.
    """
    words = _words(request)
    if not words:
        return request
    found = card_models(state)
    telling = found.telling.get(words)
    if telling is None:
        telling = tuple(word for word in words if _is_telling(word, found))
        if len(found.telling) == _REMEMBERED:
            found.telling.clear()
        found.telling[words] = telling
    if not telling:
        return request
    selection = msgspec.structs.replace(request.selection, whole_words=telling)
    return msgspec.structs.replace(request, selection=selection)


def parts_note(request: PodRequest, state: ClusterState) -> tuple[str, ...]:
    """A text, without a full stop, for each word that no model has as a whole word and some have as
    a part.
    """
    found = card_models(state)
    texts = []
    for word in _words(request):
        having = sorted(
            model
            for model in found.registered | found.counted
            if _is_called(model, word, whole=False)
        )
        if having and not any(_is_called(model, word, whole=True) for model in having):
            shown = ", ".join(having[:_SHOWN])
            more = f" and {len(having) - _SHOWN} more" if len(having) > _SHOWN else ""
            texts.append(
                f"no card model is called {word}: it stands for models with it as a part of their "
                f"name ({shown}{more})"
            )
    return tuple(texts)


_SHOWN = 4
_REMEMBERED = 1024
"""The number of pod kinds whose lists are cached."""


def card_models(state: ClusterState) -> CardModels:
    """The models of all cards that nodes register, and those of counted cards by their labels."""
    known = state.memo.models
    if known is not None and known.nodes_seq == state.nodes_seq:
        return known
    registered: set[str] = set()
    counted: set[str] = set()
    for node in state.nodes.values():
        if node.fact is None:
            continue
        for ledger in node.ledgers.values():
            registered.update(card.fact.model for card in ledger.cards)
        if node.fact.extended:
            counted.update(value for key, value in node.labels.items() if key.endswith(PRODUCT))
    found = CardModels(state.nodes_seq, frozenset(registered), frozenset(counted), {})
    state.memo.models = found
    return found


def _words(request: PodRequest) -> tuple[str, ...]:
    chosen = request.selection
    return chosen.use_types if chosen.use_types is not None else chosen.nouse_types or ()


def _is_telling(word: str, found: CardModels) -> bool:
    """Whether some model has it as a whole word, and another only as a part."""
    models = found.registered | found.counted
    whole = {model for model in models if _is_called(model, word, whole=True)}
    return bool(whole) and any(_is_called(model, word, whole=False) for model in models - whole)


def _is_called(model: str, word: str, *, whole: bool) -> bool:
    """Whether the model has the word, as registered or as labels spell it."""
    return is_called(model, word, whole=whole) or is_called(model, label_value(word), whole=whole)
