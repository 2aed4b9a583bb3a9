"""How much the log records of what the owner of an object can change at will.

A label or an annotation costs its owner a request; in the log it costs a record of the whole
object, which every service reads and which stays. Two limits keep that small:

* An object has a number of changes free, and then one every few seconds.
* A namespace has a number of bytes free, and then so many a second. While it has none left, its new
  objects and what their owners change wait; those of other namespaces do not.

The last state is always recorded, only later. What kubelet and the API server bring about (node,
phase, deletion, the end) is never late, and neither is the first acknowledgement of a pod's device
plugin, for which the next Binding of the node may wait. It still counts for its namespace.
Anyone can name a node in a new pod, so of a pod whose namespace has no bytes left the amounts that
it takes there are recorded, and the rest later.
"""

import time
from collections.abc import Callable, Collection

import msgspec

from allotment.core import reasons
from allotment_proto.events import PodObserved
from allotment_proto.facts import Problem
from allotment_proto.volcano import keys
from allotment_watcher.reported import Fact, Observed, same_content

CHANGES_AT_ONCE = 20
"""More than any object's life has."""
CHANGE_EVERY_S = 10.0
BYTES_AT_ONCE = 64 << 20
"""Of one namespace: 30,000 pods from their creation to their end."""
BYTES_PER_S = 128 << 10
"""Of one namespace, for ever: 60 pods a second from their creation to their end."""

CUT = Problem(
    reasons.NAMESPACE_LIMIT,
    "the pod object",
    "its namespace writes too much into the log: what it takes of its node is known, its labels "
    "and rules are recorded later",
)
CUT_BYTES = 2 << 10
"""A pod that takes no more in the log is recorded whole: most do."""


class Spending:
    """What each namespace may still write into the log; one for all kinds of objects."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        """Per namespace the bytes that are left, and when that was counted. One that has all of
        them is not named."""

    def is_spent(self, namespace: str) -> bool:
        """Whether a namespace has nothing left."""
        return namespace in self._left and self._left_now(namespace) <= 0

    def spend(self, fact: Fact) -> None:
        """A fact is recorded; objects without a namespace are the cluster's."""
        namespace = namespace_of(fact)
        if namespace:
            self._left[namespace] = self._left_now(namespace) - _size(fact), self._clock()

    def _left_now(self, namespace: str) -> float:
        now_s = self._clock()
        left, then_s = self._left.get(namespace, (float(BYTES_AT_ONCE), now_s))
        return min(max(left, -BYTES_AT_ONCE) + (now_s - then_s) * BYTES_PER_S, BYTES_AT_ONCE)

    def forget_rested(self) -> None:
        """Forget the namespaces that have all their bytes again."""
        rested = [name for name in self._left if self._left_now(name) >= BYTES_AT_ONCE]
        for name in rested:
            del self._left[name]


class Throttle:
    """Which objects of one kind may be recorded now. Each is remembered from its first change until
    `forget`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, spending: Spending | None = None
    ) -> None:
        self._clock = clock
        self.spending = spending or Spending(clock)
        self._free: dict[str, tuple[float, float]] = {}
        """Per uid the changes that are free, and when that was counted."""
        self._acknowledged: set[str] = set()
        """Pods whose acknowledgement was free: their owners can write and take it back for ever."""

    def allows(self, last: Observed | None, fact: Observed) -> bool:
        """Whether `fact` may be recorded now; if so, it is counted. `last` was recorded last."""
        if last is not None and last.uid != fact.uid:
            last = None  # another object of that name
        if last is not None and (is_progress(last, fact) or same_content(last, fact)):
            return True
        is_first = fact.uid not in self._acknowledged
        if last is not None and is_first and is_acknowledgement(last, fact):
            self._acknowledged.add(fact.uid)
            return True
        if self.spending.is_spent(namespace_of(fact)):
            return is_placed(fact) and last is None
        return last is None or self._counts(fact.uid)

    def cuts(self, last: Observed | None, fact: Observed) -> bool:
        """Whether no more may be recorded now than what a pod takes of its node. `last` was
        recorded last: of a pod that was recorded whole everything stays."""
        is_new = last is None or last.uid != fact.uid
        was_cut = isinstance(last, PodObserved) and last.problem == CUT
        return (
            is_placed(fact)
            and (is_new or was_cut)
            and self.spending.is_spent(namespace_of(fact))
            and _size(fact) > CUT_BYTES
        )

    def _counts(self, uid: str) -> bool:
        now_s = self._clock()
        free, then_s = self._free.get(uid, (float(CHANGES_AT_ONCE), now_s))
        free = min(free + (now_s - then_s) / CHANGE_EVERY_S, float(CHANGES_AT_ONCE))
        if free < 1.0:
            self._free[uid] = free, now_s
            return False
        self._free[uid] = free - 1.0, now_s
        return True

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._free.pop(uid, None)
        self._acknowledged.discard(uid)

    def keep_only(self, uids: Collection[str]) -> None:
        """All other objects are gone, perhaps during a gap of the watch."""
        self._free = {uid: free for uid, free in self._free.items() if uid in uids}
        self._acknowledged.intersection_update(uids)


def _size(fact: Fact) -> int:
    return len(msgspec.json.encode(fact))


def namespace_of(fact: Fact) -> str:
    """The namespace that pays for a fact; empty for the cluster's objects."""
    return getattr(fact, "namespace", "")


def is_placed(fact: Observed) -> bool:
    """Whether an object takes room somewhere: that has to be known at once, for every owner."""
    return isinstance(fact, PodObserved) and bool(fact.node)


def is_progress(last: Observed, fact: Observed) -> bool:
    """Whether a pod came further in its life, which only kubelet and API server decide."""
    if not (isinstance(last, PodObserved) and isinstance(fact, PodObserved)):
        return False
    return (last.node, last.phase, last.deleting, last.gated) != (
        fact.node,
        fact.phase,
        fact.deleting,
        fact.gated,
    )


def is_acknowledgement(last: Observed, fact: Observed) -> bool:
    """Whether a pod's device plugin is done with it, and was not before."""
    if not (isinstance(last, PodObserved) and isinstance(fact, PodObserved)):
        return False
    return last.bind_phase == keys.PHASE_ALLOCATING and fact.bind_phase not in (
        "",
        keys.PHASE_ALLOCATING,
    )
