"""Lists of one kind of thing: rows and columns of what the log knows, and of what changes."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from typing import Any, NamedTuple

import anyio
import click
import msgspec

from allotment.answers.folding import AsOf, Folded, Unreadable, as_of, fold_at, take
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment_cli.options.source import open_source
from allotment_cli.read.watching import check_watch
from allotment_cli.show.ending import complain
from allotment_cli.show.output import (
    DOCUMENTS,
    Table,
    emit,
    emit_document,
    emit_json_line,
    heading,
    note,
)

UNKNOWN_NAMES = 1
"""The exit code if some of the names that were asked for are unknown."""
_PATHS = {"creationtimestamp": "created", "nodename": "node"}
"""The last words of kubectl's usual paths whose columns are called otherwise."""

View = Any
"""A row: a `NodeView`, `PodView`, `CardView`, …"""


class Column(NamedTuple):
    """One column: its header, a row's cell, and what `--sort-by` compares, without `key` the cell.

    A `right` one is flush right, a `wide` one is for `-o wide` only. Screens that are too narrow
    leave `optional` ones out, the highest first.
    """

    header: str
    cell: Callable[[View], str]
    key: Callable[[View], Any] | None = None
    right: bool = False
    wide: bool = False
    optional: int = 0


def amount(
    header: str,
    cell: Callable[[View], str],
    key: Callable[[View], int],
    *,
    wide: bool = False,
    optional: int = 0,
) -> Column:
    """A column of amounts: flush right, and sorted as numbers."""
    return Column(header, cell, key, right=True, wide=wide, optional=optional)


def count(header: str, key: Callable[[View], int], *, optional: int = 0) -> Column:
    """A column of counts."""
    return amount(header, lambda view: str(key(view)), key, optional=optional)


class ByColumn(click.Choice[str]):
    """A column by its header in lower case, or by kubectl's path, like `.metadata.name`."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__([word_of(column) for column in columns], case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        last = str(value).strip("{}").rpartition(".")[2].lower()
        return super().convert(_PATHS.get(last, last), param, ctx)


def word_of(column: Column) -> str:
    """How `--sort-by` names a column."""
    return column.header.lower().replace(" ", "-")


def nearest(name: str, known: Sequence[str]) -> str:
    """The nearest of these names; "" if none is near."""
    close = get_close_matches(name, known, n=1)
    return close[0] if close else ""


class Kind(NamedTuple):
    """How one kind of thing is listed. `views` are all that there are, `keeps` says whether the
    options select one; `gone` is the row of one that the state no longer has, and `after` prints
    what else belongs on the screen.
    """

    plural: str
    columns: Sequence[Column]
    views: Callable[[ClusterState], Sequence[View]]
    name: Callable[[View], str]
    """As `-o name` prints it, after the kind."""
    spellings: Callable[[View], Sequence[str]]
    """How a user may name it."""
    gone: Callable[[View], View]
    keeps: Callable[[ClusterState, View], bool] = lambda state, view: True
    after: Callable[[Folded, Sequence[View]], None] = lambda folded, views: None
    similar: Callable[[str, Sequence[str]], str] = nearest
    """The spelling that an unknown name is nearest to, of all there are; "" if none is near."""
    where: str = ""
    """In which namespace was looked, for a list that is empty."""


class Wanted(NamedTuple):
    """What the options ask for."""

    origin: Origin
    at: str | None
    output: str
    watch: bool
    sort_by: str | None
    names: tuple[str, ...]


class Listing(msgspec.Struct, frozen=True, rename="camel"):
    """A list as JSON."""

    schema: str
    as_of: AsOf
    items: Sequence[msgspec.Struct]
    unreadable: tuple[Unreadable, ...]


def show(kind: Kind, wanted: Wanted) -> None:
    """Print the list, and with `--watch` what changes. Names that nothing has are reported after
    it, and end the command with exit code 1.
    """
    unknown = anyio.run(_show, kind, wanted)
    if unknown:
        for error in unknown:
            complain(error)
        click.get_current_context().exit(UNKNOWN_NAMES)


async def _show(kind: Kind, wanted: Wanted) -> list[AllotError]:
    if wanted.watch:
        check_watch(wanted.at, wanted.origin.file, wanted.output, "use -o jsonl with --watch")
    async with open_source(wanted.origin) as source:
        folded = await fold_at(source, wanted.at)
        everything = kind.views(folded.state)
        unknown = _unknown(kind, everything, wanted.names, folded.seq)
        views = _sorted(kind, _selected(kind, wanted, folded.state, everything), wanted.sort_by)
        columns = [c for c in kind.columns if not c.wide or wanted.output == "wide"]
        table = Table(
            [column.header for column in columns],
            right=[column.header for column in columns if column.right],
            optional=[
                column.header
                for column in sorted(columns, key=lambda c: -c.optional)
                if column.optional
            ],
        )
        if not unknown or views:
            _print(kind, wanted, folded, views, columns, table)
        if wanted.watch and not unknown:
            await _watch(source, kind, wanted, folded, views, columns, table)
    return unknown


def _print(
    kind: Kind,
    wanted: Wanted,
    folded: Folded,
    views: Sequence[View],
    columns: Sequence[Column],
    table: Table,
) -> None:
    output = wanted.output
    if output in DOCUMENTS:
        schema = f"allotment.dev/{kind.plural}/v1"
        emit_document(Listing(schema, as_of(folded), views, folded.unreadable), output)
        return
    if not views and output != "jsonl":
        note(f"No {kind.plural} found{kind.where}.")
    if output not in ("text", "wide"):
        _print_more(kind, output, views, columns, table)
        return
    if views or wanted.watch:
        first, *rest = table.lines(_cells(columns, views))
        emit([heading(first), *rest], wide=output == "wide")
    kind.after(folded, views)


def _cells(columns: Sequence[Column], views: Sequence[View]) -> list[list[str]]:
    return [[column.cell(view) for column in columns] for view in views]


def _print_more(
    kind: Kind, output: str, views: Sequence[View], columns: Sequence[Column], table: Table
) -> None:
    if output == "jsonl":
        emit_json_line(views)
    elif output == "name":
        emit(f"{kind.plural[:-1]}/{kind.name(view)}" for view in views)
    else:
        emit(table.more(_cells(columns, views)), wide=output == "wide")


async def _watch(
    source: Source,
    kind: Kind,
    wanted: Wanted,
    folded: Folded,
    views: Sequence[View],
    columns: Sequence[Column],
    table: Table,
) -> None:
    """Rows that are new or differ from when they were last printed, as records come."""
    known = {kind.name(view): view for view in views}
    state = folded.state
    async with aclosing(source.follow(folded.seq)) as batches:
        async for batch in batches:
            for record in batch:
                take(state, record)
            found = _selected(kind, wanted, state, kind.views(state))
            now = {kind.name(view): view for view in found}
            changed = [view for name, view in now.items() if known.get(name) != view]
            changed += [kind.gone(view) for name, view in known.items() if name not in now]
            _print_more(kind, wanted.output, changed, columns, table)
            known = now


def _unknown(kind: Kind, views: Sequence[View], names: Sequence[str], seq: int) -> list[AllotError]:
    """What to say of each name that nothing has."""
    there = [spelling for view in views for spelling in kind.spellings(view)] if names else []
    found = []
    for name in sorted(set(names) - set(there), key=names.index):
        close = kind.similar(name, there)
        found.append(
            AllotError(
                f"{kind.plural[:-1]} {name} is not in the log at seq {seq}",
                f"did you mean {close}?" if close else f"see: allot get {kind.plural}",
            )
        )
    return found


def _selected(
    kind: Kind, wanted: Wanted, state: ClusterState, views: Sequence[View]
) -> Sequence[View]:
    """Those that the names and the other options select."""
    names = set(wanted.names)
    return [
        view
        for view in views
        if (not names or names & set(kind.spellings(view))) and kind.keeps(state, view)
    ]


def _sorted(kind: Kind, views: Sequence[View], word: str | None) -> Sequence[View]:
    """By this column, upwards; what is equal stays in its order."""
    if word is None:
        return views
    column = next(column for column in kind.columns if word_of(column) == word)
    return sorted(views, key=column.key or column.cell)
