"""`allot blame`: who holds each part of a card, since when, and by which decision."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import anyio
import click
import msgspec

from allotment.adapters.service.moments import moment_text
from allotment.answers.folding import AsOf, Folded, as_of, fold_at
from allotment.answers.names import meant
from allotment.answers.objects import node_is_missing
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.explain.rows.amounts import compute_text, whole_of_card
from allotment.core.explain.rows.views import (
    CardView,
    CountedView,
    HolderView,
    card_name,
    cards_of,
    counted_of,
    model_text,
)
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.units import age_text, bytes_text, rfc3339
from allotment_cli.options import completion
from allotment_cli.options.params import at_option, output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, Prose, emit, emit_document, heading, suggest, table

SCHEMA = "allotment.dev/blame/v1"
OTHERS = "others"
"""By whom a pod was bound that no decision of the log placed."""
RESERVATIONS = "These are reservations. Real use may differ: see nvidia-smi or DCGM."


class Held(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One part of a card. `since` is when its decision was appended; of a pod that others bound,
    for which `seq` is 0, when the pod was created."""

    namespace: str
    name: str
    uid: str
    memory_bytes: int = 0
    compute_percent: int = 0
    count: int = 0
    """Of a resource that is only counted."""
    instance: str = ""
    phase: str = ""
    since: str = ""
    since_ms: int = 0
    by: str = ""
    seq: int = 0


class BlamedCard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One card, or one counted resource, and the parts of it that are held."""

    node: str
    device: str
    model: str = ""
    memory_bytes: int = 0
    free_memory_bytes: int = 0
    compute_whole: int = 100
    total: int = 0
    free: int = 0
    held: tuple[Held, ...]


class BlameDocument(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    as_of: AsOf
    cards: tuple[BlamedCard, ...]
    note: str = RESERVATIONS


@click.command()
@click.argument("place", metavar="NODE[/CARD]", shell_complete=completion.cards)
@source_options
@at_option
@output_option(*DOCUMENTS)
def blame(place: str, origin: Origin, at: str | None, output: str) -> None:
    """Show which pods hold parts of a card (or of all cards of a node), since which decision.

    CARD is its index, its name like GPU-1, or its id.
    """
    folded, found = anyio.run(_blame, origin, place, at)
    if output in DOCUMENTS:
        emit_document(BlameDocument(SCHEMA, as_of(folded), found), output)
        return
    emit(blame_lines(found, folded.time_ms, folded.seq))
    first = next((held for card in found for held in card.held if held.seq), None)
    if first is not None:
        suggest(f"allot log show {first.seq}")


async def _blame(
    origin: Origin, place: str, at: str | None
) -> tuple[Folded, tuple[BlamedCard, ...]]:
    async with open_source(origin) as source:
        folded = await fold_at(source, at)
        if (name := place.partition("/")[0]) not in folded.state.nodes:
            raise await node_is_missing(source, folded, name)
        cards, counted = _looked_up(folded, place)
        seqs = {holder.seq for card in cards for holder in card.holders}
        allocations = folded.state.nodes[place.partition("/")[0]].allocations
        seqs |= {allocations[share.uid].seq for each in counted for share in each.holders}
        times = {seq: await _time_ms(source, seq) for seq in sorted(seqs) if seq}
    state = folded.state
    found = [_of_card(state, card, times) for card in cards]
    found += [_of_counted(state, each, times) for each in counted]
    return folded, tuple(found)


def _looked_up(folded: Folded, place: str) -> tuple[list[CardView], list[CountedView]]:
    """The cards that NODE[/CARD] names. Raises `AllotError`."""
    name, slash, wanted = place.partition("/")
    node = folded.state.nodes[name]
    cards, counted = cards_of(folded.state, node), counted_of(folded.state, node)
    if not slash:
        return cards, counted
    spelled = _spellings(node)
    chosen = [card for card in cards if wanted in spelled.get(card.id, ())]
    if not chosen:
        chosen_counted = [each for each in counted if each.resource == wanted]
        if chosen_counted:
            return [], chosen_counted
        known = [card.device for card in cards] + [each.resource for each in counted]
        remedy = meant(wanted, known, f"it has {', '.join(known) or 'no cards'}")
        raise AllotError(f"node {name} has no card {wanted} at seq {folded.seq}", remedy)
    return chosen, []


def _spellings(node: Node) -> dict[str, tuple[str, ...]]:
    """By card id, how a user may name it."""
    return {
        card.fact.id: (card.fact.id, card_name(card), str(card.fact.index))
        for ledger in node.ledgers.values()
        for card in ledger.cards
    }


async def _time_ms(source: Source, seq: int) -> int:
    async with aclosing(source.read(seq, seq)) as batches:
        async for batch in batches:
            return batch[0].time_ns // 1_000_000
    raise AllotError(f"sequence {seq} is missing from the log", "the log is damaged")


def _of_card(state: ClusterState, card: CardView, times: dict[int, int]) -> BlamedCard:
    return BlamedCard(
        node=card.node,
        device=card.device,
        model=card.model,
        memory_bytes=card.memory_bytes,
        free_memory_bytes=card.free_memory_bytes,
        compute_whole=whole_of_card(card.compute_percent),
        total=card.slots,
        free=card.free_slots,
        held=tuple(_held(state, holder, times) for holder in card.holders),
    )


def _held(state: ClusterState, holder: HolderView, times: dict[int, int]) -> Held:
    return Held(
        namespace=holder.namespace,
        name=holder.name,
        uid=holder.uid,
        memory_bytes=holder.memory_bytes,
        compute_percent=holder.compute_percent,
        instance=holder.instance,
        phase=holder.phase,
        **_origin(state, holder.uid, holder.seq, times)._asdict(),
    )


def _of_counted(state: ClusterState, each: CountedView, times: dict[int, int]) -> BlamedCard:
    held = []
    for share in each.holders:
        allocation = state.pods[share.uid].allocation
        seq, phase = (0, "") if allocation is None else (allocation.seq, allocation.phase)
        held.append(
            Held(
                namespace=share.namespace,
                name=share.name,
                uid=share.uid,
                count=share.count,
                phase=phase,
                **_origin(state, share.uid, seq, times)._asdict(),
            )
        )
    return BlamedCard(
        node=each.node, device=each.resource, total=each.total, free=each.free, held=tuple(held)
    )


class _Origin(NamedTuple):
    """When and by whom something was given."""

    since: str
    since_ms: int
    by: str
    seq: int


def _origin(state: ClusterState, uid: str, seq: int, times: dict[int, int]) -> _Origin:
    since_ms = times[seq] if seq else state.pods[uid].fact.created_ms
    return _Origin(rfc3339(since_ms), since_ms, f"d-{seq}" if seq else OTHERS, seq)


def blame_lines(cards: Sequence[BlamedCard], now_ms: int, seq: int) -> list[str]:
    """The whole screen: a block a card."""
    lines: list[str] = []
    for card in cards:
        lines += ["", heading(Prose(_title(card, seq), 2))]
        rows = list(_rows(card, now_ms))
        if not rows:
            lines.append("  an idle card")
            continue
        is_counted = not card.model
        amounts = ["COUNT"] if is_counted else ["MEMORY", "COMPUTE"]
        headers = (*amounts, "HOLDER", "SINCE", "BY", "SEQ")
        right = ("COUNT", "MEMORY", "COMPUTE", "SEQ")
        lines += table(headers, rows, right=right, indent="  ")
    if not cards:
        lines = ["", "the node has no cards"]
    return [*lines[1:], "", RESERVATIONS]


def _title(card: BlamedCard, seq: int) -> str:
    at = f"as of seq {seq}"
    if not card.model:
        return f"{card.node}/{card.device}   {card.total}: {card.free} free   {at}"
    title = f"{card.node}/{card.device}   {model_text(card.model)}   "
    if card.memory_bytes:
        reserved = card.memory_bytes - card.free_memory_bytes
        title += f"{bytes_text(card.memory_bytes)}: {bytes_text(reserved)} reserved, "
        title += f"{bytes_text(card.free_memory_bytes)} free   "
    return title + at


def _rows(card: BlamedCard, now_ms: int) -> Iterator[list[str]]:
    for held in card.held:
        amounts = [str(held.count)]
        if card.model:
            has_memory = held.memory_bytes or card.compute_whole == 100
            has_compute = held.compute_percent or card.compute_whole == 100
            amounts = [
                bytes_text(held.memory_bytes) if has_memory else "",
                compute_text(held.compute_percent, card.compute_whole) if has_compute else "",
            ]
        piece = f" [{held.instance}]" if held.instance else ""
        phase = f" ({held.phase})" if held.phase not in ("", "bound") else ""
        age = age_text(max(now_ms - held.since_ms, 0) // 1000)
        since = f"{moment_text(held.since_ms)} ({age})"
        if not held.seq:
            since = f"created {since}"
        holder = f"{held.namespace}/{held.name}{piece}{phase}"
        yield [*amounts, holder, since, held.by, str(held.seq) if held.seq else ""]
