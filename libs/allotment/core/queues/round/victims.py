"""Victims for groups that do not fit: the actions `preempt` (same queue) and `reclaim` (other
queues).

Preemption takes from other groups of the queue first. Where that does not help, a pod may take from
its own group what lower pods of it have, as long as the group keeps its minimum without them.

Victims are chosen on copies of the nodes' books (`books`), so that evictions free what is needed:
cards of the right kind, on one node, not sums over a cluster. A pod takes room that is free, or
will be because its holder is ending, before any eviction. Otherwise it takes the node with the
fewest victims, of equals the one whose victims rank lowest, then the first by name. Of victims of
one priority those rank lower that end sooner. A group gets victims for all that it lacks of its
minimum and of its roles' minima, or none.

A group that could not be placed anyway gets no victims: one that is not admitted, whose queue's
quota does not cover it even so, or on nodes that are held for others. A pod whose
`preemptionPolicy` is Never, or whose group's PriorityClass has that policy, gets none either and
takes only free room.

Evictions place no pod. The group's pods are nominated for the nodes that were found. The room that
they need there is reserved for them (`keeping`, `kept`), with their part of the quota, until a
decision tried them there with the last victim gone. Pods that do not outrank the group cannot take
this room, so no second eviction happens for the same need. A group that fits into room that others'
evictions left, and would have had pods evicted, is nominated as well. A group gets no more victims
while those for it are still ending. After a rejected eviction, the pod is not evicted again before
something happens to one of its owner's pods.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from heapq import merge
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.rules.bounds import Excluded, by_itself, kept_back
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import EVICTABLE_SET, WAITING, Kind, Status, Task
from allotment.core.queues.plugins.gang import is_pipelined, surplus
from allotment.core.queues.reservations import Hold, HoldsInForce
from allotment.core.queues.round.books import Books, Choice
from allotment.core.queues.round.candidates import Bounds, Candidates, Cost, Question, Rank
from allotment.core.queues.round.places import Places
from allotment.core.queues.session import Session
from allotment.core.queues.timings import ACTION, Checkpoint, OnStep, unending, untimed
from allotment.core.queues.work import Job
from allotment.core.reasons import KEPT_FOR_PREEMPTOR
from allotment_proto.events import Eviction, Nomination, Placement
from allotment_proto.facts import PodRequest

_PREEMPT, _RECLAIM = "preempt", "reclaim"


class _Source(Enum):
    """The pods among which victims are searched."""

    OTHER_GROUPS = auto()
    OWN_GROUP = auto()
    OTHER_QUEUES = auto()


_SOURCES = {
    _PREEMPT: (_Source.OTHER_GROUPS, _Source.OWN_GROUP),
    _RECLAIM: (_Source.OTHER_QUEUES,),
}
"""By the action, in order."""


MAKING_ROOM = frozenset(_SOURCES)
"""The actions that evict."""


def keeping(state: ClusterState) -> tuple[Hold, ...]:
    """The room on nodes that is reserved for nominated pods."""
    found = []
    for job in sorted(state.nominated):
        nodes = state.nominated[job].nodes
        promised = tuple((uid, nodes[uid]) for uid in sorted(nodes) if uid in state.pending)
        if promised:
            names = tuple(sorted({node for _, node in promised}))
            found.append(Hold(job, 0, names, promised=promised))
    return tuple(found)


class Victims(NamedTuple):
    """The evictions, and the nodes for which preemptors are nominated."""

    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()


def might_evict(session: Session, job: Job, actions: Collection[str]) -> bool:
    """Whether any pod might be evicted for a job, by what queues and priorities have to spare.

    It checks no single pod. If no pod can be evicted for any job of the round, the search can be
    skipped: what jobs would take of the free room has no effect without an eviction.
    """
    standing = session.world.standing
    if _PREEMPT in actions and (
        any(job.counts[status] for status in EVICTABLE_SET)
        or any(_may_go(session, _Source.OTHER_GROUPS, job, kind) for kind in standing)
    ):
        return True
    return (
        _RECLAIM in actions
        and session.overused(job.queue) is None
        and any(_may_go(session, _Source.OTHER_QUEUES, job, kind) for kind in standing)
        and any(session.preemptive(job, task) for task in session.due_tasks(job))
    )


def _may_go(session: Session, source: _Source, job: Job, kind: Kind) -> bool:
    """Whether pods of other jobs of a kind might be evicted for a job."""
    if source is _Source.OTHER_GROUPS:
        return kind.queue == job.queue and session.may_name("preemptable", job, kind)
    is_other = kind.queue != job.queue and session.queue(kind.queue).reclaimable
    return is_other and session.may_name("reclaimable", job, kind)


class Hunt:
    """The victims of one round, on top of its placements, while the ranker of `places` is open."""

    def __init__(
        self,
        state: ClusterState,
        session: Session,
        places: Places,
        in_force: HoldsInForce,
        wanted: Collection[str],
        candidates: Candidates,
        checkpoint: Checkpoint = unending,
    ) -> None:
        self._state = state
        self._session = session
        self._places = places
        self._in_force = in_force
        self._wanted = wanted
        self._checkpoint = checkpoint
        self._served = {eviction.preemptor for eviction in state.evicting.values()}
        self._served.update(job for job, found in state.nominated.items() if found.awaited)
        self._candidates = candidates
        self._books: Books | None = None

    def run(self, actions: Collection[str], on_step: OnStep = untimed) -> Victims:
        """Victims for the wanted groups, in order, first by preemption."""
        takers = self._takers(actions)
        if not any(might_evict(self._session, job, actions) for job in takers):
            for action in _SOURCES:
                if action in actions:
                    on_step(ACTION, action)
            return Victims()
        checkpoint = self._session.statement.checkpoint()
        found: list[Victims] = []
        for action, sources in _SOURCES.items():
            if action in actions:
                for source in sources:
                    found += [self._for_job(job, action, source) for job in self._takers(actions)]
                on_step(ACTION, action)
        self._session.statement.rollback(checkpoint)
        return Victims(
            tuple(eviction for victims in found for eviction in victims.evictions),
            tuple(nomination for victims in found for nomination in victims.nominations),
        )

    def _takers(self, actions: Collection[str]) -> Iterator[Job]:
        session = self._session
        jobs = [session.jobs[uid] for uid in self._wanted if uid in session.jobs]
        for job in session.in_job_order(jobs):
            is_let_in = job.phase not in WAITING or "enqueue" not in actions
            if (
                is_let_in
                and job.view.preempts
                and job.uid not in self._served
                and session.job_starving(job)
                and session.job_valid(job) is None
                and self._in_force.closed(job) is None
            ):
                yield job

    def _open_books(self) -> Books:
        if self._books is None:
            self._books = Books(
                self._state,
                self._places.placements.values(),
                self._session.statement,
                self._checkpoint,
            )
            self._candidates.follow(self._session.world)
        return self._books

    def _for_job(self, job: Job, action: str, source: _Source) -> Victims:
        """Victims for what a job lacks of its minimum, or for its next pod if it lacks nothing."""
        session = self._session
        if source is _Source.OWN_GROUP and not any(job.counts[s] for s in EVICTABLE_SET):
            return Victims()
        tasks = [t for t in session.due_tasks(job) if t.uid in self._state.pending]
        is_hopeless = len(tasks) + job.ready_count + job.best_effort_pending < job.view.min_member
        if is_hopeless or (
            source is _Source.OTHER_QUEUES and session.overused(job.queue) is not None
        ):
            return Victims()
        books = self._open_books()
        checkpoint = session.statement.checkpoint()
        kept = {uid for each in self._in_force.kept_from(job) for uid, _ in each.pods}
        lifted = books.lift_but(kept)
        limits = self._in_force.limits(job)
        evictions: list[Eviction] = []
        nominations: list[Nomination] = []
        is_spared = False
        """Whether the group fits without victims only because of evictions for others."""
        for task in tasks:
            place = self._room(books, job, task, limits)
            if place is None:
                found = self._choose(books, job, task, source, limits) if task.preempts else None
                if found is None:
                    break
                place, choice = found
                evictions += [
                    Eviction(v.uid, v.namespace, v.name, place.node, action, job.uid)
                    for v in choice.victims
                ]
            elif not is_spared and books.is_evicted_on(place.node) and task.preempts:
                is_spared = self._may_take(job, task, source)
            nominations.append(
                Nomination(task.uid, task.namespace, task.name, place.node, job.uid, place.holdings)
            )
            if is_pipelined(job):
                self._served.add(job.uid)
                own = job.tasks
                books.keep(uid for uid in lifted if uid not in own)
                is_kept = bool(evictions) or is_spared
                return Victims(tuple(evictions), tuple(nominations) if is_kept else ())
        session.statement.rollback(checkpoint)
        return Victims()

    def _room(self, books: Books, job: Job, task: Task, limits: Limits) -> Placement | None:
        """Give the task a place without further evictions; None without one."""
        places = self._places
        if self._in_force.allocatable(job, task) is not None:
            return None
        limits = self._in_force.limits_of(job, task, limits)
        found = books.put_on_freed(task, places.requests(task, limits))
        if found is None:
            statement = self._session.statement
            checkpoint = statement.checkpoint()
            placement = places.find(task, limits)
            if placement is not None and books.is_freed(placement.node):
                self._session.statement.rollback(
                    checkpoint
                )  # other tasks took it, otherwise there would have been room
                freed = Excluded(KEPT_FOR_PREEMPTOR, books.freed(), "")
                placement = places.find(task, limits._replace(excluded=(*limits.excluded, freed)))
            if placement is None:
                return None
            books.put(placement)
            found = placement
        card = next(iter(limits.cards or ()), "")
        self._session.assume(job, task, Status.PIPELINED, card, found.node)
        return found

    def _choose(
        self, books: Books, job: Job, task: Task, source: _Source, limits: Limits
    ) -> tuple[Placement, Choice] | None:
        """A task's place and its cheapest victims, released in all books; None without one."""
        session = self._session
        if source is _Source.OTHER_QUEUES and not session.preemptive(job, task):
            return None
        in_force = self._in_force
        if in_force.allocatable(job, task) is None:
            limits = in_force.limits_of(job, task, limits)
        for request in self._places.requests(task, limits):
            choice = self._cheapest(books, job, task, source, request)
            if choice is not None:
                place = books.take(task, request, choice)
                self._vacate(choice.victims)
                card = next(iter(in_force.cards(job, task) or ()), "")
                session.assume(job, task, Status.PIPELINED, card, choice.node.name)
                return place, choice
        return None

    def _cheapest(
        self, books: Books, job: Job, task: Task, source: _Source, request: PodRequest
    ) -> Choice | None:
        """The node with the fewest victims; of equals the one whose victims rank lowest."""
        bounds = None
        if source is not _Source.OWN_GROUP:
            question = Question(by_itself(request), source, job.queue, job.view.priority)
            may_go = partial(_may_go, self._session, source, job)
            bounds = self._candidates.bounds(question, may_go, self._checkpoint)
        changed = {node.name: node for node in books.changed()}
        tried = books.trial(request, partial(self._is_covered, job, task))
        allowed = self._voted(job, task, source)
        best: Choice | None = None
        for bound in _in_order(bounds, changed, job):
            if best is not None and bound >= best.cost:
                break
            self._checkpoint()
            name = bound[2]
            victims = allowed(name) if kept_back(request, name) is None else []
            if not victims:
                continue
            choice = tried(name, victims, bound[0])
            if choice is None:
                if bounds is not None and name not in changed:
                    bounds.strike_unless_met(name)
            elif best is None or choice.cost < best.cost:
                best = choice
        return best

    def _may_take(self, job: Job, task: Task, source: _Source) -> bool:
        """Whether others might be evicted for a task."""
        is_reclaim = source is _Source.OTHER_QUEUES
        if is_reclaim and not self._session.preemptive(job, task):
            return False
        allowed = self._voted(job, task, source)
        return any(allowed(name) for name in self._each(sorted(self._state.nodes)))

    def _each(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            self._checkpoint()
            yield name

    def _is_covered(self, job: Job, task: Task, victims: Sequence[Task]) -> bool:
        """Whether quota covers the task once the victims are gone."""
        checkpoint = self._session.statement.checkpoint()
        self._vacate(victims)
        covers = self._in_force.allocatable(job, task) is None
        self._session.statement.rollback(checkpoint)
        return covers

    def _vacate(self, victims: Sequence[Task]) -> None:
        session = self._session
        for victim in victims:
            session.vacate(session.world.job_of[victim.uid], victim)

    def _voted(
        self, job: Job, task: Task, source: _Source
    ) -> Callable[[str], list[tuple[Rank, Task]]]:
        """Returns a function from a node to the pods there that may be evicted for a task, the
        lowest in rank first.

        The plugins vote node by node, so that what a job or queue can spare is used where it helps,
        and by the lowest in rank.
        """
        session, spared = self._session, self._state.spared
        job_of = session.world.job_of
        is_reclaim = source is _Source.OTHER_QUEUES
        choose = session.reclaimable if is_reclaim else session.preemptable
        known: dict[Kind, bool] = {}

        def may_go(kind: Kind) -> bool:
            if kind not in known:
                known[kind] = _may_go(session, source, job, kind) and (
                    not is_reclaim or session.gives_back(kind.queue, task)
                )
            return known[kind]

        def voted(name: str) -> list[tuple[Rank, Task]]:
            rank_of: dict[str, Rank] = {}
            victims: list[Task] = []
            for row in self._candidates.rows(name):
                if row.uid in spared:
                    continue
                if source is not _Source.OWN_GROUP and not may_go(row.kind):
                    continue
                other = job_of[row.uid]
                if (other is job) is not (source is _Source.OWN_GROUP):
                    continue
                victim = other.tasks[row.uid]
                is_lower = other is not job or victim.priority < task.priority
                if is_lower and other.status[row.uid] in EVICTABLE_SET:
                    rank_of[row.uid] = row.rank
                    victims.append(victim)
            if source is _Source.OWN_GROUP:  # whatever the plugins decide about others' minima
                victims = surplus(job_of, victims)
            return [(rank_of[v.uid], v) for v in choose(task, victims)] if victims else []

        return voted


def _in_order(bounds: Bounds | None, changed: Mapping[str, Node], job: Job) -> Iterable[Cost]:
    """The nodes to try, each with the least cost of victims there, the cheapest first. Without
    bounds, those of the job's own pods.
    """
    if bounds is None:
        names = {job.tasks[u].node for u, status in job.status.items() if status in EVICTABLE_SET}
        return [(0, (), name) for name in sorted(names)]
    own = sorted(bound for node in changed.values() if (bound := bounds.on(node)) is not None)
    return merge(own, (bound for bound in bounds.in_order() if bound[2] not in changed))
