"""How often the log is told of what the owner of a pod can change at will.

A label or an annotation costs its owner a request; in the log it costs a record of the whole pod,
which every service reads and which stays. So each pod has a number of such changes free, and then
one every few seconds. The last state is always told, only later. What kubelet and the API server
bring about (node, phase, deletion) is never late, and neither is the first acknowledgement of a
pod's device plugin, for which the next Binding of the node may wait.
"""

import time
from collections.abc import Callable, Collection

from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys
from allotment_watcher.reported import same_content

CHANGES_AT_ONCE = 20
"""More than any pod's life has."""
CHANGE_EVERY_S = 10.0


class Throttle:
    """Which pods may be told of now. Pods are remembered from their first change until `forget`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free: dict[str, tuple[float, float]] = {}
        """Per pod the changes that are free, and when that was counted."""
        self._acknowledged: set[str] = set()
        """Pods whose acknowledgement was free: their owners can write and take it back for ever."""

    def allows(self, last: PodObserved | None, fact: PodObserved) -> bool:
        """Whether `fact` may be told now; if so, it is counted. `last` was reported last."""
        if last is None or is_progress(last, fact) or same_content(last, fact):
            return True
        if is_acknowledgement(last, fact) and fact.uid not in self._acknowledged:
            self._acknowledged.add(fact.uid)
            return True
        now_s = self._clock()
        free, then_s = self._free.get(fact.uid, (float(CHANGES_AT_ONCE), now_s))
        free = min(free + (now_s - then_s) / CHANGE_EVERY_S, float(CHANGES_AT_ONCE))
        if free < 1.0:
            self._free[fact.uid] = free, now_s
            return False
        self._free[fact.uid] = free - 1.0, now_s
        return True

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._free.pop(uid, None)
        self._acknowledged.discard(uid)

    def keep_only(self, uids: Collection[str]) -> None:
        """All other pods are gone, perhaps while nobody watched."""
        self._free = {uid: free for uid, free in self._free.items() if uid in uids}
        self._acknowledged.intersection_update(uids)


def is_progress(last: PodObserved, fact: PodObserved) -> bool:
    """Whether a pod came further in its life, which nobody but kubelet and API server decide."""
    return (last.node, last.phase, last.deleting, last.gated) != (
        fact.node,
        fact.phase,
        fact.deleting,
        fact.gated,
    )


def is_acknowledgement(last: PodObserved, fact: PodObserved) -> bool:
    """Whether a pod's device plugin is through with it, and was not before."""
    return last.bind_phase == keys.PHASE_ALLOCATING and fact.bind_phase not in (
        "",
        keys.PHASE_ALLOCATING,
    )
