"""What queues have and have promised, kept up to date job by job.

What a job adds to the books of its queue is counted when the job is new or changed; the sums are
those that counting everything anew would give. Jobs of a kind are counted: of a thousand lone pods
that ask for the same one is looked at, and what it adds is added a thousand times at once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from allotment.core.queues.model import Changes, JobView, Lone, LoneKind
from allotment.core.queues.resources import NOTHING, Resources, Tally


class QueueBook:
    """What one queue has and has promised."""

    __slots__ = ("allocated", "elastic", "inqueue", "inqueue_of", "pending", "request")

    def __init__(self) -> None:
        self.allocated = NOTHING
        """What its tasks hold, and what this session gave them."""
        self.request = NOTHING
        """The same, and what its pending tasks ask for."""
        self.pending = NOTHING
        """What they asked for as the session opened."""
        self.inqueue = NOTHING
        """What groups were let in for and do not hold yet."""
        self.inqueue_of: dict[str, Resources] = {}
        """The same of each namespace that has such groups."""
        self.elastic = NOTHING
        """What groups hold beyond their minimum."""

    def beside(self, namespace: str | None) -> Resources:
        """What was promised to groups of a namespace (None: to nobody) beside what is held, less
        what groups could give back of that.
        """
        promised = NOTHING if namespace is None else self.inqueue_of.get(namespace, NOTHING)
        return promised.minus(self.elastic)

    def promised(self, minimum: Resources, namespace: str | None) -> Resources:
        """What counts when it is asked whether another group may be let in."""
        return minimum.plus(self.allocated).plus(self.beside(namespace))

    def at_most(self, minimum: Resources) -> Resources:
        """The most that may count then, whoever is asked about."""
        return minimum.plus(self.allocated).plus(self.inqueue).minus(self.elastic)

    def promise(self, namespace: str, amounts: Resources) -> None:
        """A group of a namespace was let in for so much."""
        self.inqueue = self.inqueue.plus(amounts)
        self.inqueue_of[namespace] = self.inqueue_of.get(namespace, NOTHING).plus(amounts)

    def add_below(self, other: "QueueBook") -> None:
        """Count what a queue below this one has and promised as well."""
        self.allocated = self.allocated.plus(other.allocated)
        self.elastic = self.elastic.plus(other.elastic)
        for namespace, amounts in other.inqueue_of.items():
            self.promise(namespace, amounts)


class Share(NamedTuple):
    """What one job adds to the books of its queue."""

    allocated: Resources = NOTHING
    pending: Resources = NOTHING
    elastic: Resources = NOTHING
    inqueue: Resources = NOTHING


_KINDS_MAX = 4096
"""So many kinds are remembered. Those that are forgotten are asked about once more."""


class _InQueue(Protocol):
    @property
    def queue(self) -> str: ...
    @property
    def namespace(self) -> str: ...


_Job = TypeVar("_Job", bound=_InQueue)


class _Entry:
    """What one job adds, or each of a kind. Two are equal only if they are the same one."""

    __slots__ = ("namespace", "queue", "share")

    def __init__(self, queue: str, namespace: str, share: Share) -> None:
        self.queue = queue
        self.namespace = namespace
        self.share = share


class Reckoning:
    """The shares of all jobs as one plugin counts them, added up by queue."""

    def __init__(self, jobs: Mapping[str, JobView | Lone], *, by_kind: bool = True) -> None:
        """Without `by_kind` each of the lone pods is looked at as well."""
        self._by_kind = by_kind
        self._entries: dict[str, _Entry] = {}
        """By job, what was added for it."""
        self._kinds: dict[LoneKind, _Entry] = {}
        self._tallies: dict[str, tuple[Tally, Tally, Tally]] = {}
        self._inqueue: dict[str, dict[str, Tally]] = {}
        """By queue, then by namespace."""
        self._stale: set[str] = set()
        self._more: dict[LoneKind, int] = {}
        """How many more lone pods of each kind there are than were added up."""
        for uid, job in jobs.items():
            if by_kind and isinstance(job, Lone):
                self._more[job.kind] = self._more.get(job.kind, 0) + 1
            else:
                self._stale.add(uid)

    def follow(self, changes: Changes) -> None:
        """Take note of what changed; it is counted when the books are asked for."""
        if not self._by_kind:
            self._stale.update(changes.jobs)
            return
        self._stale.update(changes.others)
        more = self._more
        for kind, number in changes.kinds.items():
            now = more.get(kind, 0) + number
            if now:
                more[kind] = now
            else:  # kinds come and go, and nobody may ask for the books for long
                more.pop(kind, None)

    def books(
        self,
        queues: Collection[str],
        job_of: Callable[[str], _Job | None],
        share_of: Callable[[_Job], Share],
        sample_of: Callable[[LoneKind], _Job],
    ) -> dict[str, QueueBook]:
        """The books of these queues. `job_of` tells if there is such a job; `share_of`, what it
        adds, is asked only for those that changed, and of a kind for its sample.
        """
        changes: dict[_Entry, int] = {}
        for uid in self._stale:
            before = self._entries.pop(uid, None)
            if before is not None:
                changes[before] = -1
            job = job_of(uid)
            if job is not None:
                now = self._entries[uid] = _Entry(job.queue, job.namespace, share_of(job))
                changes[now] = 1
        self._stale.clear()
        for kind, number in self._more.items():
            entry = self._kinds.get(kind)
            if entry is None:
                if len(self._kinds) >= _KINDS_MAX:
                    self._kinds.clear()
                sample = sample_of(kind)
                entry = self._kinds[kind] = _Entry(kind.queue, "", share_of(sample))
            changes[entry] = number
        self._more.clear()
        for entry, times in changes.items():
            for tally, part in self._parts(entry):
                tally.add(part, times)
        return {name: self._book(name) for name in queues}

    def _parts(self, entry: _Entry) -> Iterator[tuple[Tally, Resources]]:
        tallies = self._tallies.get(entry.queue)
        if tallies is None:
            tallies = self._tallies[entry.queue] = Tally(), Tally(), Tally()
        allocated, pending, elastic, inqueue = entry.share
        for tally, part in zip(tallies, (allocated, pending, elastic), strict=True):
            if part is not NOTHING:
                yield tally, part
        if inqueue is not NOTHING:
            of_queue = self._inqueue.setdefault(entry.queue, {})
            yield of_queue.setdefault(entry.namespace, Tally()), inqueue

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
        return book
