"""`card_gauges`, written down node by node, and again only where something changed.

A cluster of a thousand nodes has eighty thousand rows about cards. Making them all for each scrape
took a scorer longer than a hundred decisions; between two scrapes few nodes change.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from allotment.core.ledger.model import ClusterState
from allotment.core.metrics.cards import Gauge, gauges_on, largest_free, largest_gauge
from allotment_proto.device_config import DeviceConfig

_Text = TypeVar("_Text")


class _Written(NamedTuple, Generic[_Text]):
    """What is known of one node: the text of each gauge, and `largest_free` on it."""

    texts: tuple[_Text, ...]
    largest: dict[str, int]


class KeptCards(Generic[_Text]):
    """All gauges about cards as text, as `write` writes the rows of one gauge on one node.

    Ask for `changed`, let each of these nodes be looked at (`look_at`), then read the `pages`. The
    state may change in between: each node is as it was when it was looked at.
    """

    def __init__(self, state: Callable[[], ClusterState], write: Callable[[Gauge], _Text]) -> None:
        self._state_now = state
        self._write = write
        self._state: ClusterState | None = None
        self._cursor = self._forgotten = 0
        self._read_with: tuple[bool, DeviceConfig] | None = None
        self._written: dict[str, _Written[_Text]] = {}
        self._stale: dict[str, None] = {}
        self.looked_at = 0
        """How many nodes were looked at: the work done, for tests and benches."""

    def known(self) -> list[Gauge]:
        """All gauges, without rows."""
        return [*gauges_on(ClusterState(), ()), largest_gauge({})]

    def changed(self) -> list[str]:
        """The nodes whose rows may be others than those that are written down."""
        state = self._state_now()
        read_with = state.policy.namespace_in_metrics, state.devices
        if state is not self._state or read_with != self._read_with:
            self._state, self._read_with = state, read_with
            self._cursor = -1
        changes = state.trails.nodes.since(self._cursor)
        if changes is None:
            self._stale = dict.fromkeys(state.nodes)
            self._forgotten = -1
        else:
            for row, _, _ in changes:
                node = state.rows[row]
                if node is not None:
                    self._stale[node.name] = None
        self._cursor = state.trails.nodes.end
        if state.forgotten != self._forgotten:
            self._forgotten = state.forgotten
            for gone in [name for name in self._written if name not in state.nodes]:
                del self._written[gone]
        return list(self._stale)

    def look_at(self, name: str) -> None:
        """Write down a node as it is now."""
        state = self._state_now()
        if state is not self._state:
            return  # all of it is to be looked at again
        node = state.nodes.get(name)
        if node is None or not node.ledgers:
            self._written.pop(name, None)
        else:
            self.looked_at += 1
            texts = tuple(map(self._write, gauges_on(state, (node,))))
            self._written[name] = _Written(texts, largest_free(state, (node,)))
        self._stale.pop(name, None)

    def pages(self) -> Iterator[tuple[Gauge, list[_Text]]]:
        """Each gauge without its rows, and the text of these: node by node, in name order.

        What has no rows of single nodes is written as it is now.
        """
        state = self._state_now()
        found = [self._written[name] for name in sorted(state.nodes) if name in self._written]
        *of_nodes, largest = self.known()
        for number, gauge in enumerate(of_nodes):
            yield gauge, [written.texts[number] for written in found]
        most: dict[str, int] = {}
        for written in found:
            for model, free in written.largest.items():
                if free > most.get(model, -1):
                    most[model] = free
        yield largest, [self._write(largest_gauge(most))]
