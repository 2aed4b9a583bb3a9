"""The arrays of `columns`, and how one node is written into them.

    packed[N, D]    free slots, memory and compute of each card in one integer (`packing`)
    keys[N, D]      in which order the cards are tried, higher first; see `Keys`
    host[N, R]      free pods, CPU (milli), memory (bytes), at least 0; minus the pods that device
                    plugins have still to serve, so that less is busier; the shares in use as
                    `points.host_sum`; what there is for shares of cards and for whole ones; what
                    a milli-CPU and a KiB add to the shares in use; then free amounts
                    of every extended resource, MISSING where the node does not list one. Nothing
                    is free on absent nodes
    sizes[S, 4, N]  of CPU, memory and every extended resource: how much there is; the same in the
                    unit that `points.near_share_micro` counts in (at least 1), half of that, and
                    the bits between the two
    unrequested[2, N] CPU (milli) and memory (bytes) that scores add to what is in use
    present[N]      False for nodes that are gone (their position is kept until the next rebuild)

Arrays are written through flat memory views, which take a Python integer at a quarter of NumPy's
price.
"""

from struct import Struct

import numpy as np

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.rules.card_book import spare_of
from allotment.core.placement.rules.points import HOST_HALF, KIB_BITS, coarse_bits, host_weight
from allotment_board.cards import Keys, Kinds, Tags, cards_of
from allotment_board.loop_parts import (
    CPU_WEIGHT,
    EXTENDED,
    HOST_SUM,
    KIB_WEIGHT,
    SIZE_CPU,
    SIZE_EXTENDED,
    SIZE_MEMORY,
)
from allotment_board.packing import HOLDERS_MOST, NOTHING, USED_MOST, Ints, pack_free
from allotment_board.tallies import Crowd
from allotment_proto.events import NodeObserved

MISSING = -(1 << 62)
"""Less than any need: a resource that a node does not list, or a need that is not there."""
_OVERSOLD = -(1 << 61)
"""Nothing is less free than this, however much others took beyond what there is."""
HUGE = 1 << 62
_HOST_IN_USE = Struct("=7q")
"""The first seven columns of a host: all that an allocation changes on most."""
_ITEM_BYTES = 8
_TOUCHES_MAX = 1 << 17
USE_ORDERS = ("fullest", "preferred")
"""Orders whose keys hold the memory in use."""


class Arrays:
    """One position a node, one slot a card; who calls decides which node is at which position."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.nodes = 0
        """How many positions are present."""
        self.touched = 0
        """How many times a position was touched since the last rebuild; see `since`."""
        self.refacted: list[int] = []
        """Positions whose fact is another one, since the last rebuild."""
        self._resources: dict[str, int] = {}
        self._orders: dict[str, str] = {}
        self._by_use: frozenset[str] = frozenset()
        self._by_holders: frozenset[str] = frozenset()
        """Families by what the amount of their cards' keys counts: of others nothing."""
        self._touches: Ints = np.zeros(0, np.int64)
        """The last touches in order, the first of them being number `_touches_dropped`."""
        self._touches_dropped = 0
        self._meet_kinds()
        self._name([])
        self._allocate(1)

    def __len__(self) -> int:
        return len(self.names)

    def resource(self, name: str) -> int | None:
        """The host column of an extended resource; None if no node ever listed it."""
        return self._resources.get(name)

    def host_columns(self) -> int:
        return EXTENDED + len(self._resources)

    def order(self, family: str) -> str:
        """The order in which cards of a family are tried under the state's policy. No request is
        for those of a family that this release does not know.
        """
        return self._orders.get(family, "first")

    def _take_orders(self, orders: dict[str, str]) -> None:
        """From now on the cards of these families are tried in these orders."""
        self._orders = orders
        self._by_use = frozenset(f for f, order in orders.items() if order in USE_ORDERS)
        self._by_holders = frozenset(f for f, order in orders.items() if order == "emptiest")

    def host_sum_with(self, position: int, cpu_milli: int, memory_kib: int) -> int:
        """`points.host_sum` of a host with this much more in use."""
        host, at = self._host, position * self._host_width
        return (
            host[at + HOST_SUM]
            + cpu_milli * host[at + CPU_WEIGHT]
            + memory_kib * host[at + KIB_WEIGHT]
        )

    def touch(self, position: int) -> None:
        """Note that a position changed."""
        at = self.touched - self._touches_dropped
        if at == _TOUCHES_MAX:
            at //= 2
            self._touches[:at] = self._touches[at:]
            self._touches_dropped += at
        self._touched_view[at] = position
        self.touched += 1

    def since(self, cursor: int) -> Ints:
        """The positions touched since `touched` was `cursor`, with repetitions; all positions if
        that is longer ago than is remembered, or not more work.
        """
        dropped, nodes = self._touches_dropped, len(self.names)
        if cursor < dropped or self.touched - cursor >= nodes:
            return np.arange(nodes)
        return self._touches[cursor - dropped : self.touched - dropped]

    def _meet_kinds(self) -> None:
        self.card_kinds = Kinds()
        self.kinds = self.card_kinds.known

    def _name(self, names: list[str]) -> None:
        """Give each of these nodes a position, at which nothing is known yet."""
        self.names = names
        self.facts: list[NodeObserved | None] = [None] * len(names)
        self.slots: list[dict[tuple[str, str], int]] = [{} for _ in names]
        """Per position the slot of each card, by family and id."""
        self.card_ids: list[list[str]] = [[] for _ in names]
        """Per position the card in each slot."""
        self.pieces_held: dict[int, list[str]] = {}
        """The pieces held of each partitioned card, by its place in the flattened arrays."""
        self.crowd = Crowd(self.state, names)
        """What rules about other pods count."""
        self._tags = Tags()
        self._blocked: list[str | None] = [None] * len(names)
        self._in_use: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * len(names)
        """Per position what the shares are made from: their sum if all CPU is in use and no memory,
        what a milli-CPU adds, how much memory (bytes) there is, and what a KiB adds."""

    def _allocate(self, cards: int) -> None:
        """Rebuild all arrays for the nodes that have a name and so many cards each."""
        nodes = len(self.names)
        self.depth = cards
        self.nodes = 0
        kind_bits, place_bits = (2 * len(self.kinds)).bit_length(), max((cards - 1).bit_length(), 1)
        self.layout = Keys(
            kind_bits=kind_bits,
            place_bits=place_bits,
            amount_shift=kind_bits + place_bits,
            kind_mask=(1 << kind_bits) - 1,
        )
        self.kind_mask = np.array(self.layout.kind_mask)
        self.amount_shift = np.array(self.layout.amount_shift)
        self.packed = np.full((nodes, cards), NOTHING, np.int64)
        self.keys = np.zeros((nodes, cards), np.int64)
        self.index = np.zeros((nodes, cards), np.int64)
        self.network = np.full((nodes, cards), -1, np.int64)
        self._host_width = self.host_columns()
        self.host = np.full((nodes, self._host_width), MISSING, np.int64)
        self.sizes = np.zeros((self._host_width - EXTENDED + 2, 4, nodes), np.int64)
        self.unrequested = np.zeros((2, nodes), np.int64)
        self.has_unsaid = False
        """Whether any of it was ever above 0."""
        self.present = np.zeros(nodes, np.bool_)
        self._touches = np.zeros(_TOUCHES_MAX, np.int64)
        self._touches_dropped = self.touched = 0
        self.refacted.clear()
        self._touched_view = self._touches.data
        self._packed = self.packed.reshape(-1).data
        self.keys_view = self.keys.reshape(-1).data
        self._host = self.host.reshape(-1).data
        self._host_bytes = self.host.reshape(-1).view(np.uint8).data
        self._amount_shift = self.layout.amount_shift
        self._below_amount = (1 << self._amount_shift) - 1

    def _write(self, position: int, node: Node) -> bool:
        """Write one node; False if a kind is new and there is no bit left for it."""
        fact = node.fact
        assert fact is not None
        if self.facts[position] is not fact or self._blocked[position] != node.blocked:
            self._write_fact(position, node, fact)
        for ledger in node.ledgers.values():
            for card in ledger.cards:
                self._write_card(position, card)
        self._write_host(position, node)
        return len(self.kinds) < self.layout.kinds_most

    def _write_card(self, position: int, card: Card) -> None:
        at, size = position * self.depth + card.slot, card.fact
        free_mib, holders = card.free_memory_mib, size.slots - card.free_slots
        if card.partitioner is not None:
            self.pieces_held[at] = card.held
            number = self.keys_view[at] & self.layout.kind_mask
            self.keys_view[at] += self.card_kinds.in_state(number, card.state) - number
        if card.tags or self._tags.written:
            self._tags.write(at, card.tags)
        self._packed[at] = pack_free(holders, free_mib, card.free_cores_pct)
        if card.family in self._by_use:
            amount_used = size.memory_mib - free_mib
            if amount_used > USED_MOST:
                amount_used = USED_MOST
        elif card.family in self._by_holders:
            amount_used = max(HOLDERS_MOST - holders, 0)
        else:
            return
        keys = self.keys_view
        keys[at] = amount_used << self._amount_shift | keys[at] & self._below_amount

    def _write_host(self, position: int, node: Node) -> None:
        at = position * self._host_width
        cpu_milli, memory_bytes = node.cpu_milli_free, node.memory_bytes_free
        if cpu_milli < 0 or memory_bytes < 0:
            cpu_milli, memory_bytes = max(cpu_milli, 0), max(memory_bytes, 0)
        _HOST_IN_USE.pack_into(
            self._host_bytes,
            _ITEM_BYTES * at,
            node.pods_free,
            cpu_milli,
            memory_bytes,
            -node.backlog,
            self._shares(position, cpu_milli, memory_bytes),
            *spare_of(node),
        )
        if self.has_unsaid or node.unrequested_milli or node.unrequested_bytes:
            self.unrequested[:, position] = node.unrequested_milli, node.unrequested_bytes
            self.has_unsaid = True
        if node.extended_free:
            for name, free in node.extended_free.items():
                self._host[at + self._resources[name]] = free if free > _OVERSOLD else _OVERSOLD

    def _shares(self, position: int, cpu_milli: int, memory_bytes: int) -> int:
        """`points.host_sum` of what is in use, from what is free."""
        of_all_cpu, of_cpu, all_bytes, of_kib = self._in_use[position]
        return of_all_cpu - cpu_milli * of_cpu + (all_bytes - memory_bytes >> KIB_BITS) * of_kib

    def _write_fact(self, position: int, node: Node, fact: NodeObserved) -> None:
        self.facts[position] = fact
        self._blocked[position] = node.blocked
        self.crowd.relabel(position, node.labels)
        self.refacted.append(position)
        if not self.present[position]:
            self.present[position] = True
            self.nodes += 1
        self._forget_pieces(position)
        self.packed[position] = NOTHING
        self.keys[position] = 0
        self.host[position] = MISSING
        of_cpu, of_kib = host_weight(fact.cpu_milli), host_weight(fact.memory_bytes >> KIB_BITS)
        of_all_cpu = HOST_HALF + fact.cpu_milli * of_cpu
        self._in_use[position] = of_all_cpu, of_cpu, fact.memory_bytes, of_kib
        self.host[position, CPU_WEIGHT : KIB_WEIGHT + 1] = of_cpu, of_kib
        self._write_sizes(position, fact)
        slots: dict[tuple[str, str], int] = {}
        for card, kind in cards_of(node):
            slot, family = card.slot, card.family
            place = slot if self.order(family) == "last" else self.depth - 1 - slot
            self.keys[position, slot] = place << self.layout.kind_bits | self.card_kinds.number(
                kind
            )
            self.index[position, slot] = card.fact.index
            self.network[position, slot] = card.fact.network
            slots[family, card.fact.id] = slot
        self.slots[position] = slots
        self.card_ids[position] = [card.fact.id for card, _ in cards_of(node)]

    def _write_sizes(self, position: int, fact: NodeObserved) -> None:
        sizes = self.sizes[:, :, position]
        sizes[:] = 0, 1, 0, 0
        listed = [(SIZE_CPU, fact.cpu_milli), (SIZE_MEMORY, fact.memory_bytes)]
        listed += [(self._resources[name] + SIZE_EXTENDED, size) for name, size in fact.extended]
        for column, size in listed:
            bits = coarse_bits(size)
            scaled = max(size >> bits, 1)
            sizes[column] = size, scaled, scaled >> 1, bits

    def _forget_pieces(self, position: int) -> None:
        """Forget what was known of single cards of a node."""
        first = position * self.depth
        for at in range(first, first + len(self.card_ids[position])):
            self.pieces_held.pop(at, None)
            self._tags.write(at, {})
