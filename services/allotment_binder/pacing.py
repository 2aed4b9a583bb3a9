"""Which reserved pods may be bound now: pure.

A node's device plugin is told only *how much* a container wants (a number of devices, or of MiB),
and picks the oldest pod of the node that wants as much. Two pods of a node with the same question
and different cards could therefore be served each other's cards. So a pod waits while another one
of its node, with the same question but another assignment, was bound and is not acknowledged yet
(the plugin marked it, or it runs).
"""

from collections.abc import Collection

from allotment.core.state import Allocation, ClusterState, Pod
from allotment_proto.facts import Holding
from allotment_proto.volcano import gpushare, keys

Question = tuple[str, str, int]
"""Device family, unit and amount."""
Assignment = tuple[tuple[int, str, int, int], ...]


def is_acknowledged(pod: Pod) -> bool:
    """Whether the device plugin is through with a pod that was bound."""
    fact = pod.fact
    return bool(fact.node) and (
        fact.bind_phase in (keys.PHASE_SUCCESS, keys.PHASE_FAILED) or fact.phase != "Pending"
    )


def bindable(
    state: ClusterState,
    in_flight: Collection[str],
    blocked: Collection[tuple[str, Question]] = (),
) -> list[Allocation]:
    """Reserved pods whose Binding may be sent now, oldest decision first.

    `in_flight` are pods whose Binding is under way, `blocked` the nodes and questions for which a
    plugin would not find the right pod.
    """
    out: list[Allocation] = []
    busy: dict[str, dict[Question, Assignment]] = {}
    waiting = [uid for uid in state.reserved if uid not in in_flight]
    allocations = [a for uid in waiting if (a := state.pods[uid].allocation) is not None]
    for allocation in sorted(allocations, key=lambda a: (a.seq, a.stamp_s, a.uid)):
        question = plugin_question(allocation.holdings)
        if question is not None:
            if (allocation.node, question) in blocked:
                continue
            taken = busy.get(allocation.node)
            if taken is None:
                taken = busy[allocation.node] = _unacknowledged(state, allocation.node, in_flight)
            mine = assignment(allocation)
            if taken.setdefault(question, mine) != mine:
                continue
        out.append(allocation)
    return out


def plugin_question(holdings: tuple[Holding, ...]) -> Question | None:
    """What the device plugin will be asked; None if no plugin of ours is involved."""
    if not holdings:
        return None
    first = holdings[0]
    if first.family == gpushare.FAMILY and first.cores_pct == 0:
        return first.family, "MiB", first.memory_mib
    return first.family, "devices", len(holdings)


def assignment(allocation: Allocation) -> Assignment:
    """What the plugin must hand out. Pods with equal ones may be swapped without harm."""
    return tuple(
        sorted((h.container, h.card, h.memory_mib, h.cores_pct) for h in allocation.holdings)
    )


def _unacknowledged(
    state: ClusterState, node_name: str, in_flight: Collection[str]
) -> dict[Question, Assignment]:
    """Per question, the assignment that the node's plugin still has to serve."""
    taken: dict[Question, Assignment] = {}
    for uid, allocation in state.nodes[node_name].allocations.items():
        question = plugin_question(allocation.holdings)
        if question is None or is_acknowledged(state.pods[uid]):
            continue
        if uid in in_flight or uid not in state.reserved:
            taken[question] = assignment(allocation)
    return taken
