"""Who waits in which queue, in order: kept from batch to batch; only what changed is sorted anew.

A job's place in its queue follows from the job and from what the cluster has. Where the queues
stand among each other changes with every allocation, and is asked each time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterator

from allotment.core.queues.model import WAITING, Status
from allotment.core.queues.plugins.base import Order
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job, World

Entry = tuple[Order, str]


class Lines:
    """The jobs of one world that wait at a gate or for places. Who is found not to be due is passed
    over until something changes about the job, or all are woken.

    `is_due` says whether a job is worth a try. `sorted_in` and `visited` count the jobs that were
    given a place, and those that were looked at.
    """

    def __init__(self, is_due: Callable[[Job], bool]) -> None:
        self.sorted_in = 0
        self.visited = 0
        self._is_due = is_due
        self._world: World | None = None
        self._total: Resources | None = None
        self._followed = 0
        self._woken_seq = -1
        self._entries: dict[str, tuple[str, Entry]] = {}
        """All who wait: their queue, and their entry there."""
        self._all: dict[str, list[Entry]] = {}
        self._open: dict[str, list[Entry]] = {}
        """The same without those who were found not to be due."""
        self._idle: dict[str, set[str]] = {}
        """By queue, who was found not to be due and is still in `_open`."""

    def follow(self, session: Session, woken_seq: int) -> None:
        """Take over what changed. All are woken when `woken_seq` is another one than before."""
        world = session.world
        names = world.trail.since(self._followed) if world is self._world else None
        self._followed = world.trail.end
        self._pass_over()
        if names is None or self._total != world.cluster.total:
            self._world, self._total = world, world.cluster.total
            self._sort_all(session)
        else:
            for uid in set(names):
                self._take_out(uid)
                job = world.jobs.get(uid)
                if job is not None and _waits(job):
                    self._sort_in(session, job)
        if self._woken_seq != woken_seq:
            self._woken_seq = woken_seq
            self._open = {name: list(line) for name, line in self._all.items() if line}

    def in_turns(self, session: Session) -> Iterator[Job]:
        """Who is due, in job order within a queue, queues taking turns in queue order."""
        names = sorted((name for name in self._open), key=session.queue_key)
        rows = [self._due(session, name) for name in names]
        while rows:
            left = []
            for row in rows:
                job = next(row, None)
                if job is not None:
                    yield job
                    left.append(row)
            rows = left

    def is_any_due(self, session: Session, but: Container[str]) -> bool:
        """Whether anybody else than these is due."""
        return any(next(self._due(session, name, but), None) is not None for name in self._open)

    def _due(self, session: Session, name: str, but: Container[str] = ()) -> Iterator[Job]:
        jobs, idle = session.jobs, self._idle.setdefault(name, set())
        for _, uid in self._open[name]:
            if uid in but or uid in idle:
                continue
            self.visited += 1
            if self._is_due(jobs[uid]):
                yield jobs[uid]
            else:
                idle.add(uid)

    def _pass_over(self) -> None:
        for name, idle in self._idle.items():
            if idle:
                self._open[name] = [entry for entry in self._open[name] if entry[1] not in idle]
        self._idle.clear()

    def _sort_all(self, session: Session) -> None:
        self._entries.clear()
        self._all.clear()
        for job in session.jobs.values():
            if _waits(job):
                entry = session.job_key(job), job.uid
                self._entries[job.uid] = job.queue, entry
                self._all.setdefault(job.queue, []).append(entry)
        for line in self._all.values():
            line.sort()
        self._open = {name: list(line) for name, line in self._all.items()}
        self.sorted_in += len(self._entries)

    def _sort_in(self, session: Session, job: Job) -> None:
        entry = session.job_key(job), job.uid
        self._entries[job.uid] = job.queue, entry
        for lines in (self._all, self._open):
            insort(lines.setdefault(job.queue, []), entry)
        self.sorted_in += 1

    def _take_out(self, uid: str) -> None:
        name, entry = self._entries.pop(uid, ("", None))
        if entry is None:
            return
        for lines in (self._all, self._open):
            line = lines.get(name, [])
            at = bisect_left(line, entry)
            if at < len(line) and line[at] is entry:
                del line[at]


def _waits(job: Job) -> bool:
    """Whether a job waits at its queue's gate, or some of its pods for places."""
    return job.phase in WAITING or any(
        task.status is Status.PENDING and not task.gated for task in job.view.tasks
    )
