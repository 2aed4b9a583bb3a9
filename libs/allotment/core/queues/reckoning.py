"""What queues have and have promised, kept up to date job by job.

What a job adds to the books of its queue is counted when the job is new or changed; the sums are
those that counting everything anew would give.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from allotment.core.queues.resources import NOTHING, Resources, Tally


class QueueBook:
    """What one queue has and has promised."""

    __slots__ = ("allocated", "elastic", "inqueue", "request")

    def __init__(self) -> None:
        self.allocated = NOTHING
        """What its tasks hold, and what this session gave them."""
        self.request = NOTHING
        """The same, and what its pending tasks ask for."""
        self.inqueue = NOTHING
        """What groups were let in for and do not hold yet."""
        self.elastic = NOTHING
        """What groups hold beyond their minimum."""

    def promised(self, minimum: Resources) -> Resources:
        """What the queue would have to stand for if another group were let in."""
        return minimum.plus(self.allocated).plus(self.inqueue).minus(self.elastic)


class Share(NamedTuple):
    """What one job adds to the books of its queue."""

    allocated: Resources = NOTHING
    pending: Resources = NOTHING
    elastic: Resources = NOTHING
    inqueue: Resources = NOTHING


class Reckoning:
    """The shares of all jobs as one plugin counts them, added up by queue."""

    __slots__ = ("_shares", "_stale", "_tallies")

    def __init__(self, jobs: Iterable[str]) -> None:
        self._shares: dict[str, tuple[str, Share]] = {}
        self._tallies: dict[str, tuple[Tally, Tally, Tally, Tally]] = {}
        self._stale = set(jobs)

    def forget(self, jobs: Iterable[str]) -> None:
        """These jobs are new, other than they were, or gone."""
        self._stale.update(jobs)

    def books(
        self, queues: Collection[str], share_of: Callable[[str], tuple[str, Share] | None]
    ) -> dict[str, QueueBook]:
        """The books of these queues. `share_of` tells a job's queue and share, if there is such a
        job; it is asked only for those that changed.
        """
        for uid in self._stale:
            known = self._shares.pop(uid, None)
            if known is not None:
                for tally, part in self._parts(*known):
                    tally.remove(part)
            now = share_of(uid)
            if now is not None:
                self._shares[uid] = now
                for tally, part in self._parts(*now):
                    tally.add(part)
        self._stale.clear()
        return {name: self._book(name) for name in queues}

    def _parts(self, queue: str, share: Share) -> Iterator[tuple[Tally, Resources]]:
        tallies = self._tallies.get(queue)
        if tallies is None:
            tallies = self._tallies[queue] = Tally(), Tally(), Tally(), Tally()
        for tally, part in zip(tallies, share, strict=True):
            if part is not NOTHING:
                yield tally, part

    def _book(self, name: str) -> QueueBook:
        book = QueueBook()
        tallies = self._tallies.get(name)
        if tallies is not None:
            allocated, pending, elastic, inqueue = [tally.amounts() for tally in tallies]
            book.allocated = allocated
            book.request = allocated.plus(pending) if pending else allocated
            book.elastic, book.inqueue = elastic, inqueue
        return book
