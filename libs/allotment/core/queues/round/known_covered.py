"""That a queue's quota covers lone pods: how long that is known.

`covered` asks all plugins, on books that are brought up to date for each round. But from one round
to the next a few lone pods change, and most queues are far from their limits. So a session that
gave this answer says as well what could be *spared* beyond (`Session.spare`): as long as what has
come to be since, and the pods of a batch, take no more than that, the answer is the same, and
nobody has to be asked.

What a pod may take is counted as its part of what can be spared: of the resource of which that is
the greatest part. What nodes hold does not follow from what pods ask for (a pod may be on a node
that is gone, or was resized since), so where a plugin counts it, it is counted as it is.

Whatever else changes ends it: jobs that are more than lone pods, nodes, queues, priority classes,
what devices are called, the policy, and a trail that is broken off.
"""

from collections.abc import Collection
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
"""The parts of so many requests are remembered, and so many kinds that became more or fewer are
counted; of more, nothing is known any longer.
"""
_SKIPPED_MAX = 64
"""The most answers that are skipped after some that were of no use to the next batch."""


class Known(NamedTuple):
    """An answer that holds, and the session that gave it. The books of its plugins are as they were
    then; it tells what follows from pods' kinds and from the queues alone.
    """

    session: Session
    covered: Covered


class KnownCovered:
    """The last such answer of the rounds on one state, as long as it holds."""

    def __init__(self) -> None:
        self._last: _Answer | None = None
        self._to_skip = self._skips = 0

    def forget(self) -> None:
        """Anything may have changed."""
        self._last = None

    def follow(self, changes: Changes) -> None:
        """Take note of what changed since the last round."""
        if self._last is not None and not self._last.follow(changes):
            self._last = None

    def find(self, state: ClusterState, wanted: Collection[str]) -> Known | None:
        """What `covered.covered` would answer now; None where that has to be asked."""
        last = self._last
        if last is None or may_hold(state):
            return None
        found = last.covered(wanted)
        if found is None:
            return None
        self._to_skip = self._skips = 0
        return Known(last.session, found)

    def note(self, session: Session, found: Covered) -> None:
        """A session gave this answer just now, and nothing was done with it since it was opened.

        To find out what can be spared is worth it if the next batch is told by it. Where queues are
        near their limits it is not, again and again, so ever more answers are skipped.
        """
        if self._to_skip:
            self._to_skip -= 1
            return
        self._to_skip, self._skips = self._skips, min(2 * self._skips + 1, _SKIPPED_MAX)
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
        cluster = session.world.cluster
        self._total = cluster.total
        self._used = cluster.used() if session.counts_use else None
        """What was in use on nodes, if that counts."""
        self._parts: dict[Resources, int] = {}
        self._more: dict[LoneKind, int] = {}
        """How many more pods of each kind there are than there were."""
        self._taken = 0
        """What those may take together; what others gave back meanwhile is not counted."""

    def follow(self, changes: Changes) -> bool:
        """Take note of what changed; whether the answer may still hold."""
        if changes.others or len(self._more) > _KINDS_MAX:
            return False
        for kind, number in changes.kinds.items():
            before = self._more.pop(kind, 0)
            after = before + number
            if after:
                self._more[kind] = after
            taken = max(after, 0) - max(before, 0)
            if taken:
                self._taken += taken * self._part_of(kind)
        return self._taken <= _ALL and self.session.world.cluster.total is self._total

    def covered(self, wanted: Collection[str]) -> Covered | None:
        """The wanted jobs, if they are lone pods of the queue and no more than can be spared."""
        found = lone_pods(self.session, wanted)
        if found is None or found.queue != self._queue:
            return None
        taken = self._taken
        for kind, number in found.counts.items():
            taken += number * self._part_of(kind)
        if taken <= _ALL and self._used is not None:
            taken += self._part(self.session.world.cluster.used().minus(self._used))
        return found.all_covered(self.session) if taken <= _ALL else None

    def _part_of(self, kind: LoneKind) -> int:
        part = self._parts.get(kind.most)
        if part is None:
            if len(self._parts) >= _KINDS_MAX:
                self._parts.clear()
            part = self._parts[kind.most] = self._part(kind.most)
        return part

    def _part(self, asked: Resources) -> int:
        """Which part of what can be spared this is."""
        parts = [0]
        for name in asked.named:
            most = int(self._spare.amount(name))
            parts.append(-(-_ALL * int(asked[name]) // most) if most > 0 else _ALL + 1)
        return max(parts)
