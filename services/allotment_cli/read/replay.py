"""`allot replay`: fold the log from nothing, make every decision again, compare bit for bit."""

from contextlib import aclosing
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from allotment.adapters.service.moments import AtSequence
from allotment.answers import moments
from allotment.answers.folding import reading
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment.core.replay.again import RAISED
from allotment.core.replay.replay import Index, Replayer, Report
from allotment_board import NodeRanker
from allotment_cli.options.params import output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, suggest

DIFFERENCES = 1
COMPILED_DECISIONS_MIN = 10_000
"""With fewer decisions to recompute, compiled loops take longer to load than they save."""
SHOWN_CHARS = 4000


class ReplayDocument(msgspec.Struct, frozen=True):
    """The report and the range it covers, as JSON."""

    from_seq: int
    to_seq: int
    verified: bool
    report: Report


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
    home: Path,
    nats: str | None,
    file: Path | None,
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
    document = anyio.run(run, Origin(home, nats, file), verify, plain, first, last)
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
    """Two readings of the log: where decisions look back to, then everything."""
    async with open_source(origin) as source:
        last_seq = await source.last_seq()
        from_seq = 1 if first is None else await _sequence(source, first, "--from", after=True)
        to_seq = last_seq if last is None else await _sequence(source, last, "--to", after=False)
        if from_seq > last_seq + 1 or to_seq > last_seq:
            raise AllotError(f"the log ends at {last_seq}", "give --from and --to within it")
        if from_seq > to_seq and first is not None and last is not None:
            raise AllotError(
                f"--from is seq {from_seq} and --to is seq {to_seq}: nothing lies between",
                "give --from before --to",
            )
        index = Index(from_seq, to_seq)
        if verify:
            async with aclosing(reading(source, 1, to_seq)) as batches:
                async for batch in batches:
                    for record in batch:
                        index.feed(record)
        replayer = Replayer(index.stops, partial(_ranker, plain, len(index.stops)))
        async with aclosing(reading(source, 1, to_seq)) as batches:
            async for batch in batches:
                for record in batch:
                    replayer.feed(record)
        return ReplayDocument(from_seq, to_seq, verify, replayer.report())


def _ranker(plain: bool, decisions: int, state: ClusterState) -> Ranker:
    if plain:
        return Evaluator(state)
    # Without compiled loops the answers are the same, and slower.
    return NodeRanker(state, _ignore if decisions >= COMPILED_DECISIONS_MIN else None)


def _ignore(reason: str) -> None:
    """That loops could not be compiled."""


async def _sequence(source: Source, text: str, option: str, *, after: bool) -> int:
    """The first sequence at or after a moment, or the last one at or before it."""
    at = moments.parse(text, source.now_ms(), option)
    if isinstance(at, AtSequence):
        return at.seq
    seq = 0
    async with aclosing(reading(source, 1, await source.last_seq())) as batches:
        async for batch in batches:
            for record in batch:
                if record.time_ns // 1_000_000 >= at.ms + (not after):
                    return record.seq if after else seq
                seq = record.seq
    return seq + 1 if after else seq


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
