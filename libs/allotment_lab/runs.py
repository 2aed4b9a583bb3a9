"""The two ways to run a workload: arrivals one at a time, or pods that come and go.

One at a time: no departures, a pod that does not fit is dropped (the published experiment). Coming
and going: pods arrive and are deleted when the workload says so; those that do not fit wait, in the
scheduler's order, for room, until they are placed or deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from allotment.core.placement.policies.typical import Mix
from allotment.core.queues.order import in_line
from allotment_lab.engine import Simulation, Totals
from allotment_lab.measures import fragmented_milli
from allotment_lab.workload import Arrival
from allotment_proto.facts import PodRequest

FRAGMENT_SAMPLES = 20
LEAVE, ARRIVE, LEAVE_AT_ONCE = range(3)
"""What happens in one second, in this order; the last are pods that lived less than a second."""

Progress = Callable[[int], None]
"""Called with the number of arrivals done since the last call."""


class _Step(NamedTuple):
    """Something that happens, in order of time, kind and number."""

    at_s: int
    kind: int
    number: int
    arrival: Arrival


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
        self._allocated_milli_s = 0
        self._start_s = 0
        self._end_s = 0

    def run(self, arrivals: Sequence[Arrival], progress: Progress) -> None:
        if not arrivals:
            return
        for arrival in arrivals:
            self._push(arrival.created_s, ARRIVE, arrival)
            if arrival.deleted_s is not None:
                at_once = arrival.deleted_s <= arrival.created_s
                self._push(arrival.deleted_s, LEAVE_AT_ONCE if at_once else LEAVE, arrival)
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
        )

    def _push(self, at_s: int, kind: int, arrival: Arrival) -> None:
        self._pushed += 1
        heappush(self._steps, _Step(at_s, kind, self._pushed, arrival))

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
            found = fragmented_milli(self._simulation.state, self._mix)
            behind = passed_s * FRAGMENT_SAMPLES // max(span_s, 1) + 1 - done
            self._fragments_milli += [found] * behind

    def _due(self, kind: int) -> Iterator[Arrival]:
        """What of a kind happens now."""
        steps, now_s = self._steps, self._simulation.now_s
        while steps and steps[0][:2] == (now_s, kind):
            yield heappop(steps).arrival

    def _second(self, progress: Progress) -> None:
        """One second: who leaves makes room, who arrives asks for it together with who waits."""
        simulation = self._simulation
        made_room = sum(self._leave(arrival) for arrival in self._due(LEAVE))
        new: dict[str, Arrival] = {}
        for arrival in self._due(ARRIVE):
            uid = simulation.observe(arrival)
            if not arrival.fact.node:
                new[uid] = arrival
                progress(1)
        self._unplaced.update(new)
        self._schedule([*new, *(self._worth_another_try() if made_room else [])])
        for arrival in self._due(LEAVE_AT_ONCE):
            self._leave(arrival)
        simulation.point()

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

    def _schedule(self, uids: list[str]) -> None:
        """One cycle each, in the scheduler's order. Room only shrinks here, so that of pods which
        are alike and know their refusal none is asked for after the first that finds no place.
        """
        pods = self._simulation.state.pods
        full: set[PodRequest] = set()
        for pod in in_line(self._simulation.state, [pods[uid] for uid in uids]):
            fact, is_told, uid = pod.fact, pod.refusal is not None, pod.fact.uid
            if is_told and fact.request in full:
                continue
            if self._simulation.decide(uid):
                self._forget(uid)
                arrival = self._unplaced.pop(uid)
                if arrival.runs_s is not None:
                    self._push(self._simulation.now_s + max(arrival.runs_s, 1), LEAVE, arrival)
            elif fact.problem is None:
                full.add(fact.request)
                self._waiting.setdefault(fact.request, {})[uid] = None
