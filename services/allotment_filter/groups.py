"""Which groups a cycle is opened for while order and quota go by queues: the filter's pure part.

A group is due when something happened since it was last tried that may let it pass its gate or get
its pods placed: room appeared, a queue or a class changed, or the group itself did. Due groups are
taken in turns over the queues, in the order of the policy's plugins, each with all of its pods, up
to a batch; a group larger than a batch comes alone. A pod without a group is one by itself. Where
the policy says so, the namespaces take turns among those of a queue that its plugins do not order.

Where something happens all the time, groups in front that find no place are due again before those
behind them had a turn. So a part of each batch is for groups that had none yet. Those that would be
refused once more as they were are left out, if nodes can be asked (`parked`).
"""

from collections.abc import Callable, Container
from typing import NamedTuple

from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.placement.cycle import BATCH_MAX
from allotment.core.placement.evaluator import Ranker
from allotment.core.queues.model import WAITING
from allotment.core.queues.order import room_seq
from allotment.core.queues.round.members import phase_of
from allotment.core.queues.round.rounds import Rounds
from allotment_filter.batches import Batch
from allotment_filter.effort import Effort
from allotment_filter.lines import Lines
from allotment_filter.orphans import orphans
from allotment_filter.parked import Class, Parked, Worth

TURN_PART = 4
"""One in so many of a full batch is for groups that had no turn yet since all had one."""


class GroupBatch(NamedTuple):
    """A batch, and the groups and single pods that are in it."""

    batch: Batch
    jobs: tuple[str, ...]


class Groups:
    """What is due on one state, and the caller's memory of what was tried."""

    def __init__(
        self, state: ClusterState, ranker: Callable[[], Ranker | None] | None = None
    ) -> None:
        """`ranker` makes one that asks the nodes (see `Parked`), if pods are to be parked."""
        self.state = state
        self.rounds = Rounds(state)
        self.left_out: dict[str, str] = {}
        """Jobs on which the choice of batches failed, each with the error."""
        self._ranker = ranker
        self._tried: dict[str, int] = {}
        self._had_a_turn: set[str] = set()
        """Groups tried since all that were due had a turn."""
        self._begin()

    def _begin(self) -> None:
        """The set of waiting groups is unknown."""
        self.lines = Lines(self._is_due)
        ranker = self._ranker
        self.parked = None if ranker is None else Parked(self.lines, self.rounds, ranker)
        self.effort = Effort()
        self._is_quiet = False
        """No pod was due or held back at the last check, and nothing has changed that since
        (`_may_be_due`)."""
        self._woken_seq = -1
        self._followed = -1
        self._last: GroupBatch | None = None

    def next_batch(
        self,
        held_back: Container[str],
        batch_max: int = BATCH_MAX,
    ) -> GroupBatch | None:
        """The next groups to try; None if none is due. Pods in `held_back` keep their group out;
        groups and single pods that are `in_cycle`, one that is not over, are skipped. If
        the check fails on some groups, they are left out.
        """
        try:
            return self._next_batch(held_back, batch_max)
        except Exception:
            found = self.rounds.leave_out()
            if not found:
                raise
            self.left_out.update(
                {**found.jobs, **{f"queue {n}": e for n, e in found.queues.items()}}
            )
        self._begin()
        return self._next_batch(held_back, batch_max)

    def _next_batch(self, held_back: Container[str], batch_max: int) -> GroupBatch | None:
        state = self.state
        if self._is_quiet and not self._may_be_due():
            return None
        session = self.rounds.session()
        is_held_back = False
        jobs: list[str] = []
        uids: list[str] = []
        for orphan in orphans(state, session, self._tried):
            if any(uid in held_back for uid in orphan.pods):
                is_held_back = True
            elif len(uids) < max(batch_max // TURN_PART, 1):
                jobs.append(orphan.key)
                uids += orphan.pods
        self._woken_seq = max(state.room_seq, state.order_seq)
        self._followed = state.trails.jobs.end
        self.lines.follow(session, self._woken_seq)
        parked = self.parked
        if parked is not None:
            parked.wake(session, self._woken_seq, batch_max)
        if not self.lines.is_any_due(self._had_a_turn):
            self._had_a_turn.clear()
        to_park: dict[Class, list[str]] = {}
        again, again_most = 0, batch_max - batch_max // TURN_PART
        self.effort.begin()
        for job in self.lines.in_turns(session):
            had_a_turn, tasks = job in self._had_a_turn, session.pods_to_place(job)
            if had_a_turn and uids and again + len(tasks) > again_most:
                continue
            if any(uid in held_back for uid in tasks):
                is_held_back = True
                continue
            if uids and len(uids) + len(tasks) > batch_max:
                if had_a_turn:
                    continue
                break
            if not self.effort.admits(job, [state.pods[uid].fact for uid in tasks]):
                continue
            if parked is not None and not self._is_news(job):
                worth = parked.worth(job, session, batch_max)
                if not isinstance(worth, Worth):
                    to_park.setdefault(worth, []).append(job)
                if worth is not Worth.A_TRY:
                    continue
            again += len(tasks) if had_a_turn else 0
            jobs.append(job)
            uids += tasks
        session.close()
        if parked is not None:
            parked.close()
            for under, waiting in to_park.items():
                self.lines.park(waiting, under)
        self._is_quiet = not (jobs or is_held_back or self.effort.has_passed_over)
        if not jobs:
            return None
        batch = Batch(self.state.seq, tuple(uids), ())
        self._last = GroupBatch(batch, tuple(jobs))
        return self._last

    def offered(self, found: GroupBatch) -> None:
        """Namespaces of the batch had their turn; called before `tried` if the next batch is chosen
        before the cycle of this one is over.
        """
        self.lines.offered(found.jobs)

    def tried(self, found: GroupBatch, *, is_offered: bool = False) -> None:
        """The batch's cycle came to an end; `is_offered` if that was said before."""
        if not is_offered:
            self.offered(found)
        if self.parked is not None and found is self._last:
            self.parked.tried()
        self._had_a_turn.update(found.jobs)
        self._tried.update(dict.fromkeys(found.jobs, found.batch.basis))
        if len(self._tried) > 2 * (len(self.state.groups) + len(self.state.pending)) + 1000:
            known = self.state.groups.keys() | {SINGLE + uid for uid in self.state.pending}
            self._tried = {uid: seq for uid, seq in self._tried.items() if uid in known}

    def _may_be_due(self) -> bool:
        """Whether something happened that may make a group due, where none was: asked for every
        record of the log, so it opens no session.
        """
        state = self.state
        names = state.trails.jobs.since(self._followed)
        self._followed = state.trails.jobs.end
        return (
            names is None
            or self._woken_seq != max(state.room_seq, state.order_seq)
            or any(self._may_wait(name) for name in set(names))
        )

    def _may_wait(self, name: str) -> bool:
        """Whether a job may have something to wait for: pods, its queue's gate, or its queue."""
        state = self.state
        if name.startswith(SINGLE):
            return name.removeprefix(SINGLE) in state.pending
        group = state.groups.get(name)
        if group is None:
            return False
        fact = group.fact
        return (
            any(uid in state.pending for uid in group.members)
            or (fact is not None and not group.admitted_seq and phase_of(fact) in WAITING)
            or (bool(group.queue) and group.queue not in state.queues)
        )

    def _is_news(self, job: str) -> bool:
        """Whether this group is not the one that was tried: some of its pods may not have got
        the answer yet."""
        group = None if job.startswith(SINGLE) else self.state.groups[job]
        return group is not None and group.changed_seq > max(
            self._tried.get(job, 0), group.short_basis
        )

    def _is_due(self, job: str) -> bool:
        """Whether something happened to a job that waits, or to all, since it was tried."""
        state = self.state
        if job.startswith(SINGLE):
            pod = state.pods[job.removeprefix(SINGLE)]
            changed_seq = max(pod.changed_seq, state.voided.get(pod.fact.uid, 0))
            known_seq, room = pod.refused_basis, room_seq(state, pod)
        else:
            group = state.groups[job]
            changed_seq, known_seq, room = group.changed_seq, group.short_basis, state.room_seq
        tried_seq = max(self._tried.get(job, 0), known_seq)
        return tried_seq == 0 or tried_seq < max(room, state.order_seq, changed_seq)
