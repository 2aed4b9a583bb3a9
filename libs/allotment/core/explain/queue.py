"""What a queue may have, what it has, and whom it keeps waiting, at one sequence.

The limits are those of the plugin that is in force: the same books that decide are shown.
"""

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from allotment.core.explain.schema import AsOf, Subject
from allotment.core.explain.session import (
    QUEUE_SCHEMA,
    Bench,
    Limit,
    QueueExplanation,
    QueueGroup,
    QueueHolder,
    Reason,
    kept_of,
    open_bench,
    place_of_queue,
)
from allotment.core.ledger.model import ClusterState
from allotment.core.queues.answers import closed
from allotment.core.queues.model import OPEN, ROOT, WAITING
from allotment.core.queues.plugins.capacity import Capacity
from allotment.core.queues.plugins.card import CapacityCard
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import CPU, MEMORY, NOTHING, PODS, Resources, largest_share
from allotment.core.queues.round.views import SINGLE
from allotment.core.queues.session import Session
from allotment.core.queues.shares import open_books, share_of
from allotment.core.queues.work import Job
from allotment.core.reasons import QUOTA_CODES
from allotment.core.units import rfc3339

FIRST = (CPU, MEMORY)
EXPLAINED = "explained"
"""Under this name the books are kept that no plugin counts."""


class _Reckoned(NamedTuple):
    """What the plugin in force makes of a queue."""

    plugin: str
    book: QueueBook
    request: Resources
    most: Resources | None = None
    """None: nothing is limited."""
    deserved: Resources | None = None
    is_strict: bool = False
    """CPU and memory that nobody named are limited to nothing, other names not at all."""


def explain_queue(state: ClusterState, name: str, as_of_ms: int) -> QueueExplanation:
    """Explain a queue. Raises KeyError for one that is not known."""
    fact = state.queues[name]
    bench = open_bench(state)
    session = bench.session
    queue = session.queue(name)
    refuses = session.overused(name) if bench.waiting.get(name) else None
    if queue.state != OPEN:
        refuses = closed(name, queue.state)
    is_short = bool(waiting_for_quota(bench).get(name))
    return QueueExplanation(
        schema=QUEUE_SCHEMA,
        subject=Subject(kind="Queue", namespace="", name=name, uid=fact.uid),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        state=queue.state,
        parent="" if name == ROOT else queue.parent,
        children=tuple(sorted(session.world.children.get(name, ()))),
        weight=queue.weight,
        priority=queue.priority,
        reclaimable=queue.reclaimable,
        plugin=reckoned(session, name).plugin,
        problem=None
        if fact.problem is None
        else Reason(code=fact.problem.code, message=f"{fact.problem.place} {fact.problem.message}"),
        refuses=None if refuses is None else Reason(code=refuses.code, message=refuses.message),
        groups=_phases(session, name),
        queues=place_of_queue(bench, name),
        limits=_limits(session, name),
        waiting=tuple(
            _group(bench, job, position, as_of_ms)
            for position, job in enumerate(bench.waiting.get(name, ()), start=1)
        ),
        kept=kept_of(
            [h for h in bench.holds if h.queue == name or session.jobs[h.job].queue == name]
        ),
        holders=holders(bench, name) if is_short else (),
    )


def waiting_for_quota(bench: Bench) -> dict[str, list[Job]]:
    """By queue, the jobs that wait until somebody gives back some of its quota."""
    found: dict[str, list[Job]] = {}
    for jobs in bench.waiting.values():
        for job in jobs:
            why = _why(bench, job)
            if why is not None and why.code in QUOTA_CODES:
                found.setdefault(why.queue or job.queue, []).append(job)
    return found


def holders(bench: Bench, name: str) -> tuple[QueueHolder, ...]:
    """Who has the quota of a queue, or of those below it: the largest part of it in front."""
    session = bench.session
    most = reckoned(session, name).most or session.world.cluster.total
    found: list[tuple[Fraction, str, QueueHolder]] = []
    for job in session.jobs.values():
        share = share_of(job)
        has = share.allocated.plus(share.inqueue)
        if (share.allocated or share.inqueue) and name in session.world.chain(job.queue):
            holder = QueueHolder(
                queue=job.queue,
                namespace=job.view.namespace,
                name=job.view.name,
                is_pod=job.uid.startswith(SINGLE),
                phase=job.phase.value,
                pods=job.allocated_count,
                allocated=_whole(share.allocated),
                promised=_whole(share.inqueue),
            )
            found.append((-Fraction(largest_share(has, most)), job.uid, holder))
    return tuple(holder for _, _, holder in sorted(found, key=lambda entry: entry[:2]))


def _whole(amounts: Resources) -> dict[str, int]:
    named = sorted(amounts.named, key=lambda name: (name not in FIRST, name))
    return {name: int(amounts[name]) for name in named if amounts[name] and name != PODS}


def reckoned(session: Session, name: str) -> _Reckoned:
    """The books of a queue, and the limits of the first plugin that sets some."""
    asked = open_books(session.world, EXPLAINED)[name]
    capacity, card = session.plugin("capacity"), session.plugin("capacity-card")
    proportion = session.plugin("proportion")
    if isinstance(capacity, Capacity):
        tree, book = capacity.tree, capacity.books[name]
        return _Reckoned(
            capacity.name, book, asked.request, tree.capability[name], tree.deserved[name]
        )
    if isinstance(card, CapacityCard):
        queue, book = session.queue(name), card.books[name]
        deserved = queue.deserved.plus(queue.card_quota or NOTHING)
        return _Reckoned(
            card.name, book, book.request, card.capability[name], deserved, is_strict=True
        )
    if isinstance(proportion, Proportion):
        book, due = proportion.books[name], proportion.deserved.get(name, NOTHING)
        return _Reckoned(proportion.name, book, book.request, proportion.capability[name], due)
    return _Reckoned("", asked, asked.request)


def _limits(session: Session, name: str) -> tuple[Limit, ...]:
    queue, found = session.queue(name), reckoned(session, name)
    quota = queue.card_quota or NOTHING
    book = found.book
    said = {*queue.capability, *queue.deserved, *queue.guarantee, *quota}
    used = {*book.allocated.named, *found.request.named, *book.inqueue.named} - {PODS}
    names = sorted(said | used, key=lambda n: (n not in FIRST, n))
    held = book.allocated.plus(found.request).plus(book.inqueue)
    limited = {*FIRST, *said, *session.world.listed(name, held)}
    return tuple(
        Limit(
            resource=n,
            allocated=int(book.allocated.amount(n)),
            promised=int(book.inqueue.amount(n)),
            request=int(found.request.amount(n)),
            deserved=None if found.deserved is None else _of(found.deserved, n, found.is_strict),
            most=None if n not in limited else _most(found, n, quota),
            capability=_of(queue.capability, n),
            guarantee=_of(queue.guarantee, n),
            card_quota=_of(quota, n),
        )
        for n in names
    )


def _most(found: _Reckoned, name: str, quota: Resources) -> int | None:
    """Card quotas limit CPU, memory and cards; other plugins what the cluster has."""
    if found.most is None:
        return None
    if found.is_strict and name not in (*FIRST, *quota):
        return None
    return int(found.most.amount(name))


def _of(amounts: Resources, name: str, is_strict: bool = False) -> int | None:
    return int(amounts[name]) if name in amounts else 0 if is_strict and name in FIRST else None


def _phases(session: Session, name: str) -> dict[str, int]:
    """Its groups by phase; pods without a group are none."""
    counts = Counter(
        job.phase.value or "Pending"
        for job in session.world.jobs_of(name)
        if not job.uid.startswith(SINGLE)
    )
    return dict(sorted(counts.items()))


def _group(bench: Bench, job: Job, position: int, as_of_ms: int) -> QueueGroup:
    view = job.view
    group = bench.state.groups.get(job.uid)
    return QueueGroup(
        position=position,
        namespace=view.namespace,
        name=view.name,
        is_pod=group is None,
        phase=job.phase.value,
        min_member=view.min_member,
        waiting=len(bench.session.due_tasks(job)),
        priority=view.priority,
        passed=0 if group is None else group.passed,
        since_seconds=max(as_of_ms - view.created_ms, 0) // 1000 if view.created_ms else 0,
        reason=_why(bench, job),
    )


def _why(bench: Bench, job: Job) -> Reason | None:
    """What was last said of it, or what its gate says now."""
    state, session = bench.state, bench.session
    group = state.groups.get(job.uid)
    if group is None:
        refusal = state.pods[job.uid.removeprefix(SINGLE)].refusal
        if refusal is None:
            return None
        code = refusal.problem.code if refusal.problem else (refusal.reasons or (("", 0),))[0][0]
        return Reason(code=code, message=refusal.problem.message if refusal.problem else "")
    if job.phase in WAITING:
        no = None if job.view.min_resources is None else session.job_enqueueable(job)
        return None if no is None else Reason(code=no.code, message=no.message, queue=no.queue)
    invalid = session.job_valid(job)
    if invalid is not None:
        return Reason(code=invalid.code, message=invalid.message)
    short = group.short
    if short is not None:
        fit = f"{short.together} of {short.wanted} that it needs at once fit together"
        return Reason(code=short.code, message=fit, queue=short.queue)
    return None
