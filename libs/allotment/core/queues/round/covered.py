"""Lone pods of one queue whose quota covers all of them: a round places them one after the other.

That is what most rounds are about where pods have no PodGroups. None of such pods can be refused at
the gate or by quota, whatever becomes of the others, so their order follows from what they are, and
nobody's books have to be kept while they are placed. What `actions.enqueue` and `actions.allocate`
find by asking job by job is the same, which `tests/property/test_covered_agrees.py` holds them to;
where it takes asking each, nothing is covered.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.queues.model import Lone, LoneKind, Status
from allotment.core.queues.plugins.base import Together
from allotment.core.queues.resources import Resources, Tally
from allotment.core.queues.round.holds import may_hold
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job


class Covered(NamedTuple):
    """Pods that may all have a place, as far as their queue goes."""

    pods: Mapping[str, Lone]
    """By the uid of the pod."""
    sample: Job
    """One that stands for each of them where it is only the queue that counts."""


class LonePods(NamedTuple):
    """Pods of one queue, each of which needs nothing else to be placed."""

    queue: str
    pods: Mapping[str, Lone]
    """By the uid of the pod."""
    counts: Mapping[LoneKind, int]
    """How many there are of each kind."""

    def all_covered(self, session: Session) -> Covered:
        return Covered(self.pods, session.world.sample(next(iter(self.counts))))


def lone_pods(session: Session, wanted: Collection[str]) -> LonePods | None:
    """The wanted jobs, if they are such pods; while plugins go by kind."""
    pods: dict[str, Lone] = {}
    counts: dict[LoneKind, int] = {}
    for uid in wanted:
        pod = session.world.source(uid)
        if not isinstance(pod, Lone):
            return None
        pods[pod.task] = pod
        counts[pod.kind] = counts.get(pod.kind, 0) + 1
    queues = {kind.queue for kind in counts}
    if len(queues) != 1 or not all(map(session.starts_alone, counts)):
        return None
    return LonePods(queues.pop(), pods, counts)


def covered(state: ClusterState, session: Session, wanted: Collection[str]) -> Covered | None:
    """The wanted jobs, if they are such pods. Nothing is held for anybody then."""
    if not session.goes_by_kind or may_hold(state) or session.world.has_groups_at_gate:
        return None
    found = lone_pods(session, wanted)
    if found is None:
        return None
    queue, counts = found.queue, found.counts
    at_gate, asked = Tally(), Tally()
    for kind, number in counts.items():
        least = kind.sample.min_resources
        if kind.is_at_gate and least is not None:
            at_gate.add(least, number)
        asked.add(kind.sample.tasks[0].request, number)
    if not session.lets_all_in({queue: at_gate.amounts()}):
        return None
    together = _together([kind.sample.tasks[0].request for kind in counts], asked.amounts())
    return found.all_covered(session) if session.covers(queue, together) else None


def in_order(session: Session, found: Covered) -> list[str]:
    """The uids of the pods, as their jobs would have their turns."""
    if len(found.pods) == 1:
        return list(found.pods)
    return [pod.task for pod in session.in_lone_order(found.pods.values())]


def take_over(session: Session, found: Covered, nodes: Mapping[str, str]) -> None:
    """Bring the session's books where they would be: all were let in, and those have places that
    have `nodes`, by pod.
    """
    for pod in found.pods.values():
        if pod.is_at_gate:
            session.let_in(session.jobs[pod.uid])
    for uid, node in nodes.items():
        job = session.jobs[found.pods[uid].uid]
        session.assume(job, job.tasks[uid], Status.ALLOCATED, node=node)


def _together(requests: Collection[Resources], total: Resources) -> Together:
    least = {name: min(one.amount(name) for one in requests) for name in total}
    return Together(requests, total, Resources(least))
