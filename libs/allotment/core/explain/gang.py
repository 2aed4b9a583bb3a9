"""Why a group runs or waits, at one sequence: its members are tried once more on this very state.

Nothing is guessed: order, quota and places are asked of the plugins and of the board that decide.
Unlike a round, all members are tried, so that each can be told what it lacks.
"""

from collections import Counter
from collections.abc import Iterator

from allotment.core.explain.pod import fits_empty_cluster
from allotment.core.explain.schema import AsOf, Subject
from allotment.core.explain.session import (
    GANG_SCHEMA,
    Bench,
    GangExplanation,
    GangStatus,
    Gate,
    Kept,
    Leaving,
    Member,
    Reason,
    Said,
    kept_of,
    name_of,
    open_bench,
    place_among,
    place_of_queue,
)
from allotment.core.ledger.model import ClusterState, Group
from allotment.core.placement.board.board import Board
from allotment.core.placement.rules.bounds import bounded
from allotment.core.queues.actions.allocate import try_places
from allotment.core.queues.answers import No
from allotment.core.queues.eligible import is_never
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import COMPLETED_SET, WAITING, Status, Task
from allotment.core.queues.reservations import fence
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.round.oracle import Places
from allotment.core.queues.round.rounds import best_effort
from allotment.core.queues.session import unknown_queue
from allotment.core.queues.work import Job
from allotment.core.units import rfc3339
from allotment_proto.events import GroupObserved

PLACEABLE, BLOCKED, GATED, ANYWHERE = "placeable", "blocked", "gated", "anywhere"


def explain_gang(state: ClusterState, key: str, as_of_ms: int) -> GangExplanation:
    """Explain the group ``<namespace>/<name>``. Raises KeyError for one that nobody named."""
    group = state.groups[key]
    namespace, _, name = key.partition("/")
    as_of = AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms)
    fact = group.fact
    subject = Subject(
        kind="PodGroup", namespace=namespace, name=name, uid="" if fact is None else fact.uid
    )
    if fact is None:
        return GangExplanation(
            schema=GANG_SCHEMA,
            subject=subject,
            as_of=as_of,
            status=GangStatus(phase="Unseen"),
            min_member=0,
            members=tuple(_plain_members(state, group)),
        )
    bench = open_bench(state)
    job = bench.session.jobs.get(key)
    since_s = max(as_of_ms - fact.created_ms, 0) // 1000 if fact.created_ms else 0
    if job is None:
        members: tuple[Member, ...] = tuple(_plain_members(state, group))
        status = _without_queue(bench, key, fact, since_s)
        counts = Counter(member.state for member in members)
        priority = 0
    else:
        gate = _gate(bench, job, group)
        members = tuple(_members(bench, job))
        status = _status(bench, job, fact, group, members, gate, since_s)
        counts = Counter({state.value: number for state, number in job.counts.items()})
        priority = job.view.priority
    queue = state.queues.get(fact.queue)
    names = [name_of(each) for each in bench.waiting.get(fact.queue, ())]
    return GangExplanation(
        schema=GANG_SCHEMA,
        subject=subject,
        as_of=as_of,
        status=status,
        min_member=fact.min_member,
        min_task_member=dict(fact.min_task_member),
        counts={name: number for name, number in sorted(counts.items()) if number},
        priority=priority,
        priority_class=fact.priority_class,
        preemptable=fact.preemptable,
        never_preempts=any(
            is_never(state, state.pods[uid].fact) for uid in group.members if uid in state.pending
        ),
        queue=fact.queue,
        queue_state="" if queue is None else queue.state,
        problem=None
        if fact.problem is None
        else Reason(code=fact.problem.code, message=f"{fact.problem.place} {fact.problem.message}"),
        gate=None if job is None else gate,
        said=_said(group),
        members=members,
        in_queue=place_among(names, key),
        queues=place_of_queue(bench, fact.queue) if key in names else None,
        kept=kept_of([hold for hold in bench.holds if hold.job == key]),
        in_the_way=() if job is None else _in_the_way(bench, job),
        leaving=tuple(
            Leaving(namespace=e.namespace, name=e.name, node=e.node, action=e.action)
            for e in state.evicting.values()
            if e.preemptor == key
        ),
    )


def reason_of(no: No) -> Reason:
    return Reason(code=no.code, message=no.message, queue=no.queue)


def _said(group: Group) -> Said | None:
    short = group.short
    if short is None:
        return None
    return Said(
        code=short.code,
        message=short.message,
        together=short.together,
        wanted=short.wanted,
        waiting=short.waiting,
        tried=short.tried,
        since=group.short_since,
        basis=group.short_basis,
        passed=group.passed,
    )


def _without_queue(bench: Bench, key: str, fact: GroupObserved, since_s: int) -> GangStatus:
    """The status of a group whose queue does not exist, or where no queue does."""
    phase, cause = "NotInUse", None
    if bench.state.is_batched:
        phase, cause = "NoQueue", reason_of(unknown_queue(bench.session.unplaced[key]))
    return GangStatus(phase=phase, cause=cause, since_seconds=since_s, group_phase=fact.phase)


def _gate(bench: Bench, job: Job, group: Group) -> Gate:
    said = group.gate
    refused = None
    if job.phase in WAITING:
        refused = bench.session.job_enqueueable(job)
    return Gate(
        let_in=job.phase not in WAITING,
        decision=group.admitted_seq,
        said=None
        if said is None or not said.code
        else Reason(code=said.code, message=said.message),
        now=None if refused is None or job.view.min_resources is None else reason_of(refused),
    )


def _status(
    bench: Bench,
    job: Job,
    fact: GroupObserved,
    group: Group,
    members: tuple[Member, ...],
    gate: Gate,
    since_s: int,
) -> GangStatus:
    session = bench.session
    together = sum(member.state in (PLACEABLE, ANYWHERE) for member in members)
    blocked = next((member.reason for member in members if member.state == BLOCKED), None)
    wanted = max(job.view.min_member - job.ready_count, 0)
    invalid = session.job_valid(job)
    cause: Reason | None = None
    if job.counts.total() and all(s in COMPLETED_SET for s in job.status.values()):
        phase = "Completed"
    elif not gate.let_in and "enqueue" in bench.state.policy.actions:
        phase, cause = "AtGate", gate.now
    elif invalid is not None:
        phase, cause = "Incomplete", reason_of(invalid)
    elif together or blocked is not None:
        phase, cause = ("Growing" if session.job_ready(job) else "Waiting"), blocked
    else:
        phase = "Placed" if session.job_ready(job) else "Waiting"
    if cause is None and phase == "Waiting" and together < wanted and group.short is not None:
        cause = Reason(code=group.short.code, message=group.short.message)
    due = session.due_tasks(job)
    bounds = Bounding(bench.state).bounds(Limits(rules=session.node_rules(job)))
    requests = {bounded(bench.state.pods[task.uid].fact.request, bounds) for task in due}
    return GangStatus(
        phase=phase,
        cause=cause,
        since_seconds=since_s,
        group_phase=fact.phase,
        wanted=wanted,
        together=together if due else None,
        fits_empty_cluster=all(fits_empty_cluster(bench.state, request) for request in requests)
        if due
        else None,
    )


def _members(bench: Bench, job: Job) -> Iterator[Member]:
    tried = {member.name: member for member in _tried(bench, job)}
    free = {task.uid for task in best_effort(job)}
    for task in sorted(job.tasks.values(), key=bench.session.task_key):
        status = job.status[task.uid]
        if task.name in tried:
            yield tried[task.name]
        elif status is Status.PENDING:
            state = GATED if task.gated else ANYWHERE if task.uid in free else status.value
            yield Member(name=task.name, role=task.role, state=state)
        else:
            yield Member(name=task.name, role=task.role, state=status.value, node=task.node)


def _tried(bench: Bench, job: Job) -> list[Member]:
    """Every member that wants a place, tried on top of those before it; nothing stays assumed."""
    session, board = bench.session, Board(bench.state)
    fenced = fence(session, bench.holds)
    closed, limits = fenced.closed(job) or session.overused(job.queue), fenced.limits(job)
    mark = session.mark()
    found = []
    board.begin()
    try:
        places = Places(bench.state, board)
        for task in fenced.in_turn(job, session.due_tasks(job)):
            no = closed or fenced.allocatable(job, task)
            if no is not None:
                found.append(_blocked(task, no, {}))
                continue
            asked = fenced.limits_of(job, task, limits)
            answer = try_places(places.try_place, fenced, job, task, asked)
            if isinstance(answer, No):
                refusal = places.refusals.get(task.uid)
                found.append(_blocked(task, answer, dict(refusal.reasons) if refusal else {}))
                continue
            card = answer.card or (asked.cards[0] if asked.cards else "")
            session.assume(job, task, Status.ALLOCATED, card)
            found.append(Member(name=task.name, role=task.role, state=PLACEABLE, node=answer.node))
    finally:
        board.end()
        session.undo(mark)
    return found


def _blocked(task: Task, no: No, reasons: dict[str, int]) -> Member:
    return Member(
        name=task.name, role=task.role, state=BLOCKED, reason=reason_of(no), reasons=reasons
    )


def _plain_members(state: ClusterState, group: Group) -> Iterator[Member]:
    for uid in group.members:
        pod = state.pods.get(uid)
        if pod is not None:
            node = pod.fact.node or (pod.allocation.node if pod.allocation else "")
            yield Member(name=pod.fact.name, role=pod.fact.role, state=pod.fact.phase, node=node)


def _in_the_way(bench: Bench, job: Job) -> tuple[Kept, ...]:
    """What is kept for others, of what the group would otherwise be given."""
    binding = []
    for hold in bench.holds:
        alone = fence(bench.session, [hold])
        if alone.nodes(job) or alone.closed(job) is not None:
            binding.append(hold)
    return kept_of(binding)
