"""`allot inspect`: the inspector's pages about an exported log, for the one who types it."""

from functools import partial
from pathlib import Path

import anyio
import click

from allotment.adapters.service.http import CannotListen
from allotment.adapters.service.service import serve
from allotment.adapters.service.settings import SettingsError
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.errors import AllotError, innermost
from allotment_cli.show.output import emit, note
from allotment_inspector.__main__ import run
from allotment_inspector.settings import InspectorSettings

NAME = "allotment-inspector"
LIVE = (
    "of local mode: see allot status; of a cluster: "
    "kubectl -n allotment-system port-forward deploy/allotment-inspector 8090"
)


@click.command("inspect")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The exported log (allot log -o jsonl).",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen (default: any port)."
)
def inspect(file: Path | None, port: int) -> None:
    """Show an exported log as web pages, on this machine only, until stopped with Ctrl-C.

    A live log has its inspector already: local mode's is in allot status, for a cluster's forward a
    port to it.
    """
    if file is None:
        raise AllotError("no exported log is named: give --file LOG.jsonl", LIVE)
    settings = InspectorSettings(file=file, page_port=port, log_format="text", log_level="warning")
    sink = LogSink(NAME, settings.instance, settings.log_format, settings.log_level)

    def listening(address: str) -> None:
        emit([f"{file} is shown at {address}   (Ctrl-C stops it)"])

    note(f"reading {file}")
    serving = partial(run, listening=listening)
    try:
        anyio.run(
            serve, NAME, settings, serving, Logger(sink), start_tracing(NAME, settings.instance, {})
        )
    except (SettingsError, CannotListen, BaseExceptionGroup) as error:
        match innermost(error):
            case SettingsError(problems=[first, *_]):
                raise AllotError(first) from error
            case CannotListen() as taken:
                raise AllotError(str(taken), "give another --port") from error
            case _:
                raise
