"""How spans leave the process: in bounded batches, every loss counted, to a receiver or a file.

The SDK's batch processor forgets silently when its queue is full (one warning line) and when an
export fails. Here a span that finds no room is refused before it is queued, and each export's
result is booked, so that `ended = exported + dropped + waiting` holds at any time.
"""

import base64
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

_ID_FIELDS = ("traceId", "spanId", "parentSpanId")


class SpanCounts:
    """The books of one process's spans, shared by all threads; a span counts once an exporter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.exported = 0
        self.dropped = 0
        self.waiting = 0
        self._closed = False

    def admit(self) -> None:
        with self._lock:
            self.waiting += 1

    def refuse(self) -> None:
        with self._lock:
            self.dropped += 1

    def settle(self, spans: int, exported: bool) -> None:
        with self._lock:
            if self._closed:  # an export that ended after it was given up
                return
            self.waiting -= spans
            if exported:
                self.exported += spans
            else:
                self.dropped += spans

    def give_up(self) -> None:
        """Nothing more will be sent: what still waits is lost."""
        with self._lock:
            self.dropped += self.waiting
            self.waiting = 0
            self._closed = True


class _Booked(SpanExporter):
    """An exporter whose every result is entered in the books, exceptions included."""

    def __init__(self, inner: SpanExporter, counts: SpanCounts) -> None:
        self._inner = inner
        self._counts = counts
        self.waiting = 0
        self._lock = threading.Lock()

    def admit(self, limit: int) -> bool:
        """Take room for one span; False if `limit` already wait for this exporter."""
        with self._lock:
            if self.waiting >= limit:
                self._counts.refuse()
                return False
            self.waiting += 1
        self._counts.admit()
        return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            with self._lock:
                self.waiting -= len(spans)
            self._counts.settle(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class BoundedBatches(BatchSpanProcessor):
    """The SDK's batch processor, with a bound on what may wait and no silent loss."""

    def __init__(
        self,
        exporter: SpanExporter,
        counts: SpanCounts,
        queue_spans_max: int,
        batch_spans_max: int,
    ) -> None:
        self._booked = _Booked(exporter, counts)
        self._queue_spans_max = queue_spans_max
        super().__init__(
            self._booked,
            max_queue_size=queue_spans_max,
            max_export_batch_size=min(batch_spans_max, queue_spans_max),
        )

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        if self._booked.admit(self._queue_spans_max):
            super().on_end(span)


class FileExporter(SpanExporter):
    """Appends OTLP JSON to a file, one TracesData object a line. Raises OSError when it cannot."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)  # nothing is left to fail in close

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        line = traces_json(spans) + b"\n"
        is_whole = self._file.write(line) == len(line)
        return SpanExportResult.SUCCESS if is_whole else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._file.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def traces_json(spans: Sequence[ReadableSpan]) -> bytes:
    """The spans as one TracesData object in OTLP JSON.

    Protobuf's own JSON differs in one point only: OTLP writes ids in hex instead of base64.
    """
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    data: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in data.get("resourceSpans", []):
        for scope in resource.get("scopeSpans", []):
            for span in scope.get("spans", []):
                for holder in (span, *span.get("links", [])):
                    for field in _ID_FIELDS:
                        if field in holder:
                            holder[field] = base64.b64decode(holder[field]).hex()
    return msgspec.json.encode(data)
