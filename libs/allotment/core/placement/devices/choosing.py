"""Which cards a pod gets on a node: the threshold rules that all families share.

A card takes a request if `free >= need` in slots, memory and cores, and the pod may use it. This is
the reference; the board (`allotment_board`) checks the same for many nodes at once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.ledger.ledger import Card, Ledger
from allotment.core.ledger.partitions import Table
from allotment.core.placement.devices.base import CORES_WHOLE_PCT, Family
from allotment.core.placement.devices.free import CardOrder, Free, need_cores_pct, need_memory_mib
from allotment.core.reasons import REFUSAL_ORDER
from allotment_proto.facts import DeviceRequest, Holding, PodRequest, Policy, Selection
from allotment_proto.volcano import keys

_PROGRESS = {code: step for step, code in enumerate(REFUSAL_ORDER)}


class Rules(NamedTuple):
    """What decides whether a card takes a pod, apart from the amounts."""

    selection: Selection = Selection()
    apart: tuple[str, ...] = ()
    """Tags of holders with which the pod shares no card."""
    mig_order: str = Policy().mig_order
    by_amount: bool = False
    """Whether a partitioned card counts as if it were shared by amounts: an approximation."""
    node: str = ""
    """The node of the cards: cards are avoided by node, because an id may occur on several."""


def rules_of(request: PodRequest, policy: Policy, node: str) -> Rules:
    """The rules for a pod under a policy, for the cards of one node."""
    return Rules(request.selection, request.apart, policy.mig_order, node=node)


def card_refusal(free: Free, request: DeviceRequest, rules: Rules, family: Family) -> str | None:
    """Why this card does not take one unit of the request; None if it does."""
    card, fact, selection = free.card, free.card.fact, rules.selection
    if not _selected(fact.id, fact.index, selection):
        return reasons.GPU_NOT_SELECTED
    if selection.avoided and (rules.node, family.name, fact.id) in selection.avoided:
        return reasons.CARD_FAILING
    if not (
        family.accepts_model(fact.model)
        and (not request.chip or request.chip == fact.model)
        and model_wanted(fact.model, selection)
    ):
        return reasons.GPU_MODEL_MISMATCH
    if not fact.healthy:
        return reasons.GPU_UNHEALTHY
    if card.tags and any(tag in card.tags for tag in rules.apart):
        return reasons.CARD_KEPT_APART
    if free.slots < 1:
        return reasons.SHARE_LIMIT_REACHED
    if request.cores_pct == CORES_WHOLE_PCT and not free.idle:
        return reasons.EXCLUSIVE_CONFLICT
    if free.memory_mib < need_memory_mib(request, fact.memory_mib, card.table):
        return reasons.INSUFFICIENT_GPU_MEMORY
    if card.partitioner is not None and not rules.by_amount:
        piece = free.piece(request, rules.mig_order)
        if piece is None or free.memory_mib < piece.memory_mib:
            return reasons.NO_FITTING_INSTANCE
        if not small_enough(piece.memory_mib, card.table, selection):
            return reasons.NO_FITTING_INSTANCE
    elif not small_enough(0, card.table, selection):
        return reasons.NO_FITTING_INSTANCE
    if free.cores_pct < need_cores_pct(request, fact.cores_pct):
        return reasons.INSUFFICIENT_GPU_COMPUTE
    return None


class Pick(NamedTuple):
    """One card chosen for a pod, with its state around the choice."""

    card: Card
    was_idle: bool
    used_after_mib: int
    free_after_mib: int
    charged_mib: int = 0
    free_after_pct: int = 0
    is_second_best: bool = False
    """Whether the card fits, but a better one was requested."""


class Chosen(NamedTuple):
    """Cards for one pod on one node, in the order in which they were taken."""

    holdings: tuple[Holding, ...]
    picks: tuple[Pick, ...]
    """One per holding."""


Given = Mapping[tuple[str, int], AbstractSet[str]]
"""The ids of cards by the family and the container that they are for."""


def choose_cards(
    ledger: Ledger,
    requests: Sequence[DeviceRequest],
    rules: Rules,
    family: Family,
    sort: CardOrder,
    only: Given | None = None,
) -> Chosen | str:
    """Cards for all containers that request one family, or the reason code why this node has none.

    `only` gives each container its cards, to check whether exactly these still fit.

    Each container gets what the earlier ones of the same pod left; the card order is recomputed for
    each. Source: volcano `vgpu/utils.go` (deviceshare 4.2).
    """
    if ledger.blocked is not None:
        return ledger.blocked
    if not mode_fits(rules.selection, ledger.mode):
        return reasons.GPU_MODE_MISMATCH
    cards = list(map(Free, ledger.cards if only is None else _given(only, family, ledger)))
    holdings: list[Holding] = []
    picks: list[Pick] = []
    taken: list[Free] = []
    for wanted in requests:
        given = None if only is None else only.get((family.name, wanted.container), frozenset())
        usable = cards
        if given is not None:
            usable = [free for free in cards if free.card.fact.id in given]
        if wanted.count > len(usable) - sum(free in usable for free in taken):
            return reasons.NOT_ENOUGH_GPUS_ON_NODE
        # Given cards leave no choice, and ranking them would cost more than everything else.
        is_chosen = given is not None and len(usable) == wanted.count
        good, furthest = [], -1
        for free in usable if is_chosen else sort(usable, wanted):
            if free in taken:
                continue
            code = card_refusal(free, wanted, rules, family)
            if code is None:
                good.append(free)
            else:
                furthest = max(furthest, _PROGRESS[code])
        if len(good) < wanted.count:
            return REFUSAL_ORDER[furthest]
        if is_wired(wanted):
            chips = [card for card in ledger.cards if card.fact.model == wanted.chip]
            good = _wired_together(chips, good)
        good = _by_rank(good, wanted, rules)
        chosen = good[: wanted.count]
        for free in chosen:
            piece = free.piece(wanted, rules.mig_order)
            assert piece is not None
            idle, fact = free.idle, free.card.fact
            need_mib = need_memory_mib(wanted, fact.memory_mib, free.card.table)
            instance = free.take(wanted, piece)
            holdings.append(
                Holding(family.name, wanted.container, fact.id, need_mib, piece.cores_pct, instance)
            )
            picks.append(
                Pick(
                    free.card,
                    idle,
                    free.used_memory_mib,
                    free.memory_mib,
                    piece.memory_mib,
                    free.cores_pct,
                    piece.is_second_best,
                )
            )
        if family.each_once:
            taken += chosen
    return Chosen(tuple(holdings), tuple(picks))


def _given(only: Given, family: Family, ledger: Ledger) -> list[Card]:
    """The cards that some container may have, in the ledger's order."""
    ids = {card for (name, _), cards in only.items() if name == family.name for card in cards}
    return [card for card in ledger.cards if card.fact.id in ids]


def _by_rank(good: list[Free], wanted: DeviceRequest, rules: Rules) -> list[Free]:
    """The good cards in the rank of their pieces (`Piece.rank`); equals keep their order."""
    if all(free.card.partitioner is None for free in good):
        return good

    def rank(free: Free) -> int:
        piece = free.piece(wanted, rules.mig_order)
        return -piece.rank if piece is not None else 0

    return sorted(good, key=rank)


def is_wired(wanted: DeviceRequest) -> bool:
    """Whether the cards of a request should be of one network, if cards report theirs.

    Source: volcano `ascend/hami` (deviceshare 4.9): chips whose type begins with Ascend910.
    """
    return wanted.chip.startswith("Ascend910")


def _wired_together(cards: Sequence[Card], good: Sequence[Free]) -> list[Free]:
    """The good cards of one kind on a node, those of the network with most of them first; otherwise
    as given.

    Of equals the lower network comes first. Nothing changes if a card's network is unknown.
    """
    if any(card.fact.network < 0 for card in cards):
        return list(good)
    sizes = Counter(free.card.fact.network for free in good)
    return sorted(good, key=lambda free: (-sizes[free.card.fact.network], free.card.fact.network))


def mode_fits(selection: Selection, mode: str) -> bool:
    """Whether the pod accepts a node's sharing mode.

    A pod that names none accepts modes that isolate its memory, so not `mps`, where nothing limits
    a process to its share of memory.
    """
    if selection.mode is None:
        return mode != keys.MODE_MPS
    return selection.mode == mode


def small_enough(piece_mib: int, table: Table, selection: Selection) -> bool:
    """Whether a piece is small enough, if the request wants MIG instances below a size."""
    most = selection.pieces_below_mib
    return not most or (bool(table) and piece_mib < most)


def _selected(card_id: str, index: int, selection: Selection) -> bool:
    if selection.nouse_ids is not None and card_id in selection.nouse_ids:
        return False
    if selection.use_ids is not None and card_id not in selection.use_ids:
        return False
    return selection.indexes is None or index in selection.indexes


def model_wanted(model: str, selection: Selection) -> bool:
    """Whether the pod's lists of card types allow this model, ignoring case."""
    whole = selection.whole_words
    if selection.use_types is not None:
        return any(is_called(model, w, whole=w in whole) for w in selection.use_types)
    return not any(is_called(model, w, whole=w in whole) for w in selection.nouse_types or ())


def is_called(model: str, word: str, *, whole: bool) -> bool:
    """Whether a model has this word in its name; `whole`: not as part of a longer word, as H20 is
    of H200.
    """
    lowered, sought = model.lower(), word.lower()
    at = lowered.find(sought)
    while whole and at >= 0:
        end = at + len(sought)
        if not (lowered[at - 1 : at].isalnum() or lowered[end : end + 1].isalnum()):
            return True
        at = lowered.find(sought, at + 1)
    return at >= 0
