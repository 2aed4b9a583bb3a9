"""What is given on the command line → a workload for every seed."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from allotment.testing.lab import bundle, openb
from allotment.testing.lab.workload import Workload, WorkloadError
from allotment_cli import export
from allotment_cli.errors import CliError
from allotment_cli.simulate.recipe import parse_recipe
from allotment_proto.facts import Policy

FORMS = "--nodes FILE --pods FILE, or --file FILE (an exported log), or --workload FILE"


class Source(NamedTuple):
    """A workload, drawn anew for every seed where dice are part of it."""

    draw: Callable[[Random], Workload]
    is_timed: bool
    """Whether it says when pods come and go."""
    comes_and_goes: bool
    """Whether that is how it is meant to be run."""
    recorded: Policy | None = None
    is_made_up: bool = False
    """Whether dice make the pods."""


def read(nodes: Path | None, pods: Path | None, file: Path | None, recipe: Path | None) -> Source:
    """Raises `CliError` for a wrong combination, and for every mistake in a file."""
    if len([given for given in (nodes or pods, file, recipe) if given is not None]) != 1:
        raise CliError("it is not clear what to simulate", f"give {FORMS}")
    try:
        if file is not None:
            recorded = bundle.from_records(export.read_file(file), str(file))
            return Source(lambda random: recorded, True, True, recorded.policy)
        if recipe is not None:
            return Source(
                parse_recipe(_text(recipe), str(recipe)).draw, True, True, is_made_up=True
            )
        if nodes is None or pods is None:
            missing = "--nodes" if nodes is None else "--pods"
            raise CliError(f"{missing} is missing", f"give {FORMS}")
        arrivals, is_timed = openb.parse_pods(_text(pods), str(pods))
        traced = Workload(openb.parse_nodes(_text(nodes), str(nodes)), arrivals)
        return Source(lambda random: traced, is_timed, False)
    except WorkloadError as error:
        raise CliError(str(error)) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from error
