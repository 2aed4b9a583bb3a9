"""What questions about single pods come to, position by position, while pods come and go.

A tally holds the answers of each position's pods to one question (`company.Question`), a domain
says which positions have the same value of a label. Both are made when first asked for and then
kept up to date, so requests without such questions cost nothing.
"""

from collections.abc import Mapping

import numpy as np

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.rules.interpod import Question, count_on
from allotment_board.packing import Bools, Ints
from allotment_proto.events import PodObserved

_NOWHERE = -1
_ENDLESS = 1 << 61
_TALLIES_MAX = 1024
"""Every pod that comes or goes is counted in each tally: those that were asked for longest ago are
forgotten, and counted again with the next question."""


class Domain:
    """The positions by value of one label. `numbers` is `_NOWHERE` for nodes that lack it."""

    def __init__(self, positions: int) -> None:
        self.numbers = np.full(positions, _NOWHERE, np.int64)
        self._known: dict[str, int] = {}

    def put(self, position: int, value: str | None) -> None:
        known = self._known
        self.numbers[position] = _NOWHERE if value is None else known.setdefault(value, len(known))

    @property
    def is_anywhere(self) -> bool:
        """Whether any position has the label."""
        return bool(self._known)

    def lacks(self) -> Bools:
        """Where the label is not."""
        missing: Bools = self.numbers < 0
        return missing

    def sums(self, tally: Ints) -> Ints:
        """(values + 1,) the sum over the positions of each value; the last entry is 0 and stands
        for `_NOWHERE`, as an index."""
        sums = np.zeros(len(self._known) + 1, np.int64)
        there = tally.nonzero()[0]
        np.add.at(sums, self.numbers[there], tally[there])
        sums[_NOWHERE] = 0
        return sums

    def present(self, where: Bools) -> Bools:
        """(values + 1,) which values occur among these positions."""
        present = np.zeros(len(self._known) + 1, np.bool_)
        present[self.numbers[where]] = True
        present[_NOWHERE] = False
        return present


class _Room:
    """How many more volumes of one driver positions can have attached: the same as
    `attachments.exceeds_limits` reckons. A position without a limit has room without end.
    """

    def __init__(self, positions: int) -> None:
        self.free = np.full(positions, _ENDLESS, np.int64)
        self._claims: dict[int, dict[str, int]] = {}

    def recount(self, position: int, node: Node | None, driver: str) -> None:
        claims = {} if node is None else dict(node.attached.get(driver, {}))
        limits = {} if node is None or node.fact is None else dict(node.fact.volume_limits)
        self._claims[position] = claims
        self.free[position] = limits.get(driver, _ENDLESS) - len(claims)

    def book(self, position: int, fact: PodObserved, driver: str, sign: int) -> None:
        claims = self._claims[position]
        for volume in fact.request.attachments:
            if volume.driver == driver:
                pods = claims.get(volume.claim, 0)
                claims[volume.claim] = pods + sign
                self.free[position] -= int(pods + sign > 0) - int(pods > 0)


class Crowd:
    """Tallies and domains of one epoch of the columns: positions do not move."""

    def __init__(self, state: ClusterState, names: list[str]) -> None:
        self._state = state
        self._names = names
        self._tallies: dict[Question, Ints] = {}
        self._domains: dict[str, Domain] = {}
        self._nowhere = Domain(len(names))
        self._keys: set[str] = set()
        """The labels that nodes have, as of `_keys_seq`."""
        self._keys_seq = -1
        self._rooms: dict[str, _Room] = {}
        self._assumed: list[tuple[int, PodObserved]] = []

    @property
    def counts(self) -> bool:
        """Whether anything was asked for that pods count in."""
        return bool(self._tallies or self._rooms)

    def tally(self, question: Question) -> Ints:
        """(N,) what each position's pods answer. Not to be written to."""
        tally = self._tallies.pop(question, None)
        if tally is not None:
            self._tallies[question] = tally  # the last to be asked for
        else:
            if len(self._tallies) >= _TALLIES_MAX:
                del self._tallies[next(iter(self._tallies))]
            tally = self._tallies[question] = np.zeros(len(self._names), np.int64)
            for position in range(len(self._names)):
                tally[position] = self._answer(position, question)
            for position, fact in self._assumed:
                tally[position] += question.count(fact)
        return tally

    def domain(self, key: str) -> Domain:
        """The positions by value of a label. One that no node has costs nothing, because
        pods can name any number of labels."""
        if self._keys_seq != self._state.nodes_seq:
            self._keys_seq = self._state.nodes_seq
            nodes = self._state.nodes.values()
            self._keys = {key for node in nodes if node.fact is not None for key in node.labels}
        if key not in self._keys:
            return self._nowhere
        domain = self._domains.get(key)
        if domain is None:
            domain = self._domains[key] = Domain(len(self._names))
            for position, name in enumerate(self._names):
                node = self._state.nodes.get(name)
                if node is not None and node.fact is not None:
                    domain.put(position, node.labels.get(key))
        return domain

    def room(self, driver: str) -> Ints:
        """(N,) how many more volumes of a driver each position can have attached. Not to be written
        to."""
        known = self._rooms.get(driver)
        if known is None:
            known = self._rooms[driver] = _Room(len(self._names))
            for position in range(len(self._names)):
                known.recount(position, self._node(position), driver)
            for position, fact in self._assumed:
                known.book(position, fact, driver, 1)
        return known.free

    def book(self, position: int, fact: PodObserved | None, sign: int) -> None:
        """A pod came to a position (1) or left it (−1)."""
        if fact is not None:
            for question, tally in self._tallies.items():
                answer = question.count(fact)
                if answer:
                    tally[position] += sign * answer
            for driver, room in self._rooms.items():
                room.book(position, fact, driver, sign)

    def assume(self, position: int, fact: PodObserved, sign: int) -> None:
        """The same on top of the state; what was assumed last is given back first."""
        if sign > 0:
            self._assumed.append((position, fact))
        else:
            self._assumed.pop()
        self.book(position, fact, sign)

    def recount(self, position: int | None) -> None:
        """Anything about a node may have changed; nothing is assumed."""
        if position is not None:
            for question, tally in self._tallies.items():
                tally[position] = self._answer(position, question)
            for driver, room in self._rooms.items():
                room.recount(position, self._node(position), driver)

    def relabel(self, position: int, labels: Mapping[str, str] | None) -> None:
        """A node has other labels, or is gone (None)."""
        for key, domain in self._domains.items():
            domain.put(position, None if labels is None else labels.get(key))

    def _answer(self, position: int, question: Question) -> int:
        node = self._node(position)
        return 0 if node is None else count_on(node, question)

    def _node(self, position: int) -> Node | None:
        node = self._state.nodes.get(self._names[position])
        return None if node is None or node.fact is None else node
