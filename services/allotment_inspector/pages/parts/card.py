"""One card as it is drawn: a bar with its holders, a lane with their compute, what is free.

The bar is the card's memory; of cards that are handed out by AI cores alone it is those. Holders
stand in the order in which they came, so that none moves when a later one leaves.
"""

from typing import Literal

import msgspec

from allotment.core.explain.rows.amounts import short_text
from allotment.core.explain.rows.views import PERCENT, card_name, model_text, piece_name
from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.units import mib_text
from allotment_inspector.said import path
from allotment_proto.events import PodObserved
from allotment_proto.facts import CardFact, Holding

CardState = Literal["", "ill", "over", "closed"]
MIG_PARTS = 7


class Segment(msgspec.Struct, frozen=True, rename="camel"):
    """One holder's piece of the bar. Widths are percent of the card."""

    namespace: str
    pod: str
    uid: str
    path: str
    width: float
    compute: float
    phase: str
    """``bound``, ``reserved``, ``perhaps`` (which card is unknown), or ``going``."""
    amount: str
    queue: str
    seq: int
    """The decision that gave it, 0 if others did."""
    since_ms: int | None
    filled: float | None = None
    """Of a MIG instance, how much of it was asked for, in percent."""
    piece: str = ""
    lit: bool = False


class CardCell(msgspec.Struct, frozen=True, rename="camel"):
    """One card."""

    key: str
    name: str
    id: str
    model: str
    mode: str
    state: CardState
    free: str
    """What the next pod can get of it, in words."""
    about: str
    ticks: int
    """Into so many parts the bar is divided, 0 for none."""
    segments: tuple[Segment, ...]
    is_cut: bool = False


def card_cell(
    state: ClusterState,
    node: Node,
    card: Card,
    lit: frozenset[str] = frozenset(),
) -> CardCell:
    """A card of a node; pods of `lit` (namespace/name) are highlighted."""
    fact = card.fact
    is_percent = fact.cores_pct in PERCENT
    by_memory = fact.memory_mib > 0
    whole = fact.memory_mib if by_memory else fact.cores_pct
    is_cut = card.partitioner is not None and bool(card.table)
    segments = []
    for key, holding in card.holders.items():
        pod = state.pods[key[0]]
        held = pod.allocation
        memory_mib = card.charged_mib(holding)
        size = memory_mib if by_memory else holding.cores_pct
        asked = holding.memory_mib if by_memory else holding.cores_pct
        seq, stamp_s = (held.seq, held.stamp_s) if held is not None else (0, 0)
        segments.append(
            (
                (seq, pod.fact.created_ms, pod.fact.namespace, pod.fact.name, key),
                Segment(
                    namespace=pod.fact.namespace,
                    pod=pod.fact.name,
                    uid=pod.fact.uid,
                    path=path("pods", pod.fact.namespace, pod.fact.name),
                    width=_share(size or (whole if _takes_all(card, holding) else 0), whole),
                    compute=_share(holding.cores_pct, fact.cores_pct),
                    phase=_phase(state, card, key, pod.fact.deleting),
                    amount=short_text(holding.memory_mib, holding.cores_pct, is_percent=is_percent),
                    queue=queue_of(state, pod.fact),
                    seq=seq,
                    since_ms=stamp_s * 1000 if seq else pod.fact.created_ms,
                    filled=_share(asked, size) if is_cut else None,
                    piece=piece_name(holding),
                    lit=f"{pod.fact.namespace}/{pod.fact.name}" in lit,
                ),
            )
        )
    segments.sort(key=lambda pair: pair[0])
    pieces = tuple(segment for _, segment in segments)
    return CardCell(
        key=f"{node.name}/{card_name(card)}",
        name=card_name(card),
        id=fact.id,
        model=model_text(fact.model),
        mode=fact.mode,
        state=_state(state, node, card),
        free=free_text(state, node, card),
        about=about_text(fact, len({s.uid for s in pieces}), card),
        ticks=MIG_PARTS if is_cut else 0 if by_memory else fact.cores_pct,
        segments=pieces,
        is_cut=is_cut,
    )


def queue_of(state: ClusterState, fact: PodObserved) -> str:
    """The queue that a pod's group or the pod itself names."""
    group = state.groups.get(fact.group)
    named = fact.queue if group is None or group.fact is None else group.fact.queue
    return named or DEFAULT_QUEUE


def _takes_all(card: Card, holding: Holding) -> bool:
    """Whether a holder without amounts has the card alone: the only one, and nothing is left."""
    return len(card.holders) == 1 and card.free_slots < 1


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole > 0 else 0.0


def _phase(state: ClusterState, card: Card, key: tuple[str, int, str], deleting: bool) -> str:
    if key in card.perhaps:
        return "perhaps"
    if deleting:
        return "going"
    held = state.pods[key[0]].allocation
    return held.phase if held is not None else ""


def _is_closed(state: ClusterState, node: Node, card: Card) -> bool:
    """Whether what is held of the card is unknown, or it is held back."""
    places = (node.name, "", ""), (node.name, card.family, card.fact.id)
    held = (state.health.get(place) for place in places)
    return node.blocked is not None or any(health and health.since for health in held)


def _state(state: ClusterState, node: Node, card: Card) -> CardState:
    if not card.fact.healthy:
        return "ill"
    if card.oversold:
        return "over"
    return "closed" if _is_closed(state, node, card) else ""


def free_text(state: ClusterState, node: Node, card: Card) -> str:
    """What is left of a card: ``7.4 GiB free``, ``full``, ``empty``, ``unhealthy``."""
    fact = card.fact
    if not fact.healthy:
        return "unhealthy"
    if card.oversold:
        return f"over by {over_text(card)}"
    if _is_closed(state, node, card):
        return "no new pods" if node.blocked is not None else "held back"
    if not card.holders:
        return "idle"
    if is_full(card):
        return "full"
    if fact.memory_mib:
        return f"{mib_text(card.free_memory_mib)} free"
    is_percent = fact.cores_pct in PERCENT
    return f"{short_text(0, card.free_cores_pct, is_percent=is_percent)} free"


def is_full(card: Card) -> bool:
    """Whether a card takes nothing more: a slot, memory or compute of it is used up."""
    fact = card.fact
    return (
        card.free_slots < 1
        or (fact.memory_mib > 0 and card.free_memory_mib < 1)
        or (fact.cores_pct > 0 and card.free_cores_pct < 1)
    )


def over_text(card: Card) -> str:
    """By how much more is held than a card has, of what it lacks."""
    if card.free_memory_mib < 0:
        return mib_text(-card.free_memory_mib)
    if card.free_cores_pct < 0:
        is_percent = card.fact.cores_pct in PERCENT
        return short_text(0, -card.free_cores_pct, is_percent=is_percent)
    return f"{-card.free_slots} slot{'s' * (card.free_slots != -1)}"


def about_text(fact: CardFact, pods: int, card: Card) -> str:
    """A card in one sentence, for when it is selected."""
    words = [model_text(fact.model) or "a card"]
    if fact.memory_mib:
        words.append(mib_text(fact.memory_mib))
    if fact.mode:
        words.append(fact.mode)
    holders = "idle" if not pods else f"{pods} pod{'s' * (pods != 1)} on it"
    used = f", {card.used_slots} of {fact.slots} slots" if fact.slots > 1 else ""
    compute = ""
    if fact.cores_pct:
        unit = "%" if fact.cores_pct in PERCENT else f" of {fact.cores_pct} AI cores"
        compute = f", compute {card.used_cores_pct}{unit} reserved"
    return f"{', '.join(words)}: {holders}{used}{compute}"
