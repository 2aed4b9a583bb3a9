"""Which reserved pods may be bound now, from everything, every time: what the `Pacer` must say."""

from collections.abc import Collection

from allotment.core.explain.rows.acknowledgement import (
    Place,
    Question,
    age,
    is_awaited,
    plugin_question,
)
from allotment.core.ledger.health import is_left
from allotment.core.ledger.model import Allocation, ClusterState
from allotment_binder.pacer import Answer, answer


def bindable(
    state: ClusterState,
    in_flight: Collection[str],
    blocked: Collection[Place] = (),
    *,
    swap_equal: bool = False,
) -> list[Allocation]:
    """Reserved pods whose Binding may be sent now, oldest decision first.

    `in_flight` are pods whose Binding is under way, `blocked` the nodes and questions for which a
    plugin would not find the right pod.
    """
    out: list[Allocation] = []
    busy: dict[str, dict[Question, Answer]] = {}
    waiting = [uid for uid in state.reserved if uid not in in_flight]
    allocations = [a for uid in waiting if (a := state.pods[uid].allocation) is not None]
    for allocation in sorted(allocations, key=age):
        question = plugin_question(allocation.holdings)
        if question is not None:
            if is_left(state, allocation.node, allocation.seq):
                out.append(allocation)  # it has an obstacle, and no plugin is asked
                continue
            if (allocation.node, question) in blocked:
                continue
            taken = busy.get(allocation.node)
            if taken is None:
                taken = busy[allocation.node] = _awaited(
                    state, allocation.node, in_flight, swap_equal
                )
            mine = answer(allocation, swap_equal)
            # Oldest first, so the oldest takes the question for itself and those behind it wait.
            # A plugin picks the oldest pod too: any other order would give it the wrong one.
            if taken.setdefault(question, mine) != mine:
                continue
        out.append(allocation)
    return out


def _awaited(
    state: ClusterState, node_name: str, in_flight: Collection[str], swap_equal: bool
) -> dict[Question, Answer]:
    """Per question, what the node's plugin still has to answer, or may be asked any moment.

    With several answers it is one that no pod has.
    """
    node = state.nodes[node_name]
    taken: dict[Question, Answer] = {}
    for uid, allocation in node.allocations.items():
        question = plugin_question(allocation.holdings)
        # A Binding that is under way may arrive at any moment; one that is not sent cannot.
        is_sent = uid in in_flight or uid not in state.reserved
        if question is not None and is_sent and is_awaited(state.pods[uid], node):
            mine = answer(allocation, swap_equal)
            taken[question] = mine if taken.get(question, mine) == mine else ()
    return taken
