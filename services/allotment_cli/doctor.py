"""`allot doctor`: what somebody should look at, from the log and, in local mode, its services."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from allotment.core.explain.doctor import ERROR, WARNING, Finding, Source, findings, sources
from allotment_cli import local
from allotment_cli.errors import CliError
from allotment_cli.folding import AsOf, Folded, Unreadable, as_of, fold_at
from allotment_cli.output import DOCUMENTS, emit, emit_document, heading
from allotment_cli.params import at_option, output_option
from allotment_cli.source import Origin, open_source, source_options

FOUND = 1


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The findings as JSON."""

    schema: str
    as_of: AsOf
    configuration: Sequence[Source]
    findings: Sequence[Finding]
    unreadable: tuple[Unreadable, ...]


@click.command()
@source_options
@at_option
@click.option(
    "--services",
    metavar="HOST:PORT,...",
    default="",
    help="HTTP addresses of services to ask, in addition to those of local mode.",
)
@output_option(*DOCUMENTS)
@click.pass_context
def doctor(
    context: click.Context,
    home: Path,
    nats: str | None,
    file: Path | None,
    at: str | None,
    services: str,
    output: str,
) -> None:
    """List problems that need attention: configuration that is refused or has no effect, nodes that
    disagree with it, cards that are unhealthy, oversold or in quarantine, pods that no device
    plugin serves. In local mode, and with --services, also services that are not ready (a service
    that is behind the log is not ready) and objects that services refuse.

    Exit code 1 if there is any problem.
    """
    origin = Origin(home, nats, file)
    named = [_address(text) for text in services.split(",") if text.strip()]
    asked = anyio.run(_services, origin, named) if at is None else []
    try:
        folded = anyio.run(_fold, origin, at)
    except CliError:
        if asked and output == "text":  # why the log cannot be read may be among them
            emit(_lines((), asked, ()))
        raise
    found = [*asked, *findings(folded.state, folded.time_ms)]
    read = sources(folded.state)
    if output in DOCUMENTS:
        report = Report("allotment.dev/doctor/v1", as_of(folded), read, found, folded.unreadable)
        emit_document(report, output)
    else:
        emit(_lines(read, found, folded.unreadable))
    if found or folded.unreadable:
        context.exit(FOUND)


def _address(text: str) -> str:
    """`host:port` of what may be written as a URL. Raises CliError."""
    address = text.strip().removeprefix("http://").removesuffix("/").removesuffix("/readyz")
    _, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in address:
        raise CliError(
            f"--services: {text.strip()!r} is not the address of a service",
            "write host:port of its HTTP server, for example allotment-binder:8080",
        )
    return address


async def _services(origin: Origin, named: Sequence[str]) -> list[Finding]:
    """What the named services say of themselves, and those of local mode where that is asked."""
    rows: list[dict[str, Any]] = []
    if origin.file is None and not origin.nats:
        rows += (await local.status(origin.home))["services"]
    rows += [await local.ask_service(address) for address in named]
    return [finding for row in rows for finding in _of_service(row)]


def _of_service(row: dict[str, Any]) -> Iterator[Finding]:
    subject = f"service {row['name']}"
    if not row["ready"]:
        yield Finding(
            severity=ERROR,
            code="ServiceNotReady",
            subject=subject,
            message=row["detail"] or "the service is not ready and gives no reason",
            remedy=f"read its log: {row['log']}",
        )
    for line in row.get("refused", ()):
        yield Finding(
            severity=WARNING,
            code="ObjectRefused",
            subject=subject,
            message=line,
            remedy="correct or delete the object; the service goes on without it",
        )


async def _fold(origin: Origin, at: str | None) -> Folded:
    async with open_source(origin) as source:
        return await fold_at(source, at)


def _lines(
    read: Sequence[Source], found: Sequence[Finding], unreadable: Sequence[Unreadable]
) -> list[str]:
    lines = [
        f"{one.kind} configuration: {one.source}" + (f" (seq {one.seq})" if one.seq else "")
        for one in read
    ]
    for one in found:
        seq = f" (seq {one.seq})" if one.seq else ""
        lines.append(heading(f"{one.severity:<8}{one.code}   {one.subject}{seq}"))
        lines.append(f"        {one.message}")
        lines.append(f"        {one.remedy}")
    lines += [
        f"error   log: record {record.seq} ({record.subject}) cannot be read: {record.reason}"
        for record in unreadable
    ]
    errors = sum(one.severity == ERROR for one in found) + len(unreadable)
    warnings = len(found) + len(unreadable) - errors
    summary = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}"
    return [*lines, summary if found or unreadable else "no problems found"]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
