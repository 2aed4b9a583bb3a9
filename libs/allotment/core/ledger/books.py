"""What events do to the books: nodes' rows, what pods hold, who waits. For `state.apply` only."""

from heapq import heappop, heappush

from allotment.core.ledger import groups as fold_groups
from allotment.core.ledger.model import RESERVED, Allocation, ClusterState, Node, Pod


def node_of(state: ClusterState, name: str) -> Node:
    """The node of that name, in the lowest vacant row if it is new."""
    node = state.nodes.get(name)
    if node is None:
        row = heappop(state.vacant) if state.vacant else len(state.rows)
        node = state.nodes[name] = Node(name, row)
        state.rows[row : row + 1] = [node]
    return node


def forget_if_empty(state: ClusterState, node: Node) -> None:
    """A node that is gone is known for as long as pods hold something on it."""
    if node.fact is None and not node.allocations:
        del state.nodes[node.name]
        state.rows[node.row] = None
        heappush(state.vacant, node.row)
        state.forgotten += 1


def charge(state: ClusterState, pod: Pod, allocation: Allocation) -> None:
    """Book what a pod holds, on its node."""
    node = node_of(state, allocation.node)
    pod.allocation = allocation
    if allocation.phase == RESERVED:
        state.reserved[allocation.uid] = None
    if allocation.volumes:
        state.local[allocation.uid] = None
    note_single(state, pod)
    node.charge(allocation)
    if state.followers:
        state.room_seq = state.seq
    state.touch(node, allocation, 1)
    if allocation.broken:
        state.touch(node)


def release(state: ClusterState, pod: Pod, seq: int) -> None:
    """Give back what a pod holds, if it holds anything."""
    allocation = pod.allocation
    if allocation is None:
        return
    node = state.nodes[allocation.node]
    node.release(allocation)
    pod.allocation = None
    fold_groups.changed(state, pod.fact, seq)
    state.reserved.pop(allocation.uid, None)
    state.singles.pop(allocation.uid, None)
    state.local.pop(allocation.uid, None)
    state.touch(node, allocation, -1)
    if allocation.broken:
        state.touch(node)
    state.room_seq = seq
    if node.fact is None:
        forget_if_empty(state, node)


def sort_in(state: ClusterState, pod: Pod) -> None:
    """Among those that wait, or not."""
    if pod.allocation is None and state.waits(pod.fact):
        state.pending.setdefault(pod.fact.uid)
    elif pod.allocation is None:
        wait_no_more(state, pod.fact.uid)
    else:
        state.pending.pop(pod.fact.uid, None)


def wait_no_more(state: ClusterState, uid: str) -> None:
    """A pod that got nothing no longer asks for anything, so its queue may deserve less."""
    if uid in state.pending:
        del state.pending[uid]
        state.order_seq = state.seq


def note_single(state: ClusterState, pod: Pod) -> None:
    """Among the pods without a group that hold something, or not."""
    if pod.allocation is not None and not pod.fact.group:
        state.singles[pod.fact.uid] = None
    else:
        state.singles.pop(pod.fact.uid, None)
