"""What is given on the command line → a workload for every seed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from allotment.adapters.log import exported
from allotment.core.errors import AllotError
from allotment.core.logport import Record
from allotment_lab import bundle, openb
from allotment_lab.simulate.doubts import doubts
from allotment_lab.simulate.recipe import parse_recipe
from allotment_lab.simulate.texts import read_text
from allotment_lab.workload import Workload, WorkloadError
from allotment_proto.facts import Policy

FORMS = "--nodes FILE --pods FILE, or --file FILE (an exported log), or --workload FILE"


class Source(NamedTuple):
    """A workload, drawn again for every seed where it is random."""

    draw: Callable[[Random], Workload]
    is_timed: bool
    """Whether it says when pods come and go."""
    comes_and_goes: bool
    """Whether that is how it is meant to be run."""
    recorded: Policy | None = None
    placed_then: int = 0
    """How many of its pods were placed as it was recorded."""
    has_queues: bool = False
    """Whether it says of queues and groups, and how they come and go."""
    is_made_up: bool = False
    """Whether dice make the pods."""
    doubts: Callable[[Policy], Sequence[str]] = lambda policy: ()
    """Probable mistakes under a policy, to be reported before the run."""


def read(nodes: Path | None, pods: Path | None, file: Path | None, recipe: Path | None) -> Source:
    """Raises `AllotError` for a wrong combination, and for every mistake in a file."""
    if len([given for given in (nodes or pods, file, recipe) if given is not None]) != 1:
        raise AllotError("it is not clear what to simulate", f"give {FORMS}")
    with _mistakes_named():
        if file is not None:
            return recorded(exported.read_file(file), str(file))
        if recipe is not None:
            made_up = parse_recipe(read_text(recipe), str(recipe))
            return Source(
                made_up.draw,
                is_timed=True,
                comes_and_goes=True,
                is_made_up=True,
                doubts=partial(doubts, made_up),
            )
        if nodes is None or pods is None:
            missing = "--nodes" if nodes is None else "--pods"
            raise AllotError(f"{missing} is missing", f"give {FORMS}")
        return _traced(nodes, pods)


def recorded(records: Iterable[Record], name: str) -> Source:
    """The nodes and pods of a log of this name. Raises `AllotError` for one without any."""
    with _mistakes_named():
        found = bundle.from_records(records, name)
    return Source(
        lambda random: found,
        is_timed=True,
        comes_and_goes=True,
        recorded=found.policy,
        placed_then=found.placed_then,
        has_queues=found.has_queues,
    )


@contextmanager
def _mistakes_named() -> Iterator[None]:
    try:
        yield
    except WorkloadError as error:
        first, *more = error.shown
        raise AllotError(first, more=more) from None


def _traced(nodes: Path, pods: Path) -> Source:
    of_pods, of_nodes = read_text(pods), read_text(nodes)
    arrivals, is_timed = openb.parse_pods(of_pods, str(pods))
    traced = Workload(openb.parse_nodes(of_nodes, str(nodes)), arrivals)
    strange = [
        *openb.strange_columns(of_nodes, str(nodes), openb.NODE_COLUMNS),
        *openb.strange_columns(of_pods, str(pods), openb.KNOWN_OF_PODS),
    ]
    return Source(lambda random: traced, is_timed, False, doubts=lambda policy: strange)
