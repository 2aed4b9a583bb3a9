"""What a round that began now would decide for a pod, a group or a queue: the door for
explanations.

Each function opens the plugins on the state as a round does, asks them, and returns plain values.
Order, quota and places come from the plugins and the board that decide, so an explanation cannot
differ from the decision. Nothing is decided here and nothing stays assumed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.ledger.groups import group_priority
from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.ledger.volumes import taken
from allotment.core.placement.cycle import BATCH_MAX, Outcome
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.bounds import Bounds, bounded, bounds_of
from allotment.core.placement.rules.local_volumes import within
from allotment.core.placement.unserved import nearest
from allotment.core.queues.actions.allocate import beside, take_unit, try_places
from allotment.core.queues.answers import No, closed, recordable
from allotment.core.queues.eligible import is_never
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import (
    COMPLETED_SET,
    OPEN,
    ROOT,
    WAITING,
    JobView,
    QueueView,
    Status,
    Task,
)
from allotment.core.queues.order import in_line, is_due
from allotment.core.queues.reservations import Hold, HoldsInForce, holds_in_force
from allotment.core.queues.resources import (
    MILLI,
    total_of,
)
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.round.holds import holds_now
from allotment.core.queues.round.kept import KeptRoom
from allotment.core.queues.round.places import Places
from allotment.core.queues.round.quota import (
    FIRST,
    QueueHolder,
    QueueLimit,
    holders_of,
    limits_of,
    reckoned,
    whole,
)
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.victims import keeping
from allotment.core.queues.session import Session, best_effort, why_unplaced
from allotment.core.queues.work import Job
from allotment.core.reasons import (
    GROUP_MISSING,
    QUEUE_UNKNOWN,
    QUOTA_CODES,
    REASONS,
    problem_text,
    shown_cause,
)
from allotment_proto.events import PodObserved, QuotaShort
from allotment_proto.facts import PodRequest

PLACEABLE, BLOCKED, _GATED, ANYWHERE = "placeable", "blocked", "gated", "anywhere"
"""The states of a waiting member."""
_QUEUES_NAMED = 8
"""How many queues are listed if one does not exist and no name is similar."""
_GUESSED_MAX = 64
"""The most queues whose names are searched for a similar one, because all are compared."""


class PodVerdict(NamedTuple):
    """What a round would try for a pod."""

    tries: tuple[PodObserved, ...]
    """The pod with each request that its round tries: one for each choice of cards, the preferred
    first, and first on the node that it was promised; only on nodes that can reach a volume for
    each of its claims. Unchanged if neither queues nor volumes limit it.
    """
    never_preempts: bool
    """Whether a `preemptionPolicy` keeps it from preempting others."""
    no: No | None = None
    """Why its queue or its group gives it nothing now, whatever is free."""
    queue: str = ""
    """The queue in which it waits; empty if it does not, or none is known."""
    waiting: tuple[str, ...] = ()
    """The names of those that wait there, in order."""
    short: tuple[QuotaShort, ...] = ()
    """The limits that reject it; empty if it is something else."""


class MemberVerdict(NamedTuple):
    """A pod of a group: its state, the node where it is or would go now, or what rejects it."""

    name: str
    role: str
    state: str
    node: str = ""
    no: No | None = None
    reasons: tuple[tuple[str, int], ...] = ()
    """The number of nodes by what they lack."""


class Outside(NamedTuple):
    """A group outside the order: its queue does not exist (`no`), or there are no queues."""

    no: No | None
    never_preempts: bool


class GroupVerdict(NamedTuple):
    """What a round would decide for a group, with every waiting member tried on top of those before
    it.
    """

    counts: Mapping[str, int]
    """Its pods by status."""
    priority: int
    never_preempts: bool
    """Whether a `preemptionPolicy` keeps some of its waiting pods from preempting others."""
    is_let_in: bool
    gate: No | None
    """Why it would not be admitted now, while it is not admitted."""
    members: tuple[MemberVerdict, ...]
    wanted: int
    """How many more pods must start together."""
    invalid: No | None
    """Why it has too few pods ever to start."""
    is_completed: bool
    is_ready: bool
    asked: tuple[PodRequest, ...]
    """The requests of its waiting members, each once, within the bounds of its queue."""
    waiting: tuple[str, ...]
    """The names of those that wait in its queue, in order."""
    queues: tuple[str, ...]
    """The queues that have waiting jobs, in order."""
    holds: tuple[Hold, ...]
    """What is held for it."""
    in_the_way: tuple[Hold, ...]
    """What is held for others and it could otherwise use."""
    queue: str = ""
    no: No | None = None
    """Why its queue gives it nothing now, or not enough, whatever is free."""
    short: tuple[QuotaShort, ...] = ()
    """The limits that reject it; empty if it is something else."""
    wants: tuple[tuple[PodRequest, int], ...] = ()
    """The requests of its waiting pods, each with the number of pods, in the order of `asked`."""
    least: Mapping[str, int] = MappingProxyType({})
    """What it is admitted for."""


class WaitingJob(NamedTuple):
    """A group, or a pod without one, that waits in a queue."""

    view: JobView
    is_pod: bool
    phase: str
    due: int
    """How many of its pods wait for a place."""
    passed: int
    """How many pods of others were placed since it was first found short."""
    no: No | None
    """The last answer to it, or what its admission would answer now."""


class Tried(NamedTuple):
    """What a round does with the pods that are due: for each one placed, by uid, how many of how
    many nodes it fits; and the uids of those rejected for the first time.
    """

    placed: Mapping[str, tuple[int, int]]
    unanswered: tuple[str, ...]


class QueueVerdict(NamedTuple):
    """What a queue may have, what it has, and the jobs that wait in it."""

    view: QueueView
    parent: str
    children: tuple[str, ...]
    plugin: str
    """The first plugin that limits it; empty if none does."""
    refuses: No | None
    phases: Mapping[str, int]
    """Its groups by phase, without lone pods."""
    queues: tuple[str, ...]
    limits: tuple[QueueLimit, ...]
    waiting: tuple[WaitingJob, ...]
    holds: tuple[Hold, ...]
    holders: tuple[QueueHolder, ...]
    """The holders of its quota, the largest part first; only if a job waits for some of it."""


class QueueRoom(NamedTuple):
    """What advice may try for a pod that a queue rejects."""

    queues: tuple[str, ...]
    """The open queues that accept pods, the first in order first."""
    holders: tuple[tuple[str, ...], ...]
    """The pods of each holder of the queue's quota, the largest part first."""
    left: Mapping[str, int]
    """How much of each limited resource is left in the queue, in the units of requests."""


class QuotaWait(NamedTuple):
    """The jobs that wait for the quota of a queue, by name and in order, and the holders of that
    quota.
    """

    waiting: tuple[str, ...]
    holders: tuple[QueueHolder, ...]


class _Opened(NamedTuple):
    """A session on a state, the holds, and the waiting jobs."""

    state: ClusterState
    session: Session
    holds: tuple[Hold, ...]
    waiting: dict[str, list[Job]]
    """By queue, in order."""


def tried_now(state: ClusterState) -> Tried:
    """What a round on this state does with the pods that are due, at most the first batch of them.

    Pods whose Binding failed are left out: the filter waits before it retries them.
    """
    pods = []
    for uid in state.pending:
        pod = state.pods[uid]
        woken = is_due(state, pod, pod.refused_basis) or pod.refused_basis < state.order_seq
        if woken and not pod.bind_failures:
            pods.append(pod)
    batch = [pod.fact.uid for pod in in_line(state, pods)[:BATCH_MAX]]
    outcome = Rounds(state).run(batch, Evaluator(state))
    answered = {refusal.uid for refusal in outcome.refusals}
    return Tried(
        placed={one.uid: (one.feasible, one.nodes) for one in outcome.placements},
        unanswered=tuple(u for u in batch if u in answered and state.pods[u].refusal is None),
    )


class ShutOut:
    """Why no round tries waiting pods, as their groups and queues are now. Each queue is checked
    once for all its pods; the state must not change meanwhile.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._queues: dict[str, No | None] = {}

    def why(self, fact: PodObserved) -> No | None:
        """Why no round tries this pod; None if rounds do."""
        state = self._state
        if not state.is_batched:
            return None
        queue, group = fact.queue or DEFAULT_QUEUE, state.groups.get(fact.group)
        if fact.group:
            if group is None or group.fact is None:
                return _missing_group(fact.group)
            queue = group.fact.queue
        if queue not in self._queues:
            self._queues[queue] = missing_queue(
                state, queue, may_guess=len(self._queues) < _GUESSED_MAX
            ) or _not_open(state, queue)
        return self._queues[queue]


def missing_queue(state: ClusterState, queue: str, *, may_guess: bool = True) -> No | None:
    """That a queue does not exist, with the most similar name or some existing ones; None if it
    exists. `may_guess`: whether similar names may be searched.
    """
    there = {*state.queues, DEFAULT_QUEUE}
    if queue in there:
        return None
    near = nearest(queue, there) if may_guess else ""
    names = sorted(there)
    left = len(names) - _QUEUES_NAMED
    more = f" and {left} more" if left > 0 else ""
    listed = f"there are {', '.join(names[:_QUEUES_NAMED])}{more}"
    meant = f"did you mean {near}?" if near else listed
    return No(QUEUE_UNKNOWN, f"queue {queue} does not exist; {meant}", queue)


def _missing_group(key: str) -> No:
    return No(GROUP_MISSING, f"PodGroup {key} does not exist")


def _not_open(state: ClusterState, queue: str) -> No | None:
    found = state.queues.get(queue)  # the default queue always exists
    return None if found is None or found.state == OPEN else closed(queue, found.state)


def verdict(state: ClusterState, fact: PodObserved) -> PodVerdict:
    """What a round on this state would try for the pod, and what its queue answers."""
    return Verdicts(state).of(fact)


class Verdicts:
    """What a round on this state would try for many pods. The session is opened once for all of
    them, and only for pods that queues limit. The state must not change meanwhile.
    """

    def __init__(self, state: ClusterState, rounds: Rounds | None = None) -> None:
        """`rounds` on this state, if the caller keeps any, whose last session ends with the first
        question; without any, all jobs are read again.
        """
        self._state = state
        self._rounds = rounds
        self._opened: _Opened | None = None
        self._waiting: dict[str, tuple[str, ...]] = {}

    def of(self, fact: PodObserved) -> PodVerdict:
        """What a round would try for one pod, and what the pod's queue answers."""
        state = self._state
        never = is_never(state, fact)
        if fact.uid not in state.pending:
            return PodVerdict((fact,), never)
        if fact.local_claims:
            request = within(fact.request, fact, state, taken(state))
            fact = msgspec.structs.replace(fact, request=request)
        if not state.is_batched:
            return PodVerdict((fact,), never)
        group = state.groups.get(fact.group)
        if fact.group and (group is None or group.fact is None):
            return PodVerdict((fact,), never, _missing_group(fact.group))
        if self._opened is None:
            self._opened = _open(state, self._rounds)
        return self._in_queue(self._opened, fact, never)

    def _in_queue(self, opened: _Opened, fact: PodObserved, never: bool) -> PodVerdict:
        session = opened.session
        uid = fact.group or SINGLE + fact.uid
        job = session.jobs.get(uid)
        if job is None or fact.uid not in job.tasks:
            view = session.unplaced.get(uid)
            return PodVerdict((fact,), never, None if view is None else why_unplaced(view))
        task, in_force = job.tasks[fact.uid], holds_in_force(session, opened.holds)
        if job.queue not in self._waiting:
            jobs = opened.waiting.get(job.queue, ())
            self._waiting[job.queue] = tuple(_name_of(each) for each in jobs)
        no = _refuses(opened, job) or in_force.closed(job) or in_force.allocatable(job, task)
        waiting = self._waiting[job.queue]
        return PodVerdict(
            _tries(opened, job, task, fact), never, no, job.queue, waiting, _short(opened, no)
        )


def group_verdict(state: ClusterState, key: str) -> GroupVerdict | Outside:
    """What a round would decide for the group ``<namespace>/<name>``, whose PodGroup is known."""
    opened = _open(state)
    session = opened.session
    job = session.jobs.get(key)
    pending = (uid for uid in state.groups[key].members if uid in state.pending)
    never_preempts = any(is_never(state, state.pods[uid].fact) for uid in pending)
    if job is None:
        no = why_unplaced(session.unplaced[key]) if state.is_batched else None
        return Outside(no, never_preempts)
    is_let_in = job.phase not in WAITING
    gate = None if is_let_in else session.job_enqueueable(job)
    members = tuple(_members(opened, job))
    fact = state.groups[key].fact
    queue = job.queue if fact is None else fact.queue
    bounds = Bounding(state).bounds(Limits(rules=session.node_rules(job)))
    due = [state.pods[task.uid].fact.request for task in session.due_tasks(job)]
    no = _no_of_group(opened, job, members)
    return GroupVerdict(
        counts={status.value: number for status, number in job.counts.items()},
        priority=job.view.priority,
        never_preempts=never_preempts,
        is_let_in=is_let_in,
        gate=None if job.view.min_resources is None else gate,
        members=members,
        wanted=max(job.view.min_member - job.ready_count, 0),
        invalid=session.job_valid(job),
        is_completed=bool(job.status)
        and all(status in COMPLETED_SET for status in job.status.values()),
        is_ready=session.job_ready(job),
        asked=tuple(dict.fromkeys(bounded(request, bounds) for request in due)),
        waiting=tuple(_name_of(each) for each in opened.waiting.get(queue, ())),
        queues=_queues(opened),
        holds=tuple(hold for hold in opened.holds if hold.job == key),
        in_the_way=tuple(_in_the_way(opened, job)),
        queue=queue,
        no=no,
        short=_short_of_group(opened, job, no),
        wants=tuple(Counter(due).items()),
        least={} if job.view.min_resources is None else whole(job.view.min_resources),
    )


def queue_verdict(state: ClusterState, name: str) -> QueueVerdict:
    """What a round would decide in a queue that the state knows."""
    opened = _open(state)
    session = opened.session
    queue = session.queue(name)
    refuses = session.overused(name) if opened.waiting.get(name) else None
    if queue.state != OPEN:
        refuses = closed(name, queue.state)
    is_short = bool(_waiting_for_quota(opened).get(name))
    jobs = session.jobs
    return QueueVerdict(
        view=queue,
        parent="" if name == ROOT else queue.parent,
        children=tuple(sorted(session.world.children.get(name, ()))),
        plugin=reckoned(session, name).plugin,
        refuses=refuses,
        phases=_phases(session, name),
        queues=_queues(opened),
        limits=limits_of(session, name),
        waiting=tuple(_waiting(opened, job) for job in opened.waiting.get(name, ())),
        holds=tuple(h for h in opened.holds if name in (h.queue, jobs[h.job].queue)),
        holders=holders_of(session, name) if is_short else (),
    )


def queue_room(state: ClusterState, name: str) -> QueueRoom:
    """What advice may try for a pod that this queue rejects."""
    opened = _open(state)
    session = opened.session
    world = session.world
    leaves = [
        queue
        for queue, view in world.queues.items()
        if view.state == OPEN and queue not in (ROOT, name) and not world.children.get(queue)
    ]
    known = name in world.queues
    lone: dict[tuple[str, str], list[str]] = {}
    for uid in state.singles:
        fact = state.pods[uid].fact
        lone.setdefault((fact.namespace, fact.name), []).append(uid)
    return QueueRoom(
        tuple(sorted(leaves, key=session.queue_key)),
        tuple(_pods_of(state, holder, lone) for holder in holders_of(session, name))
        if known
        else (),
        _left(session, name) if known else {},
    )


def _left(session: Session, name: str) -> dict[str, int]:
    return {
        limit.resource: max(limit.most - limit.allocated, 0)
        // (1 if limit.resource in FIRST else MILLI)
        for limit in limits_of(session, name)
        if limit.most is not None
    }


def round_outcome(state: ClusterState, batch: Sequence[str]) -> Outcome:
    """What a round would decide about a batch of any size."""
    return Rounds(state).run(batch, Evaluator(state), most=len(batch))


def _pods_of(
    state: ClusterState, holder: QueueHolder, lone: Mapping[tuple[str, str], Sequence[str]]
) -> tuple[str, ...]:
    """The pods of a quota's holder that have a place; `lone` are pods without a group that hold
    something, by namespace and name.
    """
    key = f"{holder.namespace}/{holder.name}"
    group = None if holder.is_pod else state.groups.get(key)
    if group is not None:
        members = (state.pods[uid] for uid in group.members if uid in state.pods)
    else:
        members = (state.pods[uid] for uid in lone.get((holder.namespace, holder.name), ()))
    return tuple(pod.fact.uid for pod in members if pod.allocation is not None)


def priority_of(state: ClusterState, fact: PodObserved) -> int:
    """The priority that pods of other jobs are compared with: that of its group, otherwise its
    own.
    """
    group = state.groups.get(fact.group)
    if group is not None and group.fact is not None:
        return group_priority(state, group)
    return fact.priority


def quota_waits(state: ClusterState) -> dict[str, QuotaWait]:
    """By queue, the jobs that wait for quota that others hold."""
    opened = _open(state)
    return {
        name: QuotaWait(tuple(map(_name_of, jobs)), holders_of(opened.session, name))
        for name, jobs in sorted(_waiting_for_quota(opened).items())
    }


def _open(state: ClusterState, rounds: Rounds | None = None) -> _Opened:
    return (rounds or Rounds(state)).ask(partial(_opened, state))


def _opened(state: ClusterState, session: Session) -> _Opened:
    holds = (*holds_now(state, session), *keeping(state))
    waiting: dict[str, list[Job]] = {}
    for job in session.world.waiting(session.jobs):
        if session.due_tasks(job) or job.phase in WAITING:
            waiting.setdefault(job.queue, []).append(job)
    for name, jobs in waiting.items():
        waiting[name] = session.in_job_order(jobs)
    known = tuple(hold for hold in holds if hold.job in session.jobs)
    return _Opened(state, session, known, waiting)


def _queues(opened: _Opened) -> tuple[str, ...]:
    return tuple(sorted(opened.waiting, key=opened.session.queue_key))


def _name_of(job: Job) -> str:
    """``namespace/name``; ``pod namespace/name`` for a pod without a group."""
    pod = "pod " if job.uid.startswith(SINGLE) else ""
    return f"{pod}{job.view.namespace}/{job.view.name}"


def _short(opened: _Opened, no: No | None) -> tuple[QuotaShort, ...]:
    """The amounts by which a limit rejects; empty if it is something else."""
    return () if no is None else recordable(no.short, opened.state.devices)


def _short_of_group(opened: _Opened, job: Job, no: No | None) -> tuple[QuotaShort, ...]:
    """The same for a group as a whole. Members are tried on top of each other, so the group's
    requests are added up, and what members got in the trial does not count as held.
    """
    short = _short(opened, no)
    if job.phase in WAITING or not short:
        return short
    held = {limit.resource: limit.allocated for limit in limits_of(opened.session, short[0].queue)}
    waiting = [t for t in job.tasks.values() if job.status[t.uid] is Status.PENDING]
    wanted = max(job.view.min_member - job.ready_count, 1)
    wants = total_of([task.request for task in waiting[:wanted]])
    return tuple(
        msgspec.structs.replace(
            each,
            held=max(held.get(each.resource, each.held), 0),
            wants=max(int(wants.amount(each.resource)), each.wants),
        )
        for each in short
    )


def _refuses(opened: _Opened, job: Job) -> No | None:
    """Why the queue gives a job nothing: admission, too few pods, or what it already has."""
    session = opened.session
    if job.phase in WAITING and "enqueue" in opened.state.policy.actions:
        gate = None if job.view.min_resources is None else session.job_enqueueable(job)
        if gate is not None:
            return gate
    return session.job_valid(job) or session.overused(job.queue)


def _no_of_group(opened: _Opened, job: Job, members: Iterable[MemberVerdict]) -> No | None:
    """Why the queue rejects a group, or the first of its members that it rejects."""
    no = _refuses(opened, job) or holds_in_force(opened.session, opened.holds).closed(job)
    if no is not None:
        return no
    of_queue = (m.no for m in members if m.no is not None and m.no.queue)
    return next(of_queue, None)


def _tries(opened: _Opened, job: Job, task: Task, fact: PodObserved) -> tuple[PodObserved, ...]:
    in_force = holds_in_force(opened.session, opened.holds)
    anywhere = in_force.limits(job)
    if in_force.allocatable(job, task) is None:
        anywhere = in_force.limits_of(job, task, anywhere)
    promised = in_force.node_of(job, task)
    bounding, kept = Bounding(opened.state), KeptRoom(opened.state)
    return tuple(
        kept.within(_within(fact, bounding.bounds(limits, cards)), limits.kept, limits.node)
        for limits in ((anywhere._replace(node=promised), anywhere) if promised else (anywhere,))
        for cards in limits.choices
    )


def _within(fact: PodObserved, bounds: Bounds) -> PodObserved:
    always = (*bounds_of(fact.request).always, *bounds.always)
    request = bounded(fact.request, bounds._replace(always=always))
    return msgspec.structs.replace(fact, request=request)


def _members(opened: _Opened, job: Job) -> Iterator[MemberVerdict]:
    tried = {member.name: member for member in _tried(opened, job)}
    free = {task.uid for task in best_effort(job)}
    for task in sorted(job.tasks.values(), key=opened.session.task_key):
        status = job.status[task.uid]
        if task.name in tried:
            yield tried[task.name]
        elif status is Status.PENDING:
            state = _GATED if task.gated else ANYWHERE if task.uid in free else status.value
            yield MemberVerdict(task.name, task.role, state)
        else:
            yield MemberVerdict(task.name, task.role, status.value, task.node)


def _tried(opened: _Opened, job: Job) -> list[MemberVerdict]:
    """Every member that waits for a place, tried on top of those before it. Unlike in a round all
    are tried, so that each gets its own reason. Those of a sub group find their places together or
    not at all, as in a round. Nothing stays assumed.
    """
    session, ranker = opened.session, Evaluator(opened.state)
    in_force = holds_in_force(session, opened.holds)
    no_part = in_force.closed(job) or session.overused(job.queue)
    due = in_force.in_turn(job, session.due_tasks(job))
    if no_part is not None:
        return [_blocked(task, no_part) for task in due]
    waiting, limits = list(due)[::-1], in_force.limits(job)
    statement = session.statement
    start = statement.checkpoint()
    found: list[MemberVerdict] = []
    ranker.begin()
    try:
        places = Places(opened.state, ranker, statement)
        while waiting:
            unit, lacking = take_unit(session, job, waiting)
            if lacking is not None:
                found += [_blocked(task, lacking) for task in unit]
                continue
            checkpoint = statement.checkpoint()
            placed: list[MemberVerdict] = []
            for task in unit:
                member = _try_one(session, in_force, places, job, task, limits)
                if member.no is None:
                    placed.append(member)
                    continue
                if placed:
                    statement.rollback(checkpoint)
                said = beside(task, member.no)
                others = (_blocked(one, said) for one in unit if one is not task)
                placed = [member, *others]
                break
            found += placed
    finally:
        statement.rollback(start)
        ranker.end()
    return found


def _try_one(
    session: Session,
    in_force: HoldsInForce,
    places: Places,
    job: Job,
    task: Task,
    limits: Limits,
) -> MemberVerdict:
    """The verdict on one member; a place that it finds is assumed."""
    no = in_force.allocatable(job, task)
    if no is not None:
        return _blocked(task, no)
    asked = in_force.limits_of(job, task, limits)
    answer = try_places(places.try_place, in_force, job, task, asked)
    if isinstance(answer, No):
        refusal = places.refusals.get(task.uid)
        return _blocked(task, answer, refusal.reasons if refusal else ())
    card = answer.card or (asked.cards[0] if asked.cards else "")
    session.assume(job, task, Status.ALLOCATED, card, answer.node)
    return MemberVerdict(task.name, task.role, PLACEABLE, answer.node)


def _blocked(task: Task, no: No, reasons: tuple[tuple[str, int], ...] = ()) -> MemberVerdict:
    return MemberVerdict(task.name, task.role, BLOCKED, no=no, reasons=reasons)


def _in_the_way(opened: _Opened, job: Job) -> Iterator[Hold]:
    for hold in opened.holds:
        alone = holds_in_force(opened.session, [hold])
        if alone.nodes(job) or alone.closed(job) is not None:
            yield hold


def _phases(session: Session, name: str) -> dict[str, int]:
    counts = Counter(
        job.phase.value or "Pending"
        for job in session.world.jobs_of(name)
        if not job.uid.startswith(SINGLE)
    )
    return dict(sorted(counts.items()))


def _waiting(opened: _Opened, job: Job) -> WaitingJob:
    group = opened.state.groups.get(job.uid)
    return WaitingJob(
        view=job.view,
        is_pod=group is None,
        phase=job.phase.value,
        due=len(opened.session.due_tasks(job)),
        passed=0 if group is None else group.passed,
        no=_why(opened, job),
    )


def _why(opened: _Opened, job: Job) -> No | None:
    """The last answer to a job, or what its admission would answer now."""
    state, session = opened.state, opened.session
    group = state.groups.get(job.uid)
    if group is None:
        refusal = state.pods[job.uid.removeprefix(SINGLE)].refusal
        if refusal is None:
            return None
        if refusal.problem is not None:
            code = refusal.problem.code
            return No(code, problem_text(refusal.problem).removeprefix(f"{code}: "))
        cause = shown_cause(refusal.reasons)
        return No(cause, REASONS[cause].text if cause in REASONS else "")
    if job.phase in WAITING:
        return None if job.view.min_resources is None else session.job_enqueueable(job)
    invalid = session.job_valid(job)
    if invalid is not None:
        return No(invalid.code, invalid.message)
    short = group.short
    if short is not None:
        fit = f"{short.together} of {short.wanted} that it needs at once fit together"
        return No(short.code, fit, short.queue)
    return None


def _waiting_for_quota(opened: _Opened) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for jobs in opened.waiting.values():
        for job in jobs:
            no = _why(opened, job)
            if no is not None and no.code in QUOTA_CODES:
                found.setdefault(no.queue or job.queue, []).append(job)
    return found
