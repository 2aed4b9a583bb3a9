"""`allot diff`: what differs between two moments of the log, or between two exported logs."""

import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import click
import msgspec

from allotment.adapters.service.moments import At, local_day_text, moment_text
from allotment.answers import moments
from allotment.answers.folding import AsOf, Folded, as_of, fold, fold_at, is_after
from allotment.answers.source import FileSource, Origin, Source
from allotment.core.explain.difference import Differing, differences, field_amount, field_words
from allotment.core.ledger import snapshot
from allotment_cli.options import completion
from allotment_cli.options.params import output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, heading, note, table

SCHEMA = "allotment.dev/diff/v1"
NOW = "now"
DIFFERENT = 1
FIELDS_SHOWN = 3
_AGE = re.compile("-[0-9.]")


class DiffDocument(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    before: AsOf
    after: AsOf
    differences: Sequence[Differing]


class _OfMoments(click.Command):
    """Its arguments may be ages: ``-15m`` is no option here, but ``now-15m``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [NOW + a if _AGE.match(a) else a for a in args])


@click.command(cls=_OfMoments)
@click.argument("before", metavar="A", shell_complete=completion.files)
@click.argument("after", metavar="B", shell_complete=completion.files)
@source_options
@output_option(*DOCUMENTS)
@click.pass_context
def diff(
    ctx: click.Context,
    before: str,
    after: str,
    origin: Origin,
    output: str,
) -> None:
    """Pods, nodes, cards and settings that differ between A and B.

    Each is a moment of the log (a sequence, 14:03, -15m, RFC 3339, now) or an exported log
    (allot log -o jsonl; ./NAME, or NAME.jsonl) at its end. + is only in B, - only in A. A pod that
    was deleted and made again is another one; in two logs pods are compared by their names.

    Exit code 0: nothing differs. 1: something does. 2: it could not be compared.
    """
    one, other = anyio.run(_folded, origin, before, after)
    found = differences(one.state, other.state, by_name=_is_file(before) or _is_file(after))
    if output in DOCUMENTS:
        emit_document(DiffDocument(SCHEMA, as_of(one), as_of(other), found), output)
    else:
        for word, folded in (("A", one), ("B", other)):
            note(f"{word}: seq {folded.seq}, {moment_text(folded.time_ms)}")
        emit(diff_lines(found))
    if found:
        ctx.exit(DIFFERENT)


async def _folded(origin: Origin, before: str, after: str) -> tuple[Folded, Folded]:
    if _is_file(before) and _is_file(after):
        return await _of_file(before), await _of_file(after)
    async with open_source(origin) as source:
        if _is_file(before):
            return await _of_file(before), await _at(source, _moment(source, after, "B"))
        one = _moment(source, before, "A")
        if _is_file(after):
            return await _at(source, one), await _of_file(after)
        other = _moment(source, after, "B")
        if is_after(one, other):
            return await _one_by_one(source, one, other)
        if is_after(other, one):
            later = await _one_by_one(source, other, one)
            return later[1], later[0]
        return await _at(source, one), await _at(source, other)


async def _one_by_one(source: Source, one: At | None, other: At | None) -> tuple[Folded, Folded]:
    """Two moments, the later one folded on from the earlier one: the log is read once."""
    first = await _at(source, one)
    image = snapshot.encode(first.state)
    second = await _at(source, other, after=first)
    return first._replace(state=snapshot.decode(image)), second


async def _at(source: Source, at: At | None, *, after: Folded | None = None) -> Folded:
    folded = await fold(source, at, after=after)
    if at is None:
        return folded._replace(time_ms=max(source.now_ms(), folded.time_ms))
    return folded


def _moment(source: Source, text: str, word: str) -> At | None:
    """A moment as `fold` takes it: None is now. Raises `AllotError` that names A or B."""
    if text == NOW:
        return None
    return moments.parse(text.removeprefix(NOW), source.now_ms(), word)


def _is_file(text: str) -> bool:
    """Moments have no such names: a file of a name that is also a moment is given with ./"""
    return "/" in text or text.endswith((".jsonl", ".json"))


async def _of_file(text: str) -> Folded:
    return await fold_at(FileSource(Path(text)), None)


def diff_lines(found: Sequence[Differing]) -> list[str]:
    """A block for each kind of thing, a row for each field that differs, and a count at the end."""
    if not found:
        return ["nothing differs"]
    lines: list[str] = []
    counts: list[str] = []
    for kind in dict.fromkeys(each.kind for each in found):
        of_kind = [each for each in found if each.kind == kind]
        lines += ["", heading(f"{kind}s".capitalize())]
        rows = [row for each in of_kind for row in _rows(each)]
        headers = ("", "NAME", "WHAT", "A", "B")
        lines += table(headers, rows, indent="  ", blank=headers[2:])
        counts.append(f"{len(of_kind)} {kind}{'s' * (len(of_kind) != 1)}")
    return [*lines[1:], "", f"different: {', '.join(counts)}"]


def _rows(each: Differing) -> list[list[str]]:
    """A row for each field; of what is in one state only, one with the first that say anything."""
    if each.mark == "~":
        return [
            [
                each.mark,
                _name(each),
                field_words(c.field),
                field_amount(c.field, c.before),
                field_amount(c.field, c.after),
            ]
            for c in each.changes
        ]
    texts = [field_amount(c.field, c.before or c.after) for c in each.changes]
    said = ", ".join(texts[:FIELDS_SHOWN])
    is_new = each.mark == "+"
    return [[each.mark, _name(each), "", "" if is_new else said, said * is_new]]


def _name(each: Differing) -> str:
    """Of a pod with a namesake also when it was created, and its uid."""
    if not each.has_namesake:
        return each.name
    when = f"created {local_day_text(each.created_ms)}, " if each.created_ms else ""
    return f"{each.name} ({when}uid {each.uid})"
