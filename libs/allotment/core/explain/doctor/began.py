"""Since when problems of nodes are open, from the log read backwards.

A state has only the newest fact of a node. The problem began with the oldest of the node's facts
that have it without a gap up to the newest.
"""

from collections.abc import Iterable
from typing import NamedTuple

from allotment.core.explain.rows.views import card_word
from allotment.core.reasons import NODE_NOT_READY
from allotment_proto.events import Event, NodeGone, NodeObserved


class Open(NamedTuple):
    """A problem of a node: its code, and where it was found (`NodeProblem.place`), empty for the
    node as a whole.
    """

    node: str
    code: str
    place: str = ""


class Moment(NamedTuple):
    """A record, and its time in Unix milliseconds."""

    seq: int
    time_ms: int


class Began:
    """Finds the records with which problems began. Pass in the records from the newest to the
    oldest.
    """

    def __init__(self, problems: Iterable[Open]) -> None:
        self.found: dict[Open, Moment] = {}
        """The oldest record so far that has the problem."""
        self.sought: dict[str, set[Open]] = {}
        """By node, the problems that the records so far have without a gap."""
        for problem in problems:
            self.sought.setdefault(problem.node, set()).add(problem)

    def back(self, seq: int, time_ms: int, event: Event) -> None:
        """Take the record before those taken so far."""
        if not isinstance(event, NodeObserved | NodeGone) or event.name not in self.sought:
            return
        had, sought = _problems(event), self.sought[event.name]
        still = {problem for problem in sought if problem in had}
        self.found.update(dict.fromkeys(still, Moment(seq, time_ms)))
        if still:
            self.sought[event.name] = still
        else:
            del self.sought[event.name]

    def known(self, *, is_whole: bool) -> dict[Open, Moment]:
        """The problems whose beginning is known; `is_whole`: all records were taken."""
        sought = set[Open]() if is_whole else set[Open]().union(*self.sought.values())
        return {problem: at for problem, at in self.found.items() if problem not in sought}


def _problems(event: NodeObserved | NodeGone) -> set[Open]:
    """What a fact about a node says is wrong, named as `node_problems` does."""
    name = event.name
    if isinstance(event, NodeGone):
        return {Open(name, "NodeGone")}
    found = {Open(name, problem.code, problem.place) for problem in event.problems}
    found |= {
        Open(name, "CardUnhealthy", f"{card_word(inventory.family)}-{card.index}")
        for inventory in event.inventories
        for card in inventory.cards
        if not card.healthy
    }
    return found if event.ready else found | {Open(name, NODE_NOT_READY)}
