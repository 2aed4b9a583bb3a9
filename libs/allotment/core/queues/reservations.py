"""Reservations: small jobs cannot starve a big gang.

A group that needs much at once may wait for ever while each piece that becomes free goes to a
smaller job behind it. Volcano's only remedy is `sla`. Ours counts, and has no clock:

1. **Counting.** From the round in which a group that is not ready was tried and rejected, every pod
   of another job that is placed counts as one that passed it, unless that job *outranks* it (by its
   queue's priority, then by its own). A group rejected for quota counts only pods in the queue
   whose quota was short, or below it. The fold counts (`ledger/groups.py`).
2. **Holding.** After `patience` pods have passed a *big* group (one that needs several pods or
   several cards at once), it gets a hold. If it lacks room, the hold is on *nodes*: the shortest
   row of nodes on which it would fit once everything there that ends by itself has ended, nodes
   with the least left to end first, then by name. If it lacks quota, the hold is on the *queue*. At
   most `most` groups have a hold at a time: the highest in rank, then those that wait longest. No
   two holds share a node.
3. **Enforcing.** Only the holder, and jobs that outrank it, may be placed on the held nodes, or in
   the held queue and those below. Small jobs fill the rest of the cluster and cannot delay the
   holder.
4. **Ending.** A hold lasts until the group is ready, is gone, or could no longer fit on its nodes
   even if they were empty; only then other nodes are chosen. A group that could not fit on the
   emptied cluster, or asks for more than its queue may ever have, gets none.

There is no starvation: only jobs that outrank the group add to what is held, so the group fits once
the pods there have ended. There is no deadlock: a hold is no allocation, and a group gets all that
it needs in one decision or nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from allotment.core.placement.rules.bounds import Excluded
from allotment.core.queues.answers import No
from allotment.core.queues.limits import Kept, Limits
from allotment.core.queues.model import ROOT, Status, Task
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment.core.reasons import HELD_FOR_GANG

_T = TypeVar("_T")


class Rule(msgspec.Struct, frozen=True):
    """`patience`: how many pods may pass a group; `pieces_least`: how many pods at once make a
    group big, each counted as often as it asks for cards; `most`: how many groups may have a hold
    at a time (0 turns reservations off).
    """

    patience: int = 64
    pieces_least: int = 2
    most: int = 1


class Wait(msgspec.Struct, frozen=True):
    """How long a group waits, in decisions: rejected first at sequence `since`, passed by `passed`
    pods since then. `queue` is the queue whose quota was short; empty: there was no room.
    """

    since: int
    passed: int = 0
    queue: str = ""


class Hold(msgspec.Struct, frozen=True):
    """What is held for a group until it has its minimum: nodes, or a queue's quota.

    `promised` are nodes by task, on which others were evicted for it. What the tasks ask for is
    reserved on these, with their part of the quota, even after the group has its minimum; only jobs
    of its queue that outrank it may use it.
    """

    job: str
    since: int
    nodes: tuple[str, ...] = ()
    queue: str = ""
    promised: tuple[tuple[str, str], ...] = ()


class Candidate(NamedTuple):
    """A node on which members of a group would fit if it were empty, and how many pods there will
    end by themselves. Nodes whose pods never end are no candidates.
    """

    node: str
    to_end: int


def outranks(session: Session, other: Job, waiting: Job) -> bool:
    """Whether a job may use what is held for another."""
    return _rank(session, other) > _rank(session, waiting)


def _rank(session: Session, job: Job) -> tuple[int, int]:
    return session.queue(job.queue).priority, job.view.priority


def _entitled(session: Session, waits: Mapping[str, Wait], rule: Rule) -> list[str]:
    """The groups that waited long enough for a hold, the first in rank first."""

    def place(uid: str) -> tuple[int, int, int, str]:
        queue_priority, priority = _rank(session, session.jobs[uid])
        return -queue_priority, -priority, waits[uid].since, uid

    return sorted((uid for uid in waits if _is_entitled(session, waits, uid, rule)), key=place)


def _is_entitled(session: Session, waits: Mapping[str, Wait], uid: str, rule: Rule) -> bool:
    return uid in waits and waits[uid].passed >= rule.patience and uid in session.jobs


def renew(
    session: Session,
    holds: Sequence[Hold],
    waits: Mapping[str, Wait],
    rule: Rule,
    candidates: Callable[[Job], Sequence[Candidate]],
    fits: Callable[[Job, Sequence[str]], bool],
    could_start: Callable[[Job], bool] = lambda _: True,
) -> tuple[Hold, ...]:
    """The holds of the next round. `fits` returns whether the group's minimum fits on some nodes
    once everything there that ends by itself has ended; it is called a dozen times for a new hold,
    once for an old one. `could_start` returns whether a group lacks nothing but room or quota.

    Many groups may wait and few have a hold, so the callbacks run only while a hold is available.
    """
    kept: list[Hold] = []
    taken: set[str] = set()
    for old in holds:
        if (
            not _is_entitled(session, waits, old.job, rule)
            or len(kept) >= rule.most
            or waits[old.job].queue != old.queue
            or not could_start(session.jobs[old.job])
        ):
            continue
        if old.queue or fits(session.jobs[old.job], old.nodes):
            kept.append(old)
            taken.update(old.nodes)
    held = {hold.job for hold in kept}
    for uid in _entitled(session, waits, rule) if len(kept) < rule.most else ():
        if len(kept) >= rule.most:
            break
        if uid in held:
            continue
        wait = waits[uid]
        job = session.jobs[uid]
        if wait.queue:
            if could_start(job) and session.quota_ever_covers(job):
                kept.append(Hold(uid, wait.since, queue=wait.queue))
            continue
        found = [one for one in candidates(job) if one.node not in taken]
        nodes = shortest(found, partial(fits, job)) if found and could_start(job) else ()
        if nodes:
            kept.append(Hold(uid, wait.since, nodes=nodes))
            taken.update(nodes)
    return tuple(kept)


def shortest(
    candidates: Sequence[Candidate], fits: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """The shortest row of nodes that is enough, those with the least to end first; empty if none
    is.
    """
    names = [one.node for one in sorted(candidates, key=lambda one: (one.to_end, one.node))]
    if not fits(names):
        return ()
    low, high = 0, len(names)  # fits with `high`, not known to fit with fewer than `low`
    while low < high:
        middle = (low + high) // 2
        if fits(names[:middle]):
            high = middle
        else:
            low = middle + 1
    return tuple(names[:high])


class HoldsInForce:
    """The holds that apply in a round."""

    def __init__(self, session: Session, holds: Sequence[Hold]) -> None:
        self._session = session
        self._holds = holds
        self._usual: dict[str, Limits] = {}
        """By queue, while there are no holds."""
        self._promises = [hold for hold in holds if hold.promised]
        self._places = {hold.job: dict(hold.promised) for hold in self._promises}
        self._kept = {
            hold.job: Kept(hold.promised, _whose_text(session, hold)) for hold in self._promises
        }

    def nodes(self, job: Job) -> frozenset[str]:
        """The nodes that a job must not use."""
        return frozenset(
            node for hold in self._holds if self._binds(hold, job) for node in hold.nodes
        )

    def limits(self, job: Job) -> Limits:
        """Where the job's tasks may go: what its queue may use, without what is held for others."""
        session = self._session
        if not self._holds:
            known = self._usual.get(job.queue)
            if known is None:
                known = Limits(rules=session.node_rules(job), points=session.node_points(job))
                self._usual[job.queue] = known
            return known
        excluded = tuple(
            Excluded(HELD_FOR_GANG, frozenset(hold.nodes), _whose_text(session, hold))
            for hold in self._holds
            if hold.nodes and not hold.promised and self._binds(hold, job)
        )
        return Limits(
            rules=session.node_rules(job),
            points=session.node_points(job),
            excluded=excluded,
            kept=self.kept_from(job),
        )

    def kept_from(self, job: Job) -> tuple[Kept, ...]:
        """The room on nodes that the job must leave to others."""
        return tuple(self._kept[hold.job] for hold in self._promises if self._binds(hold, job))

    def limits_of(self, job: Job, task: Task, limits: Limits) -> Limits:
        """The job's limits for one of its tasks: the cards that it may have now, the points of
        nodes next to tasks already placed, and what is reserved for other tasks of the job.
        """
        own = self._kept.get(job.uid)
        if own is not None:
            others = tuple(pair for pair in own.pods if pair[0] != task.uid)
            if others:
                limits = limits._replace(kept=(*limits.kept, Kept(others, own.text)))
        cards = self.cards(job, task)
        points = self._session.card_points(job, task) if cards else None
        bucket = self._session.bucket_points(job, task)
        if cards is None and bucket is None:
            return limits
        return limits._replace(cards=cards, card_points=points, bucket=bucket)

    def closed(self, job: Job) -> No | None:
        """Why a job gets none of its queue's quota for now; None if it may get some."""
        for hold in self._holds:
            chain = self._session.world.chain(job.queue)
            if hold.queue and hold.queue in chain and self._binds(hold, job):
                return No(HELD_FOR_GANG, _hold_text(self._session, hold), hold.queue)
        return None

    def node_of(self, job: Job, task: Task) -> str:
        """The node that was promised to a task; empty without one."""
        return self._places.get(job.uid, {}).get(task.uid, "")

    def in_turn(self, job: Job, tasks: Sequence[Task]) -> list[Task]:
        """A job's tasks in the order given, those with a promised node first. Otherwise another
        task of the job might take that node, and more pods would have to be evicted.
        """
        places = self._places.get(job.uid)
        return sorted(tasks, key=lambda task: task.uid not in places) if places else list(tasks)

    def allocatable(self, job: Job, task: Task) -> No | None:
        """Why there is no quota for a task if what was promised to others counts as theirs; None if
        there is.
        """
        return self._beside_promises(job, lambda: self._session.allocatable(job, task))

    def cards(self, job: Job, task: Task) -> tuple[str, ...] | None:
        """The cards for which there is quota then; None: any."""
        return self._beside_promises(job, lambda: self._session.cards(job, task))

    def _beside_promises(self, job: Job, ask: Callable[[], _T]) -> _T:
        if not self._promises:
            return ask()
        session = self._session
        queues = {*session.world.chain(job.queue)} - {ROOT}
        checkpoint = session.statement.checkpoint()
        for hold in self._promises:
            other = session.jobs[hold.job]
            if not self._binds(hold, job) or queues.isdisjoint(session.world.chain(other.queue)):
                continue
            for uid, _ in hold.promised:
                task = other.tasks.get(uid)
                if (
                    task is not None
                    and other.status[uid] is Status.PENDING
                    and session.allocatable(other, task) is None
                ):
                    card = next(iter(session.cards(other, task) or ()), "")
                    session.assume(other, task, Status.PIPELINED, card)
        answer = ask()
        session.statement.rollback(checkpoint)
        return answer

    def _binds(self, hold: Hold, job: Job) -> bool:
        """Whether a hold applies to a job. What was promised is kept from other queues whatever
        their rank: otherwise a job that had to give back what it borrowed would take it again.
        """
        if hold.job == job.uid:
            return False
        holder = self._session.jobs[hold.job]
        if hold.promised and job.queue != holder.queue:
            return True
        return not outranks(self._session, job, holder)


def holds_in_force(session: Session, holds: Sequence[Hold]) -> HoldsInForce:
    """The holds whose groups still wait and can be given something now."""
    return HoldsInForce(
        session,
        [
            hold
            for hold in holds
            if (job := session.jobs.get(hold.job)) is not None
            and (
                hold.promised
                or (not session.job_ready(job) and session.overused(job.queue) is None)
            )
        ],
    )


def _hold_text(session: Session, hold: Hold) -> str:
    """What is held for which group, and since when, in one line."""
    what = f"the quota of queue {hold.queue}" if hold.queue else f"nodes {', '.join(hold.nodes)}"
    return f"{what} {'is' if hold.queue else 'are'} {_whose_text(session, hold)}"


def _whose_text(session: Session, hold: Hold) -> str:
    """The group that something is held for, and since when."""
    view = session.jobs[hold.job].view
    name = f"{view.namespace}/{view.name}"
    if hold.promised:
        return f"kept for {name} until the pods that it evicts are gone"
    return (
        f"held for {name}, which waits since decision {hold.since} and was passed by too many pods"
    )
