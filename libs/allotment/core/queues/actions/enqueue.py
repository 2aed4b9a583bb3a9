"""The enqueue action: which groups are admitted, so that their pods may be created and placed.

The first queue admits one group, the first in job order; queues that no plugin tells apart take
turns. A group without `min_resources` is always admitted. A rejected group waits for the next round
and does not block those behind it.

A pod without a group counts as a group of one and is admitted for this round only, so only pods
that need a place in this round are asked about.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from allotment.core.queues.answers import No
from allotment.core.queues.model import WAITING
from allotment.core.queues.session import Session, why_unplaced
from allotment.core.queues.work import Job


class Enqueued(NamedTuple):
    """The outcome, in the order of decisions. Groups are named by uid."""

    let_in: tuple[str, ...]
    refused: tuple[tuple[str, No], ...]


def enqueue(session: Session, singles: Collection[str] = ()) -> Enqueued:
    """Admit groups, one queue after the other, and update the session's books and phases. Of pods
    without a group it considers only `singles`.
    """
    waiting: dict[str, list[Job]] = {}
    for job in session.world.at_gate(singles):
        if job.phase in WAITING:
            waiting.setdefault(job.queue, []).append(job)
    for name, jobs in waiting.items():
        waiting[name] = session.in_job_order(jobs)[::-1]  # the first in order at the end
    let_in: list[str] = []
    refused = list(_without_queue(session, singles))
    for tied in _tied(session, waiting):
        rows = [waiting[name] for name in tied]
        while rows:
            for row in rows:
                job = row.pop()
                is_asked = job.view.min_resources is not None
                no = session.job_enqueueable(job) if is_asked else None
                if no is None:
                    session.let_in(job)
                    let_in.append(job.uid)
                else:
                    refused.append((job.uid, no))
            rows = [row for row in rows if row]
    return Enqueued(tuple(let_in), tuple(refused))


def let_in_unasked(session: Session) -> Enqueued:
    """Admit every group whose queue exists, under a policy without the enqueue action; otherwise
    such groups would wait for their pods for ever. Source: Volcano's `allocate`.
    """
    waiting = [job for job in session.world.at_gate(()) if job.phase in WAITING]
    for job in waiting:
        session.let_in(job)
    unplaced = _without_queue(session, ())  # where there are pods, these get the reason
    refused = tuple((uid, no) for uid, no in unplaced if not session.unplaced[uid].tasks)
    return Enqueued(tuple(job.uid for job in waiting), refused)


def _without_queue(session: Session, singles: Collection[str]) -> tuple[tuple[str, No], ...]:
    """The rejections of groups without a queue; of pods without a group only `singles`."""
    return tuple(
        (uid, why_unplaced(view))
        for uid, view in sorted(session.unplaced.items())
        if view.phase in WAITING and (not view.is_single or uid in singles)
    )


def _tied(session: Session, names: Iterable[str]) -> Iterator[list[str]]:
    """The queues, first in order first; those that no plugin tells apart come together."""
    in_order = sorted(names, key=session.queue_key)
    for _, tied in groupby(in_order, key=lambda name: session.queue_key(name)[:-1]):
        yield list(tied)
