"""Whom to evict so that a group fits: the actions `preempt` (same queue) and `reclaim` (others').

Victims are chosen on copies of the nodes' books (`books`), so that what is freed is what is needed:
cards of the right kind, on one node, not sums over a cluster. A pod takes room that is free, or
will be because its holder is ending, before anybody has to go for it. Else the node with the fewest
victims is taken, of equals the one whose victims rank lowest, then the first by name. A group gets
victims for all that it lacks of its minimum, or none.

Nobody goes for a group that could not be placed all the same: one that is not let in, whose queue's
quota does not cover it even so, or on nodes that are held for others.

Nobody is placed by this. The evicted pods' nodes are kept for the group (`keeping`) until the last
of them is gone; it is then placed like any other. While victims of a group are still there, it
gets no more. A pod whose eviction was refused is not asked to go again before something happens to
one of its owner's pods.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from allotment.core.batch.books import Books, Choice, Rank
from allotment.core.batch.oracle import Places
from allotment.core.laps import ACTION, Lap, untimed
from allotment.core.model import ClusterState
from allotment.core.queues.allocate import Limits
from allotment.core.queues.enqueue import WAITING
from allotment.core.queues.model import EVICTABLE_SET, Status, Task
from allotment.core.queues.reservations import Fence, Hold
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment_proto.events import Eviction

PREEMPT, RECLAIM = "preempt", "reclaim"
ACTIONS = PREEMPT, RECLAIM


def keeping(state: ClusterState) -> tuple[Hold, ...]:
    """The nodes that are kept for groups while their victims leave."""
    nodes: dict[str, set[str]] = {job: set(left) for job, left in state.cleared.items()}
    for eviction in state.evicting.values():
        nodes.setdefault(eviction.preemptor, set()).add(eviction.node)
    return tuple(Hold(job, 0, tuple(sorted(nodes[job])), is_promised=True) for job in sorted(nodes))


class Hunt:
    """The victims of one round, on top of what it placed; while the ranker of `places` is open."""

    def __init__(
        self,
        state: ClusterState,
        session: Session,
        places: Places,
        fenced: Fence,
        wanted: Collection[str],
    ) -> None:
        self._state = state
        self._session = session
        self._places = places
        self._fenced = fenced
        self._wanted = wanted
        self._served = {eviction.preemptor for eviction in state.evicting.values()}
        self._books: Books | None = None
        self._evictable: list[tuple[Job, Task]] = []

    def run(self, actions: Collection[str], lap: Lap = untimed) -> list[Eviction]:
        """Victims for the wanted groups, in their order, first by preemption."""
        mark = self._places.mark()
        found: list[Eviction] = []
        for action in ACTIONS:
            if action in actions:
                for job in self._takers(actions):
                    found += self._for_job(job, action)
                lap(ACTION, action)
        self._places.undo(mark)
        return found

    def _takers(self, actions: Collection[str]) -> Iterator[Job]:
        session = self._session
        jobs = [session.jobs[uid] for uid in self._wanted if uid in session.jobs]
        for job in sorted(jobs, key=session.job_key):
            is_let_in = job.phase not in WAITING or "enqueue" not in actions
            if (
                is_let_in
                and job.uid not in self._served
                and session.job_starving(job)
                and session.job_valid(job) is None
                and self._fenced.closed(job) is None
            ):
                yield job

    def _open_books(self) -> Books:
        if self._books is None:
            self._books = Books(self._state, self._places.placements.values())
            jobs = sorted(self._session.jobs.values(), key=lambda job: job.uid)
            self._evictable = [
                (job, task)
                for job in jobs
                for uid, task in job.tasks.items()
                if job.status[uid] in EVICTABLE_SET
                and task.preemptable
                and uid not in self._state.spared
            ]
        return self._books

    def _for_job(self, job: Job, action: str) -> list[Eviction]:
        """Victims for what a job lacks of its minimum, or for its next pod if it lacks nothing."""
        session = self._session
        lacking = max(job.view.min_member - job.ready_count - job.best_effort_pending, 1)
        tasks = [t for t in session.due_tasks(job) if t.uid in self._state.pending]
        if len(tasks) < lacking or (action == RECLAIM and session.overused(job.queue) is not None):
            return []
        books = self._open_books()
        marks = books.mark(), session.mark(), self._places.mark()
        held = self._fenced.nodes(job)
        found: list[Eviction] = []
        for task in tasks[:lacking]:
            if self._has_room(books, job, task, held):
                continue
            choice = self._choose(books, job, task, action, held)
            if choice is None:
                books.undo(marks[0])
                session.undo(marks[1])
                self._places.undo(marks[2])
                return []
            found += [
                Eviction(v.uid, v.namespace, v.name, choice.node.name, action, job.uid)
                for v in choice.victims
            ]
        self._served.add(job.uid)
        return found

    def _has_room(self, books: Books, job: Job, task: Task, held: frozenset[str]) -> bool:
        """Give the task a place for which nobody else has to go, if there is one."""
        session, places = self._session, self._places
        if session.allocatable(job, task) is not None:
            return False
        cards = session.cards(job, task)
        limits = Limits(cards, held)
        if not books.put_on_freed(task, places.requests(task, limits), held):
            mark = places.mark()
            placement = places.find(task, limits)
            if placement is not None and books.is_freed(placement.node):
                places.undo(mark)  # other tasks had it, or there would have been room
                placement = places.find(task, Limits(cards, held | books.freed()))
            if placement is None:
                return False
            books.put(placement)
        session.assume(job, task, Status.PIPELINED, next(iter(cards or ()), ""))
        return True

    def _choose(
        self, books: Books, job: Job, task: Task, action: str, held: frozenset[str]
    ) -> Choice | None:
        """The cheapest victims for a task, who are then gone from everybody's books."""
        session = self._session
        if action == RECLAIM and session.preemptive(job, task) is not None:
            return None
        victims = list(self._allowed(job, task, action))
        if not victims:
            return None
        cards = session.cards(job, task) if session.allocatable(job, task) is None else None
        for request in self._places.requests(task, Limits(cards, held)):
            choice = books.cheapest(request, victims, held, partial(self._is_covered, job, task))
            if choice is not None:
                books.take(task, request, choice)
                self._vacate(choice.victims)
                card = next(iter(session.cards(job, task) or ()), "")
                session.assume(job, task, Status.PIPELINED, card)
                return choice
        return None

    def _is_covered(self, job: Job, task: Task, victims: Sequence[Task]) -> bool:
        """Whether quota covers the task once the victims are gone."""
        mark = self._session.mark()
        self._vacate(victims)
        covers = self._session.allocatable(job, task) is None
        self._session.undo(mark)
        return covers

    def _vacate(self, victims: Sequence[Task]) -> None:
        session = self._session
        for victim in victims:
            session.vacate(session.world.job_of[victim.uid], victim)

    def _allowed(self, job: Job, task: Task, action: str) -> Iterator[tuple[Rank, Task]]:
        """The pods that may be evicted for a task, with their ranks.

        Asked node by node, the lowest in rank in front: what a job or queue can spare is spared
        where it helps, and by whom it is missed least.
        """
        session = self._session
        by_node: dict[str, list[tuple[Rank, str, Task]]] = {}
        for other, victim in self._evictable:
            if (
                other.status[victim.uid] in EVICTABLE_SET
                and other.uid != job.uid
                and self._is_source(job, other, action)
            ):
                rank = (other.view.priority, victim.priority, -victim.created_ms)
                by_node.setdefault(victim.node, []).append((rank, victim.uid, victim))
        choose = session.preemptable if action == PREEMPT else session.reclaimable
        for name in sorted(by_node):
            ranked = sorted(by_node[name], key=lambda entry: entry[:2])
            rank_of = {uid: rank for rank, uid, _ in ranked}
            for victim in choose(task, [victim for _, _, victim in ranked]):
                yield rank_of[victim.uid], victim

    def _is_source(self, job: Job, other: Job, action: str) -> bool:
        if action == PREEMPT:
            return other.queue == job.queue
        return other.queue != job.queue and self._session.queue(other.queue).reclaimable
