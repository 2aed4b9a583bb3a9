"""How long pods and groups take to get their places, under Volcano's names, read off the records.

Everything here follows from the log: when a pod was created (its own time stamp, in whole seconds),
and the times of the records that tell what became of it. A stage's time is that of a cycle, which
may be about one pod or about hundreds. `Rounds` of the scorer are timed by `RoundTimings`.

Source of the names: Volcano's `pkg/scheduler/metrics`.
"""

from collections import Counter
from collections.abc import Callable

from allotment.core.ledger.model import ClusterState
from allotment.core.metrics.cards import Gauge, Rows
from allotment.core.metrics.histograms import Histogram, spread
from allotment.core.metrics.queues import PREFIX
from allotment.core.queues.timings import ACTION, PLUGIN, SESSION
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    GroupGone,
    PodObserved,
    StageTime,
)

_SCHEDULED, _UNSCHEDULABLE, _ERROR = "scheduled", "unschedulable", "error"
_STAGES = {"filter": "Predicate", "scorer": "Scoring"}
"""Our stages of a cycle, and Volcano's words for them; PreBind and Bind are the binder's."""
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


class Schedules:
    """Counts what the records tell, from when they are listened to."""

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
        self._attempts: Counter[str] = Counter({_SCHEDULED: 0, _UNSCHEDULABLE: 0, _ERROR: 0})
        self._bound = 0
        self._placed_ms: dict[str, int] = {}
        """Group → when pods of it were last given a place."""
        self._retries: Counter[str] = Counter()

    def histograms(self) -> list[Histogram]:
        return [self._cycle, self._job, self._task, self._stage]

    def take(self, envelope: Envelope, state: ClusterState, *, is_ours: bool) -> None:
        """Take note of a record that has just taken effect; `is_ours`: it is to be counted, not
        only remembered (another replica counts it, or it is history).
        """
        for event in envelope.events:
            match event:
                case PodObserved() if is_ours:
                    pod = state.pods.get(event.uid)
                    if event.uid in state.pending and pod and pod.changed_seq == state.seq:
                        self._observe_task(envelope, event.created_ms, "Watched")
                case Decided():
                    self._decided(event, envelope, state, is_ours=is_ours)
                case Bound() if is_ours:
                    self._bound += 1
                    if (pod := state.pods.get(event.uid)) is not None:
                        self._observe_task(envelope, pod.fact.created_ms, "Bound")
                case BindFailed() if is_ours:
                    self._attempts[_ERROR] += 1
                case GroupGone():
                    key = f"{event.namespace}/{event.name}"
                    self._placed_ms.pop(key, None)
                    del self._retries[key]
                case _:
                    pass

    def _decided(
        self, event: Decided, envelope: Envelope, state: ClusterState, *, is_ours: bool
    ) -> None:
        upheld = [p.uid for p in event.placements if state.voided.get(p.uid) != state.seq]
        groups: dict[str, None] = {}
        for uid in upheld:
            pod = state.pods.get(uid)
            if pod is None:
                continue
            groups[pod.fact.group] = None
            if is_ours:
                self._observe_task(envelope, pod.fact.created_ms, "Assumed")
        for key in groups:
            group = state.groups.get(key)
            if group is not None and group.fact is not None:
                self._placed_ms[key] = envelope.at_ms
                if is_ours:
                    self._job.observe((envelope.at_ms - group.fact.created_ms) * 1000)
        if is_ours:
            self._count(event, len(upheld), state)

    def _count(self, event: Decided, upheld: int, state: ClusterState) -> None:
        self._attempts[_SCHEDULED] += upheld
        self._attempts[_UNSCHEDULABLE] += max(len(event.batch) - upheld, 0)
        tried = {pod.fact.group for uid in event.batch if (pod := state.pods.get(uid)) is not None}
        for key in tried:
            if (group := state.groups.get(key)) is not None and group.short is not None:
                self._retries[key] += 1
        if event.stages:
            self._cycle.observe(event.stages[-1].finished_us - event.stages[0].received_us)
        for stage in event.stages:
            if stage.stage in _STAGES:
                self._stage.observe(_took_us(stage), _STAGES[stage.stage])

    def _observe_task(self, envelope: Envelope, created_ms: int, stage: str) -> None:
        self._task.observe((envelope.at_ms - created_ms) * 1000, stage)

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
