"""`allot get nodes|pods|cards`: plain tables of what the log knows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from allotment.core.explain.pod_views import PodView, pod_views
from allotment.core.explain.views import PERCENT, CardView, NodeView, cards_of, node_views
from allotment.core.units import bytes_text, cpu_text
from allotment_cli.amounts import compute_text
from allotment_cli.errors import CliError
from allotment_cli.folding import AsOf, Folded, Unreadable, as_of, fold_at
from allotment_cli.output import emit, emit_json, heading, suggest, table
from allotment_cli.source import Origin, open_source, source_options

OUTPUTS = click.Choice(("text", "wide", "json"))
UNREADABLE_SHOWN = 3


class Listing(msgspec.Struct, frozen=True, rename="camel"):
    """A list as JSON."""

    schema: str
    as_of: AsOf
    items: Sequence[msgspec.Struct]
    unreadable: tuple[Unreadable, ...]


@click.group()
def get() -> None:
    """List nodes, pods or cards as recorded in the log."""


def _options(command: Any) -> Any:
    command = click.option("-o", "--output", type=OUTPUTS, default="text")(command)
    command = click.option("--at", metavar="MOMENT", help="Sequence, 14:03, -15m or RFC 3339.")(
        command
    )
    return source_options(command)


@get.command()
@_options
def nodes(home: Path, nats: str | None, file: Path | None, at: str | None, output: str) -> None:
    """Nodes: status, cards, what is free, and what is wrong with them."""
    folded = anyio.run(_fold, Origin(home, nats, file), at)
    views = node_views(folded.state)
    if output == "json":
        _json("Nodes", folded, views)
        return
    emit(_node_lines(views, wide=output == "wide"))
    emit(_problem_lines(views, folded.unreadable))


@get.command()
@_options
@click.option("-n", "--namespace", help="Only pods of this namespace (default: all).")
@click.option("--node", help="Only pods on this node.")
@click.option("--pending", is_flag=True, help="Only pods that wait.")
def pods(
    home: Path,
    nats: str | None,
    file: Path | None,
    at: str | None,
    output: str,
    namespace: str | None,
    node: str | None,
    pending: bool,
) -> None:
    """Pods: where they are, what they hold, and why the others wait."""
    folded = anyio.run(_fold, Origin(home, nats, file), at)
    views = [
        view
        for view in pod_views(folded.state)
        if (namespace is None or view.namespace == namespace)
        and (node is None or view.node == node)
        and (not pending or view.status == "Pending")
    ]
    if output == "json":
        _json("Pods", folded, views)
        return
    emit(_pod_lines(views, wide=output == "wide"))
    waiting = next((v for v in views if v.status == "Pending"), None)
    if waiting is not None:
        suggest(f"allot explain pod {waiting.namespace}/{waiting.name}")


@get.command()
@_options
@click.option("--node", help="Only cards of this node.")
def cards(
    home: Path, nats: str | None, file: Path | None, at: str | None, output: str, node: str | None
) -> None:
    """Cards: capacity, what is free, and how many hold a part."""
    folded = anyio.run(_fold, Origin(home, nats, file), at)
    state = folded.state
    if node is not None and node not in state.nodes:
        raise CliError(f"node {node} is not known at seq {folded.seq}", "see: allot get nodes")
    names = [node] if node is not None else sorted(state.nodes)
    views = [view for name in names for view in cards_of(state, state.nodes[name])]
    if output == "json":
        _json("Cards", folded, views)
        return
    emit(_card_lines(views, wide=output == "wide"))


async def _fold(origin: Origin, at: str | None) -> Folded:
    async with open_source(origin) as source:
        return await fold_at(source, at)


def _json(kind: str, folded: Folded, items: Sequence[msgspec.Struct]) -> None:
    emit_json(Listing(f"allotment.dev/{kind.lower()}/v1", as_of(folded), items, folded.unreadable))


def _node_lines(views: Sequence[NodeView], *, wide: bool) -> list[str]:
    headers = ["NODE", "STATUS", "CARDS", "IDLE", "MODEL", "MEMORY", "FREE", "COUNTED", "PODS"]
    if wide:
        headers += ["CPU FREE", "HOST MEMORY FREE"]
    headers.append("PROBLEMS")
    rows = []
    for v in views:
        row = [
            v.name,
            v.status,
            str(v.cards) if v.cards else "",
            str(v.cards_idle) if v.cards else "",
            ",".join(v.models),
            bytes_text(v.memory_bytes) if v.memory_bytes else "",
            bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
            " ".join(
                f"{name} {v.free_extended[name]}/{total}"
                for name, total in v.extended.items()
                if name.endswith("/gpu")
            ),
            str(v.pods),
        ]
        if wide:
            row.append(f"{cpu_text(v.free_cpu_milli)}/{cpu_text(v.cpu_milli)}")
            row.append(f"{bytes_text(v.free_host_memory_bytes)}/{bytes_text(v.host_memory_bytes)}")
        rows.append([*row, str(len(v.problems)) if v.problems else ""])
    right = ("CARDS", "IDLE", "MEMORY", "FREE", "PODS", "PROBLEMS")
    return _headed(headers, rows, right)


def _problem_lines(views: Sequence[NodeView], unreadable: Sequence[Unreadable]) -> list[str]:
    lines = [f"{v.name}: {p.code}: {p.place}: {p.message}" for v in views for p in v.problems]
    lines += [
        f"log: record {u.seq} ({u.subject}) cannot be read: {u.reason}"
        for u in unreadable[:UNREADABLE_SHOWN]
    ]
    if len(unreadable) > UNREADABLE_SHOWN:
        lines.append(f"log: {len(unreadable) - UNREADABLE_SHOWN} more records cannot be read")
    return ["", heading("Problems"), *(f"  {line}" for line in lines)] if lines else []


def _pod_lines(views: Sequence[PodView], *, wide: bool) -> list[str]:
    headers = ["NAMESPACE", "NAME", "STATUS", "CAUSE", "NODE", "CARDS", "MEMORY", "COMPUTE"]
    if wide:
        headers += ["ASKS", "SCHEDULER", "SEQ", "UID"]
    rows = []
    for v in views:
        by_percent = bool(v.cards) and v.compute_whole == 100
        counted = [f"{name}: {count}" for name, count in v.extended.items()] if v.node else []
        row = [
            v.namespace,
            v.name,
            v.status,
            v.cause,
            v.node,
            ",".join(v.cards) or ", ".join(counted),
            bytes_text(v.memory_bytes) if by_percent or v.memory_bytes else "",
            _compute_text(v) if by_percent or v.compute_percent else "",
        ]
        if wide:
            row += [v.asks, v.scheduler, str(v.seq) if v.seq else "", v.uid]
        rows.append(row)
    return _headed(headers, rows, ("MEMORY", "COMPUTE", "SEQ"))


def _compute_text(view: PodView) -> str:
    return compute_text(view.compute_percent, view.compute_whole)


def _card_lines(views: Sequence[CardView], *, wide: bool) -> list[str]:
    headers = ["NODE", "CARD", "MODEL", "STATE", "SHARES", "MEMORY", "FREE", "COMPUTE FREE"]
    if wide:
        headers += ["MODE", "ID", "HOLDERS"]
    rows = []
    for v in views:
        state = [] if v.healthy else ["Unhealthy"]
        state += ["Oversold"] if v.oversold else []
        row = [
            v.node,
            v.device,
            v.model,
            ",".join(state) or "Healthy",
            str(v.slots - v.free_slots),
            bytes_text(v.memory_bytes) if v.memory_bytes else "",
            bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
            compute_text(v.free_compute_percent, _whole(v)),
        ]
        if wide:
            row += [v.mode, v.id, " ".join(f"{h.namespace}/{h.name}" for h in v.holders)]
        rows.append(row)
    return _headed(headers, rows, ("SHARES", "MEMORY", "FREE", "COMPUTE FREE"))


def _whole(view: CardView) -> int:
    return 100 if view.compute_percent in PERCENT else view.compute_percent


def _headed(headers: list[str], rows: list[list[str]], right: Sequence[str]) -> list[str]:
    first, *rest = table(headers, rows, right=right)
    return [heading(first), *rest]
