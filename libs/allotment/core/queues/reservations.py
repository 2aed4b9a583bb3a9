"""Reservations: big gangs are not starved by small jobs.

A group that needs much at once may wait for ever while each piece that becomes free goes to
somebody small behind it. Volcano has no remedy but `sla`. Ours counts, and has no clock:

1. **Counting.** From the round in which a group that is not ready was tried and refused, every pod
   of others that is placed counts as one that passed it, unless the other *outranks* it (by its
   queue's priority, or with equal queues' by its job's). A group refused by quota counts only pods
   in the queue whose quota was short, or below it. The fold counts (`fold_groups`).
2. **Holding.** When as many as `patience` pods have passed a group that is *big* (it needs several
   pods or several cards at once), a hold is made for it. Refused for want
   of room, it gets *nodes*: the shortest row of nodes on which it would fit if they were emptied
   of what ends by itself, nodes with the least left to end first, then by name. Refused for want
   of quota, it gets the *queue*. At most `most` groups have a hold at a time: the highest in rank,
   then the longest refused; no two hold a node together.
3. **Keeping off.** Only the holder, and jobs that outrank it, may be placed on the held nodes, or
   in the held queue and those below. Everybody else uses what else there is: small jobs fill the
   rest of the cluster meanwhile, and cannot delay the holder.
4. **Ending.** A hold lasts until the group is ready, gone, or could not fit on its nodes any more
   even if they were empty; then (only then) other nodes are chosen. A group that could not fit on
   the emptied cluster, or asks for more than its queue may ever have, gets none.

Why nobody starves: what is held only ever gets emptier, but for jobs that outrank the group, so
once the pods that run there have ended, the group fits. Why there is no deadlock: a hold is no
allocation, and groups take all they need in one decision or nothing; of two groups that wait, one
holds and goes first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from allotment.core.bounds import Barred
from allotment.core.queues.answers import HELD_FOR_GANG, KEPT_FOR_PREEMPTOR, No
from allotment.core.queues.limits import Limits
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job


class Rule(msgspec.Struct, frozen=True):
    """`patience`: pods that may pass; `pieces_least`: how many pods at once make a group big, each
    counted as often as it asks for cards; `most`: how many groups may have a hold at a time (0
    turns reservations off)."""

    patience: int = 64
    pieces_least: int = 2
    most: int = 1


class Wait(msgspec.Struct, frozen=True):
    """How long a group waits, in decisions: refused first at sequence `since`, passed by `passed`
    pods since. `queue` is the queue whose quota was short; empty: there was no room."""

    since: int
    passed: int = 0
    queue: str = ""


class Hold(msgspec.Struct, frozen=True):
    """What is held for a group: nodes, or a queue's quota; until it has its minimum, or, as long
    as pods leave for it, whatever it has (`is_promised`).
    """

    job: str
    since: int
    nodes: tuple[str, ...] = ()
    queue: str = ""
    is_promised: bool = False


class Candidate(NamedTuple):
    """A node on which members of a group could be, were it empty; and how many pods that will end
    by themselves stand in the way. Leave out nodes whose pods never end."""

    node: str
    to_end: int


def outranks(session: Session, other: Job, waiting: Job) -> bool:
    """Whether a job may take what is held for another."""
    return _rank(session, other) > _rank(session, waiting)


def _rank(session: Session, job: Job) -> tuple[int, int]:
    return session.queue(job.queue).priority, job.view.priority


def entitled(session: Session, waits: Mapping[str, Wait], rule: Rule) -> list[str]:
    """The groups that waited long enough for a hold, the first in front."""
    patient = [uid for uid, wait in waits.items() if wait.passed >= rule.patience]

    def place(uid: str) -> tuple[int, int, int, str]:
        queue_priority, priority = _rank(session, session.jobs[uid])
        return -queue_priority, -priority, waits[uid].since, uid

    return sorted((uid for uid in patient if uid in session.jobs), key=place)


def renew(
    session: Session,
    holds: Sequence[Hold],
    waits: Mapping[str, Wait],
    rule: Rule,
    candidates: Callable[[Job], Sequence[Candidate]],
    fits: Callable[[Job, Sequence[str]], bool],
) -> tuple[Hold, ...]:
    """The holds of the next round. `fits` says whether the group's minimum fits on some nodes, were
    they emptied of what ends by itself; it is asked a dozen times for a new hold, once for an old.
    """
    kept: list[Hold] = []
    taken: set[str] = set()
    hopeful = entitled(session, waits, rule)
    for old in holds:
        if old.job not in hopeful or len(kept) >= rule.most or waits[old.job].queue != old.queue:
            continue
        if old.queue or fits(session.jobs[old.job], old.nodes):
            kept.append(old)
            taken.update(old.nodes)
    held = {hold.job for hold in kept}
    for uid in hopeful:
        if len(kept) >= rule.most:
            break
        if uid in held:
            continue
        wait = waits[uid]
        job = session.jobs[uid]
        if wait.queue:
            if session.quota_ever_covers(job):
                kept.append(Hold(uid, wait.since, queue=wait.queue))
            continue
        nodes = shortest(
            [one for one in candidates(job) if one.node not in taken], partial(fits, job)
        )
        if nodes:
            kept.append(Hold(uid, wait.since, nodes=nodes))
            taken.update(nodes)
    return tuple(kept)


def shortest(
    candidates: Sequence[Candidate], fits: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """The shortest row of nodes, those with the least to end first, that is enough; else none."""
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


class Fence:
    """The holds that are in force in a round."""

    def __init__(self, session: Session, holds: Sequence[Hold]) -> None:
        self._session = session
        self._holds = holds

    def nodes(self, job: Job) -> frozenset[str]:
        """The nodes that a job must leave alone."""
        return frozenset(
            node for hold in self._holds if self._binds(hold, job) for node in hold.nodes
        )

    def limits(self, job: Job) -> Limits:
        """Where the job's tasks may go: what its queue may use, without what is others'."""
        session = self._session
        barred = tuple(
            Barred(
                KEPT_FOR_PREEMPTOR if hold.is_promised else HELD_FOR_GANG,
                frozenset(hold.nodes),
                whose_text(session, hold),
            )
            for hold in self._holds
            if hold.nodes and self._binds(hold, job)
        )
        return Limits(None, session.node_rules(job), session.node_points(job), barred)

    def closed(self, job: Job) -> No | None:
        """Why a job gets nothing of its queue's quota for now."""
        for hold in self._holds:
            chain = self._session.world.chain(job.queue)
            if hold.queue and hold.queue in chain and self._binds(hold, job):
                return No(HELD_FOR_GANG, hold_text(self._session, hold), hold.queue)
        return None

    def _binds(self, hold: Hold, job: Job) -> bool:
        if hold.job == job.uid:
            return False
        return not outranks(self._session, job, self._session.jobs[hold.job])


def fence(session: Session, holds: Sequence[Hold]) -> Fence:
    """The holds whose groups still wait, and may be given something now."""
    return Fence(
        session,
        [
            hold
            for hold in holds
            if (job := session.jobs.get(hold.job)) is not None
            and (hold.is_promised or not session.job_ready(job))
            and session.overused(job.queue) is None
        ],
    )


def hold_text(session: Session, hold: Hold) -> str:
    """What is held for whom, and since when, in one line."""
    what = f"the quota of queue {hold.queue}" if hold.queue else f"nodes {', '.join(hold.nodes)}"
    return f"{what} {'is' if hold.queue else 'are'} {whose_text(session, hold)}"


def whose_text(session: Session, hold: Hold) -> str:
    """For whom something is held, and since when."""
    view = session.jobs[hold.job].view
    name = f"{view.namespace}/{view.name}"
    if hold.is_promised:
        return f"kept for {name} until the pods that it evicts are gone"
    return (
        f"held for {name}, which waits since decision {hold.since} and was passed by too many pods"
    )
