"""`allot usage`: who held how much, and for how long, added up while the log is folded."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import anyio
import click
import msgspec

from allotment.adapters.service.moments import moment_text
from allotment.answers.source import Origin
from allotment.answers.usage import UsageDocument, measure
from allotment.core.errors import AllotError
from allotment.core.explain.rows.views import plain
from allotment.core.replay.usage import LABEL, MICRO, NAMES, NAMESPACE, Usage, adds_up
from allotment.core.units import hours_column
from allotment_cli.options import completion
from allotment_cli.options.params import output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, heading, note, table


class By(click.ParamType[str]):
    """What to add up by: one of `NAMES`, or `LABEL` with a key."""

    name = "|".join((*NAMES, "label=KEY"))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("user", "owner"):
            said = f"no pod says who made it; name the label that does, like label={value}."
            self.fail(said, param, ctx)
        if not adds_up(value):
            self.fail(f"{value!r} is not one of {', '.join(NAMES)}, label=KEY.", param, ctx)
        return str(value)


@click.command()
@source_options
@click.option(
    "--from",
    "--since",
    "first",
    metavar="MOMENT",
    help="Begin here: sequence, 14:03, -15m or RFC 3339 (default: where the log begins).",
)
@click.option("--to", "--at", "last", metavar="MOMENT", help="End here (default: now).")
@click.option(
    "--by",
    type=By(),
    default=NAMESPACE,
    shell_complete=completion.words(*NAMES, LABEL),
    show_default=True,
    help="Add up by namespace, queue, node, card model, or a label of pods, like label=team.",
)
@click.option(
    "-n", "--namespace", shell_complete=completion.namespaces, help="Only this namespace."
)
@output_option(*DOCUMENTS)
def usage(
    origin: Origin,
    first: str | None,
    last: str | None,
    by: str,
    namespace: str | None,
    output: str,
) -> None:
    """GPU-hours, memory, CPU and counted resources that pods held: by namespace, queue, node, card
    model or label.

    GPU-HOURS counts a share of a card (a GPU or an NPU) as its part of it, of memory or of compute,
    whichever is more, and a card that is held whole as one. DEVICE-HOURS counts each share and each
    whole card as one. MEMORY is the cards' memory that was asked for, without that of whole cards.

    What counts is what the log booked, from the decision (or from when a pod of others was seen)
    to its release: reservations, not what ran on the cards. A label counts as the log saw it last
    before --to.
    """
    if namespace is not None and by != NAMESPACE:
        raise AllotError(f"-n selects a namespace, and --by {by} adds them up", "leave out one")
    document = anyio.run(_document, origin, first, last, by)
    if namespace is not None:
        only = tuple(used for used in document.usage if used.name == namespace)
        document = msgspec.structs.replace(document, usage=only)
    if output in DOCUMENTS:
        emit_document(document, output)
        return
    first_text, last_text = map(moment_text, (document.from_ms, document.to_ms))
    note(f"from {first_text} to {last_text}, seq {document.seq}")
    emit(usage_lines(document))


async def _document(origin: Origin, first: str | None, last: str | None, by: str) -> UsageDocument:
    async with open_source(origin) as source:
        return await measure(source, first, last, by)


def usage_lines(document: UsageDocument) -> list[str]:
    """A row for each name, and the sum; below, what is counted and
    is no card.
    """
    if not document.usage:
        return ["nothing was held"]
    found = list(document.usage)
    if len(found) > 1:
        found.append(_sum(found))
    columns = {
        "GPU-HOURS": hours_column((used.card_micro_ms for used in found), MICRO),
        "DEVICE-HOURS": hours_column(used.device_ms + _whole_cards_ms(used) for used in found),
        "MEMORY GiB-HOURS": hours_column((used.memory_mib_ms for used in found), 1024),
        "CPU-HOURS": hours_column((used.cpu_milli_ms for used in found), 1000),
    }
    rows = [
        [used.name, f"{used.pods:,}", *cells]
        for used, *cells in zip(found, *columns.values(), strict=True)
    ]
    headers = (_title(document.by), "PODS", *columns)
    first, *rest = table(headers, rows, right=headers[1:])
    return [heading(first), *rest, *_counted_lines(document.by, found)]


def _title(by: str) -> str:
    """The header of the column with the names; the key of a label is itself."""
    return by.removeprefix(LABEL) if by.startswith(LABEL) else by.upper()


def _counted_lines(by: str, found: Iterable[Usage]) -> list[str]:
    """Counted resources that are no cards, one a row. Those of device families are the devices."""
    held = [
        (used.name, resource, amount_ms)
        for used in found
        for resource, amount_ms in plain(tuple(used.counted_ms.items())).items()
        if not resource.endswith("/gpu")
    ]
    if not held:
        return []
    hours = hours_column(amount_ms for _, _, amount_ms in held)
    rows = [[name, resource, cell] for (name, resource, _), cell in zip(held, hours, strict=True)]
    first, *rest = table((_title(by), "RESOURCE", "HOURS"), rows, right=("HOURS",))
    return ["", heading(first), *rest]


def _whole_cards_ms(used: Usage) -> int:
    return sum(ms for resource, ms in used.counted_ms.items() if resource.endswith("/gpu"))


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
        sum(used.card_micro_ms for used in found),
    )
