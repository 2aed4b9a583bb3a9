"""Pods that come and go in groups and queues: gates, quotas, gangs and evictions in virtual time.

The filter's batches and the scorer's rounds, as the services run them, on one state. The rest of
a cluster is simulated in the simplest way: a PodGroup's phase follows from its pods at once, and an
evicted pod that has an owner is replaced by one that runs its whole time again.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies.typical import Mix
from allotment.core.queues.phases import close
from allotment.core.queues.round.deadlines import has_passed
from allotment.core.queues.round.members import job_of
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.texts import Attempt
from allotment.core.queues.work import Job
from allotment_filter.groups import Groups
from allotment_lab.engine import Simulation
from allotment_lab.runs import TELL, ComeAndGo, Progress
from allotment_lab.workload import START_MS, Arrival
from allotment_proto.events import Event, GroupGone, GroupObserved, TimePassed

ROUNDS_MAX = 10_000
"""In one second. A scheduler that evicts what it places would never come to an end."""

ASSUMED = (
    "the same pods come as recorded, and run as long as they did, wherever they are put",
    "nodes are those at the end of the log, from the start",
    "groups, queues, quotas and evictions act at once; an evicted pod that has an owner is"
    " recreated and runs its whole time again, one without an owner is gone",
    "disruption budgets are not asked; no Job, Deployment or user reacts to what is different",
)


class Endless(Exception):
    """Raised when rounds of one second come to no end."""


class InQueues(ComeAndGo):
    """`facts` arrive at their seconds: queues, PodGroups, priority classes."""

    def __init__(
        self,
        simulation: Simulation,
        ranker: Ranker,
        mix: Mix,
        facts: Sequence[tuple[int, Event]],
    ) -> None:
        super().__init__(simulation, mix)
        self._ranker = ranker
        self._facts = facts
        self._groups = Groups(simulation.state, lambda: ranker)
        self._rounds = Rounds(simulation.state)
        self._arrivals: dict[str, Arrival] = {}
        self._left: set[str] = set()
        """Pods that were evicted: they do not leave once more."""
        self._ending: dict[str, GroupGone] = {}
        """Groups that were gone by now, and whose pods are not."""

    def run(self, arrivals: Sequence[Arrival], progress: Progress) -> None:
        if not arrivals:
            return
        self._arrivals = {arrival.fact.uid: arrival for arrival in arrivals}
        for at_s, event in self._facts:
            self._push(at_s, TELL, event)
        super().run(arrivals, progress)

    def _tell(self, event: Event) -> None:
        state = self._simulation.state
        match event:
            case GroupObserved():
                # Made again under its name while pods of the one before leave: it stays.
                self._ending.pop(f"{event.namespace}/{event.name}", None)
                known = _fact_of(state, event)
                phase = known.phase if known is not None and known.uid == event.uid else ""
                event = msgspec.structs.replace(event, phase=phase)
            case GroupGone():
                key = f"{event.namespace}/{event.name}"
                group = state.groups.get(key)
                if group is not None and group.members:
                    self._ending[key] = event
                    return
            case _:
                pass
        super()._tell(event)

    def _leave(self, arrival: Arrival) -> bool:
        uid = arrival.fact.uid
        if uid in self._left:
            return False
        state = self._simulation.state
        key = state.pods[uid].fact.group
        has_room = state.pods[uid].allocation is not None
        self._unplaced.pop(uid, None)
        self._simulation.leave(uid)
        self._after(key)
        return has_room

    def _after(self, key: str) -> None:
        """A pod of the group left."""
        group = self._simulation.state.groups.get(key)
        if group is not None and not group.members and key in self._ending:
            super()._tell(self._ending.pop(key))
        else:
            self._tell_phases([key])

    def _schedule(self, new: Iterable[str], *, is_there_room: bool) -> None:
        simulation, state = self._simulation, self._simulation.state
        now_ms = START_MS + 1000 * simulation.now_s
        if has_passed(state, now_ms):
            super()._tell(TimePassed(at_ms=now_ms))
        for _ in range(ROUNDS_MAX):
            found = self._groups.next_batch(())
            if found is None:
                return
            batch = found.batch.uids
            outcome = self._rounds.run(batch, self._ranker)
            decided = simulation.record(batch, outcome)
            self._groups.tried(found)
            for placement in decided.placements:
                self._runs(placement.uid)
            touched = {state.pods[p.uid].fact.group for p in decided.placements}
            touched.update(admission.group for admission in decided.admissions)
            for eviction in decided.evictions:
                touched.add(state.pods[eviction.uid].fact.group)
                simulation.evict(eviction)
                self._come_again(eviction.uid)
            self._tell_phases(sorted(touched))
        raise Endless(f"second {simulation.now_s}: {ROUNDS_MAX:,} rounds, and pods are due still")

    def _come_again(self, uid: str) -> None:
        """An evicted pod's controller makes another one."""
        self._left.add(uid)
        arrival = self._arrivals[uid]
        if not arrival.fact.owner:
            return
        now_s = self._simulation.now_s
        twin = arrival.renamed("-again")
        if twin.deleted_s is not None and twin.deleted_s <= now_s:
            return
        fact = msgspec.structs.replace(twin.fact, created_ms=START_MS + 1000 * now_s)
        again = Arrival(fact, now_s + 1, twin.deleted_s, twin.runs_s)
        self._arrivals[fact.uid] = again
        self._expect(again)

    def _tell_phases(self, keys: Iterable[str]) -> None:
        """What the controller and the binder write to PodGroups, where it is news."""
        state = self._simulation.state
        for key in keys:
            group = state.groups.get(key)
            if group is None or group.fact is None:
                continue
            view = job_of(state, key, group, group.fact)
            phase = close(Job(view), Attempt()).phase.value
            if phase != group.fact.phase:
                super()._tell(msgspec.structs.replace(group.fact, phase=phase))


def _fact_of(state: ClusterState, event: GroupObserved) -> GroupObserved | None:
    group = state.groups.get(f"{event.namespace}/{event.name}")
    return None if group is None else group.fact
