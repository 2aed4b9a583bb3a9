"""Which reserved pods may be bound now: pure.

A node's device plugin learns only *how many* devices kubelet wants, and picks the oldest pod of the
node with that number. Two pods of a node with equal numbers and different cards could therefore be
served each other's cards. So a pod waits while another one of its node, with the same number of
devices but another assignment, was bound and is not acknowledged yet (`bind-phase`, or it runs).
"""

from collections.abc import Collection

from allotment.core.state import Allocation, ClusterState, Pod
from allotment_proto.volcano import keys, vgpu


def is_acknowledged(pod: Pod) -> bool:
    """Whether the device plugin is through with a pod that was bound."""
    fact = pod.fact
    return bool(fact.node) and (
        fact.bind_phase in (keys.PHASE_SUCCESS, keys.PHASE_FAILED) or fact.phase != "Pending"
    )


def bindable(state: ClusterState, in_flight: Collection[str]) -> list[Allocation]:
    """Reserved pods whose Binding may be sent now, oldest decision first.

    `in_flight` are pods whose Binding is under way.
    """
    out: list[Allocation] = []
    busy: dict[str, dict[int, str]] = {}
    waiting = [uid for uid in state.reserved if uid not in in_flight]
    allocations = [a for uid in waiting if (a := state.pods[uid].allocation) is not None]
    for allocation in sorted(allocations, key=lambda a: (a.seq, a.stamp_s, a.uid)):
        count = device_count(allocation)
        if count:
            taken = busy.get(allocation.node)
            if taken is None:
                taken = busy[allocation.node] = _unacknowledged(state, allocation.node, in_flight)
            mine = assignment(allocation)
            if taken.setdefault(count, mine) != mine:
                continue
        out.append(allocation)
    return out


def device_count(allocation: Allocation) -> int:
    """How many vGPU devices the device plugin will be asked for; 0 if it is not involved."""
    return sum(h.family == vgpu.FAMILY for h in allocation.holdings)


def assignment(allocation: Allocation) -> str:
    return vgpu.encode_assignment(tuple(h for h in allocation.holdings if h.family == vgpu.FAMILY))


def _unacknowledged(
    state: ClusterState, node_name: str, in_flight: Collection[str]
) -> dict[int, str]:
    """Per device count, the assignment that the node's plugin still has to serve."""
    taken: dict[int, str] = {}
    for uid, allocation in state.nodes[node_name].allocations.items():
        count = device_count(allocation)
        if not count or is_acknowledged(state.pods[uid]):
            continue
        if uid in in_flight or uid not in state.reserved:
            taken[count] = assignment(allocation)
    return taken
