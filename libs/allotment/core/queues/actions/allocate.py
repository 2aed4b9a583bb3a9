"""The allocate action: the order in which jobs and tasks are tried, and how each turn ends.

Queues take turns in queue order, one job a turn, in job order. The action tries the tasks of a job
in task order until the job is ready and commits what it got. The job then comes again for its other
tasks, one task a turn, in competition with the others, so that an elastic job does not take
everything before others have their minimum. A job that does not become ready gives everything back,
unless it would be ready once promised resources are free: then it keeps its promises for the rest
of the round. A job that did not get its minimum is not retried in this round, nor is a task that
found no place.

A `PlacementPort` finds the places and counts those found before.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from allotment.core.queues.answers import No
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import READY_SET, WAITING, Status, Task
from allotment.core.queues.plugins.base import Order
from allotment.core.queues.reservations import Hold, HoldsInForce, holds_in_force
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment.core.reasons import (
    GANG_INCOMPLETE,
    NOT_ENOUGH_PODS_OF_TASK,
    NOT_ENOUGH_TASKS,
    QUOTA_CODES,
    SAME_ROLE_FAILED,
)

_A = TypeVar("_A")


class Placed(NamedTuple):
    """A place that is free now. `card` is the chosen one of `Limits.cards`, if there are any."""

    node: str
    card: str = ""


class Promised(NamedTuple):
    """A place that will be free once what is being released there is gone."""

    node: str
    card: str = ""


class Hopeless(NamedTuple):
    """How many of the tasks fit together at most, and what the others lack."""

    together: int
    no: No


class PlacementPort(Protocol):
    """Finds places for tasks, each on top of those that `try_place` found before. It records in the
    session's statement how to give a place back.
    """

    def hopeless(self, tasks: Sequence[Task], needed: int, limits: Limits) -> Hopeless | None:
        """Why `needed` of the tasks cannot fit together now; None if they may. A cheap bound,
        checked once before a job that needs several tasks.
        """

    def try_place(self, task: Task, limits: Limits) -> Placed | Promised | No: ...


COMMITTED = "committed"
"""The job is ready and keeps what it got."""
KEPT = "kept"
"""The job is not ready, but would be with its promises: it keeps them for this round."""
DISCARDED = "discarded"
"""The job is not ready and gives everything back."""
INVALID = "invalid"
"""The job cannot start; no task was tried."""
OVERUSED = "overused"
"""The queue has what it deserves; no task was tried."""


class Turn(NamedTuple):
    """How one job's turn ended. Tasks are named by uid, in the order in which they were tried."""

    job: str
    queue: str
    ending: str
    placed: tuple[tuple[str, Placed | Promised], ...] = ()
    """The places found, even if they were given back (`DISCARDED`). Only a `Placed` of a
    `COMMITTED` turn may be bound; a `Promised` is valid for this round.
    """
    refused: tuple[tuple[str, No], ...] = ()
    untried: tuple[str, ...] = ()
    together: int = 0
    """How many of the job's waiting tasks fit together."""
    no: No | None = None
    """Why no task was tried."""
    was_ready: bool = False
    """Whether the job had its minimum before the turn. If so, each pod of this turn counts by
    itself.
    """


def allocate(
    session: Session,
    port: PlacementPort,
    *,
    holds: Sequence[Hold] = (),
    wanted: Collection[str] | None = None,
    pending_too: bool = False,
) -> Iterator[Turn]:
    """The turns of one round, one after the other. The caller may stop at any time.

    `holds` are reservations for jobs that others overtook too often (see `reservations`). `wanted`
    limits the jobs that are tried (None: all); the holds of other jobs still count. With
    `pending_too` (no enqueue action) groups need no admission first.
    """
    in_force = holds_in_force(session, holds)
    tried = session.jobs.keys() if wanted is None else session.jobs.keys() & wanted
    round_ = _Round(session, port, in_force, tried, pending_too=pending_too)
    yield from round_.invalid
    order = [(session.queue_key(name), name) for name in round_.queues]
    heapq.heapify(order)
    while order:
        key, name = heapq.heappop(order)
        if order:  # a queue's place matters only among others
            now = session.queue_key(name)
            if now != key:  # another queue of its tree got something; what queues hold only grows
                heapq.heappush(order, (now, name))
                continue
        jobs = round_.queues[name]
        overused = session.overused(name)
        if overused is not None:
            for _, uid in sorted(jobs):
                yield Turn(uid, name, OVERUSED, no=overused)
            continue
        _, uid = heapq.heappop(jobs)
        yield round_.turn(session.jobs[uid])
        if jobs:
            heapq.heappush(order, (session.queue_key(name) if order else key, name))


class _Round:
    """One round's queues of jobs, and the tasks of each job that are still to be tried."""

    def __init__(
        self,
        session: Session,
        port: PlacementPort,
        in_force: HoldsInForce,
        wanted: Collection[str],
        *,
        pending_too: bool,
    ) -> None:
        self.session = session
        self.port = port
        self.in_force = in_force
        self.queues: dict[str, list[tuple[Order, str]]] = {}
        self.invalid: list[Turn] = []
        self._waiting: dict[str, list[Task]] = {}
        """Tasks still to be tried, the first at the end."""
        self._failed_roles: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        """Where jobs stood in their queues as the round began."""
        queues: dict[str, list[Job]] = {}
        for uid in sorted(wanted):
            job = session.jobs[uid]
            if job.phase in WAITING and not pending_too:
                continue
            tasks = session.due_tasks(job)
            if not tasks:
                continue
            no = session.job_valid(job)
            if no is not None:
                self.invalid.append(Turn(uid, job.queue, INVALID, no=no))
                continue
            self._waiting[uid] = in_force.in_turn(job, tasks)[::-1]
            self._failed_roles[uid] = set()
            queues.setdefault(job.queue, []).append(job)
        for name, jobs in queues.items():
            in_order = session.in_job_order(jobs)
            self._numbers.update((job.uid, number) for number, job in enumerate(in_order))
            self.queues[name] = [(self._key(job), job.uid) for job in in_order]
            heapq.heapify(self.queues[name])

    def _key(self, job: Job) -> Order:
        """Where a job is in its queue's order now. Where namespaces take turns, jobs that no plugin
        tells apart keep the order that they had when the round began.
        """
        key = self.session.job_key(job)
        return key if self.session.served is None else (*key[:-1], (self._numbers[job.uid],))

    def turn(self, job: Job) -> Turn:
        """Try a job's tasks until it is ready, then commit, keep or discard what they got."""
        closed = self.in_force.closed(job)
        if closed is not None:
            return Turn(job.uid, job.queue, DISCARDED, no=closed)
        waiting = self._waiting[job.uid]
        hopeless = self._hopeless(job, waiting)
        if hopeless is not None:
            task = waiting[-1]
            return Turn(
                job.uid,
                job.queue,
                DISCARDED,
                refused=((task.uid, hopeless.no),),
                untried=tuple(task.uid for task in waiting[-2::-1]),
                together=hopeless.together,
            )
        checkpoint = self.session.statement.checkpoint()
        was_ready = self.session.job_ready(job)
        placed, refused = self._try(job, waiting)
        ending = self._ending(job)
        if ending == DISCARDED:
            self.session.statement.rollback(checkpoint)
        elif ending == COMMITTED and waiting:
            heapq.heappush(self.queues[job.queue], (self._key(job), job.uid))
        return Turn(
            job.uid,
            job.queue,
            ending,
            placed,
            refused,
            untried=tuple(task.uid for task in reversed(waiting)),
            together=len(placed),
            was_ready=was_ready,
        )

    def _hopeless(self, job: Job, waiting: Sequence[Task]) -> Hopeless | None:
        needed = job.view.min_member - job.ready_count - job.best_effort_pending
        if needed < 2 or self.session.job_ready(job):
            return None
        if len(waiting) < needed:
            return Hopeless(len(waiting), _kept_back(needed, len(waiting)))
        return self.port.hopeless(waiting[::-1], needed, self.in_force.limits(job))

    def _ending(self, job: Job) -> str:
        if self.session.job_ready(job):
            return COMMITTED
        return KEPT if self.session.job_pipelined(job) else DISCARDED

    def _try(
        self, job: Job, waiting: list[Task]
    ) -> tuple[tuple[tuple[str, Placed | Promised], ...], tuple[tuple[str, No], ...]]:
        placed: list[tuple[str, Placed | Promised]] = []
        refused: list[tuple[str, No]] = []
        failed = self._failed_roles[job.uid]
        limits = self.in_force.limits(job)
        while waiting:
            unit, lacking = take_unit(self.session, job, waiting)
            if lacking is not None:
                refused += [(task.uid, lacking) for task in unit]
                continue
            checkpoint = self.session.statement.checkpoint()
            found: list[tuple[str, Placed | Promised]] = []
            is_tried, no = True, None
            for task in unit:
                no = self.in_force.allocatable(job, task)
                if no is None and task.role and task.role in failed:
                    no = _same_role(task)
                if no is not None:
                    is_tried = False
                    break
                asked = self.in_force.limits_of(job, task, limits)
                answer = try_places(self.port.try_place, self.in_force, job, task, asked)
                if isinstance(answer, No):
                    no = answer
                    break
                status = Status.ALLOCATED if isinstance(answer, Placed) else Status.PIPELINED
                card = answer.card or (asked.cards[0] if asked.cards else "")
                self.session.assume(job, task, status, card, answer.node)
                found.append((task.uid, answer))
            if no is None:
                placed += found
                if self.session.job_ready(job):
                    break
                continue
            # the tasks of a sub group all find a place or none
            if found:
                self.session.statement.rollback(checkpoint)
            short = unit[len(found)]
            refused.append((short.uid, no))
            refused += [(one.uid, beside(short, no)) for one in unit if one is not short]
            if not is_tried:
                continue
            if short.role and not found:
                failed.add(short.role)
            if not needs_continue(job, failed):
                break
        return tuple(placed), tuple(refused)


def take_unit(session: Session, job: Job, waiting: list[Task]) -> tuple[list[Task], No | None]:
    """The next task (the last of the list) with those that must be placed together with it, removed
    from the list; and why they cannot be tried.
    """
    task = waiting.pop()
    missing = session.missing_beside(job, task)
    if missing < 1:
        return [task], None
    peers = [other for other in reversed(waiting) if other.sub_group == task.sub_group]
    unit = [task, *peers[: missing - 1]]
    taken = {one.uid for one in unit}
    waiting[:] = [other for other in waiting if other.uid not in taken]
    if len(unit) == missing:
        return unit, None
    return unit, No(
        NOT_ENOUGH_PODS_OF_TASK,
        f"{sub_group_name(task)} lacks {missing} pods to be whole, and {len(unit)} wait",
    )


def beside(short: Task, no: No) -> No:
    """Why a task waits that found a place, or was not tried, because another of its sub group found
    none.
    """
    return No(
        GANG_INCOMPLETE,
        f"pods of {sub_group_name(short)} are placed together, and {short.name} finds no place: "
        f"{no.code}",
    )


def sub_group_name(task: Task) -> str:
    return f"sub group {' '.join(filter(None, task.sub_group))}"


def try_places(
    try_place: Callable[[Task, Limits], _A],
    in_force: HoldsInForce,
    job: Job,
    task: Task,
    limits: Limits,
) -> _A:
    """A place on the node that a hold promises to the task, so that every promise is kept;
    otherwise anywhere.
    """
    node = in_force.node_of(job, task)
    if node:
        answer = try_place(task, limits._replace(node=node))
        if not isinstance(answer, No):
            return answer
    return try_place(task, limits)


def cause_of(turn: Turn) -> No | None:
    """Why a job did not get its minimum. Lack of room goes before lack of quota: a job that lacks
    both waits for room.
    """
    if turn.no is not None:
        return turn.no
    reasons = [no for _, no in turn.refused]
    return next((no for no in reasons if no.code not in QUOTA_CODES), next(iter(reasons), None))


def _same_role(task: Task) -> No:
    return No(
        SAME_ROLE_FAILED,
        f"Task {task.name} with role spec {task.role} has already predicated failed, skip",
    )


def _kept_back(needed: int, there: int) -> No:
    """The rejection of a job some of whose needed members have scheduling gates."""
    return No(
        NOT_ENOUGH_TASKS,
        f"{needed} pods must start together, and {there} may: scheduling gates keep the others",
    )


def needs_continue(job: Job, failed_roles: Collection[str]) -> bool:
    """Whether the rest of the job is worth a try after a task found no place.

    Not if the job needs every task. If its minimum is below the sum of its roles' minima: whether
    tasks of other roles can still reach it. Otherwise: whether each role that failed already has
    its own minimum.
    """
    if job.view.min_member == len(job.tasks):
        return False
    if job.view.min_member < job.roles_total:
        others = Counter(
            job.tasks[uid].role for uid, status in job.status.items() if status is Status.PENDING
        )
        left = sum(count for role, count in others.items() if role not in failed_roles)
        return job.ready_count + left >= job.view.min_member
    return all(
        job.role_count(role, READY_SET) >= job.role_minima.get(role, 0) for role in failed_roles
    )
