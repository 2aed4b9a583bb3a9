"""Changed copies of nodes over those of a state: what is tried before it is decided."""

from collections.abc import Iterator
from functools import partial

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.queues.statement import Statement


class Overlay:
    """The state's nodes as they would be after what was tried. The state itself does not change.

    A node is copied when it is first changed after a checkpoint of the statement, and a rollback
    restores the earlier copy. So get the node from `change` before each change.
    """

    def __init__(self, state: ClusterState, statement: Statement) -> None:
        self.state = state
        self._statement = statement
        self._copies: dict[str, Node] = {}
        self._made_in: dict[str, int] = {}
        """By node, the statement's stretch in which its copy was made."""

    def node(self, name: str) -> Node | None:
        return self._copies.get(name) or self.state.nodes.get(name)

    def nodes(self) -> list[Node]:
        """All nodes, with what was tried."""
        found = (self._copies.get(name, node) for name, node in self.state.nodes.items())
        return [node for node in found if node.fact is not None]

    def changed(self) -> Iterator[Node]:
        """The copies that were made."""
        return iter(self._copies.values())

    def change(self, name: str) -> Node:
        """A copy of a node of the state, to be changed now."""
        if self._made_in.get(name) == self._statement.stretch:
            return self._copies[name]
        node = (self._copies.get(name) or self.state.nodes[name]).fork()
        self.put(node)
        return node

    def put(self, node: Node) -> None:
        """Replace the node of that name by this copy, already changed."""
        self._statement.did(partial(self._put_back, node.name, self._copies.get(node.name)))
        self._copies[node.name] = node
        self._made_in[node.name] = self._statement.stretch

    def _put_back(self, name: str, before: Node | None) -> None:
        if before is None:
            del self._copies[name]
        else:
            self._copies[name] = before
