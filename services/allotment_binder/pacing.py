"""Which reserved pods may be bound now: pure.

A node's device plugin is told only *how much* a container wants (a number of devices, or of MiB),
and picks the oldest pod of the node that wants as much. Two pods of a node with the same question
and different cards could therefore be served each other's cards. So a pod waits while another one
of its node, with the same question but another assignment, was bound and is not acknowledged yet
(the plugin marked it, or it runs).

`bindable` looks at everything, every time, and says what is right. The `Pacer` says the same from
what each record of the log changed.
"""

import heapq
from collections.abc import Collection
from typing import NamedTuple

from allotment.core.state import RESERVED, Allocation, ClusterState, Pod
from allotment_proto.facts import Holding
from allotment_proto.volcano import gpushare, keys

Question = tuple[str, str, int]
"""Device family, unit and amount."""
Assignment = tuple[tuple[int, str, int, int], ...]
Place = tuple[str, Question]
"""A node, and what its plugin would be asked."""


def is_acknowledged(pod: Pod) -> bool:
    """Whether the device plugin is through with a pod that was bound."""
    fact = pod.fact
    return bool(fact.node) and (
        fact.bind_phase in (keys.PHASE_SUCCESS, keys.PHASE_FAILED) or fact.phase != "Pending"
    )


def bindable(
    state: ClusterState,
    in_flight: Collection[str],
    blocked: Collection[Place] = (),
) -> list[Allocation]:
    """Reserved pods whose Binding may be sent now, oldest decision first.

    `in_flight` are pods whose Binding is under way, `blocked` the nodes and questions for which a
    plugin would not find the right pod.
    """
    out: list[Allocation] = []
    busy: dict[str, dict[Question, Assignment]] = {}
    waiting = [uid for uid in state.reserved if uid not in in_flight]
    allocations = [a for uid in waiting if (a := state.pods[uid].allocation) is not None]
    for allocation in sorted(allocations, key=_age):
        question = plugin_question(allocation.holdings)
        if question is not None:
            if (allocation.node, question) in blocked:
                continue
            taken = busy.get(allocation.node)
            if taken is None:
                taken = busy[allocation.node] = _unacknowledged(state, allocation.node, in_flight)
            mine = assignment(allocation)
            if taken.setdefault(question, mine) != mine:
                continue
        out.append(allocation)
    return out


def plugin_question(holdings: tuple[Holding, ...]) -> Question | None:
    """What the device plugin will be asked; None if no plugin of ours is involved."""
    if not holdings:
        return None
    first = holdings[0]
    if first.family == gpushare.FAMILY and first.cores_pct == 0:
        return first.family, "MiB", first.memory_mib
    return first.family, "devices", len(holdings)


def assignment(allocation: Allocation) -> Assignment:
    """What the plugin must hand out. Pods with equal ones may be swapped without harm."""
    return tuple(
        sorted((h.container, h.card, h.memory_mib, h.cores_pct) for h in allocation.holdings)
    )


def _unacknowledged(
    state: ClusterState, node_name: str, in_flight: Collection[str]
) -> dict[Question, Assignment]:
    """Per question, the assignment that the node's plugin still has to serve."""
    taken: dict[Question, Assignment] = {}
    for uid, allocation in state.nodes[node_name].allocations.items():
        question = plugin_question(allocation.holdings)
        if question is None or is_acknowledged(state.pods[uid]):
            continue
        if uid in in_flight or uid not in state.reserved:
            taken[question] = assignment(allocation)
    return taken


_Age = tuple[int, int, str]


def _age(allocation: Allocation) -> _Age:
    return allocation.seq, allocation.stamp_s, allocation.uid


class _Spot(NamedTuple):
    """Where a pod stands. `place` is None for a pod of which no plugin of ours is asked."""

    allocation: Allocation
    place: Place | None
    assignment: Assignment
    waits: bool


class _Queue:
    """One place: who waits to be bound, and whom the plugin still has to serve, by assignment."""

    __slots__ = ("_by_age", "taken", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Assignment, dict[str, Allocation]] = {}
        self.taken: dict[Assignment, set[str]] = {}
        self._by_age: list[tuple[_Age, Assignment]] = []
        """A heap; of those who wait no more, the oldest are dropped when they come up."""

    def wait(self, allocation: Allocation, wanted: Assignment) -> None:
        self.waiting.setdefault(wanted, {})[allocation.uid] = allocation
        heapq.heappush(self._by_age, (_age(allocation), wanted))

    def ready(self) -> list[Allocation]:
        """Those whose assignment is the only one that the plugin may have to give."""
        if not self.waiting or len(self.taken) > 1:
            return []
        if self.taken:
            return list(self.waiting.get(next(iter(self.taken)), {}).values())
        while True:
            (_, _, uid), wanted = self._by_age[0]
            same = self.waiting.get(wanted, {})
            if uid in same:
                return list(same.values())
            heapq.heappop(self._by_age)


class Pacer:
    """Which reserved pods may be bound now, kept up to date: `look` at each pod a record names."""

    def __init__(self, state: ClusterState) -> None:
        self.sent: dict[str, Allocation] = {}
        """Pods whose Binding is under way, or ended so that the log does not know yet."""
        self._state = state
        self._ended: set[str] = set()
        self._spots: dict[str, _Spot] = {}
        self._queues: dict[Place, _Queue] = {}
        self._free: dict[str, Allocation] = {}
        """Waiting pods that wait for nobody."""
        self._stirred: set[Place] = set()
        for uid in state.pods:
            self.look(uid)

    def look(self, uid: str) -> None:
        """Take note of a pod as the log shows it now."""
        pod = self._state.pods.get(uid)
        allocation = None if pod is None else pod.allocation
        if uid in self._ended and not _is_reserved(allocation, self.sent[uid]):
            self._ended.discard(uid)
            del self.sent[uid]
        waits = uid in self._state.reserved and uid not in self.sent
        concerns = pod is not None and (waits or not is_acknowledged(pod))
        spot = self._spots.get(uid)
        if spot is not None:
            if concerns and spot.allocation is allocation and spot.waits == waits:
                return
            self._leave(uid, spot)
        if allocation is None or not concerns:
            return
        question = plugin_question(allocation.holdings)
        if question is not None:
            place = allocation.node, question
            self._enter(uid, _Spot(allocation, place, assignment(allocation), waits))
        elif waits:
            self._enter(uid, _Spot(allocation, None, (), waits))

    def ended(self, uid: str) -> None:
        """The Binding of a pod that was `ready` has ended; the log will tell how."""
        self._ended.add(uid)
        self.look(uid)

    def ready(self, blocked: Collection[Place] = ()) -> list[Allocation]:
        """Pods whose Binding is to be sent now, oldest decision first; they count as sent."""
        found = list(self._free.values())
        stirred, self._stirred = self._stirred, set()
        for place in stirred:
            queue = self._queues.get(place)
            if queue is None:
                continue
            if place in blocked:
                self._stirred.add(place)
            else:
                found += queue.ready()
        found.sort(key=_age)
        for allocation in found:
            self.sent[allocation.uid] = allocation
            self.look(allocation.uid)
        return found

    def _enter(self, uid: str, spot: _Spot) -> None:
        self._spots[uid] = spot
        if spot.place is None:
            self._free[uid] = spot.allocation
            return
        queue = self._queues.get(spot.place)
        if queue is None:
            queue = self._queues[spot.place] = _Queue()
        if spot.waits:
            queue.wait(spot.allocation, spot.assignment)
            self._stirred.add(spot.place)
        else:
            queue.taken.setdefault(spot.assignment, set()).add(uid)

    def _leave(self, uid: str, spot: _Spot) -> None:
        del self._spots[uid]
        if spot.place is None:
            del self._free[uid]
            return
        queue = self._queues[spot.place]
        if spot.waits:
            same = queue.waiting[spot.assignment]
            del same[uid]
            if not same:
                del queue.waiting[spot.assignment]
        else:
            served = queue.taken[spot.assignment]
            served.discard(uid)
            if not served:
                del queue.taken[spot.assignment]
                self._stirred.add(spot.place)
        if not queue.waiting and not queue.taken:
            del self._queues[spot.place]


def _is_reserved(now: Allocation | None, sent: Allocation) -> bool:
    """Whether the log does not know yet how the Binding of an allocation ended."""
    return now is sent and now.phase == RESERVED
