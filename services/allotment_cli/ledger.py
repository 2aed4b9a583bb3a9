"""`allot ledger`: the map of all cards, drawn from the books, now or at any earlier moment."""

from pathlib import Path

import anyio
import click
import msgspec

from allotment.core.explain.views import (
    PERCENT,
    CardView,
    CountedView,
    HolderView,
    UnlistedView,
    asked_whole,
    cards_of,
    counted_of,
    node_status,
    unlisted_of,
)
from allotment.core.ledger.model import ClusterState
from allotment.core.units import bytes_text
from allotment_cli.amounts import compute_text
from allotment_cli.errors import CliError
from allotment_cli.folding import AsOf, Folded, as_of, fold_at
from allotment_cli.output import bar, emit, emit_json, heading, suggest, table
from allotment_cli.source import Origin, open_source, source_options

SCHEMA = "allotment.dev/ledger/v1"


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


@click.command()
@source_options
@click.option("--at", metavar="MOMENT", help="Sequence, 14:03, -15m or RFC 3339.")
@click.option("--node", help="Only this node.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
def ledger(
    home: Path, nats: str | None, file: Path | None, at: str | None, node: str | None, output: str
) -> None:
    """Show who holds how much of which card."""
    folded = anyio.run(_fold, Origin(home, nats, file), at)
    if node is not None and node not in folded.state.nodes:
        raise CliError(f"node {node} is not known at seq {folded.seq}", "see: allot get nodes")
    books = ledgers(folded.state, node)
    if output == "json":
        emit_json(LedgerDocument(SCHEMA, as_of(folded), books))
        return
    emit(ledger_lines(books))
    held = next((h for b in books for c in b.cards for h in c.holders), None)
    if held is not None:
        suggest(f"allot explain pod {held.namespace}/{held.name}")


async def _fold(origin: Origin, at: str | None) -> Folded:
    async with open_source(origin) as source:
        return await fold_at(source, at)


def ledgers(state: ClusterState, node: str | None = None) -> tuple[NodeLedger, ...]:
    """The books of all nodes, or of one."""
    return tuple(
        NodeLedger(
            name,
            node_status(state.nodes[name]),
            tuple(cards_of(state, state.nodes[name])),
            tuple(counted_of(state, state.nodes[name])),
            tuple(unlisted_of(state, state.nodes[name])),
        )
        for name in (sorted(state.nodes) if node is None else [node])
    )


def ledger_lines(books: tuple[NodeLedger, ...]) -> list[str]:
    """The map: a block per node, a bar per card, its holders beside it."""
    lines: list[str] = []
    for block in books:
        models = sorted({card.model for card in block.cards})
        title = f"{block.name}   {block.status}"
        if models:
            title += f"   {len(block.cards)} × {', '.join(models)}"
        lines += ["", heading(title)]
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
    whole = 100 if card.compute_percent in PERCENT else card.compute_percent
    used = card.memory_bytes - card.free_memory_bytes
    of_cores = card.compute_percent - card.free_compute_percent, card.compute_percent
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
    used = card.compute_percent - card.free_compute_percent
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
    """What its compute was a part of is not known any more."""
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
