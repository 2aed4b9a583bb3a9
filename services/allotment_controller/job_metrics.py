"""What the controller's Jobs come to, as metrics with Volcano's names and labels.

Counts of phases concern one active life of the controller, and a Job's go with the Job.

Source of the names: Volcano's `pkg/controllers/job/state` and `pkg/controllers/metrics`.
"""

from collections import Counter
from typing import Final

from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.jobs.model import COMPLETED, FAILED, Job, Meta
from allotment.core.metrics.cards import Gauge, Rows
from allotment.core.metrics.histograms import Histogram, spread
from allotment_controller.objects import seconds

NAMES: Final = {
    COMPLETED: ("volcano_job_completed_phase_count", "times that a Job became Completed"),
    FAILED: ("volcano_job_failed_phase_count", "times that a Job became Failed"),
}
LABELS = ("job_name", "queue_name")


class JobMetrics:
    """Counts what Jobs come to. Phases by the Job's uid, so that a new one of its name is new."""

    def __init__(self) -> None:
        self.creation = Histogram(
            "volcano_controller_job_to_pod_creation_latency_milliseconds",
            "from the creation of a Job to that of a pod of its, in whole seconds",
            spread(50, 60_000, 30),
        )
        self._ended: dict[str, Counter[str]] = {}
        self._labels: dict[str, tuple[str, str]] = {}

    def begin(self) -> None:
        """An active life begins: what became of the Jobs of an earlier one is not known."""
        self._ended.clear()
        self._labels.clear()

    def phase(self, before: Job, after: Job) -> None:
        """A Job's status was written."""
        phase = after.status.state.phase
        if phase in NAMES and phase != before.status.state.phase:
            about = after.metadata
            queue = after.spec.queue or DEFAULT_QUEUE
            self._labels[about.uid] = (f"{about.namespace}/{about.name}", queue)
            self._ended.setdefault(about.uid, Counter())[phase] += 1

    def pod(self, job: Meta, pod: Meta) -> None:
        """A pod was made for a Job."""
        took_s = seconds(pod.creation_timestamp) - seconds(job.creation_timestamp)
        self.creation.observe(took_s * 1_000_000)

    def forget(self, uid: str) -> None:
        """A Job is gone."""
        self._ended.pop(uid, None)
        self._labels.pop(uid, None)

    def gauges(self) -> list[Gauge]:
        """The counters, under names that do not end in ``_total``."""
        rows: dict[str, Rows] = {phase: {} for phase in NAMES}
        for uid, counts in self._ended.items():
            for phase, count in counts.items():
                rows[phase][self._labels[uid]] = count
        return [Gauge(*NAMES[phase], LABELS, rows[phase]) for phase in NAMES]
