"""The state once more as NumPy columns: one position a node, in name order, one slot a card.

A projection for speed; the ledgers stay the books. It follows the state's list of changes: an
allocation is booked on its cards, anything else writes the node's position again. Amounts are
*free* amounts, so that every rule is `free >= need`. Cards that are alike in everything but their
use share a *kind*; a request's needs are looked up by kind.

    kind[N, D]        card kind, 0 where a node has no (more) card
    free[3, N, D]     free slots, memory (MiB), compute (%)
    keys[order][N, D] how much an order prefers a card: higher first, no two of a node equal
    host[R, N]        free pods, CPU (milli), memory (bytes), then every extended resource; MISSING
                      where the node does not list it
    host_size[2, N]   CPU and memory that the node has
    host_used[2, N]   how much of them is taken: what the free amounts in `host` leave
    host_divisor[2, N]  the sizes (CPU in milli, memory in KiB) to divide by: HUGE for none
    present[N]        False for nodes that are gone (their position is kept until the next rebuild)

A node that joins makes all positions anew (they are in name order, so that "the first of the best"
is an argmax); one that changes or leaves touches its own position only.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from allotment.core.scores import KIB_BITS
from allotment.core.state import Allocation, Change, ClusterState, Node
from allotment_proto.events import NodeObserved
from allotment_proto.facts import Amounts, Holding

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MISSING = -(1 << 62)
"""Less than any need: a resource that a node does not list, or a need that is not there."""
SLOTS, MEMORY, CORES = 0, 1, 2
PODS, CPU, HOST_MEMORY, EXTENDED = 0, 1, 2, 3
HUGE = 1 << 62
UNUSED = 1 << 30
"""The emptiest order's preference for a card without holders."""


class CardKind(NamedTuple):
    """What cards have in common that a request can ask about."""

    family: str
    mode: str
    model: str
    slots: int
    memory_mib: int
    cores_pct: int
    healthy: bool


NO_CARD = CardKind("", "", "", 0, 0, 0, False)


class Columns:
    """The arrays, and which positions changed. `epoch` counts rebuilds: positions moved."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.epoch = 0
        self.nodes = 0
        """How many positions are present."""
        self.changed: list[int] = []
        """Positions touched since the last rebuild, in order, with repetitions."""
        self.kinds: list[CardKind] = []
        self.names: list[str] = []
        self.facts: list[NodeObserved | None] = []
        self.slots: list[dict[tuple[str, str], int]] = []
        """Per position the slot of each card, by family and id."""
        self.card_ids: list[list[str]] = []
        """Per position the card in each slot."""
        self._kind_ids: dict[CardKind, int] = {}
        self._resources: dict[str, int] = {}
        self._position: dict[str, int] = {}
        self._cursor = -1
        self._kind_id(NO_CARD)
        self._allocate(0, 1)

    def __len__(self) -> int:
        return len(self.names)

    def refresh(self) -> None:
        """Take over everything that changed in the state since the last call."""
        state = self.state
        end = state.changes_dropped + len(state.changes)
        if self._cursor == end:
            return
        is_known = self._cursor >= state.changes_dropped
        recent = state.changes[self._cursor - state.changes_dropped :] if is_known else []
        self._cursor = end
        if not is_known or not self._follow(recent):
            self._rebuild()

    def position(self, name: str) -> int:
        """The position of a node. Raises KeyError for one that was never seen."""
        return self._position[name]

    def resource(self, name: str) -> int | None:
        """The host column of an extended resource; None if no node ever listed it."""
        return self._resources.get(name)

    def host_columns(self) -> int:
        return EXTENDED + len(self._resources)

    def node(self, position: int) -> Node:
        """The state's node at a position that is present."""
        return self.state.nodes[self.names[position]]

    def book(
        self,
        position: int,
        holdings: tuple[Holding, ...],
        host: tuple[int, int, int],
        extended: Amounts,
        sign: int,
    ) -> None:
        """Charge (`sign` 1) or give back (−1) cards and (pods, CPU, memory), as ledgers do."""
        free, slots, depth = self.free, self.slots[position], self.depth
        fullest, emptiest = self.keys["fullest"], self.keys["emptiest"]
        booked: set[tuple[str, int, str]] = set()
        for held in holdings:
            slot = slots.get((held.family, held.card))
            entry = (held.family, held.container, held.card)
            if slot is None or entry in booked:
                continue
            booked.add(entry)
            memory_mib = sign * held.memory_mib
            free[SLOTS, position, slot] -= sign
            free[MEMORY, position, slot] -= memory_mib
            free[CORES, position, slot] -= sign * held.cores_pct
            fullest[position, slot] += memory_mib * depth
            emptiest[position, slot] -= sign * depth
        column = self.host[:, position]
        column[PODS] -= sign * host[PODS]
        for resource in (CPU, HOST_MEMORY):
            if host[resource]:
                column[resource] -= sign * host[resource]
                self.host_used[resource - CPU, position] += sign * host[resource]
        for name, amount in extended:
            known = self._resources.get(name)
            if known is not None and column[known] != MISSING:
                column[known] -= sign * amount
        self.changed.append(position)

    def _follow(self, recent: list[Change]) -> bool:
        """Take over changes one by one; False if positions have to be made anew."""
        rows = self.state.rows
        written = {row for row, allocation, _ in recent if allocation is None}
        for row in written:
            if not self._take_over(rows[row]):
                return False
        for row, allocation, sign in recent:
            if allocation is None or row in written:
                continue
            node = rows[row]
            if node is None:
                self._drop_absent()
            elif node.fact is not None:
                self.book(self._position[node.name], *_amounts(allocation), sign)
        return True

    def _take_over(self, node: Node | None) -> bool:
        """Write one node again; False if it has no position, or not enough room at it."""
        if node is None:
            self._drop_absent()
            return True
        position = self._position.get(node.name)
        if node.fact is None:
            if position is not None:
                self._remove(position)
            return True
        if position is None or not self._has_room(node):
            return False
        self._write(position, node)
        self.changed.append(position)
        return True

    def _drop_absent(self) -> None:
        """Some row was emptied: mark every position whose node is not there any more."""
        for name, position in self._position.items():
            if self.present[position]:
                node = self.state.nodes.get(name)
                if node is None or node.fact is None:
                    self._remove(position)

    def _remove(self, position: int) -> None:
        if self.present[position]:
            self.present[position] = False
            self.nodes -= 1
        self.facts[position] = None
        self.changed.append(position)

    def _has_room(self, node: Node) -> bool:
        assert node.fact is not None
        if sum(len(ledger.cards) for ledger in node.ledgers.values()) > self.depth:
            return False
        return all(name in self._resources for name, _ in node.fact.extended)

    def _rebuild(self) -> None:
        nodes = sorted(
            (n for n in self.state.nodes.values() if n.fact is not None), key=lambda n: n.name
        )
        for node in nodes:
            assert node.fact is not None
            for name, _ in node.fact.extended:
                self._resources.setdefault(name, len(self._resources) + EXTENDED)
        depth = max((sum(len(x.cards) for x in n.ledgers.values()) for n in nodes), default=1)
        self.names = [node.name for node in nodes]
        self._position = {name: position for position, name in enumerate(self.names)}
        self.facts = [None] * len(nodes)
        self.slots = [{} for _ in nodes]
        self.card_ids = [[] for _ in nodes]
        self.changed.clear()
        self.epoch += 1
        self._allocate(len(nodes), max(depth, 1))
        for position, node in enumerate(nodes):
            self._write(position, node)

    def _allocate(self, nodes: int, cards: int) -> None:
        self.depth = cards
        self.nodes = 0
        self.kind = np.zeros((nodes, cards), np.int64)
        self.free = np.zeros((3, nodes, cards), np.int64)
        self.index = np.zeros((nodes, cards), np.int64)
        self.host = np.full((self.host_columns(), nodes), MISSING, np.int64)
        self.host_size = np.zeros((2, nodes), np.int64)
        self.host_used = np.zeros((2, nodes), np.int64)
        self.host_divisor = np.full((2, nodes), HUGE, np.int64)
        self.present = np.zeros(nodes, np.bool_)
        self._lower_first = np.arange(cards - 1, -1, -1)
        shape = (nodes, cards)
        self.keys: dict[str, Ints] = {
            "fullest": np.zeros(shape, np.int64),
            "emptiest": np.zeros(shape, np.int64),
            "first": np.broadcast_to(self._lower_first, shape),
            "last": np.broadcast_to(np.arange(cards), shape),
        }

    def _write(self, position: int, node: Node) -> None:
        fact = node.fact
        assert fact is not None
        if self.facts[position] is not fact:
            self._write_fact(position, node, fact)
        cards = [card for ledger in node.ledgers.values() for card in ledger.cards]
        if cards:
            self.free[:, position, : len(cards)] = [
                [card.free_slots for card in cards],
                [card.free_memory_mib for card in cards],
                [card.free_cores_pct for card in cards],
            ]
        used = [card.used_memory_mib for card in cards], [UNUSED - c.used_slots for c in cards]
        for order, amounts in zip(("fullest", "emptiest"), used, strict=True):
            key = self.keys[order][position]
            key[:] = self._lower_first
            key[: len(cards)] += np.array(amounts, np.int64) * self.depth
        host = self.host[:, position]
        host[:EXTENDED] = (node.pods_free, node.cpu_milli_free, node.memory_bytes_free)
        self.host_used[:, position] = self.host_size[:, position] - host[CPU:EXTENDED]
        for name, amount in node.extended_free.items():
            host[self._resources[name]] = amount

    def _write_fact(self, position: int, node: Node, fact: NodeObserved) -> None:
        self.facts[position] = fact
        if not self.present[position]:
            self.present[position] = True
            self.nodes += 1
        self.kind[position] = 0
        self.free[:, position] = 0
        self.host[:, position] = MISSING
        self.host_size[:, position] = (fact.cpu_milli, fact.memory_bytes)
        self.host_divisor[:, position] = (
            fact.cpu_milli or HUGE,
            fact.memory_bytes >> KIB_BITS or HUGE,
        )
        slots: dict[tuple[str, str], int] = {}
        for family, ledger in node.ledgers.items():
            for card in (card.fact for card in ledger.cards):
                slot = len(slots)
                self.kind[position, slot] = self._kind_id(
                    CardKind(
                        family,
                        ledger.mode,
                        card.model,
                        card.slots,
                        card.memory_mib,
                        card.cores_pct,
                        card.healthy,
                    )
                )
                self.index[position, slot] = card.index
                slots[family, card.id] = slot
        self.slots[position] = slots
        self.card_ids[position] = [card for _, card in slots]

    def _kind_id(self, kind: CardKind) -> int:
        known = self._kind_ids.get(kind)
        if known is None:
            known = self._kind_ids[kind] = len(self.kinds)
            self.kinds.append(kind)
            self.kind_sizes = _by_kind(k.memory_mib for k in self.kinds)
            self.kind_divisors = _by_kind(max(k.memory_mib, 1) for k in self.kinds)
            self.kind_slots = _by_kind(k.slots for k in self.kinds)
        return known


def _by_kind(amounts: Iterable[int]) -> Ints:
    return np.fromiter(amounts, np.int64)


def _amounts(
    allocation: Allocation,
) -> tuple[tuple[Holding, ...], tuple[int, int, int], Amounts]:
    host = (1, allocation.cpu_milli, allocation.memory_bytes)
    return allocation.holdings, host, allocation.extended
