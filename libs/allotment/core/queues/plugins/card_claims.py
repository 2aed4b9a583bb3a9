"""The cards that one pod asks for by name: whole ones, or its part of sliced ones (see `card`)."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.answers import No
from allotment.core.queues.model import Share, Task
from allotment.core.queues.resources import MILLI, Resources
from allotment.core.reasons import CARD_UNREADABLE
from allotment.core.units import QuantityError
from allotment.core.units import milli as read_milli

_WHOLE_PCT = 100


class Way(NamedTuple):
    """A model that a task could use, and how many thousandths of it the task would take."""

    card: str
    milli: int


class Claim(NamedTuple):
    """A task's request for cards: one of the ways, the preferred first; none: no cards."""

    ways: tuple[Way, ...] = ()
    problem: No | None = None
    """Why no way exists for its request."""

    @property
    def is_for_cards(self) -> bool:
        return bool(self.ways) or self.problem is not None


_NO_CARDS = Claim()


def slice_milli(share: Share, card_memory_mib: int) -> int | None:
    """The thousandths that a share takes of each of its cards; None if such a card is too small."""
    if share.cores_pct >= _WHOLE_PCT:
        return MILLI if share.memory_mib <= card_memory_mib else None
    if share.memory_pct > 0:
        part = -(-MILLI * share.memory_pct // _WHOLE_PCT)
    elif share.memory_mib > 0:
        part = -(-MILLI * share.memory_mib // card_memory_mib)
    else:
        part = MILLI
    return part if part <= MILLI else None


def shares_milli(shares: Sequence[Share], card_memory_mib: int) -> int | None:
    """The thousandths of cards of one model that all shares take together; None if one does not
    fit.
    """
    total = 0
    for share in shares:
        each = slice_milli(share, card_memory_mib)
        if each is None:
            return None
        total += share.count * each
    return total


def claim_of(task: Task, cards: Mapping[str, Card], *, counts_shares: bool) -> Claim:
    """A task's request, in terms of the cluster's cards."""
    if task.shares:
        return _shared(task, cards) if counts_shares else _NO_CARDS
    if not task.card_names:
        return _NO_CARDS
    ways = []
    for name in task.card_names:
        card = cards.get(name)
        amount = task.request.amount(card.resource) if card and card.resource else 0
        if amount > 0:
            ways.append(Way(name, int(amount)))
    if ways:
        return Claim(tuple(ways))
    wanted = " or ".join(_resource_of(cards.get(name), name) for name in task.card_names)
    return Claim(problem=_unreadable(task, f"asks for none of them; wanted: {wanted}"))


def _resource_of(card: Card | None, name: str) -> str:
    if card is None or not card.resource:
        return f"another card, because no node offers {name}"
    return f"a request for {card.resource}"


def _shared(task: Task, cards: Mapping[str, Card]) -> Claim:
    ways = []
    for name in task.card_names or sorted(cards):
        card = cards.get(name)
        if card is None or card.memory_mib <= 0:
            continue
        taken = shares_milli(task.shares, card.memory_mib)
        if taken is not None:
            ways.append(Way(name, taken))
    if ways:
        return Claim(tuple(ways))
    return Claim(problem=_unreadable(task, "asks for a share that no such card can give"))


def _unreadable(task: Task, why: str) -> No:
    named = "|".join(task.card_names) or "any"
    return No(
        CARD_UNREADABLE,
        f"failed to get the card request of pod {task.namespace}/{task.name}: "
        f"card {named}: the pod {why}",
    )


class CardsError(ValueError):
    """Raised for an annotation that does not say how many of which cards."""


def read_counts(text: str) -> Resources:
    """``{"NVIDIA-H200": 8}`` → thousandths by name. Raises `CardsError`.

    An amount is a whole number, or a text such as ``"500m"`` for half a card.
    """
    try:
        counts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CardsError(f"is not JSON ({error}); wanted: {_WANTED}") from error
    if not isinstance(counts, dict):
        raise CardsError(f"is {str(counts)[:80]!r}; wanted: {_WANTED}")
    out: dict[str, int] = {}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | str):
            raise CardsError(f"says {count!r} for {name!r}; wanted: {_WANTED}")
        try:
            out[name] = read_milli(str(count))
        except QuantityError as error:
            raise CardsError(f"says {count!r} for {name!r}: {error}") from error
    return Resources(out)


_WANTED = 'an object from card name to number, like {"NVIDIA-H200": 8}'
