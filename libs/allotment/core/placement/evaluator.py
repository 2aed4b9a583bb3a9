"""Verdicts of nodes for requests, computed node by node: the plain form of the rules.

`Evaluator` remembers, per request, the verdict of every node, and recomputes only nodes that
changed since; a heap has the best of them on top. It is a cache: a fresh one gives the same
answers. `allot replay --verify --plain` recomputes recorded decisions with it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from typing import Protocol

import msgspec

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.state import allocation_of
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import Rules, card_refusal, rules_of
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import fits
from allotment.core.placement.rules.relative import relative_micro
from allotment.core.placement.rules.scores import Score, score, with_relative
from allotment.core.placement.rules.terms import weights_of
from allotment_proto.events import Placement, RunnerUp
from allotment_proto.facts import ALONE, DeviceRequest, Holding, PodRequest, Policy

RUNNERS_UP = 3
REQUESTS_MAX = 512
_OUTDATED_MOST = 64
"""A heap with this many more outdated entries than places is rebuilt."""

Rank = tuple[int, int, str]
"""Minus the score, what is left on the chosen cards, and the node's name: smaller is better."""


class Place(msgspec.Struct, frozen=True, gc=False, order=True):
    """A node that takes a request: its rank and what it would allocate."""

    rank: Rank
    score: Score
    holdings: tuple[Holding, ...]


Verdict = Place | str
"""A node's answer to a request: a place, or a reason code."""


class Trial:
    """The nodes of a state with the assumed placements of this cycle.

    A node is copied and charged only when it is read again, which most nodes never are.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._assumed: dict[str, list[Placement]] = {}
        """By node, in order."""
        self._copies: dict[str, tuple[Node, int]] = {}
        """By node, a copy and how many of the assumed placements are charged on it."""
        self.changed: list[str] = []
        """The nodes on which a placement was assumed or taken back, in order."""
        self.placed: set[str] = set()
        """The pods that were placed on them."""
        self.local: list[Placement] = []
        """The placements that allocate existing volumes."""

    def node(self, name: str) -> Node | None:
        assumed = self._assumed.get(name)
        if not assumed:
            return self.state.nodes.get(name)
        copy, charged = self._copies.get(name) or (self.state.nodes[name].fork(), 0)
        for placement in assumed[charged:]:
            pod = self.state.pods.get(placement.uid)
            fact = None if pod is None else pod.fact
            tags = () if fact is None else fact.tags
            copy.charge(allocation_of(placement, self.state.seq, tags, fact))
        self._copies[name] = copy, len(assumed)
        return copy

    def nodes(self) -> list[Node]:
        """All nodes, with the assumed placements."""
        found = (self.node(name) for name in self.state.nodes)
        return [node for node in found if node is not None and node.fact is not None]

    def assume(self, placement: Placement) -> None:
        """Charge a placement on its node."""
        self._assumed.setdefault(placement.node, []).append(placement)
        self.changed.append(placement.node)
        self.placed.add(placement.uid)
        if placement.volumes:
            self.local.append(placement)

    def take_back(self, placement: Placement) -> None:
        """Remove a placement, the last one that is assumed."""
        name = placement.node
        last = self._assumed[name].pop()
        assert last is placement
        _, charged = self._copies.get(name, (None, 0))
        if charged > len(self._assumed[name]):
            del self._copies[name]  # rebuilt: what a release leaves may differ from before
        self.changed.append(name)
        self.placed.discard(placement.uid)
        if placement.volumes:
            self.local.pop()


class _Row:
    """One request's verdicts by node row, and how far they are up to date.

    `stale` rows hold verdicts of forks and are recomputed once the trial ends.
    """

    __slots__ = ("cursor", "feasible", "heap", "stale", "trial", "trial_cursor", "verdicts")

    def __init__(self) -> None:
        self.cursor = -1
        self.stale: set[int] = set()
        self.trial: Trial | None = None
        self.trial_cursor = 0
        self.verdicts: dict[int, Verdict] = {}
        self.feasible = 0
        """How many of these are places."""
        self.heap: list[tuple[Rank, int]] = []
        """The rank and row of every place. Entries of earlier places stay until they reach the top,
        because a heap cannot remove what lies further down.
        """

    def update(self, index: int, verdict: Verdict | None) -> None:
        """Replace a node's verdict; None: the node is gone."""
        self.feasible -= isinstance(self.verdicts.pop(index, None), Place)
        if verdict is None:
            return
        self.verdicts[index] = verdict
        if isinstance(verdict, Place):
            self.feasible += 1
            heappush(self.heap, (verdict.rank, index))

    def best(self, most: int) -> list[Place]:
        """The best places, at most `most`."""
        if len(self.heap) > 2 * self.feasible + _OUTDATED_MOST:
            places = [(i, v) for i, v in self.verdicts.items() if isinstance(v, Place)]
            self.heap = [(place.rank, index) for index, place in places]
            heapify(self.heap)
        found: dict[tuple[Rank, int], Place] = {}  # an entry may occur twice
        while self.heap and len(found) < most:
            entry = heappop(self.heap)
            verdict = self.verdicts.get(entry[1])
            if isinstance(verdict, Place) and verdict.rank == entry[0]:
                found[entry] = verdict
        for entry in found:
            heappush(self.heap, entry)
        return list(found.values())


class Ranking(msgspec.Struct, frozen=True, gc=False):
    """The best place for a request (None without one), and the next best."""

    best: Place | None
    runners_up: tuple[RunnerUp, ...]
    feasible: int
    nodes: int


class Ranker(Protocol):
    """What a cycle reads of the nodes. `begin` … `end` bracket the assumed placements."""

    @property
    def state(self) -> ClusterState: ...

    @property
    def assumed(self) -> Sequence[Placement]: ...

    def begin(self) -> None: ...

    def rank(self, request: PodRequest) -> Ranking: ...

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]: ...

    def assume(self, placement: Placement) -> None: ...

    def take_back(self) -> None:
        """Remove the placement that was assumed last."""

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        """An upper bound of how many pods with this request fit; `wanted` if that is reached."""

    def end(self) -> None: ...


class Evaluator:
    """Verdicts of all nodes for requests, kept up to date from the state's list of changes."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._rows: dict[PodRequest, _Row] = {}
        self._policy = state.policy
        self._trial: Trial | None = None
        self._assumed: list[Placement] = []
        self.asked = 0
        """The number of verdicts computed, for tests and benches."""

    @property
    def assumed(self) -> Sequence[Placement]:
        """The assumed placements, in order."""
        return self._assumed

    def begin(self) -> None:
        """Start to assume placements on top of the state."""
        self._trial = Trial(self.state)

    def assume(self, placement: Placement) -> None:
        """Charge a placement until `end`."""
        assert self._trial is not None
        self._trial.assume(placement)
        self._assumed.append(placement)

    def take_back(self) -> None:
        """Remove the placement that was assumed last."""
        assert self._trial is not None
        self._trial.take_back(self._assumed.pop())

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        """An upper bound of how many pods with this request fit; `wanted` if that is reached.

        For pods with rules about other pods it is `wanted`, because each one placed may make room.
        """
        if request.company != ALONE:
            return wanted
        most = 0
        for verdict in self.verdicts(request, self._trial).values():
            if isinstance(verdict, Place):
                assert self._trial is not None
                node = self._trial.node(verdict.rank[2])
                assert node is not None
                most += node_holds_at_most(node, request, self.state.policy)
        return min(most, wanted)

    def end(self) -> None:
        """Remove all assumed placements."""
        self._trial = None
        self._assumed.clear()

    def rank(self, request: PodRequest) -> Ranking:
        """The best places for a request now, and how many nodes it fits."""
        if self._depends_on_others(request):
            verdicts = self._all(request, self._trial)
            places = [v for v in verdicts.values() if isinstance(v, Place)]
            feasible, ranked = len(places), nsmallest(RUNNERS_UP + 1, places)
        else:
            row = self._fresh(request, self._trial)
            verdicts, feasible, ranked = row.verdicts, row.feasible, row.best(RUNNERS_UP + 1)
        runners_up = tuple(
            RunnerUp(p.rank[2], p.score.total_micro, tuple(h.card for h in p.holdings))
            for p in ranked[1:]
        )
        return Ranking(ranked[0] if ranked else None, runners_up, feasible, len(verdicts))

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        """Why nodes reject the request, most frequent reason first."""
        return _counted(self.verdicts(request, self._trial).values())

    def verdicts(self, request: PodRequest, trial: Trial | None = None) -> Mapping[int, Verdict]:
        """Every existing node's verdict by row; `trial` adds assumed placements to the state.

        The state must not change while a trial is used.
        """
        if self._depends_on_others(request):
            return self._all(request, trial)
        return self._fresh(request, trial).verdicts

    def _depends_on_others(self, request: PodRequest) -> bool:
        """Whether a node's verdict may depend on other nodes."""
        return request.company != ALONE or weights_of(self.state.policy).nodeorder is not None

    def _fresh(self, request: PodRequest, trial: Trial | None) -> _Row:
        """A request's row, up to date."""
        row = self._row(request)
        if trial is None or row.trial is not trial:
            self._refresh(row, request)
            row.trial, row.trial_cursor = trial, 0
        if trial is not None:
            for name in dict.fromkeys(trial.changed[row.trial_cursor :]):
                node = trial.node(name)
                assert node is not None
                row.update(node.row, self._ask(node, request))
                row.stale.add(node.row)
            row.trial_cursor = len(trial.changed)
        return row

    def _all(self, request: PodRequest, trial: Trial | None) -> Mapping[int, Verdict]:
        """Every existing node's verdict if one node's may depend on all others."""
        policy, nodes = self.state.policy, (trial or Trial(self.state)).nodes()
        around = look_around(nodes, request)
        verdicts = {node.row: self._ask(node, request, around) for node in nodes}
        order = weights_of(policy).nodeorder
        if order is not None:
            feasible = [node for node in nodes if isinstance(verdicts[node.row], Place)]
            earned = relative_micro(feasible, nodes, request, order)
            for node, micro in zip(feasible, earned, strict=True):
                place = verdicts[node.row]
                assert isinstance(place, Place)
                verdicts[node.row] = _place(node, with_relative(place.score, micro), place.holdings)
        return verdicts

    def _row(self, request: PodRequest) -> _Row:
        state = self.state
        if self._policy is not state.policy:
            self._rows.clear()
            self._policy = state.policy
        row = self._rows.pop(request, None)
        if row is None:
            if len(self._rows) >= REQUESTS_MAX:
                del self._rows[next(iter(self._rows))]
            row = _Row()
        self._rows[request] = row
        return row

    def _refresh(self, row: _Row, request: PodRequest) -> None:
        state = self.state
        changes = state.trails.nodes.since(row.cursor)
        dirty: Iterable[int] = range(len(state.rows))
        if changes is not None:
            dirty = row.stale.union(index for index, _, _ in changes)
        for index in dirty:
            node = state.rows[index]
            if node is None or node.fact is None:
                row.update(index, None)
            else:
                row.update(index, self._ask(node, request))
        row.stale.clear()
        row.cursor = state.trails.nodes.end

    def _ask(self, node: Node, request: PodRequest, around: Around | None = None) -> Verdict:
        self.asked += 1
        policy = self.state.policy
        fit = fits(node, request, policy, around=around)
        if isinstance(fit, str):
            return fit
        holdings = tuple(h for chosen in fit.chosen for h in chosen.holdings)
        return _place(node, score(node, request, fit, policy), holdings)


def _place(node: Node, points: Score, holdings: tuple[Holding, ...]) -> Place:
    return Place((-points.total_micro, points.leftover, node.name), points, holdings)


def _counted(verdicts: Iterable[Verdict]) -> tuple[tuple[str, int], ...]:
    """The reasons among the verdicts, most frequent first, then by code."""
    counts = Counter(v for v in verdicts if isinstance(v, str))
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def node_holds_at_most(node: Node, request: PodRequest, policy: Policy) -> int:
    """The most pods of one request that a node can hold if one fits: a bound, without trying.

    It is the least of what host and cards have room for. Cards are counted one by one, each as
    often as its free slots, memory and compute allow; a pod that needs several cards takes that
    many of the sum. Fewer pods may fit, never more. `allotment_board.rows.holds_at_most` computes
    the same on columns.
    """
    bounds = [node.pods_free]
    for free, amount in (
        (node.cpu_milli_free, request.cpu_milli),
        (node.memory_bytes_free, request.memory_bytes),
        *((node.extended_free.get(name, 0), amount) for name, amount in request.extended),
    ):
        if amount:
            bounds.append(free // amount)
    rules = rules_of(request, policy, node.name)
    for wanted in request.devices:
        cards = node.ledgers[wanted.family].cards
        times = sum(_times(Free(card), wanted, rules) for card in cards)
        bounds.append(times // wanted.count)
    return min(bounds)


def _times(free: Free, wanted: DeviceRequest, rules: Rules) -> int:
    """How often one card can take one unit of a request."""
    if card_refusal(free, wanted, rules, FAMILIES[wanted.family]) is not None:
        return 0
    bounds = [1 if wanted.cores_pct == CORES_WHOLE_PCT else free.slots]
    memory_mib = need_memory_mib(wanted, free.card.fact.memory_mib, free.card.table)
    if memory_mib:
        bounds.append(free.memory_mib // memory_mib)
    if wanted.cores_pct:
        bounds.append(free.cores_pct // wanted.cores_pct)
    card = free.card
    if card.partitioner is not None:
        bounds.append(card.partitioner.most(card.fact, card.table, card.state, wanted))
    return min(bounds)
