"""Which reserved pods may be bound now: pure.

A node's device plugin cannot tell pods apart that ask it the same (`acknowledgement`). So of the
pods of one node with the same question one at a time is bound: the next waits until the plugin has
served it (the plugin marked it, or it runs), until it ended or is gone, or until the plugin
itself is. Where a plugin serves no pod, none waits: what was decided before that was known ends
with an obstacle.

Two pods with the very same assignment wait for each other as well. Swapped they would get the right
cards, but NVIDIA's plugin mounts a directory that is named after the pod it took them for, and its
monitor clears that away when that pod is gone. Where no monitor runs, they may be swapped for speed
(`swap_equal`).

Each record of the log costs what it changed.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from allotment.core.explain.rows.acknowledgement import Age, Place, age, is_awaited, plugin_question
from allotment.core.ledger.health import is_left
from allotment.core.ledger.model import RESERVED, Allocation, ClusterState
from allotment.core.placement.devices import FAMILIES

_UNSWAPPABLE = frozenset(name for name, family in FAMILIES.items() if not family.swappable)
Answer = tuple[object, ...]
"""What the plugin must answer. Pods with the same question and answer need not wait."""


class Wait(NamedTuple):
    """A reserved pod, and the bound one for which its node's plugin has to be through first."""

    uid: str
    ahead: str
    place: Place


class _Spot(NamedTuple):
    """Where a pod stands. `place` is None for a pod of which no plugin of ours is asked."""

    allocation: Allocation
    place: Place | None
    answer: Answer
    waits: bool


class _Queue:
    """One place: who waits to be bound, and whom the plugin still has to serve, by answer."""

    __slots__ = ("_by_age", "taken", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Answer, dict[str, Allocation]] = {}
        self.taken: dict[Answer, dict[str, None]] = {}
        self._by_age: list[tuple[Age, Answer]] = []
        """A heap; of those who wait no more, the oldest are dropped when they come up."""

    def wait(self, allocation: Allocation, wanted: Answer) -> None:
        self.waiting.setdefault(wanted, {})[allocation.uid] = allocation
        heapq.heappush(self._by_age, (age(allocation), wanted))

    def ready(self) -> list[Allocation]:
        """Those whose answer is the only one that the plugin may have to give."""
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

    def served(self) -> Iterator[str]:
        """Whom the plugin still has to serve."""
        for uids in self.taken.values():
            yield from uids


class Pacer:
    """Which reserved pods may be bound now: `look` at each pod, `look_node` at each node that a
    record names.
    """

    def __init__(self, state: ClusterState, *, swap_equal: bool = False) -> None:
        self.sent: dict[str, Allocation] = {}
        """Pods whose Binding is under way, or ended so that the log does not know yet."""
        self._state = state
        self._swap_equal = swap_equal
        self._ended: set[str] = set()
        self._spots: dict[str, _Spot] = {}
        self._queues: dict[Place, _Queue] = {}
        self._free: dict[str, Allocation] = {}
        """Waiting pods that wait for no other pod."""
        self._stirred: set[Place] = set()
        self._plugins = {name: frozenset(node.ledgers) for name, node in state.nodes.items()}
        for uid in state.pods:
            self.look(uid)

    def look(self, uid: str) -> None:
        """Take note of a pod as the log shows it now."""
        state = self._state
        pod = state.pods.get(uid)
        allocation = None if pod is None else pod.allocation
        if uid in self._ended and not _is_reserved(allocation, self.sent[uid]):
            self._ended.discard(uid)
            del self.sent[uid]
        waits = uid in state.reserved and uid not in self.sent
        concerns = waits or (
            pod is not None
            and allocation is not None
            and is_awaited(pod, state.nodes[allocation.node])
        )
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
            wanted = answer(allocation, self._swap_equal)
            self._enter(uid, _Spot(allocation, place, wanted, waits))
        elif waits:
            self._enter(uid, _Spot(allocation, None, (), waits))

    def look_node(self, name: str) -> None:
        """Take note of a node as the log shows it now: of device plugins that came or went."""
        node = self._state.nodes.get(name)
        if (name, "", "") in self._state.health:
            self._stirred.update(place for place in self._queues if place[0] == name)
        plugins = frozenset(() if node is None else node.ledgers)
        if self._plugins.get(name, frozenset()) == plugins:
            return
        if node is None:
            del self._plugins[name]
            return
        self._plugins[name] = plugins
        for uid in node.allocations:
            self.look(uid)

    def served(self, uid: str) -> Allocation | None:
        """What a pod holds that the plugin still has to serve, or may be asked for any moment."""
        spot = self._spots.get(uid)
        return None if spot is None or spot.waits or spot.place is None else spot.allocation

    def place_of(self, uid: str) -> Place | None:
        """Where that is."""
        return None if self.served(uid) is None else self._spots[uid].place

    def turn_of(self, place: Place) -> list[str]:
        """The pods that wait at a place whose plugin has no other pod to serve."""
        queue = self._queues.get(place)
        if queue is None or queue.taken:
            return []
        return [uid for uids in queue.waiting.values() for uid in uids]

    def served_before(self, uid: str) -> frozenset[str]:
        """The pods of a pod's node that the node's kubelet admits before it. None where the node is
        gone as well, of which the same record may have told.
        """
        mine = self._spots[uid].allocation
        node = self._state.nodes.get(mine.node)
        return frozenset(
            other
            for other, allocation in (node.allocations.items() if node is not None else ())
            if self.place_of(other) is not None and age(allocation) < age(mine)
        )

    def ended(self, uid: str) -> None:
        """The Binding of a pod that was `ready` has ended; the log will tell how."""
        self._ended.add(uid)
        self.look(uid)

    def ready(self, blocked: Collection[Place] = ()) -> list[Allocation]:
        """Pods whose Binding is to be sent now, oldest decision first; they count as sent."""
        found = list(self._free.values())
        stirred, self._stirred = self._stirred, set()
        for place in stirred:
            left = self._left(place)
            self._send(left)
            found += left
            queue = self._queues.get(place)
            if queue is None:
                continue
            if place in blocked:
                self._stirred.add(place)
            else:
                found += queue.ready()
        found.sort(key=age)
        self._send(found)
        return found

    def _send(self, allocations: list[Allocation]) -> None:
        for allocation in allocations:
            self.sent[allocation.uid] = allocation
            self.look(allocation.uid)

    def _left(self, place: Place) -> list[Allocation]:
        """The pods that stop waiting, because the plugin serves no pod."""
        name, queue = place[0], self._queues.get(place)
        if queue is None or (name, "", "") not in self._state.health:
            return []
        waiting = (held for same in queue.waiting.values() for held in same.values())
        return [held for held in waiting if is_left(self._state, name, held.seq)]

    def waits(self) -> Iterator[Wait]:
        """Which pod waits for which now, without those that wait for a Binding under way."""
        for place, queue in self._queues.items():
            ahead = next((uid for uid in queue.served() if uid not in self._state.reserved), None)
            if ahead is not None:
                for uids in queue.waiting.values():
                    yield from (Wait(uid, ahead, place) for uid in uids)

    def unacknowledged(self) -> Counter[str]:
        """By node, how many bound pods its device plugin has not served yet."""
        counts: Counter[str] = Counter()
        for (node, _), queue in self._queues.items():
            bound = sum(uid not in self._state.reserved for uid in queue.served())
            if bound:
                counts[node] += bound
        return counts

    def waiting(self) -> Counter[str]:
        """By node, how many reserved pods wait until its device plugin has served another."""
        return Counter(wait.place[0] for wait in self.waits())

    def oldest_s(self) -> dict[str, int]:
        """By node, the Unix time of the oldest decision about a pod that is not acknowledged."""
        oldest: dict[str, int] = {}
        for (node, _), queue in self._queues.items():
            for uid in queue.served():
                pod = self._state.pods[uid]
                if uid not in self._state.reserved and pod.allocation and pod.allocation.stamp_s:
                    stamp_s = pod.allocation.stamp_s
                    oldest[node] = min(stamp_s, oldest.get(node, stamp_s))
        return oldest

    def _enter(self, uid: str, spot: _Spot) -> None:
        self._spots[uid] = spot
        if spot.place is None:
            self._free[uid] = spot.allocation
            return
        queue = self._queues.get(spot.place)
        if queue is None:
            queue = self._queues[spot.place] = _Queue()
        if spot.waits:
            queue.wait(spot.allocation, spot.answer)
            self._stirred.add(spot.place)
        else:
            queue.taken.setdefault(spot.answer, {})[uid] = None

    def _leave(self, uid: str, spot: _Spot) -> None:
        del self._spots[uid]
        if spot.place is None:
            del self._free[uid]
            return
        queue = self._queues[spot.place]
        if spot.waits:
            _drop(queue.waiting, spot.answer, uid)
        else:
            _drop(queue.taken, spot.answer, uid)
        if queue.waiting and not queue.taken:
            self._stirred.add(spot.place)
        if not queue.waiting and not queue.taken:
            del self._queues[spot.place]


def _drop(groups: dict[Answer, dict[str, Any]], group: Answer, uid: str) -> None:
    del groups[group][uid]
    if not groups[group]:
        del groups[group]


def _is_reserved(now: Allocation | None, sent: Allocation) -> bool:
    """Whether the log does not know yet how the Binding of an allocation ended."""
    return now is sent and now.phase == RESERVED


def answer(allocation: Allocation, swap_equal: bool) -> Answer:
    """What the plugin must answer: this pod, or anything that hands out the same."""
    holdings = allocation.holdings
    if not swap_equal or any(held.family in _UNSWAPPABLE for held in holdings):
        return (allocation.uid,)
    return tuple(
        sorted((h.container, h.card, h.instance, h.memory_mib, h.cores_pct) for h in holdings)
    )
