"""The backfill action: places for pods that request nothing.

Such pods need no room, only a node that accepts them, so they are tried one by one after all
others, in queue, job and task order. The action does not fill gaps around a big job, which needs no
action of its own here, and it respects held nodes (see `reservations`).
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

from allotment.core.queues.actions.allocate import (
    COMMITTED,
    DISCARDED,
    Placed,
    PlacementPort,
    Promised,
    Turn,
)
from allotment.core.queues.answers import No
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import WAITING, Status, Task
from allotment.core.queues.reservations import Hold, holds_in_force
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job


def backfill(
    session: Session,
    port: PlacementPort,
    *,
    holds: Sequence[Hold] = (),
    wanted: Collection[str] | None = None,
    pending_too: bool = False,
) -> Iterator[Turn]:
    """One turn for each job with such pods; `wanted` limits the jobs (None: all). A job gives back
    what it found if it is not ready, or if it has nothing else and found less than its minimum.
    """
    in_force = holds_in_force(session, holds)
    tried = session.jobs.keys() if wanted is None else session.jobs.keys() & wanted
    queues: dict[str, list[Job]] = {}
    for uid in sorted(tried):
        if (job := session.jobs[uid]).best_effort_pending:
            queues.setdefault(job.queue, []).append(job)
    in_order = [
        session.in_job_order(queues[name]) for name in sorted(queues, key=session.queue_key)
    ]
    for job in itertools.chain.from_iterable(in_order):
        if job.phase in WAITING and not pending_too:
            continue
        tasks = _without_request(session, job)
        if tasks and session.job_valid(job) is None:
            yield _turn(session, port, job, tasks, in_force.limits(job))


def _without_request(session: Session, job: Job) -> list[Task]:
    pending = job.with_status(Status.PENDING)
    return sorted(
        (task for task in pending if task.is_best_effort and not task.gated),
        key=session.task_key,
    )


def _turn(
    session: Session, port: PlacementPort, job: Job, tasks: Sequence[Task], limits: Limits
) -> Turn:
    checkpoint = session.statement.checkpoint()
    before = job.ready_count
    placed: list[tuple[str, Placed | Promised]] = []
    refused: list[tuple[str, No]] = []
    for task in tasks:
        asked = limits._replace(bucket=session.bucket_points(job, task))
        answer = port.try_place(task, asked)
        if isinstance(answer, No):
            refused.append((task.uid, answer))
            continue
        status = Status.ALLOCATED if isinstance(answer, Placed) else Status.PIPELINED
        session.assume(job, task, status, node=answer.node)
        placed.append((task.uid, answer))
    ready = session.job_ready(job) and (before > 0 or job.ready_count >= job.view.min_member)
    if not ready:
        session.statement.rollback(checkpoint)
    return Turn(
        job.uid,
        job.queue,
        COMMITTED if ready else DISCARDED,
        tuple(placed),
        tuple(refused),
        together=len(placed),
        was_ready=before >= job.view.min_member,
    )
