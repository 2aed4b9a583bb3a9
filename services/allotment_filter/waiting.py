"""The pending pods in their order, kept while the log moves instead of sorted for every batch.

A batch is taken from the front of the order. With many pods waiting, sorting all of them for every
batch would cost more than placing it.
"""

from collections.abc import Callable, Iterable, Iterator

from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.queues.order import OrderKey, order_key
from allotment_filter.lines import Entry, Line, Position
from allotment_proto.events import (
    BindFailed,
    Decided,
    Envelope,
    PodGone,
    PodObserved,
    PolicyLoaded,
)


class Waiting:
    """Every pending pod of `state` in order, as far as `take` was given every record."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.visited = 0
        """How many entries were looked at: the work done, for tests."""
        self._positions: dict[str, tuple[OrderKey, Position]] = {}
        self._line = Line()
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
        return self.in_turns(lambda _: True)

    def in_turns(self, is_due: Callable[[Pod], bool]) -> Iterator[Pod]:
        """The pods that are due, in order."""
        if len(self._positions) != len(self.state.pending):  # perhaps a record that was skipped
            self._sort_anew()
        pods = self.state.pods

        def due(uid: str) -> Pod | None:
            self.visited += 1
            return pods[uid] if is_due(pods[uid]) else None

        return self._line.in_turns(due)

    def offered(self, uids: Iterable[str]) -> None:
        """A batch had these pods, in this order: their namespaces had their turn."""
        for uid in uids:
            if uid in self._positions:
                self._line.had_its_turn(self._positions[uid][1])

    def _look(self, uid: str) -> None:
        """Take note of a pod as the log shows it now."""
        key = order_key(self.state.pods[uid]) if uid in self.state.pending else None
        known, old = self._positions.get(uid, (None, None))
        if known == key:
            return
        new = None if key is None else self._position(key)
        if key is None or new is None:
            del self._positions[uid]
        else:
            self._positions[uid] = key, new
        self._line.replace(old, new)

    def _sort_anew(self) -> None:
        pods = self.state.pods
        keys = sorted(order_key(pods[uid]) for uid in self.state.pending)
        self._positions = {key[-1]: (key, self._position(key)) for key in keys}
        self._line = Line()
        for _, position in self._positions.values():
            self._line.add(position)

    def _position(self, key: OrderKey) -> Position:
        level, _, namespace, _, uid = key
        if self.state.turns is None:
            namespace = ""
        return Position(((level,),), namespace, Entry(key[1:], uid))
