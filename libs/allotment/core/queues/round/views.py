"""The state as the order and quota plugins see it (`queues.model.View`).

A job's view is rebuilt only when something about its group or its pods changed (the state's trail
names it), or something that all views depend on: priority classes, which pods this scheduler owns,
device names, and the cards of nodes. While there are queues, a pod without a group is a job of its
own in its queue. What pods hold counts even if their PodGroup is gone.
"""

from bisect import insort
from collections.abc import Iterable, Mapping

from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.queues.model import (
    Changes,
    Cluster,
    JobView,
    QueueView,
    View,
)
from allotment.core.queues.round.failing import Culprits, text_of
from allotment.core.queues.round.members import (
    is_made_for_pods,
    job_of,
    left_out,
    left_over,
    queue_of,
    single_of,
)
from allotment.core.queues.round.totals import Totals
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import QueueObserved


class Views:
    """The views of one state; unchanged ones are reused.

    `made` counts the views that were built.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.made = 0
        self.totals = Totals(state)
        self._jobs: dict[str, JobView] = {}
        self._failing: dict[str, tuple[JobView, str]] = {}
        """Jobs on which a session failed, as they were then, with the error."""
        self._failing_queues: dict[str, tuple[QueueObserved | None, str]] = {}
        """The same for queues."""
        self._created = _Latest()
        self._followed = -1
        self._made_from: tuple[object, ...] = ()
        self._queues: dict[str, tuple[QueueObserved, QueueView]] = {}
        self._queues_of: list[QueueObserved] | None = None
        self._all_queues: tuple[QueueView, ...] = ()
        self._shares: tuple[DeviceConfig | None, frozenset[str]] = None, frozenset()

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """The jobs by uid, as of the last `follow`."""
        return self._jobs

    def view(self) -> View:
        """The state now, jobs by uid."""
        self.follow()
        return View(
            cluster=self.cluster(),
            queues=self.queues(),
            jobs=tuple(self._jobs[uid] for uid in sorted(self._jobs)),
            now_ms=self.now_ms,
        )

    def follow(self) -> Changes | None:
        """Rebuild what changed; None: everything may have."""
        state = self.state
        failing = self._failing_queues.items()
        changed = [name for name, (fact, _) in failing if fact is not state.queues.get(name)]
        for name in changed:
            del self._failing_queues[name]
        made_from = tuple(state.classes.values()), state.policy_seq, state.devices_seq
        weighed_otherwise = self.totals.follow()
        names = state.trails.jobs.since(self._followed)
        self._followed = state.trails.jobs.end
        if names is None or changed or weighed_otherwise or made_from != self._made_from:
            self._made_from = made_from
            self._jobs.clear()
            self._created = _Latest()
            self._look_at(_all_jobs(state))
            return None
        return self._look_at(dict.fromkeys(names))

    def cluster(self) -> Cluster:
        """Totals over the nodes."""
        return Cluster(
            total=self.totals.offered,
            used=self.totals.used,
            cards=self.totals.cards,
            share_resources=self._share_resources(),
        )

    def _share_resources(self) -> frozenset[str]:
        config = self.state.devices
        if self._shares[0] is not config:
            names = (family.share_resources(config) for family in FAMILIES.values())
            self._shares = config, frozenset[str]().union(*names)
        return self._shares[1]

    def queues(self) -> tuple[QueueView, ...]:
        """The queues, the very same tuple as long as none changed."""
        state = self.state
        facts = [f for name, f in state.queues.items() if name not in self._failing_queues]
        if facts != self._queues_of:
            self._queues_of = facts
            queues = tuple(map(self._queue, facts))
            if state.is_batched and DEFAULT_QUEUE not in state.queues:  # it always exists
                queues = (*queues, QueueView(name=DEFAULT_QUEUE))
            self._all_queues = queues
        return self._all_queues

    @property
    def now_ms(self) -> int:
        """The newest known moment in Unix milliseconds: the recorded time, or when the youngest job
        was created.
        """
        return max(self.state.time_ms, self._created.value)

    def _look_at(self, uids: Iterable[str]) -> Changes:
        jobs, created = self._jobs, self._created
        changed: dict[str, JobView | None] = {}
        for uid in uids:
            before, now = jobs.get(uid), self._sound(uid)
            changed[uid] = now
            if now is not None:
                jobs[uid] = now
                if before is None:
                    created.add(now.created_ms)
                elif before.created_ms != now.created_ms:
                    created.remove(before.created_ms)
                    created.add(now.created_ms)
            elif before is not None:
                del jobs[uid]
                created.remove(before.created_ms)
        return changed

    def leave_out(self, found: Culprits) -> None:
        """Leave these queues and jobs out until something about them changes."""
        for name, error in found.queues.items():
            self._failing_queues[name] = self.state.queues.get(name), error
        for uid, error in found.jobs.items():
            self._failing[uid] = self._jobs[uid], error
        self._look_at([uid for uid in self._jobs if self._jobs[uid].queue in found.queues])
        self._look_at(found.jobs)

    def _sound(self, uid: str) -> JobView | None:
        """A job. One on which a session failed is left out until it changes, and so are the jobs
        of a queue on which one failed.
        """
        try:
            made = self._made(uid)
            if made is None or not (self._failing or self._failing_queues):
                return made
            _, error = self._failing_queues.get(made.queue, (None, ""))
            seen, own_error = self._failing.get(uid, (None, ""))
            if seen is not None and seen != made:
                del self._failing[uid]
            elif seen is not None:
                error = own_error
            return left_out(self.state, uid, error) if error else made
        except Exception as error:  # any error here is about this job, not about the others
            return left_out(self.state, uid, text_of(error))

    def _made(self, uid: str) -> JobView | None:
        """A job; None if none has this uid."""
        state = self.state
        self.made += 1
        if uid.startswith(SINGLE):
            pod = state.pods.get(uid.removeprefix(SINGLE))
            if pod is None or pod.fact.group:
                return None
            if pod.allocation is None:
                counts = pod.fact.uid in state.pending
            else:
                counts = pod.fact.scheduler in state.policy.scheduler_names
            return single_of(state, pod) if counts else None
        group = state.groups.get(uid)
        if group is None:
            return None
        if group.fact is not None:
            if not group.members and is_made_for_pods(group.fact):
                return None  # its pod is not tied to it yet and counts by itself, or is gone
            return job_of(state, uid, group, group.fact)
        # no queue: pods name a PodGroup that does not exist
        return left_over(state, uid, group) if group.queue else None

    def _queue(self, fact: QueueObserved) -> QueueView:
        known = self._queues.get(fact.name)
        if known is None or known[0] is not fact:
            known = self._queues[fact.name] = fact, queue_of(fact)
        return known[1]


class _Latest:
    """The greatest of moments that come and go; 0 if there are none."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sorted: list[int] = []
        """All that count, in order, and some that no longer do. Most come as the greatest so far:
        in a heap each of those would climb to its top.
        """

    def add(self, moment: int) -> None:
        count = self._counts.get(moment, 0)
        self._counts[moment] = count + 1
        if count:
            return
        known = self._sorted
        if not known or moment > known[-1]:
            known.append(moment)
        else:
            insort(known, moment)
        if len(known) > 2 * len(self._counts) + 64:
            self._sorted = sorted(self._counts)

    def remove(self, moment: int) -> None:
        count = self._counts[moment] - 1
        if count:
            self._counts[moment] = count
        else:
            del self._counts[moment]

    @property
    def value(self) -> int:
        known = self._sorted
        while known and known[-1] not in self._counts:
            known.pop()
        return known[-1] if known else 0


def _all_jobs(state: ClusterState) -> Iterable[str]:
    yield from state.groups
    for uid in (*state.pending, *state.singles) if state.is_batched else ():
        if not state.pods[uid].fact.group:
            yield SINGLE + uid
