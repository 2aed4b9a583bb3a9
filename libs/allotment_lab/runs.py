"""The two ways to run a workload: arrivals one at a time, or pods that come and go.

One at a time: no departures, a pod that does not fit is dropped (the published experiment). Coming
and going: pods arrive and are deleted when the workload says so; those that do not fit wait, in the
scheduler's order, for room, until they are placed or deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from allotment.core.placement.policies.typical import Mix
from allotment.core.queues.order import in_line
from allotment_lab.engine import Simulation, Totals
from allotment_lab.measures import fragmented_milli, idle_cards
from allotment_lab.workload import Arrival
from allotment_proto.events import Event
from allotment_proto.facts import PodRequest

FRAGMENT_SAMPLES = 20
TELL, LEAVE, ARRIVE, LEAVE_AT_ONCE = range(4)
"""What happens in one second, in this order; the last are pods that lived less than a second."""

Progress = Callable[[int], None]
"""Called with the number of arrivals done since the last call."""


class _Step(NamedTuple):
    """Something that happens, in order of time, kind and number."""

    at_s: int
    kind: int
    number: int
    what: Arrival | Event


def one_by_one(
    simulation: Simulation,
    arrivals: Sequence[Arrival],
    fixed: Sequence[Arrival],
    progress: Progress,
) -> None:
    """Pods that others placed and that stay, then every arrival, a second apart."""
    for arrival in fixed:
        if arrival.deleted_s is None:
            simulation.observe(arrival)
    for arrival in arrivals:
        simulation.now_s += 1
        uid = simulation.observe(arrival)
        if not simulation.decide(uid):
            simulation.leave(uid)
        simulation.point()
        progress(1)


class ComeAndGo:
    """Pods that arrive and leave at the seconds that the workload says."""

    def __init__(self, simulation: Simulation, mix: Mix) -> None:
        self._simulation = simulation
        self._mix = mix
        self._steps: list[_Step] = []
        self._pushed = 0
        self._unplaced: dict[str, Arrival] = {}
        self._waiting: dict[PodRequest, dict[str, None]] = {}
        self._fragments_milli: list[int] = []
        self._idle_cards: list[int] = []
        self._allocated_milli_s = 0
        self._start_s = 0
        self._end_s = 0

    def run(self, arrivals: Sequence[Arrival], progress: Progress) -> None:
        if not arrivals:
            return
        for arrival in arrivals:
            self._expect(arrival)
        self._start_s = self._simulation.now_s = min(a.created_s for a in arrivals)
        self._end_s = max(arrival.created_s for arrival in arrivals)
        while self._steps:
            self._pass_time(self._steps[0].at_s)
            self._second(progress)
            self._sample()

    def totals(self) -> Totals:
        """The run. Allocation and fragmentation are means over the time in which pods arrive."""
        found = self._simulation.totals(self._mix)
        span_s, samples = self._end_s - self._start_s, self._fragments_milli
        if not span_s:
            return found
        return found._replace(
            allocated_milli=self._allocated_milli_s // span_s,
            fragmented_milli=sum(samples) // len(samples),
            idle_cards=sum(self._idle_cards) // len(samples),
        )

    def _expect(self, arrival: Arrival) -> None:
        self._push(arrival.created_s, ARRIVE, arrival)
        if arrival.deleted_s is not None:
            at_once = arrival.deleted_s <= arrival.created_s
            self._push(arrival.deleted_s, LEAVE_AT_ONCE if at_once else LEAVE, arrival)

    def _push(self, at_s: int, kind: int, what: Arrival | Event) -> None:
        self._pushed += 1
        heappush(self._steps, _Step(at_s, kind, self._pushed, what))

    def _pass_time(self, to_s: int) -> None:
        simulation = self._simulation
        passed_s = max(min(to_s, self._end_s) - simulation.now_s, 0)
        self._allocated_milli_s += simulation.allocated_milli * passed_s
        simulation.now_s = to_s

    def _sample(self) -> None:
        """Measure fragments now and then; it costs more than a decision."""
        done, span_s = len(self._fragments_milli), self._end_s - self._start_s
        passed_s = self._simulation.now_s - self._start_s
        if done * span_s <= passed_s * FRAGMENT_SAMPLES and passed_s <= span_s:
            state = self._simulation.state
            behind = passed_s * FRAGMENT_SAMPLES // max(span_s, 1) + 1 - done
            self._fragments_milli += [fragmented_milli(state, self._mix)] * behind
            self._idle_cards += [idle_cards(state)] * behind

    def _due(self, kind: int) -> Iterator[Arrival]:
        """The pods to which something of a kind happens now."""
        steps, now_s = self._steps, self._simulation.now_s
        while steps and steps[0][:2] == (now_s, kind):
            arrival = heappop(steps).what
            assert isinstance(arrival, Arrival), "facts happen in seconds of their own kind"
            yield arrival

    def _second(self, progress: Progress) -> None:
        """Advance one second: free what finished pods held, then schedule waiting and new pods."""
        simulation = self._simulation
        self._tell_facts()
        made_room = sum(self._leave(arrival) for arrival in self._due(LEAVE))
        new: dict[str, Arrival] = {}
        for arrival in self._due(ARRIVE):
            uid = simulation.observe(arrival)
            if not arrival.fact.node:
                new[uid] = arrival
                progress(1)
        self._unplaced.update(new)
        self._schedule(new, is_there_room=bool(made_room))
        for arrival in self._due(LEAVE_AT_ONCE):
            self._leave(arrival)
        simulation.point()

    def _tell_facts(self) -> None:
        """Facts that are due now."""
        steps, simulation = self._steps, self._simulation
        while steps and steps[0][:2] == (simulation.now_s, TELL):
            event = heappop(steps).what
            assert not isinstance(event, Arrival), "a fact is no pod"
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self._simulation.tell(event)

    def _leave(self, arrival: Arrival) -> bool:
        """A pod is deleted; whether that made room."""
        uid = arrival.fact.uid
        held = self._simulation.state.pods[uid].allocation
        if held is None:
            self._forget(uid)
        self._simulation.leave(uid)
        return held is not None

    def _forget(self, uid: str) -> None:
        """It waits no more."""
        request = self._simulation.state.pods[uid].fact.request
        alike = self._waiting.get(request, {})
        alike.pop(uid, None)
        if not alike:
            self._waiting.pop(request, None)

    def _worth_another_try(self) -> list[str]:
        """The pods that wait whose like fits somewhere now: the filter's early look."""
        ranker = self._simulation.ranker
        ranker.begin()
        try:
            return [
                uid
                for request, alike in self._waiting.items()
                if ranker.rank(request).feasible
                for uid in alike
            ]
        finally:
            ranker.end()

    def _schedule(self, new: Iterable[str], *, is_there_room: bool) -> None:
        """One cycle each, in the scheduler's order. Room only shrinks here, so that of pods which
        are alike and know their refusal none is asked for after the first that finds no place.
        """
        uids = [*new, *(self._worth_another_try() if is_there_room else [])]
        pods = self._simulation.state.pods
        full: set[PodRequest] = set()
        for pod in in_line(self._simulation.state, [pods[uid] for uid in uids]):
            fact, is_told, uid = pod.fact, pod.refusal is not None, pod.fact.uid
            if is_told and fact.request in full:
                continue
            if self._simulation.decide(uid):
                self._forget(uid)
                self._runs(uid)
            elif fact.problem is None:
                full.add(fact.request)
                self._waiting.setdefault(fact.request, {})[uid] = None

    def _runs(self, uid: str) -> None:
        """A pod has its place."""
        arrival = self._unplaced.pop(uid)
        if arrival.runs_s is not None:
            self._push(self._simulation.now_s + max(arrival.runs_s, 1), LEAVE, arrival)
