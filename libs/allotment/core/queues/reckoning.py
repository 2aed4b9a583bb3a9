"""What queues hold and have promised, kept up to date job by job.

A job's part in the book of its queue is counted when the job is new or changed. The sums are the
same as after a full count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from allotment.core.queues.model import JobView
from allotment.core.queues.resources import NOTHING, Resources, Tally


class QueueBook:
    """What one queue holds and has promised."""

    __slots__ = ("allocated", "elastic", "inqueue", "inqueue_of", "pending", "request")

    def __init__(self) -> None:
        self.allocated = NOTHING
        """What its tasks hold, with what this session gave them."""
        self.request = NOTHING
        """The same, with the requests of its pending tasks."""
        self.pending = NOTHING
        """The requests of its pending tasks when the session opened."""
        self.inqueue = NOTHING
        """What groups were admitted for and do not hold yet."""
        self.inqueue_of: dict[str, Resources] = {}
        """The same for each namespace that has such groups."""
        self.elastic = NOTHING
        """What groups hold beyond their minimum."""

    def beside(self, namespace: str | None) -> Resources:
        """What groups of a namespace (None: nothing) were promised in addition to what is held,
        less what groups could give back.
        """
        promised = NOTHING if namespace is None else self.inqueue_of.get(namespace, NOTHING)
        return promised.minus(self.elastic)

    def promised(self, minimum: Resources, namespace: str | None) -> Resources:
        """What counts against the limit when a group with this minimum asks for admission."""
        return minimum.plus(self.allocated).plus(self.beside(namespace))

    def promise(self, namespace: str, amounts: Resources) -> None:
        """Record that a group of a namespace was admitted for these amounts."""
        self.inqueue = self.inqueue.plus(amounts)
        self.inqueue_of[namespace] = self.inqueue_of.get(namespace, NOTHING).plus(amounts)

    def add_below(self, other: "QueueBook") -> None:
        """Add what a queue below this one holds and has promised."""
        self.allocated = self.allocated.plus(other.allocated)
        self.elastic = self.elastic.plus(other.elastic)
        for namespace, amounts in other.inqueue_of.items():
            self.promise(namespace, amounts)


class Books(dict[str, QueueBook]):
    """Books by queue, each made when it is first asked for: a round asks for few of many queues."""

    def __init__(self, make: Callable[[str], QueueBook]) -> None:
        self._make = make

    def __missing__(self, name: str) -> QueueBook:
        book = self[name] = self._make(name)
        return book


class Share(NamedTuple):
    """One job's part in the book of its queue."""

    allocated: Resources = NOTHING
    pending: Resources = NOTHING
    elastic: Resources = NOTHING
    inqueue: Resources = NOTHING


class _Entry(NamedTuple):
    """One job's part, and the queue and namespace that have it."""

    queue: str
    namespace: str
    share: Share


class Reckoning:
    """The shares of all jobs as one reader counts them, added up by queue."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._entries: dict[str, _Entry] = {}
        """By job, what was added for it."""
        self._tallies: dict[str, tuple[Tally, Tally, Tally]] = {}
        self._inqueue: dict[str, dict[str, Tally]] = {}
        """By queue, then by namespace."""
        self._stale: set[str] = set(jobs)

    def follow(self, changed: Iterable[str]) -> None:
        """Note which jobs changed; they are counted when the books are read."""
        self._stale.update(changed)

    def books(self, jobs: Mapping[str, JobView], share_of: Callable[[JobView], Share]) -> Books:
        """The books of the queues. `share_of` returns a job's part; it is called only for jobs that
        changed.
        """
        for uid in self._stale:
            before, job = self._entries.pop(uid, None), jobs.get(uid)
            now = None if job is None else _Entry(job.queue, job.namespace, share_of(job))
            if now is not None:
                self._entries[uid] = now
            if before != now:
                self._add(before, -1)
                self._add(now, 1)
        self._stale.clear()
        return Books(self._book)

    def promising(self) -> Collection[str]:
        """The queues with groups that were admitted for what they do not hold yet."""
        return self._inqueue.keys()

    def _add(self, entry: _Entry | None, times: int) -> None:
        if entry is None:
            return
        tallies = self._tallies.get(entry.queue)
        if tallies is None:
            tallies = self._tallies[entry.queue] = Tally(), Tally(), Tally()
        allocated, pending, elastic, inqueue = entry.share
        for tally, part in zip(tallies, (allocated, pending, elastic), strict=True):
            if part is not NOTHING:
                tally.add(part, times)
        if inqueue is not NOTHING:
            of_queue = self._inqueue.setdefault(entry.queue, {})
            of_queue.setdefault(entry.namespace, Tally()).add(inqueue, times)

    def _book(self, name: str) -> QueueBook:
        book = QueueBook()
        tallies = self._tallies.get(name)
        if tallies is not None:
            allocated, pending, elastic = [tally.amounts() for tally in tallies]
            book.allocated, book.pending = allocated, pending
            book.request = allocated.plus(pending) if pending else allocated
            book.elastic = elastic
            of_queue = self._inqueue.get(name, {})
            for namespace, tally in tuple(of_queue.items()):
                amounts = tally.amounts()
                if amounts:
                    book.promise(namespace, amounts)
                else:  # namespaces come and go
                    del of_queue[namespace]
                    if not of_queue:
                        del self._inqueue[name]
        return book
