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

    __slots__ = ("allocated", "elastic", "inqueue", "pending", "request")

    def __init__(self) -> None:
        self.allocated = NOTHING
        """What its tasks hold, and what this session gave them."""
        self.request = NOTHING
        """The same, and what its pending tasks ask for."""
        self.pending = NOTHING
        """What they asked for as the session opened."""
        self.inqueue = NOTHING
        """What groups were let in for and do not hold yet."""
        self.elastic = NOTHING
        """What groups hold beyond their minimum."""

    def promised(self, minimum: Resources) -> Resources:
        """What the queue would have to stand for if another group were let in."""
        return minimum.plus(self.allocated).plus(self.let_in)

    @property
    def let_in(self) -> Resources:
        """What was promised beside what is held, less what groups could give back of that."""
        return self.inqueue.minus(self.elastic)


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


_Job = TypeVar("_Job", bound=_InQueue)


class _Entry:
    """What one job adds, or each of a kind. Two are equal only if they are the same one."""

    __slots__ = ("queue", "share")

    def __init__(self, queue: str, share: Share) -> None:
        self.queue = queue
        self.share = share


class Reckoning:
    """The shares of all jobs as one plugin counts them, added up by queue."""

    def __init__(self, jobs: Mapping[str, JobView | Lone], *, by_kind: bool = True) -> None:
        """Without `by_kind` each of the lone pods is looked at as well."""
        self._by_kind = by_kind
        self._entries: dict[str, _Entry] = {}
        """By job, what was added for it."""
        self._kinds: dict[LoneKind, _Entry] = {}
        self._tallies: dict[str, tuple[Tally, Tally, Tally, Tally]] = {}
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
                now = self._entries[uid] = _Entry(job.queue, share_of(job))
                changes[now] = 1
        self._stale.clear()
        for kind, number in self._more.items():
            entry = self._kinds.get(kind)
            if entry is None:
                if len(self._kinds) >= _KINDS_MAX:
                    self._kinds.clear()
                entry = self._kinds[kind] = _Entry(kind.queue, share_of(sample_of(kind)))
            changes[entry] = number
        self._more.clear()
        for entry, times in changes.items():
            for tally, part in self._parts(entry):
                tally.add(part, times)
        return {name: self._book(name) for name in queues}

    def _parts(self, entry: _Entry) -> Iterator[tuple[Tally, Resources]]:
        tallies = self._tallies.get(entry.queue)
        if tallies is None:
            tallies = self._tallies[entry.queue] = Tally(), Tally(), Tally(), Tally()
        for tally, part in zip(tallies, entry.share, strict=True):
            if part is not NOTHING:
                yield tally, part

    def _book(self, name: str) -> QueueBook:
        book = QueueBook()
        tallies = self._tallies.get(name)
        if tallies is not None:
            allocated, pending, elastic, inqueue = [tally.amounts() for tally in tallies]
            book.allocated, book.pending = allocated, pending
            book.request = allocated.plus(pending) if pending else allocated
            book.elastic, book.inqueue = elastic, inqueue
        return book
