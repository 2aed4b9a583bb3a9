"""Exports pods' traces while the log is followed, to the receiver that the variables name."""

import os

from allotment.adapters.log.fold import Fold
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.settings import SettingsError
from allotment.adapters.telemetry.pod_export import PodTraces, sampling_of
from allotment.adapters.telemetry.traces import TelemetryError
from allotment_inspector.settings import InspectorSettings

DOOR = "log"


class TraceExport:
    """Does nothing unless traces are exported."""

    def __init__(self, ctx: ServiceContext[InspectorSettings]) -> None:
        """Raises SettingsError for a sampling ratio that is none."""
        try:
            sampling = sampling_of(os.environ)
        except TelemetryError as error:
            raise SettingsError([str(error)]) from error

        def failed(error: Exception) -> None:
            ctx.refusals.refuse(DOOR, "Trace", error)

        self._traces: PodTraces | None = None
        if ctx.tracer.is_on and sampling is not None:
            self._traces = PodTraces(ctx.tracer, sampling, on_failed=failed)
        ctx.metrics.expose(
            "allot_trace_pods_followed",
            "pods whose traces are being made, or will be",
            lambda: 0 if self._traces is None else len(self._traces.lives),
        )
        ctx.metrics.expose(
            "allot_trace_pods_left_out_total",
            "pods without an exported trace, because too many were followed",
            lambda: 0 if self._traces is None else self._traces.lives.left_out,
            kind="counter",
        )

    def attach(self, fold: Fold) -> None:
        """Follow every record that the fold takes from now on."""
        traces = self._traces
        if traces is not None:
            fold.restored.append(lambda seq, image: traces.start_from(fold.state))
            fold.listeners.append(
                lambda record, envelope: traces.follow(record, envelope, fold.state)
            )

    async def run(self, fold: Fold) -> None:
        """Export what becomes final from when the log is read to its end."""
        if self._traces is not None:
            await fold.caught_up.wait()
            await self._traces.run(lambda: fold.state, fold.changed)
