"""`allot ledger`: the map of all cards, drawn from the books, now or at any earlier moment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import click
import msgspec

from allotment.answers.folding import AsOf, Folded, as_of, fold_at
from allotment.answers.names import no_such_node
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.rows.amounts import compute_text, whole_of_card
from allotment.core.explain.rows.views import (
    PERCENT,
    ZONE,
    CardsSummary,
    CardView,
    CountedView,
    HolderView,
    UnlistedView,
    asked_whole,
    cards_of,
    counted_of,
    is_full,
    is_idle,
    model_text,
    node_status,
    summaries,
    unlisted_of,
    usable_compute,
)
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.units import QuantityError, bytes_text, whole_up
from allotment_cli.options import completion
from allotment_cli.options.params import at_option, label_test, output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import (
    DOCUMENTS,
    bar,
    emit,
    emit_document,
    emit_json_line,
    heading,
    note,
    suggest,
    table,
    tinted,
)

SCHEMA = "allotment.dev/ledger/v1"
SUMMARY_SCHEMA = "allotment.dev/ledger-summary/v1"
NODES_WITHOUT_HINT = 50
"""With more nodes than these the map is too long to read whole."""


class NodeLedger(msgspec.Struct, frozen=True):
    """One node's books."""

    name: str
    status: str
    cards: tuple[CardView, ...]
    counted: tuple[CountedView, ...]
    unlisted: tuple[UnlistedView, ...]


class LedgerDocument(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    as_of: AsOf
    nodes: tuple[NodeLedger, ...]


class SummaryDocument(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    as_of: AsOf
    cards: tuple[CardsSummary, ...]


class Filter(NamedTuple):
    """Which nodes are shown. `has` are tests of which one of a node's cards must pass all."""

    nodes: tuple[str, ...]
    labels: Callable[[Mapping[str, str]], bool]
    zone: str | None
    has: tuple[Callable[[CardView], bool], ...]
    counts_free: bool
    """Whether a counted card that is free counts when only free cards are asked for."""


@click.command()
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=completion.nodes)
@source_options
@at_option
@click.option(
    "--node", "named", multiple=True, shell_complete=completion.nodes, help="Only this node."
)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only nodes with these labels.")
@click.option(
    "--zone", shell_complete=completion.zones(ZONE), help=f"Only nodes of this zone ({ZONE})."
)
@click.option(
    "--model",
    shell_complete=completion.models,
    help="Only nodes with a card whose model contains this.",
)
@click.option(
    "--mode",
    shell_complete=completion.modes,
    help="Only nodes with a card of this mode, like mig.",
)
@click.option("--free", is_flag=True, help="Only nodes with at least one idle card.")
@click.option(
    "--free-memory",
    metavar="AMOUNT",
    help="Only nodes with a card that has so much free, like 20Gi, and is not full.",
)
@click.option(
    "--held-by",
    metavar="NS[/POD]",
    shell_complete=completion.holders,
    help="Only nodes where these pods hold a card.",
)
@click.option("--problems", is_flag=True, help="Only nodes with unhealthy or oversold cards.")
@click.option("--summary", is_flag=True, help="Count cards by model and mode instead.")
@click.option("--by-zone", is_flag=True, help="With --summary: by zone as well.")
@output_option("wide", *DOCUMENTS, "jsonl")
def ledger(
    names: tuple[str, ...],
    origin: Origin,
    at: str | None,
    named: tuple[str, ...],
    selector: str | None,
    zone: str | None,
    summary: bool,
    by_zone: bool,
    output: str,
    **cards: Any,
) -> None:
    """Show who holds how much of which card. Options that select nodes apply all at once; those
    about cards select nodes of which one card meets all of them.
    """
    if by_zone and not summary:
        raise AllotError("--by-zone says how to count, and nothing is counted", "add --summary")
    has, counts_free = _card_tests(**cards)
    wanted = Filter((*names, *named), label_test(selector), zone, has, counts_free)
    folded = anyio.run(_fold, origin, at)
    state = folded.state
    nodes = _selected(folded, wanted)
    if summary:
        _show_summary(folded, summaries(state, nodes, by_zone=by_zone), by_zone, output)
        return
    books = tuple(node_ledger(state, node) for node in nodes)
    if output in DOCUMENTS:
        emit_document(LedgerDocument(SCHEMA, as_of(folded), books), output)
        return
    if output == "jsonl":
        emit_json_line(books)
        return
    emit(ledger_lines(books), wide=output == "wide")
    if not books:
        note(f"none of {len(state.nodes)} nodes is like that at seq {folded.seq}")
    held = next((h for b in books for c in b.cards for h in c.holders), None)
    if len(books) > NODES_WITHOUT_HINT:
        suggest("allot ledger --summary")
    elif held is not None:
        suggest(f"allot explain pod {held.namespace}/{held.name}")


async def _fold(origin: Origin, at: str | None) -> Folded:
    async with open_source(origin) as source:
        return await fold_at(source, at)


def _card_tests(
    *,
    model: str | None,
    mode: str | None,
    free: bool,
    free_memory: str | None,
    held_by: str | None,
    problems: bool,
) -> tuple[tuple[Callable[[CardView], bool], ...], bool]:
    """What one card of a node must pass, and whether a free one that is only counted does."""
    tests: list[Callable[[CardView], bool]] = []
    if model is not None:
        part = model.lower()
        tests.append(lambda card: part in card.model.lower())
    if mode is not None:
        tests.append(lambda card: card.mode == mode)
    if free:
        tests.append(lambda card: card.healthy and is_idle(card))
    if free_memory is not None:
        least = _bytes(free_memory)
        tests.append(
            lambda card: card.healthy and not is_full(card) and card.free_memory_bytes >= least
        )
    if held_by is not None:
        space, _, pod = held_by.partition("/")
        tests.append(
            lambda card: any(h.namespace == space and pod in ("", h.name) for h in card.holders)
        )
    if problems:
        tests.append(lambda card: card.oversold or not card.healthy)
    return tuple(tests), free and len(tests) == 1


def _bytes(text: str) -> int:
    try:
        return whole_up(text)
    except QuantityError as error:
        raise AllotError(f"--free-memory {error}", "give an amount like 20Gi") from error


def _selected(folded: Folded, wanted: Filter) -> list[Node]:
    """The nodes that are meant, by name. Raises `AllotError` for a name that no node has."""
    state = folded.state
    for name in wanted.nodes:
        if name not in state.nodes:
            raise no_such_node(name, state.nodes, folded.seq)
    return [
        node
        for node in map(state.nodes.__getitem__, sorted(wanted.nodes or state.nodes))
        if wanted.labels(node.labels)
        and (wanted.zone is None or node.labels.get(ZONE) == wanted.zone)
        and (not wanted.has or _has_card(state, node, wanted))
    ]


def _has_card(state: ClusterState, node: Node, wanted: Filter) -> bool:
    if wanted.counts_free and any(
        view.free > 0 for view in counted_of(state, node) if view.resource.endswith("/gpu")
    ):
        return True
    return any(all(test(card) for test in wanted.has) for card in cards_of(state, node))


def _show_summary(
    folded: Folded, found: Sequence[CardsSummary], by_zone: bool, output: str
) -> None:
    if output in DOCUMENTS:
        emit_document(SummaryDocument(SUMMARY_SCHEMA, as_of(folded), tuple(found)), output)
    elif output == "jsonl":
        emit_json_line(found)
    else:
        emit(summary_lines(found, by_zone=by_zone), wide=output == "wide")
        suggest("allot ledger --free")


def summary_lines(found: Sequence[CardsSummary], *, by_zone: bool) -> list[str]:
    """A row for each model and mode."""
    headers = ["ZONE"] * by_zone + ["MODEL", "MODE", "NODES", "CARDS", "IDLE", "PARTLY", "FULL"]
    headers += ["BAD", "MEMORY", "FREE", "LARGEST"]
    rows = [
        [each.zone] * by_zone
        + [model_text(each.model), each.mode]
        + [str(n) for n in (each.nodes, each.cards, each.idle, each.partly, each.full)]
        + [str(each.unhealthy) if each.unhealthy else ""]
        + [
            bytes_text(amount) if each.memory_bytes else ""
            for amount in (each.memory_bytes, each.free_memory_bytes, each.largest_free_bytes)
        ]
        for each in found
    ]
    if by_zone:
        rows.sort(key=lambda row: row[0])
    first, *rest = table(
        headers, rows, right=headers[2 + by_zone :], optional=("PARTLY", "FULL", "LARGEST")
    )
    return [heading(first), *rest]


def ledgers(state: ClusterState) -> tuple[NodeLedger, ...]:
    """The books of all nodes."""
    return tuple(node_ledger(state, state.nodes[name]) for name in sorted(state.nodes))


def node_ledger(state: ClusterState, node: Node) -> NodeLedger:
    """The books of a node."""
    return NodeLedger(
        node.name,
        node_status(node),
        tuple(cards_of(state, node)),
        tuple(counted_of(state, node)),
        tuple(unlisted_of(state, node)),
    )


def ledger_lines(books: tuple[NodeLedger, ...]) -> list[str]:
    """The map: a block per node, a bar per card, its holders next to it."""
    lines: list[str] = []
    for block in books:
        models = sorted({model_text(card.model) for card in block.cards})
        title = f"{block.name}   {block.status}"
        if models:
            title += f"   {len(block.cards)} × {', '.join(models)}"
        lines += ["", heading(title) if block.status == "Ready" else tinted(title)]
        rows = [_card_row(card) for card in block.cards]
        rows += [_counted_row(counted) for counted in block.counted]
        rows += [_unlisted_row(unlisted) for unlisted in block.unlisted]
        if not rows:
            lines.append("  no cards")
            continue
        headers = ("CARD", "USE", "USED", "OF", "COMPUTE", "HELD BY")
        lines += table(headers, rows, right=("USED", "OF", "COMPUTE"), indent="  ")
    return lines[1:]


def _card_row(card: CardView) -> list[str]:
    whole = whole_of_card(card.compute_percent)
    used = card.memory_bytes - card.free_memory_bytes
    of_cores = card.compute_percent - usable_compute(card), card.compute_percent
    flags = [] if card.healthy else ["unhealthy"]
    flags += ["oversold"] if card.oversold else []
    holders = [_holder_text(holder, whole) for holder in card.holders]
    return [
        card.device,
        bar(used, card.memory_bytes) if card.memory_bytes else bar(*of_cores),
        bytes_text(used) if card.memory_bytes else "",
        bytes_text(card.memory_bytes) if card.memory_bytes else "",
        _compute_text(card),
        ", ".join([*(flag.upper() for flag in flags), *holders]),
    ]


def _compute_text(card: CardView) -> str:
    """Percent in use; of cards whose compute is counted otherwise, how much of how much."""
    used = card.compute_percent - usable_compute(card)
    return f"{used}%" if card.compute_percent in PERCENT else f"{used}/{card.compute_percent}"


def _holder_text(holder: HolderView, whole: int) -> str:
    """``default/a 2.9 GiB 50%``; of an NPU only the amounts that are given out."""
    phase = "" if holder.phase == "bound" else f" ({holder.phase})"
    piece = f" [{holder.instance}]" if holder.instance else ""
    words = [f"{holder.namespace}/{holder.name}"]
    if holder.memory_bytes or whole == 100:
        words.append(bytes_text(holder.memory_bytes))
    if holder.compute_percent or whole == 100:
        words.append(compute_text(holder.compute_percent, whole))
    return " ".join(words) + piece + phase


def _unlisted_row(unlisted: UnlistedView) -> list[str]:
    """The size of the card that its compute was a part of is no longer known."""
    whole = asked_whole(unlisted.family)
    compute = sum(holder.compute_percent for holder in unlisted.holders)
    return [
        unlisted.id,
        "not listed by the node",
        bytes_text(sum(holder.memory_bytes for holder in unlisted.holders)),
        "",
        compute_text(compute, whole) if compute or whole else "",
        ", ".join(_holder_text(holder, whole) for holder in unlisted.holders),
    ]


def _counted_row(counted: CountedView) -> list[str]:
    used = counted.total - counted.free
    return [
        counted.resource,
        bar(used, counted.total),
        str(used),
        str(counted.total),
        "",
        ", ".join(f"{h.namespace}/{h.name} {h.count}" for h in counted.holders),
    ]
