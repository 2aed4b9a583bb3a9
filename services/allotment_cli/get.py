"""`allot get nodes|pods|cards`: plain tables of what the log knows, and of what changes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click
import msgspec

from allotment.core.explain.amounts import compute_text, whole_of_card
from allotment.core.explain.pod_views import PodView, pod_views
from allotment.core.explain.views import (
    GONE,
    CardView,
    NodeView,
    cards_of,
    model_text,
    node_views,
    usable_compute,
)
from allotment.core.explain.why import Whys
from allotment.core.ledger.model import ClusterState
from allotment.core.units import bytes_text, cpu_text
from allotment_cli import completion
from allotment_cli.errors import CliError
from allotment_cli.folding import AsOf, Folded, Unreadable, as_of, fold_at, take
from allotment_cli.lazy import LazyGroup
from allotment_cli.names import meant, no_such_node
from allotment_cli.output import (
    DOCUMENTS,
    Prose,
    Table,
    emit,
    emit_document,
    emit_json_line,
    heading,
    suggest,
)
from allotment_cli.params import (
    at_option,
    label_test,
    namespaces_options,
    output_option,
    watch_option,
)
from allotment_cli.source import Origin, Source, open_source, source_options
from allotment_cli.watching import check_watch

UNREADABLE_SHOWN = 3
_OPTIONAL = ("COMPUTE", "MEMORY", "PROBLEMS", "IDLE")
"""What a narrow screen leaves out: of pods, whose cards say as much; of nodes, whose problems are
listed below.
"""
COMMANDS = {
    "nodes": (
        "allotment_cli.get",
        "nodes",
        "Status, cards, what is free, and what is wrong.",
    ),
    "pods": (
        "allotment_cli.get",
        "pods",
        "Where they are, what they hold, and why others wait.",
    ),
    "cards": (
        "allotment_cli.get",
        "cards",
        "Capacity, what is free, and how many hold a part.",
    ),
}
ALIASES = {
    **dict.fromkeys(("node", "no"), "nodes"),
    **dict.fromkeys(("pod", "po"), "pods"),
    **dict.fromkeys(("card", "gpu", "gpus"), "cards"),
}
View = Any
"""A `NodeView`, `PodView` or `CardView`."""


class Listing(msgspec.Struct, frozen=True, rename="camel"):
    """A list as JSON."""

    schema: str
    as_of: AsOf
    items: Sequence[msgspec.Struct]
    unreadable: tuple[Unreadable, ...]


class Kind(NamedTuple):
    """How one kind of thing is listed. `views` are those that were asked for, in their order."""

    plural: str
    views: Callable[[ClusterState], Sequence[View]]
    name: Callable[[View], str]
    """As `-o name` prints it, and `explain` takes it."""
    headers: Sequence[str]
    right: Collection[str]
    cells: Callable[[View], list[str]]
    gone: Callable[[View], View]
    """The row of what is not in the log's state any more."""
    after: Callable[[Folded, Sequence[View]], None] = lambda folded, views: None
    """What else stands on the screen."""


class Wanted(NamedTuple):
    """What the options ask for."""

    origin: Origin
    at: str | None
    output: str
    watch: bool
    names: tuple[str, ...]


@click.group(cls=LazyGroup, commands=COMMANDS, aliases=ALIASES)
def get() -> None:
    """List nodes, pods or cards as recorded in the log; `get pod` and `get po` are `get pods`."""


def _options(names: completion.Completer) -> Callable[[Any], Any]:
    """What all lists take; `names` completes their names."""

    def decorate(command: Any) -> Any:
        for option in (
            output_option("wide", *DOCUMENTS, "jsonl", "name"),
            watch_option,
            at_option,
            source_options,
            click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names),
        ):
            command = option(command)
        return command

    return decorate


@click.command()
@_options(completion.nodes)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only nodes with these labels.")
def nodes(
    home: Path, nats: str | None, file: Path | None, selector: str | None, **asked: Any
) -> None:
    """Nodes: status, cards, what is free, and what is wrong with them."""
    wanted = Wanted(Origin(home, nats, file), **asked)
    selected = _node_names(selector)
    wide = wanted.output == "wide"
    headers = ["NODE", "STATUS", "CARDS", "IDLE", "MODEL", "MEMORY", "FREE", "COUNTED", "PODS"]
    headers += ["CPU FREE", "HOST MEMORY FREE"] * wide
    kind = Kind(
        "nodes",
        lambda state: [v for v in node_views(state) if v.name in selected(state)],
        lambda view: f"node/{view.name}",
        [*headers, "PROBLEMS"],
        ("CARDS", "IDLE", "MEMORY", "FREE", "PODS", "PROBLEMS"),
        lambda view: _node_cells(view, wide=wide),
        lambda view: msgspec.structs.replace(view, status=GONE),
        lambda folded, views: emit(_problem_lines(views, folded.unreadable)),
    )
    anyio.run(_show, kind, wanted)


@click.command()
@_options(completion.pods)
@namespaces_options
@click.option("-l", "--selector", metavar="SELECTOR", help="Only pods with these labels.")
@click.option("--node", shell_complete=completion.nodes, help="Only pods on this node.")
@click.option("--pending", is_flag=True, help="Only pods that wait.")
def pods(
    home: Path,
    nats: str | None,
    file: Path | None,
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    node: str | None,
    pending: bool,
    **asked: Any,
) -> None:
    """Pods: where they are, what they hold, and why the others wait. NAME is that of a pod in any
    namespace, or in that of -n. Of pods that wait for another scheduler the log holds no labels.
    """
    wanted = Wanted(Origin(home, nats, file), **asked)
    space = None if all_namespaces else namespace
    passes = label_test(selector)
    wide = wanted.output == "wide"
    headers = ["NAMESPACE", "NAME", "STATUS", "CAUSE", "NODE", "CARDS", "MEMORY", "COMPUTE"]

    def views(state: ClusterState) -> list[PodView]:
        return [
            view
            for view in pod_views(state, Whys(state).of)
            if (space is None or view.namespace == space)
            and (node is None or view.node == node)
            and (not pending or view.status == "Pending")
            and (selector is None or passes(dict(state.pods[view.uid].fact.labels)))
        ]

    kind = Kind(
        "pods",
        views,
        lambda view: f"pod/{view.name}" if space else f"pod/{view.namespace}/{view.name}",
        headers + ["ASKS", "SCHEDULER", "SEQ", "UID"] * wide,
        ("MEMORY", "COMPUTE", "SEQ"),
        lambda view: _pod_cells(view, wide=wide),
        lambda view: msgspec.structs.replace(view, status=GONE, cause=""),
        _suggest_a_pod,
    )
    anyio.run(_show, kind, wanted)


@click.command()
@_options(completion.cards)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only cards of nodes with these labels.")
@click.option("--node", shell_complete=completion.nodes, help="Only cards of this node.")
def cards(
    home: Path,
    nats: str | None,
    file: Path | None,
    selector: str | None,
    node: str | None,
    **asked: Any,
) -> None:
    """Cards: capacity, what is free, and how many hold a part. NAME is NODE or NODE/CARD."""
    wanted = Wanted(Origin(home, nats, file), **asked)
    selected = _node_names(selector)
    wide = wanted.output == "wide"
    headers = ["NODE", "CARD", "MODEL", "STATE", "SHARES", "MEMORY", "FREE", "COMPUTE FREE"]

    def views(state: ClusterState) -> list[CardView]:
        if node is not None and node not in state.nodes:
            raise no_such_node(node, state.nodes, state.seq)
        names = [node] if node is not None else sorted(state.nodes)
        there = selected(state)
        return [view for n in names if n in there for view in cards_of(state, state.nodes[n])]

    kind = Kind(
        "cards",
        views,
        lambda view: f"card/{view.node}/{view.device}",
        headers + ["MODE", "ID", "HOLDERS"] * wide,
        ("SHARES", "MEMORY", "FREE", "COMPUTE FREE"),
        lambda view: _card_cells(view, wide=wide),
        lambda view: msgspec.structs.replace(view, healthy=False),
    )
    anyio.run(_show, kind, wanted)


def _node_names(selector: str | None) -> Callable[[ClusterState], Collection[str]]:
    passes = label_test(selector)
    return lambda state: {n for n, node in state.nodes.items() if passes(node.labels)}


async def _show(kind: Kind, wanted: Wanted) -> None:
    if wanted.watch:
        check_watch(wanted.at, wanted.origin.file, wanted.output, "use -o jsonl with --watch")
    async with open_source(wanted.origin) as source:
        folded = await fold_at(source, wanted.at)
        views = _named(kind, kind.views(folded.state), wanted.names, folded.seq)
        optional = [name for name in _OPTIONAL if name in kind.headers]
        table = Table(kind.headers, right=kind.right, optional=optional)
        _print(kind, wanted.output, folded, views, table)
        if wanted.watch:
            await _watch(source, kind, wanted, folded, views, table)


def _print(kind: Kind, output: str, folded: Folded, views: Sequence[View], table: Table) -> None:
    if output in DOCUMENTS:
        schema = f"allotment.dev/{kind.plural}/v1"
        emit_document(Listing(schema, as_of(folded), views, folded.unreadable), output)
        return
    if output in ("text", "wide"):
        first, *rest = table.lines([kind.cells(view) for view in views])
        emit([heading(first), *rest], wide=output == "wide")
        kind.after(folded, views)
    else:
        _print_more(kind, output, views, table)


def _print_more(kind: Kind, output: str, views: Sequence[View], table: Table) -> None:
    if output == "jsonl":
        emit_json_line(views)
    elif output == "name":
        emit(map(kind.name, views))
    else:
        emit(table.more([kind.cells(view) for view in views]), wide=output == "wide")


async def _watch(
    source: Source,
    kind: Kind,
    wanted: Wanted,
    folded: Folded,
    views: Sequence[View],
    table: Table,
) -> None:
    """Rows that are new or differ from when they were last printed, as records come."""
    known = {kind.name(view): view for view in views}
    state = folded.state
    async with aclosing(source.follow(folded.seq)) as batches:
        async for batch in batches:
            for record in batch:
                take(state, record)
            now = {kind.name(view): view for view in _matching(kind.views(state), wanted.names)}
            changed = [view for name, view in now.items() if known.get(name) != view]
            changed += [kind.gone(view) for name, view in known.items() if name not in now]
            _print_more(kind, wanted.output, changed, table)
            known = now


def _named(kind: Kind, views: Sequence[View], names: Sequence[str], seq: int) -> Sequence[View]:
    """Those of these names. Raises `CliError` for a name that nothing has."""
    there = {spelling for view in views for spelling in _spellings(view)}
    for name in names:
        if name not in there:
            word = kind.plural[:-1]
            raise CliError(
                f"{word} {name} is not in the log at seq {seq}",
                meant(name, there, f"see: allot get {kind.plural}"),
            )
    return _matching(views, names)


def _matching(views: Sequence[View], names: Sequence[str]) -> Sequence[View]:
    wanted = set(names)
    return [v for v in views if wanted & set(_spellings(v))] if names else views


def _spellings(view: View) -> tuple[str, ...]:
    """How a user may name it."""
    match view:
        case PodView():
            return view.name, f"{view.namespace}/{view.name}"
        case CardView():
            return view.node, f"{view.node}/{view.device}", view.id
        case _:
            return (str(view.name),)


def _suggest_a_pod(folded: Folded, views: Iterable[PodView]) -> None:
    waiting = next((v for v in views if v.status == "Pending"), None)
    if waiting is not None:
        suggest(f"allot explain pod {waiting.namespace}/{waiting.name}")


def _node_cells(v: NodeView, *, wide: bool) -> list[str]:
    cells = [
        v.name,
        v.status,
        str(v.cards) if v.cards else "",
        str(v.cards_idle) if v.cards else "",
        ",".join(map(model_text, v.models)),
        bytes_text(v.memory_bytes) if v.memory_bytes else "",
        bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
        _counted_text(v.extended, v.free_extended),
        str(v.pods),
    ]
    if wide:
        cells.append(f"{cpu_text(v.free_cpu_milli)}/{cpu_text(v.cpu_milli)}")
        cells.append(f"{bytes_text(v.free_host_memory_bytes)}/{bytes_text(v.host_memory_bytes)}")
    return [*cells, str(len(v.problems)) if v.problems else ""]


def _counted_text(extended: Mapping[str, int], free: Mapping[str, int]) -> str:
    return " ".join(
        f"{name} {free[name]}/{total}" for name, total in extended.items() if name.endswith("/gpu")
    )


def _problem_lines(views: Sequence[NodeView], unreadable: Sequence[Unreadable]) -> list[str]:
    lines = [f"{v.name}: {p.code}: {p.place}: {p.message}" for v in views for p in v.problems]
    lines += [
        f"log: record {u.seq} ({u.subject}) cannot be read: {u.reason}"
        for u in unreadable[:UNREADABLE_SHOWN]
    ]
    if len(unreadable) > UNREADABLE_SHOWN:
        lines.append(f"log: {len(unreadable) - UNREADABLE_SHOWN} more records cannot be read")
    return ["", heading("Problems"), *(Prose(f"  {line}", 4) for line in lines)] if lines else []


def _pod_cells(v: PodView, *, wide: bool) -> list[str]:
    by_percent = bool(v.cards) and v.compute_whole == 100
    counted = [f"{name}: {count}" for name, count in v.extended.items()] if v.node else []
    cells = [
        v.namespace,
        v.name,
        v.status,
        v.cause,
        v.node,
        ",".join(v.cards) or ", ".join(counted),
        bytes_text(v.memory_bytes) if by_percent or v.memory_bytes else "",
        compute_text(v.compute_percent, v.compute_whole) if by_percent or v.compute_percent else "",
    ]
    return cells + [v.asks, v.scheduler, str(v.seq) if v.seq else "", v.uid] * wide


def _card_cells(v: CardView, *, wide: bool) -> list[str]:
    state = [] if v.healthy else ["Unhealthy"]
    state += ["Oversold"] if v.oversold else []
    cells = [
        v.node,
        v.device,
        model_text(v.model),
        ",".join(state) or "Healthy",
        f"{v.slots - v.free_slots}/{v.slots}",
        bytes_text(v.memory_bytes) if v.memory_bytes else "",
        bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
        compute_text(usable_compute(v), whole_of_card(v.compute_percent)),
    ]
    return cells + [v.mode, v.id, " ".join(f"{h.namespace}/{h.name}" for h in v.holders)] * wide
