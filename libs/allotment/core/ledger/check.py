"""The books, recomputed from nothing: run after every test, every simulated step, and sampled."""

from collections.abc import Iterator

from allotment.core.ledger import ledger
from allotment.core.ledger.model import RESERVED, ClusterState, Node

_FREE = (
    "cpu_milli_free",
    "memory_bytes_free",
    "pods_free",
    "extended_free",
    "unrequested_milli",
    "unrequested_bytes",
    "attached",
    "backlog",
    "spaces",
)


def check(state: ClusterState) -> list[str]:
    """Every contradiction in the state, in words; an empty list is the only good answer."""
    nodes = state.nodes.values()
    books = (wrong for node in nodes for wrong in check_node(state, node))
    return [*_allocations(state), *_groups(state), *books]


def oversold(state: ClusterState) -> list[str]:
    """Cards that owe more than they have: they shrank, or another scheduler overbooked them."""
    return [
        f"{node.name}/{card.fact.id}"
        for node in sorted(state.nodes.values(), key=lambda n: n.name)
        for books in node.ledgers.values()
        for card in books.cards
        if card.oversold
    ]


def _allocations(state: ClusterState) -> Iterator[str]:
    for uid, pod in state.pods.items():
        allocation = pod.allocation
        if allocation is None:
            continue
        node = state.nodes.get(allocation.node)
        if node is None or node.allocations.get(uid) is not allocation:
            yield f"pod {uid} holds something on {allocation.node}, which has no record of it"


def _groups(state: ClusterState) -> Iterator[str]:
    short = {key for key, group in state.groups.items() if group.short is not None}
    for key in sorted(short ^ state.short.keys()):
        yield f"group {key}: the list of short groups disagrees with what was said of it"
    unseen = {key for key, group in state.groups.items() if group.fact is None}
    for key in sorted(unseen ^ state.unseen.keys()):
        yield f"group {key}: the list of unseen groups disagrees with what was seen of it"


def check_node(state: ClusterState, node: Node) -> Iterator[str]:
    """What is wrong with one node: its place, whom it books, and what it says is free."""
    if state.rows[node.row] is not node:
        yield f"node {node.name} is not in its row {node.row}"
    for uid, allocation in node.allocations.items():
        known = state.pods.get(uid)
        if known is None or known.allocation is not allocation:
            yield f"node {node.name} books an allocation that pod {uid} does not have"
        if uid in state.pending:
            yield f"pod {uid} is pending and holds something on {allocation.node}"
        if (uid in state.reserved) != (allocation.phase == RESERVED):
            yield f"pod {uid} is {allocation.phase}, but the list of reserved pods disagrees"
    for family, books in node.ledgers.items():
        yield from ledger.check(books, f"{node.name}/{family}")
        if books.blocked != node.blocked:
            yield f"{node.name}/{family}: is blocked by {books.blocked}, its node by {node.blocked}"
    unreadable = {uid for uid, allocation in node.allocations.items() if allocation.closes_node}
    if unreadable != node.broken:
        yield f"node {node.name}: {sorted(unreadable ^ node.broken)} are wrongly in quarantine"
    fresh = Node(node.name, node.row)
    fresh.allocations = dict(node.allocations)
    fresh.rebuild(node.fact)
    for name in _FREE:
        booked, wanted = getattr(node, name), getattr(fresh, name)
        if booked != wanted:
            yield f"node {node.name}: {name} is booked as {booked}, holders leave {wanted}"
    for family, books in fresh.ledgers.items():
        for card, twin in zip(node.ledgers[family].cards, books.cards, strict=True):
            if card.holders != twin.holders:
                yield f"{node.name}/{card.fact.id}: holders differ from the allocations"
