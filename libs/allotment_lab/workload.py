"""What is simulated: nodes, and pods with the seconds at which they come and go."""

from collections.abc import Iterable, Mapping

import msgspec

from allotment_proto.events import Event, NodeObserved, PodObserved, QueueObserved
from allotment_proto.facts import Policy

START_MS = 1_767_225_600_000
"""Virtual time 0: 2026-01-01T00:00:00Z."""
SCHEDULER = "allotment"
NAMESPACE = "lab"
PROBLEMS_SHOWN = 10
VALUE_SHOWN = 60


class WorkloadError(Exception):
    """Raised for a workload that cannot be used; `problems` name place, value and remedy."""

    def __init__(self, problems: list[str]) -> None:
        more = len(problems) - PROBLEMS_SHOWN
        shown = problems[:PROBLEMS_SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
        super().__init__("\n".join(shown))
        self.problems = problems
        self.shown = shown
        """The first of them, and how many more there are."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One pod. Times are whole seconds of virtual time.

    It goes at `deleted_s`, whether it ran or waited till then, or `runs_s` after it was placed, or
    stays to the end. A pod whose fact names a node is put there by others and only takes room.
    """

    fact: PodObserved
    created_s: int = 0
    deleted_s: int | None = None
    runs_s: int | None = None

    def renamed(self, suffix: str) -> "Arrival":
        """The same pod once more, under another name and uid."""
        name = self.fact.name + suffix
        fact = msgspec.structs.replace(self.fact, name=name, uid=self.fact.uid + suffix)
        return Arrival(fact, self.created_s, self.deleted_s, self.runs_s)


class Workload(msgspec.Struct, frozen=True):
    """Nodes and pods. `policy` is the recorded one, where the source holds one, and `placed_then`
    how many of our pods were placed as it was recorded.

    `facts` are the other facts for the scheduler, each with its second: queues, PodGroups and
    priority classes.
    """

    nodes: tuple[NodeObserved, ...]
    arrivals: tuple[Arrival, ...]
    policy: Policy | None = None
    facts: tuple[tuple[int, Event], ...] = ()
    placed_then: int = 0

    @property
    def ours(self) -> list[Arrival]:
        """The pods that are ours to place."""
        return [arrival for arrival in self.arrivals if not arrival.fact.node]

    @property
    def has_queues(self) -> bool:
        """Whether pods are decided by queues and groups, and not one by one."""
        return any(isinstance(event, QueueObserved) for _, event in self.facts)

    @property
    def fixed(self) -> list[Arrival]:
        """The pods that others placed."""
        return [arrival for arrival in self.arrivals if arrival.fact.node]


def shown(value: object) -> str:
    """A value as a message names it: not more of it than fits on a line."""
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}…"


def repeated(names: Iterable[tuple[str, str]], column: str) -> list[str]:
    """A problem for every (place, name) whose name was used before."""
    first: dict[str, str] = {}
    problems = []
    for place, name in names:
        if name in first:
            wanted = f"another name than that of {first[name]}"
            problems.append(f"{place}, column {column}: is {shown(name)}; wanted: {wanted}")
        first.setdefault(name, place)
    return problems


def whole(
    row: Mapping[str, str],
    column: str,
    place: str,
    problems: list[str],
    least: int,
    most: int,
    *,
    least_is: str = "",
) -> int:
    """A whole number in a column; `least`, with a problem noted, where it is none.

    `least_is`: what the least is, where it is no fixed number.
    """
    text = row[column]
    if text.isascii() and text.isdigit() and len(text) < 19 and least <= int(text) <= most:
        return int(text)
    start = f"{least}, the {least_is}," if least_is else str(least)
    wanted = f"a whole number from {start} to {most}" if least < most else str(least)
    problems.append(f"{place}, column {column}: is {shown(text)}; wanted: {wanted}")
    return least
