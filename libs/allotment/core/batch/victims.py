"""Whom to evict so that a group fits: the actions `preempt` (same queue) and `reclaim` (others').

Victims are chosen on copies of the nodes' books, so that what is freed is what is needed: cards of
the right kind, on one node, not sums over a cluster. On each node the lowest in rank go first, one
by one, until the pod fits; then whoever need not go after all is spared, the highest first. The
node with the fewest victims is taken, of equals the one whose victims rank lowest, then the first
by name. A group gets victims for all that it lacks of its minimum, or none.

Nobody is placed by this. The evicted pods' nodes are kept for the group (`keeping`) until the last
of them is gone; it is then placed like any other. While victims of a group are still there, it
gets no more.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allotment.core.model import ClusterState, Node
from allotment.core.predicates import fits
from allotment.core.queues.model import EVICTABLE_SET, Status, Task
from allotment.core.queues.reservations import Hold
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment.core.state import allocation_of
from allotment_proto.events import Eviction, Placement
from allotment_proto.facts import PodRequest

PREEMPT, RECLAIM = "preempt", "reclaim"


class _Choice(NamedTuple):
    """A node, the books on which the pod fits there, and who has to go for it."""

    cost: tuple[int, tuple[tuple[int, int], ...], str]
    node: Node
    victims: tuple[Task, ...]


def keeping(state: ClusterState) -> tuple[Hold, ...]:
    """The nodes that are kept for groups while their victims leave."""
    nodes: dict[str, set[str]] = {}
    for eviction in state.evicting.values():
        nodes.setdefault(eviction.preemptor, set()).add(eviction.node)
    return tuple(Hold(job, 0, tuple(sorted(nodes[job]))) for job in sorted(nodes))


def evictions(
    state: ClusterState, session: Session, action: str, assumed: Sequence[Placement]
) -> list[Eviction]:
    """Victims of one action, on top of what the round placed (`assumed`)."""
    books = _Books(state, assumed)
    served = {eviction.preemptor for eviction in state.evicting.values()}
    found: list[Eviction] = []
    for job in sorted(session.jobs.values(), key=session.job_key):
        if job.uid in served or not session.job_starving(job) or session.job_valid(job) is not None:
            continue
        found += _for_job(session, books, job, action)
    return found


def _for_job(session: Session, books: "_Books", job: Job, action: str) -> list[Eviction]:
    """Victims for what a job lacks of its minimum, or for its next pod if it lacks nothing."""
    lacking = max(job.view.min_member - job.ready_count - job.best_effort_pending, 1)
    tasks = [task for task in session.due_tasks(job) if books.is_waiting(task)]
    if len(tasks) < lacking or session.overused(job.queue) is not None:
        return []
    mark, session_mark, found = books.mark(), session.mark(), []
    for task in tasks[:lacking]:
        allowed = _allowed(session, job, task, action)
        choice = books.cheapest(task, allowed, session)
        if choice is None or not _may_take(session, job, task, action, choice.victims):
            break
        books.take(task, choice)
        session.assume(job, task, Status.PIPELINED)
        found += [
            Eviction(v.uid, v.namespace, v.name, choice.node.name, action, job.uid)
            for v in choice.victims
        ]
    else:
        return found
    books.undo(mark)
    session.undo(session_mark)
    return []


def _may_take(session: Session, job: Job, task: Task, action: str, victims: Sequence[Task]) -> bool:
    """Whether quota covers the task; within one queue what the victims give back counts."""
    if action == RECLAIM:
        return session.preemptive(job, task) is None
    mark = session.mark()
    for victim in victims:
        owner = next(other for other in session.jobs.values() if victim.uid in other.tasks)
        session.vacate(owner, victim)
    may = session.allocatable(job, task) is None
    session.undo(mark)
    return may


def _allowed(session: Session, job: Job, task: Task, action: str) -> set[str]:
    """Uids of the pods that may be evicted for a task."""
    candidates = [
        victim
        for other in session.jobs.values()
        if other.uid != job.uid and _is_source(session, job, other, action)
        for uid, victim in other.tasks.items()
        if other.status[uid] in EVICTABLE_SET and victim.preemptable
    ]
    choose = session.preemptable if action == PREEMPT else session.reclaimable
    return {victim.uid for victim in choose(task, candidates)}


def _is_source(session: Session, job: Job, other: Job, action: str) -> bool:
    if action == PREEMPT:
        return other.queue == job.queue
    return other.queue != job.queue and session.queue(other.queue).reclaimable


class _Books:
    """Copies of nodes on which victims are tried, on top of what the round placed."""

    def __init__(self, state: ClusterState, assumed: Sequence[Placement]) -> None:
        self._state = state
        self._forks: dict[str, Node] = {}
        self._gone: set[str] = set()
        self._placed = {placement.uid for placement in assumed}
        for placement in assumed:
            self._node(placement.node).charge(allocation_of(placement, 0))

    def is_waiting(self, task: Task) -> bool:
        return task.uid not in self._placed and task.uid in self._state.pending

    def mark(self) -> tuple[dict[str, Node], set[str], set[str]]:
        return dict(self._forks), set(self._gone), set(self._placed)

    def undo(self, mark: tuple[dict[str, Node], set[str], set[str]]) -> None:
        self._forks, self._gone, self._placed = mark

    def cheapest(self, task: Task, allowed: set[str], session: Session) -> _Choice | None:
        """The node on which fewest have to go."""
        request = self._state.pods[task.uid].fact.request
        best: _Choice | None = None
        for name, victims in self._by_node(allowed, session):
            choice = self._try(self._peek(name), request, victims)
            if choice is not None and (best is None or choice.cost < best.cost):
                best = choice
        return best

    def take(self, task: Task, choice: _Choice) -> None:
        """The victims are gone, and the task is there."""
        request = self._state.pods[task.uid].fact.request
        node = choice.node
        node.charge(allocation_of(_placement(task.uid, node, request, self._state), 0))
        self._forks[node.name] = node
        self._gone.update(victim.uid for victim in choice.victims)
        self._placed.add(task.uid)

    def _by_node(self, allowed: set[str], session: Session) -> Iterator[tuple[str, list[Task]]]:
        """Nodes with the pods on them that may go, the lowest in rank in front."""
        found: dict[str, list[tuple[tuple[int, int, int, str], Task]]] = {}
        for job in session.jobs.values():
            for uid, task in job.tasks.items():
                if uid in allowed and uid not in self._gone and task.node:
                    rank = (job.view.priority, task.priority, -task.created_ms, uid)
                    found.setdefault(task.node, []).append((rank, task))
        for name in sorted(found):
            yield name, [task for _, task in sorted(found[name], key=lambda pair: pair[0])]

    def _try(self, node: Node, request: PodRequest, victims: list[Task]) -> _Choice | None:
        policy = self._state.policy
        fork = node.fork()
        gone: list[Task] = []
        for victim in victims:
            held = fork.allocations.get(victim.uid)
            if held is None:
                continue
            fork.release(held)
            gone.append(victim)
            if not isinstance(fits(fork, request, policy), str):
                break
        else:
            return None
        for victim in list(reversed(gone)):
            held = node.allocations[victim.uid]
            fork.charge(held)
            if isinstance(fits(fork, request, policy), str):
                fork.release(held)
            else:
                gone.remove(victim)
        ranks = tuple(sorted((victim.priority, -victim.created_ms) for victim in gone))
        return _Choice((len(gone), ranks, node.name), fork, tuple(gone))

    def _peek(self, name: str) -> Node:
        return self._forks.get(name) or self._state.nodes[name]

    def _node(self, name: str) -> Node:
        node = self._forks.get(name)
        if node is None:
            node = self._forks[name] = self._state.nodes[name].fork()
        return node


def _placement(uid: str, node: Node, request: PodRequest, state: ClusterState) -> Placement:
    found = fits(node, request, state.policy)
    assert not isinstance(found, str), "victims were chosen so that it fits"
    return Placement(
        uid=uid,
        namespace="",
        name="",
        node=node.name,
        holdings=tuple(held for chosen in found.chosen for held in chosen.holdings),
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        extended=request.extended,
        score_micro=0,
        terms=(),
        runners_up=(),
        feasible=0,
        nodes=0,
    )
