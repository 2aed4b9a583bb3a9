"""The state once more as NumPy columns: one position a node, in name order, one slot a card.

A projection for speed; the ledgers stay the books. It follows the state's list of changes: an
allocation changes its cards and its host's amounts, anything else writes the node's position again.
Amounts are *free* amounts, so that every rule is `free >= need`. Cards that are alike in everything
but their use share a *kind*; a request's needs are looked up by kind. `column_arrays` says what the
arrays hold.

A node that joins rebuilds all positions (they are in name order, so that the first of equals is
the one at the lowest position); one that changes or leaves touches its own position only.
"""

from collections.abc import Iterable

from allotment.core.ledger.model import Change, ClusterState, Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.rules.card_book import taken_by
from allotment_board.arrays import MISSING, Arrays
from allotment_board.cards import cards_of
from allotment_board.loop_parts import (
    CPU,
    EXTENDED,
    FOR_SHARES,
    FOR_WHOLE,
    HOST_MEMORY,
    HOST_SUM,
    PLUGIN,
)
from allotment_board.packing import Bools, amount
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import Holding


class Columns(Arrays):
    """The arrays, and which positions changed. `epoch` counts rebuilds: positions moved."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self.epoch = 0
        self._position: dict[str, int] = {}
        self._order = ""
        self._forgotten = 0
        self._cursor = -1

    def refresh(self, order: str) -> None:
        """Take over everything that changed in the state since the last call.

        `order` is the device policy's, for families that leave it to the policy.
        """
        trail = self.state.trails.nodes
        if self._order != order:
            self._order, self._cursor = order, -1
        if self._cursor == trail.end:
            return
        changes = trail.since(self._cursor)
        self._cursor = trail.end
        if changes is None or not self._follow(changes):
            self._rebuild(order)

    def position(self, name: str) -> int | None:
        """The position of a node; None for one that has none."""
        return self._position.get(name)

    def positions(self, names: Iterable[str]) -> list[int]:
        """The positions of those nodes that were ever seen."""
        return [self._position[name] for name in names if name in self._position]

    def node(self, position: int) -> Node:
        """The state's node at a position that is present."""
        return self.state.nodes[self.names[position]]

    def book(self, placement: Placement, sign: int) -> None:
        """Charge (`sign` 1) what a placement takes, or give it back (−1), on top of the state.

        The placement fits: no amount leaves its field's range.
        """
        position = self._position[placement.node]
        slots, depth, shift = self.slots[position], self.depth, self.layout.amount_shift
        base, packed, keys = position * depth, self._packed, self.keys_view
        for held in placement.holdings:
            slot = slots.get((held.family, held.card))
            if slot is None:
                continue
            at, memory_mib = base + slot, held.memory_mib
            if at in self.pieces_held:
                memory_mib = self._book_piece(at, held, sign)
            packed[at] -= sign * amount(memory_mib, held.cores_pct)
            if held.family in self._by_use:
                keys[at] += sign * memory_mib << shift
            elif held.family in self._by_holders:
                keys[at] -= sign << shift
        pod = self.state.pods.get(placement.uid)
        if pod is not None and pod.fact.tags and placement.holdings:
            self._book_tags(position, placement, pod.fact.tags, sign)
        host, at = self._host, position * self._host_width
        host[at] -= sign
        if placement.holdings:
            host[at + PLUGIN] -= sign
        host[at + CPU] -= sign * placement.cpu_milli
        host[at + HOST_MEMORY] -= sign * placement.memory_bytes
        host[at + HOST_SUM] = self._shares(position, host[at + CPU], host[at + HOST_MEMORY])
        fact = self.facts[position]
        if fact is not None and fact.listed_twice:
            taken = taken_by(fact, placement)
            host[at + FOR_SHARES] -= sign * taken.for_whole
            host[at + FOR_WHOLE] -= sign * taken.for_shares
        if pod is not None:
            self._book_pod(position, pod.fact, sign)
        for name, charge in placement.extended:
            known = self._resources.get(name)
            if known is not None and host[at + known] != MISSING:
                host[at + known] -= sign * charge
        self.touch(position)

    def tagged_cards(self, tags: tuple[str, ...]) -> Bools | None:
        """Which cards (N, D) have a holder with one of the tags; None if there are none."""
        return self._tags.mask(tags, (len(self), self.depth))

    def _book_piece(self, at: int, held: Holding, sign: int) -> int:
        """Note a piece that is taken or given back; gives the memory that it is charged."""
        number = self.keys_view[at] & self.layout.kind_mask
        kind, pieces = self.kinds[number], self.pieces_held[at]
        partitioner, fact = self.card_kinds.partitioners[number]
        assert partitioner is not None
        if sign > 0:
            pieces.append(held.instance)
        else:
            pieces.remove(held.instance)
        state = partitioner.state(fact, kind.table, pieces)
        self.keys_view[at] += self.card_kinds.in_state(number, state) - number
        return partitioner.charged_mib(kind.table, held.instance, held.memory_mib)

    def _book_pod(self, position: int, fact: PodObserved, sign: int) -> None:
        self.crowd.assume(position, fact, sign)
        cpu_milli, memory_bytes = fact.request.unrequested
        if cpu_milli or memory_bytes:
            self.unrequested[:, position] += (sign * cpu_milli, sign * memory_bytes)
            self.has_unsaid = True

    def _book_tags(
        self, position: int, placement: Placement, tags: tuple[str, ...], sign: int
    ) -> None:
        slots, ledgers = self.slots[position], self.node(position).ledgers
        for held in placement.holdings:
            slot = slots.get((held.family, held.card))
            if slot is not None:
                for tag in ledgers[held.family].counted(tags, held):
                    self._tags.count(tag, position * self.depth + slot, sign)

    # ---- following the state

    def _follow(self, recent: list[Change]) -> bool:
        """Take over changes one by one; False if positions must be rebuilt."""
        rows, positions, crowd = self.state.rows, self._position, self.crowd
        written: set[int] = set()
        counts = crowd.counts
        if self._forgotten != self.state.forgotten:
            self._forgotten = self.state.forgotten
            self._drop_absent()
        for row, allocation, sign in recent:
            node = rows[row]
            if node is None:
                continue
            if allocation is None:
                if row not in written:
                    written.add(row)
                    if not self._take_over(node):
                        return False
                    crowd.recount(positions.get(node.name))
            elif node.fact is not None:
                position = positions.get(node.name)
                if position is None:
                    return False
                if self.facts[position] is not node.fact:
                    continue  # written again by a later change, with other cards perhaps
                if row not in written:
                    ledgers = node.ledgers
                    for held in allocation.holdings:
                        ledger = ledgers.get(held.family)
                        card = None if ledger is None else ledger.by_id.get(held.card)
                        if card is not None:
                            self._write_card(position, card)
                    self._write_host(position, node)
                    if counts and sign:
                        crowd.book(position, allocation.fact, sign)
                    self.touch(position)
        return True

    def _take_over(self, node: Node) -> bool:
        """Write one node again; False if it has no position, or not enough room at it."""
        position = self._position.get(node.name)
        if node.fact is None:
            if position is not None:
                self._remove(position)
            return True
        if position is None or not self._has_room(node) or not self._write(position, node):
            return False
        self.touch(position)
        return True

    def _drop_absent(self) -> None:
        """Some node was forgotten: mark every position whose node no longer exists."""
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
        self.crowd.relabel(position, None)
        self.crowd.recount(position)
        self._forget_pieces(position)
        self.refacted.append(position)
        self.host[position] = MISSING
        self.touch(position)

    def _has_room(self, node: Node) -> bool:
        assert node.fact is not None
        if sum(len(ledger.cards) for ledger in node.ledgers.values()) > self.depth:
            return False
        return all(name in self._resources for name, _ in node.fact.extended)

    def _rebuild(self, order: str) -> None:
        self._take_orders({name: family.order or order for name, family in FAMILIES.items()})
        nodes = sorted(
            (n for n in self.state.nodes.values() if n.fact is not None), key=lambda n: n.name
        )
        self._meet_kinds()
        self._resources = {}
        for node in nodes:
            assert node.fact is not None
            for name, _ in node.fact.extended:
                self._resources.setdefault(name, len(self._resources) + EXTENDED)
            for _, kind in cards_of(node):
                self.card_kinds.number(kind)
        depth = max((sum(len(x.cards) for x in n.ledgers.values()) for n in nodes), default=1)
        self._name([node.name for node in nodes])
        self._position = {name: position for position, name in enumerate(self.names)}
        self.epoch += 1
        self._allocate(max(depth, 1))
        for position, node in enumerate(nodes):
            self._write(position, node)
