"""What is held for groups that were passed by too often, from the state and back into it.

The rule is in `queues.reservations`; here it is asked on nodes emptied of what runs there.
"""

from collections.abc import Sequence

from allotment.core.model import ClusterState, Node
from allotment.core.predicates import fits
from allotment.core.queues.reservations import Candidate, Hold, Rule, Wait, renew
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment.core.state import allocation_of
from allotment_proto.events import Held, Placement
from allotment_proto.facts import PodRequest

RULE = Rule()


def holds_now(state: ClusterState, session: Session) -> tuple[Hold, ...]:
    """The holds of a round that begins on this state."""
    waits = {
        key: Wait(
            group.short_since,
            group.passed,
            group.short.queue,
        )
        for key, group in state.groups.items()
        if group.short is not None and key in session.jobs
    }
    if not state.holds and all(wait.passed < RULE.patience for wait in waits.values()):
        return ()
    emptied = _Emptied(state, session)
    before = [Hold(held.group, held.since, held.nodes, held.queue) for held in state.holds]
    return renew(session, before, waits, RULE, emptied.candidates, emptied.fits)


def told(holds: Sequence[Hold]) -> tuple[Held, ...]:
    """The same as the log says it."""
    return tuple(Held(hold.job, hold.since, hold.nodes, hold.queue) for hold in holds)


class _Emptied:
    """The nodes of a state without the pods on them."""

    def __init__(self, state: ClusterState, session: Session) -> None:
        self._state = state
        self._session = session
        self._nodes: dict[str, Node] = {}

    def candidates(self, job: Job) -> list[Candidate]:
        requests = dict.fromkeys(self._requests(job))
        return [
            Candidate(node.name, len(node.allocations))
            for node in self._state.nodes.values()
            if node.fact is not None
            and any(self._takes(self._node(node.name), request) for request in requests)
        ]

    def fits(self, job: Job, names: Sequence[str]) -> bool:
        """Whether the group's minimum fits on these nodes, one member after the other."""
        nodes = [self._node(name).fork() for name in names if name in self._state.nodes]
        return all(
            self._put(nodes, request, str(n)) for n, request in enumerate(self._requests(job))
        )

    def _requests(self, job: Job) -> list[PodRequest]:
        needed = max(job.view.min_member - job.ready_count, 1)
        tasks = self._session.due_tasks(job)[:needed]
        return [self._state.pods[task.uid].fact.request for task in tasks]

    def _put(self, nodes: Sequence[Node], request: PodRequest, uid: str) -> bool:
        for node in nodes:
            found = fits(node, request, self._state.policy)
            if isinstance(found, str):
                continue
            holdings = tuple(held for chosen in found.chosen for held in chosen.holdings)
            placement = Placement(
                uid=uid,
                namespace="",
                name="",
                node=node.name,
                holdings=holdings,
                cpu_milli=request.cpu_milli,
                memory_bytes=request.memory_bytes,
                extended=request.extended,
                score_micro=0,
                terms=(),
                runners_up=(),
                feasible=0,
                nodes=0,
            )
            node.charge(allocation_of(placement, 0))
            return True
        return False

    def _takes(self, node: Node, request: PodRequest) -> bool:
        return not isinstance(fits(node, request, self._state.policy), str)

    def _node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = self._state.nodes[name].fork()
            for allocation in list(node.allocations.values()):
                node.release(allocation)
        return node
