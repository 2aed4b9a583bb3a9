"""`allot replay`: fold the log from nothing, make every decision again, compare bit for bit."""

import anyio
import click
import msgspec

from allotment.answers.replay import ReplayDocument, replayed
from allotment.answers.source import Origin
from allotment.core.replay.again import RAISED
from allotment_cli.options.params import output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, suggest

DIFFERENCES = 1
SHOWN_CHARS = 4000


@click.command()
@source_options
@click.option("--verify/--no-verify", default=False, help="Make every decision again and compare.")
@click.option(
    "--plain",
    is_flag=True,
    help="With --verify: decide by the plain rules, node by node, not by the board. Slower.",
)
@click.option("--from", "first", metavar="MOMENT", help="First decision (default: the log's).")
@click.option("--to", "--at", "last", metavar="MOMENT", help="Last record (default: the log's).")
@output_option(*DOCUMENTS)
@click.pass_context
def replay(
    ctx: click.Context,
    origin: Origin,
    verify: bool,
    plain: bool,
    first: str | None,
    last: str | None,
    output: str,
) -> None:
    """Fold the log from its first record; with --verify recompute every decision and compare.

    A decision that raises an error when it is recomputed counts as different; the others are still
    recomputed. Exit codes: 0 no differences, 1 differences found, 2 could not run.
    """
    if plain and not verify:
        raise click.UsageError("--plain says how decisions are made again: give --verify, too")
    document = anyio.run(run, origin, verify, plain, first, last)
    if output in DOCUMENTS:
        facts = msgspec.to_builtins(document.report)
        covered = {
            "from_seq": document.from_seq,
            "to_seq": document.to_seq,
            "verified": document.verified,
        }
        emit_document({**facts, **covered}, output)
    else:
        emit(report_lines(document))
        if document.report.first_difference is not None:
            suggest(f"allot log show {document.report.first_difference.seq}")
    if document.report.different:
        ctx.exit(DIFFERENCES)


async def run(
    origin: Origin, verify: bool, plain: bool, first: str | None, last: str | None
) -> ReplayDocument:
    """The replay of the log of these options. Raises `AllotError`."""
    async with open_source(origin) as source:
        return await replayed(source, first, last, verify=verify, plain=plain)


def report_lines(document: ReplayDocument) -> list[str]:
    """The report on a screen."""
    report = document.report
    if not document.verified:
        return [
            f"folded {report.seq:,} records ({report.undecodable:,} cannot be read)",
            f"state sha256 {report.state_sha256}",
        ]
    lines = [
        f"{report.decisions:,} decisions from seq {document.from_seq:,} to {document.to_seq:,}",
        f"  identical  {report.identical:>9,}",
        f"  different  {report.different:>9,}",
        f"  skipped    {report.skipped:>9,}",
    ]
    if report.undecodable:
        lines.append(f"  records that cannot be read: {report.undecodable:,}")
    lines.append(f"state sha256 {report.state_sha256}")
    found = report.first_difference
    if found is not None:
        first = f"first difference: decision at seq {found.seq} (cycle {found.cycle})"
        if found.field == RAISED:
            lines += ["", f"{first} could not be made again: {found.recomputed}"]
        else:
            recorded, recomputed = _shown(found.recorded), _shown(found.recomputed)
            lines += ["", f"{first}, {found.field}"]
            lines += [f"  recorded    {recorded}", f"  recomputed  {recomputed}"]
    if report.first_skipped is not None:
        skipped = report.first_skipped
        lines += ["", f"first skipped: seq {skipped.seq} (cycle {skipped.cycle}): {skipped.reason}"]
    return lines


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + " … (-o json shows all)"
