"""What becomes of pods and groups, and how long it takes them, counted from the records.

Under Volcano's names: when a pod was created (its own time stamp, in whole seconds), and the times
of the records that show its way. A stage's time is that of a cycle, which may be about one pod or
about hundreds. In our own names every time is the log's, and an example names the pod's trace and
the record. `Rounds` of the scorer are timed by `RoundTimings`.

Source of the names: Volcano's `pkg/scheduler/metrics`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from allotment.core.explain.history.attempts import OUTCOMES, judged, said_in
from allotment.core.ledger.model import ENDED, ClusterState
from allotment.core.metrics.cards import Gauge, Rows
from allotment.core.metrics.histograms import US_PER_MS, US_PER_S, Example, Histogram, spread
from allotment.core.metrics.queues import PREFIX
from allotment.core.queues.timings import ACTION, PLUGIN, SESSION
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    GroupGone,
    PodGone,
    PodObserved,
    StageTime,
)

_SCHEDULED, _UNSCHEDULABLE, _ERROR = "scheduled", "unschedulable", "error"
_STAGES = {"filter": "Predicate", "scorer": "Scoring"}
"""Our stages of a cycle, and Volcano's words for them; PreBind and Bind are the binder's."""
_DECIDED, _BOUND, _RUNNING = "decided", "bound", "running"
_DURATION_STAGES = (_DECIDED, _BOUND, _RUNNING)
_DURATION_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 14400)
_ACTIVE = "Running"
_ON_OPEN = "OnSessionOpen"
_JOB_LABELS = ("job_name", "queue", "job_namespace")
_CYCLE_MS = spread(1, 5000, 20)
_TASK_MS = spread(50, 60_000, 30)


def task_latency() -> Histogram:
    """From a pod's creation to a stage of its way."""
    return Histogram(
        f"{PREFIX}_task_scheduling_latency_milliseconds",
        "from the creation of a pod until it was watched, assumed, prebound, bound",
        _TASK_MS,
        ("stage",),
    )


def stage_duration() -> Histogram:
    """What a stage took."""
    return Histogram(
        f"{PREFIX}_scheduling_stage_duration_milliseconds",
        "time in a stage: Predicate and Scoring of a cycle, PreBind and Bind of a pod",
        spread(0.1, 500, 20),
        ("stage",),
    )


class _Clock:
    """One pod's: since when it waits (Unix milliseconds), and how many stages it has reached."""

    __slots__ = ("begun_ms", "reached")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.reached = 0


class _Taken(NamedTuple):
    """A record that has just taken effect; `at_ms` is its writer's time, `time_ms` the log's."""

    seq: int
    at_ms: int
    time_ms: int
    state: ClusterState
    is_ours: bool


class Schedules:
    """Counts what the records show of pods and groups, from the first record that it takes.

    In our own names, a pod's clock starts when the log first holds it as a pod that waits for us
    (its scheduling gates are gone), and is read at the first record that shows each stage. Pods
    that were there before the first record, in a snapshot, have no clock: since when they wait is
    unknown. What has ended, or runs, is forgotten.
    """

    def __init__(self) -> None:
        self._cycle = Histogram(
            f"{PREFIX}_e2e_scheduling_latency_milliseconds",
            "a whole cycle, from looking for pods that are due to the decision",
            _CYCLE_MS,
        )
        self._job = Histogram(
            f"{PREFIX}_e2e_job_scheduling_latency_milliseconds",
            "from the creation of a group to a decision that places pods of it",
            spread(100, 120_000, 30),
        )
        self._task = task_latency()
        self._stage = stage_duration()
        self.duration = Histogram(
            "allot_scheduling_duration_seconds",
            "from when a pod began to wait for a place until it was decided, bound, running",
            _DURATION_S,
            ("stage",),
            US_PER_S,
        )
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """One a pod and decision, in the words that its story has for it."""
        self.rejections: Counter[str] = Counter()
        """The same without pods that were placed or skipped, by the main reason."""
        self._attempts: Counter[str] = Counter({_SCHEDULED: 0, _UNSCHEDULABLE: 0, _ERROR: 0})
        self._bound = 0
        self._placed_ms: dict[str, int] = {}
        """Group → when pods of it were last given a place."""
        self._retries: Counter[str] = Counter()
        self._clocks: dict[str, _Clock] = {}
        self._passed_by: set[str] = set()
        """Pods that are there and were before the first record."""

    def __len__(self) -> int:
        """How many pods are followed."""
        return len(self._clocks)

    def histograms(self) -> list[Histogram]:
        return [self._cycle, self._job, self._task, self._stage, self.duration]

    def pass_by(self, uids: Iterable[str]) -> None:
        """These pods were there before the first record."""
        self._passed_by.update(uids)

    def take(
        self, seq: int, time_ms: int, envelope: Envelope, state: ClusterState, *, is_ours: bool
    ) -> None:
        """Take note of a record that has just taken effect, at the log's time; `is_ours`: it is to
        be counted, not only remembered (another replica counts it, or it is history).
        """
        taken = _Taken(seq, envelope.at_ms, time_ms, state, is_ours)
        for event in envelope.events:
            match event:
                case PodObserved():
                    self._observed(event, taken)
                case PodGone():
                    self._clocks.pop(event.uid, None)
                    self._passed_by.discard(event.uid)
                case Decided():
                    self._decided(event, taken)
                case Bound():
                    self._reach(event.uid, _BOUND, taken)
                    if is_ours:
                        self._bound += 1
                        if (pod := state.pods.get(event.uid)) is not None:
                            self._observe_task(taken, pod.fact.created_ms, "Bound")
                case BindFailed() if is_ours:
                    self._attempts[_ERROR] += 1
                case GroupGone():
                    key = f"{event.namespace}/{event.name}"
                    self._placed_ms.pop(key, None)
                    del self._retries[key]
                case _:
                    pass

    def _observed(self, event: PodObserved, taken: _Taken) -> None:
        uid, state = event.uid, taken.state
        if uid in state.pending:
            if taken.is_ours and state.pods[uid].changed_seq == state.seq:
                self._observe_task(taken, event.created_ms, "Watched")
            if uid not in self._passed_by:
                self._clocks.setdefault(uid, _Clock(taken.time_ms))
        clock = self._clocks.get(uid)
        if clock is None:
            return
        is_elsewhere = bool(event.node) and not clock.reached
        if clock.reached:
            if event.node:
                self._reach(uid, _BOUND, taken)
            if event.phase == _ACTIVE:
                self._reach(uid, _RUNNING, taken)
        if event.phase == _ACTIVE or event.phase in ENDED or is_elsewhere:
            del self._clocks[uid]

    def _reach(self, uid: str, stage: str, taken: _Taken) -> None:
        """A pod has reached a stage. Only the first record that shows it counts."""
        clock, at = self._clocks.get(uid), _DURATION_STAGES.index(stage)
        if clock is None or clock.reached > at:
            return
        clock.reached = at + 1
        if taken.is_ours:
            took_us = max(taken.time_ms - clock.begun_ms, 0) * US_PER_MS
            example = Example(took_us, uid, taken.seq, taken.time_ms)
            self.duration.observe(took_us, stage, example=example)

    def _decided(self, event: Decided, taken: _Taken) -> None:
        state = taken.state
        upheld = [p.uid for p in event.placements if state.voided.get(p.uid) != taken.seq]
        groups: dict[str, None] = {}
        for uid in upheld:
            self._reach(uid, _DECIDED, taken)
            if (pod := state.pods.get(uid)) is not None:
                groups[pod.fact.group] = None
                if taken.is_ours:
                    self._observe_task(taken, pod.fact.created_ms, "Assumed")
        for key in groups:
            group = state.groups.get(key)
            if group is not None and group.fact is not None:
                self._placed_ms[key] = taken.at_ms
                if taken.is_ours:
                    self._job.observe((taken.at_ms - group.fact.created_ms) * US_PER_MS)
        if taken.is_ours:
            self._count(event, len(upheld), taken)

    def _count(self, event: Decided, upheld: int, taken: _Taken) -> None:
        state = taken.state
        self._attempts[_SCHEDULED] += upheld
        self._attempts[_UNSCHEDULABLE] += max(len(event.batch) - upheld, 0)
        said = said_in(event)
        tried: set[str] = set()
        for uid in dict.fromkeys(event.batch):
            found = judged(said, uid, taken.seq, lambda: state)
            self.outcomes[found.outcome] += 1
            if found.reason:
                self.rejections[found.reason] += 1
            if (pod := state.pods.get(uid)) is not None:
                tried.add(pod.fact.group)
        for key in tried:
            if (group := state.groups.get(key)) is not None and group.short is not None:
                self._retries[key] += 1
        if event.stages:
            self._cycle.observe(event.stages[-1].finished_us - event.stages[0].received_us)
        for stage in event.stages:
            if stage.stage in _STAGES:
                self._stage.observe(_took_us(stage), _STAGES[stage.stage])

    def _observe_task(self, taken: _Taken, created_ms: int, stage: str) -> None:
        self._task.observe((taken.at_ms - created_ms) * US_PER_MS, stage)

    def gauges(self, state: ClusterState) -> list[Gauge]:
        """What is no histogram; every metric is there, also without rows."""
        start: Rows = {}
        last: Rows = {}
        took: Rows = {}
        for key, group in state.groups.items():
            if group.fact is None:
                continue
            labels = (group.fact.name, group.fact.queue, group.fact.namespace)
            start[labels] = group.fact.created_ms // 1000
            placed_ms = self._placed_ms.get(key)
            if placed_ms is not None:
                last[labels] = placed_ms // 1000
                took[labels] = max(placed_ms - group.fact.created_ms, 0)
        attempts: Rows = {(result,): count for result, count in self._attempts.items()}
        retries: Rows = {(key,): count for key, count in self._retries.items()}
        job = f"{PREFIX}_e2e_job_scheduling"
        return [
            Gauge(
                f"{job}_start_time", "when a group was made, in Unix seconds", _JOB_LABELS, start
            ),
            Gauge(
                f"{job}_last_time",
                "when a pod of a group was last given a place, in Unix seconds",
                _JOB_LABELS,
                last,
            ),
            Gauge(f"{job}_duration", "between the two, in milliseconds", _JOB_LABELS, took),
            Gauge(
                f"{PREFIX}_job_retry_counts",
                "cycles in which a group was tried and found no place",
                ("job_id",),
                retries,
            ),
            Gauge(
                f"{PREFIX}_schedule_attempts_total",
                "attempts to place a pod, by what came of it",
                ("result",),
                attempts,
                is_counter=True,
            ),
            Gauge(
                f"{PREFIX}_pods_bound_total", "pods bound", (), {(): self._bound}, is_counter=True
            ),
        ]


class RoundTimings:
    """Times what a scorer's rounds tell of (`timings.OnStep`), by a clock in microseconds."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._begun_us = self._last_us = 0
        self._session = Histogram(
            f"{PREFIX}_open_session_duration_milliseconds",
            "opening a session: the view of groups and queues, and all plugins",
            _CYCLE_MS,
        )
        self._plugin = Histogram(
            f"{PREFIX}_plugin_scheduling_latency_milliseconds",
            "opening a plugin's books",
            spread(0.1, 100, 15),
            ("plugin", "OnSession"),
        )
        self._action = Histogram(
            f"{PREFIX}_action_scheduling_latency_milliseconds",
            "an action of a round",
            spread(1, 2000, 20),
            ("action",),
        )

    def histograms(self) -> list[Histogram]:
        return [self._session, self._plugin, self._action]

    def begin(self) -> None:
        """A round begins."""
        self._begun_us = self._last_us = self._now_us()

    def step_ended(self, kind: str, name: str) -> None:
        """Something of the round has ended."""
        now_us = self._now_us()
        if kind == SESSION:
            self._session.observe(now_us - self._begun_us)
        elif kind == PLUGIN:
            self._plugin.observe(now_us - self._last_us, name, _ON_OPEN)
        elif kind == ACTION:
            self._action.observe(now_us - self._last_us, name)
        self._last_us = now_us


def _took_us(stage: StageTime) -> int:
    return stage.finished_us - stage.received_us
