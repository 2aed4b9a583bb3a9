"""`allot version`: what is installed, for a bug report."""

import platform
from importlib.metadata import version as installed

import click

from allotment_cli.options.params import output_option
from allotment_cli.show.output import DOCUMENTS, emit, emit_document
from allotment_proto.events import ENVELOPE_VERSION
from allotment_proto.messages import MESSAGE_VERSION


@click.command()
@output_option(*DOCUMENTS)
def version(output: str) -> None:
    """Versions of what is installed."""
    facts = {
        "allotment": installed("allotment"),
        "python": platform.python_version(),
        "recordVersion": ENVELOPE_VERSION,
        "messageVersion": MESSAGE_VERSION,
    }
    if output in DOCUMENTS:
        emit_document(facts, output)
    else:
        emit(f"{name:<15} {value}" for name, value in facts.items())
