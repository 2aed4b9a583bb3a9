"""How long pods take to get their places and to run, in our own names and with examples.

Every time is the log's: a pod's clock starts when the log first holds it as a pod that waits for us
(its scheduling gates are gone), and is read at the first record that shows each stage. An example
names the pod's trace and that record. Of pods that were there before the first record, in a
snapshot, it is unknown when they began to wait: they have no clock, and count nowhere.
"""

from collections.abc import Iterable, Iterator

from allotment.core.ledger.model import ENDED, ClusterState
from allotment.core.metrics.histograms import US_PER_MS, US_PER_S, Example, Histogram
from allotment_proto.events import Bound, Decided, Envelope, Event, PodGone, PodObserved

_DECIDED, _BOUND, _RUNNING = "decided", "bound", "running"
_STAGES = (_DECIDED, _BOUND, _RUNNING)
_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 14400)
_ACTIVE = "Running"


class _Clock:
    """One pod's: since when it waits (Unix milliseconds), and how many stages it has reached."""

    __slots__ = ("begun_ms", "reached")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.reached = 0


class Durations:
    """Follows the pods that are not running yet; what has ended, or runs, is forgotten."""

    def __init__(self) -> None:
        self.histogram = Histogram(
            "allot_scheduling_duration_seconds",
            "from when a pod began to wait for a place until it was decided, bound, running",
            _BOUNDS_S,
            ("stage",),
            US_PER_S,
        )
        self._clocks: dict[str, _Clock] = {}
        self._passed_by: set[str] = set()
        """Pods that are there and were before the first record."""

    def __len__(self) -> int:
        return len(self._clocks)

    def pass_by(self, uids: Iterable[str]) -> None:
        """These pods were there before the first record."""
        self._passed_by.update(uids)

    def take(
        self, seq: int, time_ms: int, envelope: Envelope, state: ClusterState, *, is_ours: bool
    ) -> None:
        """Take note of a record that has just taken effect, at the log's time; `is_ours`: it is to
        be counted, not only remembered (another replica counts it, or it is history).
        """
        for event in envelope.events:
            for uid, stage in self._reached(event, time_ms, seq, state):
                clock = self._clocks[uid]
                at = _STAGES.index(stage)
                if clock.reached > at:
                    continue
                clock.reached = at + 1
                if is_ours:
                    took_us = max(time_ms - clock.begun_ms, 0) * US_PER_MS
                    example = Example(took_us, uid, seq, time_ms)
                    self.histogram.observe(took_us, stage, example=example)
            self._forget(event)

    def _reached(
        self, event: Event, time_ms: int, seq: int, state: ClusterState
    ) -> Iterator[tuple[str, str]]:
        """Which pods reach which stage with an event; pods that begin to wait get a clock."""
        match event:
            case PodObserved():
                if event.uid in state.pending and event.uid not in self._passed_by:
                    self._clocks.setdefault(event.uid, _Clock(time_ms))
                clock = self._clocks.get(event.uid)
                if clock is not None and clock.reached:
                    if event.node:
                        yield event.uid, _BOUND
                    if event.phase == _ACTIVE:
                        yield event.uid, _RUNNING
            case Decided():
                for placement in event.placements:
                    if placement.uid in self._clocks and state.voided.get(placement.uid) != seq:
                        yield placement.uid, _DECIDED
            case Bound() if event.uid in self._clocks:
                yield event.uid, _BOUND
            case _:
                pass

    def _forget(self, event: Event) -> None:
        match event:
            case PodGone():
                self._clocks.pop(event.uid, None)
                self._passed_by.discard(event.uid)
            case PodObserved() if event.uid in self._clocks:
                is_elsewhere = bool(event.node) and not self._clocks[event.uid].reached
                if event.phase == _ACTIVE or event.phase in ENDED or is_elsewhere:
                    del self._clocks[event.uid]
            case _:
                pass
