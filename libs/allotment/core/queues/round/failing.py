"""Finds the jobs or queues that make the opening of a session raise, so that they can be left out.

A session is opened on all jobs at once, so without this a defect of a plugin in one job would end
every round. Trials on ever fewer jobs find the one without which the session opens. It is left out,
a queue with its jobs: it has no part in order and quota, and its pods are rejected with
`SchedulerDefect` and the error. It is retried once something about it has changed. What it holds
stays booked on its nodes, but does not count for its queue.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.model import WAITING, JobView, QueueView
from allotment.core.queues.session import Session

_FOUND_MAX = 16
"""The most that one search finds: if more fail, jobs are not the cause."""
_ERROR_CHARS_MAX = 200
_T = TypeVar("_T")

Open = Callable[[Sequence[QueueView], Sequence[JobView]], Session]
"""Opens a session on some queues and some jobs."""


class Culprits(NamedTuple):
    """What to leave out, each with its error: queues by name, jobs by uid. Empty if no session
    fails on any of them.
    """

    queues: Mapping[str, str]
    jobs: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.queues or self.jobs)


def culprits(queues: Sequence[QueueView], jobs: Sequence[JobView], open_on: Open) -> Culprits:
    """The queues and jobs on which a session fails."""
    if _error_of(lambda: open_on((), ())):
        return Culprits({}, {})
    failing = _failing(queues, lambda some: open_on(some, ()), lambda queue: queue.name)
    sound = [queue for queue in queues if queue.name not in failing]
    others = [job for job in jobs if job.queue not in failing]
    return Culprits(
        failing, _failing(others, lambda some: open_on(sound, some), lambda job: job.uid)
    )


def _failing(
    every: Sequence[_T], open_on: Callable[[Sequence[_T]], Session], name_of: Callable[[_T], str]
) -> Mapping[str, str]:
    found: dict[str, str] = {}
    left = list(every)

    def error_on(count: int) -> str:
        """The error with the first `count` of those left; empty without one."""
        return _error_of(lambda: open_on(left[:count]))

    while len(found) < _FOUND_MAX and error_on(len(left)):
        # The shortest row that fails ends with one that makes it fail.
        count = bisect_left(range(len(left)), True, key=lambda count: bool(error_on(count)))
        found[name_of(left[count - 1])] = error_on(count)
        del left[count - 1]
    return found


def text_of(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:_ERROR_CHARS_MAX]


def _error_of(opened: Callable[[], Session]) -> str:
    try:
        _ask_all(opened())
    except Exception as error:  # any error is what this looks for
        return text_of(error)
    return ""


def _ask_all(session: Session) -> None:
    """Ask the session about each job alone what it is asked before any pod is tried, and then about
    all together. An error that occurs only together would otherwise be attributed to one of them.
    """
    session.open_all()
    names = list(session.jobs)
    for name in session.world.by_queue:
        session.queue_key(name)
        session.overused(name)
    for uid in names:
        session.place_in_line(uid)
    for job in session.world.waiting(names):
        session.pods_to_place(job.uid)
        if job.view.is_single:
            session.refuses(job.uid)
        session.all_waiting(job.uid)
        session.job_valid(job)
        session.job_starving(job)
        if job.phase in WAITING and job.view.min_resources is not None:
            session.job_enqueueable(job)
        for task in session.due_tasks(job)[:1]:
            session.allocatable(job, task)
    enqueue(session, names)
