"""Does the product answer as Volcano does?

    make compat VECTORS=FILE                      or: python -m tests.compat FILE
    make compat VECTORS=FILE ARGS="-o json"

make ends with 2 where this command ends with anything but 0.
"""

from pathlib import Path

import click

from allotment_cli.show.ending import ended_in_order
from allotment_cli.show.output import emit, emit_document
from tests.compat import file
from tests.compat.report import lines, report
from tests.compat.verdicts import judge_all

DIFFERENCES = 1


@click.command()
@click.argument("vectors", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
@click.pass_context
def compat(ctx: click.Context, vectors: Path, output: str) -> None:
    """Ask the product what Volcano was asked, and compare: VECTORS is a file of such answers.

    Every vector is run against the code that schedules. It matches, or it deviates on purpose (with
    the number of the quirk of Volcano's that is not repeated), or it is a mismatch.

    Exit codes: 0 all match or deviate on purpose; 1 a mismatch, or a vector that cannot be run;
    2 not a file of vectors.
    """
    with ended_in_order(ctx):
        found = report(str(vectors), judge_all(file.read(vectors)))
        if output == "json":
            emit_document(found, "json")
        else:
            emit(lines(found))
    if not found.is_compatible:
        ctx.exit(DIFFERENCES)


if __name__ == "__main__":
    compat()
