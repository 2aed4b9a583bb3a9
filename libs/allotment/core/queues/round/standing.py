"""That a queue's quota covers lone pods: how long that answer stands.

`covered` asks all plugins, on books that are brought up to date for each round. But from one round
to the next a few lone pods change, and most queues are far from their limits. So a session that
gave this answer says as well what it could *spare* beyond (`Session.spare`): as long as what has
come to be since, and the pods of a batch, are no more than that, the answer is the same, and nobody
has to be asked. What a pod may take is counted as its part of what can be spared: of the resource
of which that is the greatest part.

Whatever else changes ends it: jobs that are more than lone pods, nodes, queues, the policy.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.queues.actions.enqueue import without_queue
from allotment.core.queues.model import Changes, LoneKind
from allotment.core.queues.resources import Resources
from allotment.core.queues.round.covered import Covered, lone_pods
from allotment.core.queues.round.holds import may_hold
from allotment.core.queues.session import Session

_ALL = 1 << 40
"""All that can be spared, in parts. What a pod takes is rounded up to whole ones."""
_KINDS_MAX = 4096
"""So many kinds are counted; more end the answer."""
_PASSED_MAX = 64
"""The most answers that are passed over after some that did not stand for the next batch."""


class Stands(NamedTuple):
    """An answer that still stands, and the session that gave it. The books of its plugins are as
    they were then; it tells what follows from pods' kinds and from the queues alone.
    """

    session: Session
    covered: Covered


class Standing:
    """The last such answer of the rounds on one state, if it still stands."""

    def __init__(self) -> None:
        self._last: _Answer | None = None
        self._to_pass = self._passes = 0

    def forget(self) -> None:
        """Anything may have changed."""
        self._last = None

    def follow(self, changes: Changes) -> None:
        """Take note of what changed since the last round."""
        if self._last is not None and not self._last.follow(changes):
            self._last = None

    def find(self, state: ClusterState, wanted: Collection[str]) -> Stands | None:
        """What `covered.covered` would answer now; None where that has to be asked."""
        last = self._last
        if last is None or may_hold(state):
            return None
        found = last.covered(wanted)
        if found is None:
            return None
        self._passes = 0
        return Stands(last.session, found)

    def note(self, session: Session, found: Covered) -> None:
        """A session gave this answer just now, and nothing was done with it since it was opened.

        What can be spared is worth finding out if the next batch is told by it. Where queues are
        near their limits it is not, again and again, so ever more answers are passed over.
        """
        if self._to_pass:
            self._to_pass -= 1
            return
        self._to_pass, self._passes = self._passes, min(2 * self._passes + 1, _PASSED_MAX)
        queue = found.sample.queue
        spare = session.spare(queue)
        if spare is not None and not without_queue(session, ()):
            self._last = _Answer(session, queue, spare)


class _Answer:
    """What a session could spare for pods of a queue, and what of that may be gone."""

    def __init__(self, session: Session, queue: str, spare: Resources) -> None:
        self.session = session
        self._queue = queue
        self._spare = spare
        self._total = session.world.cluster.total
        self._parts: dict[Resources, int] = {}
        self._more: dict[LoneKind, int] = {}
        """How many more pods of each kind there are than there were."""
        self._taken = 0
        """What those may take together; what others gave back meanwhile is not counted."""

    def follow(self, changes: Changes) -> bool:
        """Take note of what changed; whether the answer may still stand."""
        if changes.others or len(self._more) > _KINDS_MAX:
            return False
        self._taken += self._parts_of((asked, 1) for asked in changes.strangers)
        for kind, number in changes.kinds.items():
            if number:
                before = self._more.get(kind, 0)
                after = self._more[kind] = before + number
                taken = max(after, 0) - max(before, 0)
                self._taken += self._parts_of(((kind.most, taken),))
        return self._taken <= _ALL and self.session.world.cluster.total is self._total

    def covered(self, wanted: Collection[str]) -> Covered | None:
        """The wanted jobs, if they are lone pods of the queue and no more than can be spared."""
        found = lone_pods(self.session, wanted)
        if found is None or found.queue != self._queue:
            return None
        asked = self._parts_of((kind.most, number) for kind, number in found.counts.items())
        return found.all_covered(self.session) if self._taken + asked <= _ALL else None

    def _parts_of(self, asked: Iterable[tuple[Resources, int]]) -> int:
        """What so many pods may take that ask for this."""
        taken = 0
        for each, number in asked:
            part = self._parts.get(each)
            if part is None:
                if len(self._parts) >= _KINDS_MAX:
                    self._parts.clear()
                part = self._parts[each] = self._part(each)
            taken += number * part
        return taken

    def _part(self, asked: Resources) -> int:
        left, parts = self._spare, [0]
        for name in asked.named:
            most = int(left.amount(name))
            parts.append(-(-_ALL * int(asked[name]) // most) if most > 0 else _ALL + 1)
        return max(parts)
