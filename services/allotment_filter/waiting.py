"""The pending pods in their order, kept while the log moves instead of sorted for every batch.

A batch is taken from the front of the order. With many pods waiting, sorting all of them for every
batch would cost more than placing it. So the order is a sorted list to which pods are added, mostly
at its end, and from which they disappear, mostly at its front: a pod that does not wait any more is
passed over, and such entries are cleared away when they are the half.
"""

from collections.abc import Iterator

from allotment.core.ledger.state import ClusterState, Pod
from allotment.core.queues.order import OrderKey, order_key
from allotment_proto.events import (
    BindFailed,
    Decided,
    Envelope,
    PodGone,
    PodObserved,
    PolicyLoaded,
)


class Waiting:
    """Every pending pod of `state` in order, as far as `take` was told of every record."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.visited = 0
        """How many entries were looked at: the work done, for tests."""
        self._keys: dict[str, OrderKey] = {}
        """Pods that wait → the entry that counts for them."""
        self._order: list[OrderKey] = []
        self._start = 0
        """The entries before it do not count any more."""
        self._new: list[OrderKey] = []
        self._sort_anew()

    def take(self, envelope: Envelope) -> None:
        """Take note of a record that took effect on the state."""
        for event in envelope.events:
            match event:
                case PodObserved(uid=uid) | PodGone(uid=uid) | BindFailed(uid=uid):
                    self._look(uid)
                case Decided(placements=placements):
                    for placement in placements:
                        self._look(placement.uid)
                case PolicyLoaded():
                    self._sort_anew()
                case _:
                    pass

    def __iter__(self) -> Iterator[Pod]:
        if len(self._keys) != len(self.state.pending):  # a record that was passed over, perhaps
            self._sort_anew()
        self._merge()
        keys, pods, order = self._keys, self.state.pods, self._order
        for at in range(self._start, len(order)):
            self.visited += 1
            entry = order[at]
            if keys.get(entry[-1]) is entry:
                yield pods[entry[-1]]

    def _look(self, uid: str) -> None:
        """Take note of a pod as the log shows it now."""
        known = self._keys.get(uid)
        if uid not in self.state.pending:
            if known is not None:
                del self._keys[uid]
            return
        key = order_key(self.state.pods[uid])
        if known != key:
            self._keys[uid] = key
            self._new.append(key)

    def _sort_anew(self) -> None:
        pods = self.state.pods
        self._keys = {uid: order_key(pods[uid]) for uid in self.state.pending}
        self._order, self._start, self._new = sorted(self._keys.values()), 0, []

    def _merge(self) -> None:
        """Bring new entries to their places, and leave behind those that count no more."""
        order, keys = self._order, self._keys
        if self._new:
            self._new.sort()
            in_place = not order or order[-1] <= self._new[0]
            order += self._new
            if not in_place:
                del order[: self._start]
                self._start = 0
                order.sort()
            self._new = []
        while self._start < len(order) and keys.get((e := order[self._start])[-1]) is not e:
            self._start += 1
        if len(order) > 2 * len(keys):
            self._order = [e for e in order[self._start :] if keys.get(e[-1]) is e]
            self._start = 0
