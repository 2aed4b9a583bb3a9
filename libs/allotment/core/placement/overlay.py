"""Nodes of a state with changed copies laid over them: what is tried before it is decided."""

from allotment.core.ledger.model import ClusterState, Node


class Overlay:
    """The state's nodes, as they would be after what was tried. The state itself stays as it is.

    A node is copied when it is changed for the first time, and again when it is changed for the
    first time after a mark: so `undo` only puts earlier copies back. Whoever changes a node takes
    it from `change` each time; a node that was taken before a mark is not changed any more.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._copies: dict[str, Node] = {}
        self._replaced: list[tuple[str, Node | None]] = []
        """In order, the copies that others took the place of; None for the state's own node."""
        self._open: set[str] = set()
        """Nodes that were copied since the last mark."""

    def node(self, name: str) -> Node | None:
        return self._copies.get(name) or self.state.nodes.get(name)

    def nodes(self) -> list[Node]:
        """All nodes that are there, with what was tried."""
        found = (self._copies.get(name, node) for name, node in self.state.nodes.items())
        return [node for node in found if node.fact is not None]

    def change(self, name: str) -> Node:
        """A copy of a node of the state, to be changed now."""
        if name in self._open:
            return self._copies[name]
        node = (self._copies.get(name) or self.state.nodes[name]).fork()
        self.put(node)
        return node

    def put(self, node: Node) -> None:
        """Lay this copy, already changed, over the node of its name."""
        self._replaced.append((node.name, self._copies.get(node.name)))
        self._copies[node.name] = node
        self._open.add(node.name)

    def mark(self) -> int:
        """The nodes as they are now, for `undo`. Marks are undone from the last on."""
        self._open.clear()
        return len(self._replaced)

    def undo(self, mark: int) -> None:
        """Forget all that was tried since the mark."""
        while len(self._replaced) > mark:
            name, before = self._replaced.pop()
            if before is None:
                del self._copies[name]
            else:
                self._copies[name] = before
        self._open.clear()
