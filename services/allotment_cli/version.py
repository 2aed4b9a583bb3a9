"""`allot version`: what is installed, for a bug report."""

import platform
from importlib.metadata import version as installed

import click

from allotment_cli.output import emit, emit_json
from allotment_proto.events import ENVELOPE_VERSION
from allotment_proto.messages import MESSAGE_VERSION


@click.command()
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
def version(output: str) -> None:
    """Versions of what is installed."""
    facts = {
        "allotment": installed("allotment"),
        "python": platform.python_version(),
        "recordVersion": ENVELOPE_VERSION,
        "messageVersion": MESSAGE_VERSION,
    }
    if output == "json":
        emit_json(facts)
    else:
        emit(f"{name:<15} {value}" for name, value in facts.items())
