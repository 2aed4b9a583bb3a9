"""A lower bound of the cost of evictions on each node: where to search for victims first.

A bound is never above the real cost of victims on its node, so a search of the nodes in the order
of their bounds can stop once no other node can be cheaper (`victims`). Rows and bounds are kept
from round to round; those of a node are rebuilt when something about its books changed, or about
the job of a pod there.

The plugins decide in full which pods may be evicted only on nodes that are tried. The rows of a
node are all that might be: running pods, of a kind that some tier of plugins may name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.ledger.ledger import Ledger
from allotment.core.ledger.model import Allocation, ClusterState, Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import Rules, card_refusal, rules_of
from allotment.core.placement.devices.free import Free, need_cores_pct, need_memory_mib
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.queues.model import EVICTABLE_SET, JobView, Kind
from allotment.core.queues.timings import Checkpoint
from allotment.core.queues.work import World
from allotment_proto.facts import DeviceRequest, PodRequest, Policy

Rank = tuple[int, int, int, int, int]
"""A pod's rank among victims: the lowest are evicted first."""

Cost = tuple[int, tuple[Rank, ...], str]
"""The number of victims, their ranks, and the node: the smallest wins."""

_QUESTIONS_MAX = 64

_CURED_BY_ROOM = frozenset(
    (
        reasons.CARD_KEPT_APART,
        reasons.SHARE_LIMIT_REACHED,
        reasons.EXCLUSIVE_CONFLICT,
        reasons.INSUFFICIENT_GPU_MEMORY,
        reasons.INSUFFICIENT_GPU_COMPUTE,
        reasons.NO_FITTING_INSTANCE,
    )
)
"""The reasons of a card that may take the request once some of its holders are evicted."""


class Row(NamedTuple):
    """A pod that might be evicted."""

    rank: Rank
    uid: str
    kind: Kind
    allocation: Allocation


class Question(NamedTuple):
    """Searches with equal questions have equal bounds, apart from the kinds of pods that may be
    evicted.
    """

    request: PodRequest
    source: object
    queue: str
    priority: int


class Candidates:
    """Rows and bounds of one state's nodes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._world: World | None = None
        self._policy: Policy | None = None
        self._nodes_read = self._jobs_read = -1
        self._rows: dict[str, tuple[Row, ...]] = {}
        self._steps_of: dict[str, tuple[JobView, Mapping[str, tuple[int, int]]]] = {}
        """Of groups, by uid."""
        self._nodes_of: dict[str, set[str]] = {}
        """By job, the nodes on which it has rows."""
        self._bounds: dict[Question, Bounds] = {}

    def follow(self, world: World) -> None:
        """Read what changed since the last call; `world` is that of a session."""
        state = self._state
        changes = state.trails.nodes.since(self._nodes_read)
        jobs = world.trail.since(self._jobs_read)
        self._nodes_read, self._jobs_read = state.trails.nodes.end, world.trail.end
        is_other = world is not self._world or state.policy is not self._policy
        if changes is None or jobs is None or is_other:
            self._world, self._policy = world, state.policy
            self._rows.clear()
            self._steps_of.clear()
            self._nodes_of.clear()
            self._bounds.clear()
            return
        names = {node.name for row, _, _ in changes if (node := state.rows[row]) is not None}
        for uid in jobs:
            self._steps_of.pop(uid, None)
            names |= self._nodes_of.pop(uid, set())
            view = world.view(uid)
            names.update(task.node for task in (() if view is None else view.tasks))
        for name in names:
            self._rows.pop(name, None)
        for bounds in self._bounds.values():
            bounds.stale.update(names)

    def rows(self, name: str) -> tuple[Row, ...]:
        """The pods that might be evicted on a node, the lowest in rank first."""
        rows = self._rows.get(name)
        if rows is None:
            node = self._state.nodes.get(name)
            rows = self._rows[name] = () if node is None else tuple(sorted(self._made(node)))
        return rows

    def bounds(
        self, question: Question, may_go: Callable[[Kind], bool], checkpoint: Checkpoint
    ) -> "Bounds":
        """The bounds of all nodes for a question, up to date. `may_go` returns whether pods of a
        kind might be named at all.
        """
        found = self._bounds.pop(question, None)
        if found is None or not found.agrees(may_go):
            found = Bounds(self._state, self.rows, question.request, may_go)
        if len(self._bounds) >= _QUESTIONS_MAX:
            del self._bounds[next(iter(self._bounds))]
        self._bounds[question] = found
        found.refresh(checkpoint)
        return found

    def _steps(self, view: JobView) -> Mapping[str, tuple[int, int]]:
        known, steps = self._steps_of.get(view.uid, (None, {}))
        if known is not view:
            steps = _steps_in(view)
            self._steps_of[view.uid] = view, steps
        return steps

    def _made(self, node: Node) -> Iterator[Row]:
        world, pods = self._world, self._state.pods
        assert world is not None
        for uid, allocation in node.allocations.items():
            view = world.view_of(uid)
            if view is None:
                continue
            if view.is_single:
                task = view.tasks[0]
                step = _steps_in(view)[uid]
            else:
                task, step = world.job_of[uid].tasks[uid], self._steps(view)[uid]
            if task.preemptable and task.status in EVICTABLE_SET:
                grace_s = pods[uid].fact.grace_s
                rank = (view.priority, *step, grace_s, -task.created_ms)
                self._nodes_of.setdefault(view.uid, set()).add(node.name)
                yield Row(rank, uid, view.kind, allocation)


class Bounds:
    """For one question, the least cost on every node that might satisfy it."""

    def __init__(
        self,
        state: ClusterState,
        rows: Callable[[str], tuple[Row, ...]],
        request: PodRequest,
        may_go: Callable[[Kind], bool],
    ) -> None:
        self.stale: set[str] = set(state.nodes)
        """Nodes whose bounds are out of date."""
        self._state = state
        self._rows = rows
        self._request = request
        self._may_go = may_go
        self._verdicts: dict[Kind, bool] = {}
        self._known: dict[str, Cost] = {}
        self._heap: list[Cost] = []
        """Every current bound, and some outdated ones."""

    def agrees(self, may_go: Callable[[Kind], bool]) -> bool:
        """Whether the same kinds of pods might be named as when the bounds were made."""
        self._may_go = may_go
        return all(may_go(kind) is verdict for kind, verdict in self._verdicts.items())

    def refresh(self, checkpoint: Checkpoint) -> None:
        """Recompute the bounds of stale nodes."""
        is_new = not self._known
        for name in sorted(self.stale):
            checkpoint()
            self._known.pop(name, None)
            node = self._state.nodes.get(name)
            found = None if node is None else self.on(node)
            if found is not None:
                self._known[name] = found
                if is_new:
                    self._heap.append(found)
                else:
                    heappush(self._heap, found)
        self.stale.clear()
        if is_new or len(self._heap) > 2 * len(self._known) + _QUESTIONS_MAX:
            self._heap = list(self._known.values())
            heapify(self._heap)

    def on(self, node: Node) -> Cost | None:
        """The bound on a node, or on a changed copy of it; None if no eviction there helps."""
        rows = [row for row in self._rows(node.name) if self._is_named(row.kind)]
        rows = [row for row in rows if row.uid in node.allocations]
        if not rows:
            return None
        least = fewest(node, self._request, self._state.policy, [row.allocation for row in rows])
        if least is None:
            return None
        least = max(least, 1)
        return least, tuple(row.rank for row in rows[:least]), node.name

    def in_order(self) -> Iterator[Cost]:
        """The bounds, the smallest first; computed lazily."""
        seen: dict[str, Cost] = {}
        try:
            while self._heap:
                bound = heappop(self._heap)
                name = bound[2]
                if self._known.get(name) is bound and name not in seen:
                    seen[name] = bound
                    yield bound
        finally:
            for bound in seen.values():
                if self._known.get(bound[2]) is bound:
                    heappush(self._heap, bound)

    def strike_unless_met(self, name: str) -> None:
        """Leave a node out until it changes, if the request does not fit there even without all
        pods that might be evicted.
        """
        node = self._state.nodes.get(name)
        if node is not None and node.fact is not None:
            fork = node.fork()
            for row in self._rows(name):
                if self._is_named(row.kind):
                    fork.release(row.allocation)
            if isinstance(fits(fork, self._request, self._state.policy), Fit):
                return
        self._known.pop(name, None)

    def _is_named(self, kind: Kind) -> bool:
        verdict = self._verdicts.get(kind)
        if verdict is None:
            verdict = self._verdicts[kind] = self._may_go(kind)
        return verdict


def _steps_in(job: JobView) -> Mapping[str, tuple[int, int]]:
    """By task, its priority among pods of other jobs, and its step among those of its own: a
    priority annotation counts among the pods of its job only.
    """
    tasks = job.tasks
    if all(task.class_priority is None for task in tasks):
        return {task.uid: (task.priority, 0) for task in tasks}
    steps = {level: n for n, level in enumerate(sorted({task.priority for task in tasks}))}
    return {
        task.uid: (
            task.priority if task.class_priority is None else task.class_priority,
            steps[task.priority],
        )
        for task in tasks
    }


def fewest(
    node: Node, request: PodRequest, policy: Policy, held: Sequence[Allocation]
) -> int | None:
    """The least number of these allocations to release so that a request may fit on a node; None if
    releasing all is not enough. A bound: it considers amounts one by one.
    """
    least = 0
    for lack, amounts in _host_lacks(node, request, held):
        count = _count(lack, amounts)
        if count is None:
            return None
        least = max(least, count)
    rules: Rules | None = None
    for wanted in request.devices:
        ledger = node.ledgers.get(wanted.family)
        if ledger is None:
            return None
        if rules is None:
            rules = rules_of(request, policy, node.name)
        count = _cards_short(ledger, wanted, rules, held)
        if count is None:
            return None
        least = max(least, count)
    return least


def _host_lacks(
    node: Node, request: PodRequest, held: Sequence[Allocation]
) -> Iterator[tuple[int, Iterable[int]]]:
    """What a node has too little of, with the amounts that each of the allocations has of it."""
    if node.pods_free < 1:
        yield 1 - node.pods_free, (1 for _ in held)
    if request.cpu_milli > node.cpu_milli_free:
        yield request.cpu_milli - node.cpu_milli_free, (each.cpu_milli for each in held)
    if request.memory_bytes > node.memory_bytes_free:
        yield request.memory_bytes - node.memory_bytes_free, (each.memory_bytes for each in held)
    for name, amount in request.extended:
        free = node.extended_free.get(name, 0)
        if amount > free:
            yield amount - free, (dict(each.extended).get(name, 0) for each in held)


def _count(lack: int, amounts: Iterable[int]) -> int | None:
    """How many of the amounts make up for a lack, the greatest first; None if all together do
    not.
    """
    count = 0
    for amount in sorted(amounts, reverse=True):
        if lack <= 0 or amount <= 0:
            break
        lack -= amount
        count += 1
    return count if lack <= 0 else None


def _cards_short(
    ledger: Ledger, wanted: DeviceRequest, rules: Rules, held: Sequence[Allocation]
) -> int | None:
    """The least number of these holders to evict so that enough cards take a request."""
    family = FAMILIES[wanted.family]
    missing = wanted.count
    refusing: list[Free] = []
    for card in ledger.cards:
        free = Free(card)
        code = card_refusal(free, wanted, rules, family)
        if code is None:
            missing -= 1
            if missing < 1:
                return 0
        elif code in _CURED_BY_ROOM:
            refusing.append(free)
    on_card: dict[str, dict[str, list[int]]] = {}
    widths: list[int] = []
    for each in held:
        width = 0
        for part in each.holdings:
            if part.family != wanted.family:
                continue
            of_card = on_card.setdefault(part.card, {})
            taken = of_card.get(each.uid)
            if taken is None:
                width += 1
                of_card[each.uid] = [1, part.memory_mib, part.cores_pct]
            else:
                taken[0] += 1
                taken[1] += part.memory_mib
                taken[2] += part.cores_pct
        widths.append(width)
    counts = []
    for free in refusing:
        holders = on_card.get(free.card.fact.id)
        count = None if holders is None else _holders_short(free, wanted, [*holders.values()])
        if count is not None:
            counts.append(count)
    if len(counts) < missing:
        return None
    # A pod that holds several cards may be one that each of them needs to lose.
    counts.sort()
    return _count(sum(counts[:missing]), widths)


def _holders_short(
    free: Free, wanted: DeviceRequest, holders: Sequence[Sequence[int]]
) -> int | None:
    """The least number of its holders to evict so that one card takes a unit of a request; None if
    evicting all is not enough. Each has this many slots, memory (MiB) and compute (percent).
    """
    card = free.card
    if wanted.cores_pct == CORES_WHOLE_PCT:
        is_emptied = sum(slots for slots, _, _ in holders) >= free.used_slots
        return len(holders) if is_emptied else None
    if card.partitioner is not None:
        return 1
    fact, least = card.fact, 1
    lacks = (
        1 - free.slots,
        need_memory_mib(wanted, fact.memory_mib, card.table) - free.memory_mib,
        need_cores_pct(wanted, fact.cores_pct) - free.cores_pct,
    )
    for place, lack in enumerate(lacks):
        if lack > 0:
            count = _count(lack, [taken[place] for taken in holders])
            if count is None:
                return None
            least = max(least, count)
    return least
