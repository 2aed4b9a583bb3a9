"""`allot usage`: who held how much, and for how long, from the log's journal."""

from collections import Counter
from contextlib import aclosing
from pathlib import Path

import anyio
import click
import msgspec

from allotment.core.replay.journal import Journal, Usage
from allotment.core.replay.journal import usage as summed
from allotment.core.units import rfc3339
from allotment_cli import moments
from allotment_cli.errors import CliError
from allotment_cli.journaling import journal_of
from allotment_cli.moments import AtSequence
from allotment_cli.output import emit, emit_json, note, table
from allotment_cli.source import Origin, Source, open_source, source_options

SCHEMA = "allotment.dev/usage/v1"
HOUR_MS = 3_600_000


class UsageDocument(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts are integers times milliseconds, so that nothing is lost in sums."""

    schema: str
    from_time: str
    to_time: str
    seq: int
    by: str
    usage: tuple[Usage, ...]


@click.command()
@source_options
@click.option(
    "--from", "first", metavar="MOMENT", help="Begin here (default: where the log begins)."
)
@click.option("--to", "last", metavar="MOMENT", help="End here (default: now).")
@click.option("--by", type=click.Choice(("namespace", "node")), default="namespace")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
def usage(
    home: Path,
    nats: str | None,
    file: Path | None,
    first: str | None,
    last: str | None,
    by: str,
    output: str,
) -> None:
    """Device-hours, memory, CPU and counted resources that pods held, by namespace or by node.

    A device is a card or a share of one. What counts is what the log booked, from the decision (or
    from when a pod of others was seen) to its release; memory is what was asked for.
    """
    document = anyio.run(_document, Origin(home, nats, file), first, last, by)
    if output == "json":
        emit_json(document)
        return
    note(f"from {document.from_time} to {document.to_time}, seq {document.seq}")
    emit(usage_lines(document))


async def _document(origin: Origin, first: str | None, last: str | None, by: str) -> UsageDocument:
    async with open_source(origin) as source:
        journal = await journal_of(source)
        now_ms = source.now_ms()
        from_ms = await _begin_ms(source) if first is None else await _ms(source, first, "--from")
        to_ms = now_ms if last is None else min(await _ms(source, last, "--to"), now_ms)
    if from_ms > to_ms:
        raise CliError(
            f"--from is {rfc3339(from_ms)} and --to is {rfc3339(to_ms)}: nothing lies between",
            "give --from before --to",
        )
    return document_of(journal, from_ms, to_ms, by)


def document_of(journal: Journal, from_ms: int, to_ms: int, by: str) -> UsageDocument:
    """What was used between two moments."""
    found = summed(journal, from_ms, to_ms, by_node=by == "node")
    times = rfc3339(from_ms), rfc3339(to_ms)
    return UsageDocument(SCHEMA, *times, journal.last_seq, by, tuple(found))


async def _begin_ms(source: Source) -> int:
    """When the log begins; an empty one begins now."""
    return await _record_ms(source, 1) if await source.last_seq() else source.now_ms()


async def _ms(source: Source, text: str, option: str) -> int:
    at = moments.parse(text, source.now_ms(), option)
    if not isinstance(at, AtSequence):
        return at.ms
    last_seq = await source.last_seq()
    if not 1 <= at.seq <= last_seq:
        raise CliError(f"{option} {text}: the log goes from 1 to {last_seq}", "give one of these")
    return await _record_ms(source, at.seq)


async def _record_ms(source: Source, seq: int) -> int:
    async with aclosing(source.read(seq, seq)) as batches:
        async for batch in batches:
            return batch[0].time_ns // 1_000_000
    raise CliError(f"the log has no record {seq}")


def usage_lines(document: UsageDocument) -> list[str]:
    """A row for each namespace or node, and the sum."""
    if not document.usage:
        return ["nothing was held"]
    found = list(document.usage)
    if len(found) > 1:
        found.append(_sum(found))
    counted = sorted({resource for used in found for resource in used.counted_ms})
    rows = [
        [
            used.name,
            f"{used.pods:,}",
            _hours(used.device_ms),
            _hours(used.memory_mib_ms, 1024),
            _hours(used.cpu_milli_ms, 1000),
            *(_hours(used.counted_ms.get(resource, 0)) for resource in counted),
        ]
        for used in found
    ]
    columns = ("PODS", "DEVICE-HOURS", "MEMORY GiB-HOURS", "CPU-HOURS")
    headers = (document.by.upper(), *columns, *(f"{resource} HOURS" for resource in counted))
    return table(headers, rows, right=headers[1:])


def _sum(found: list[Usage]) -> Usage:
    """All of them; a pod that was on two nodes is counted on each."""
    counted: Counter[str] = Counter()
    for used in found:
        counted.update(used.counted_ms)
    return Usage(
        "all",
        sum(used.pods for used in found),
        sum(used.device_ms for used in found),
        sum(used.memory_mib_ms for used in found),
        sum(used.cpu_milli_ms for used in found),
        dict(counted),
    )


def _hours(amount_ms: int, unit: int = 1) -> str:
    """One digit after the point, rounded half up, in integers."""
    tenths = (amount_ms * 10 + HOUR_MS * unit // 2) // (HOUR_MS * unit)
    return f"{tenths // 10:,}.{tenths % 10}"
