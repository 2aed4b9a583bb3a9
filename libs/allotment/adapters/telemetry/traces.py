"""Traces: the standard OTEL_* variables, one span a batch, never in anybody's way.

Nothing is recorded unless it is exported: an OTLP endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` or
`…_TRACES_ENDPOINT`, http/protobuf) or a file (`ALLOT_TRACE_FILE`, OTLP JSON, one TracesData object
a line). Without either a span is a shared object that does nothing.

A span costs tens of microseconds and the exporter's thread takes the interpreter's lock, so a
service makes one for each *batch*; what happened to a single pod is derived from the log, by the
inspector (`pod_export`). A receiver that is slow, failing or gone costs spans, which are counted,
and no time. The first span of a cycle has ids that follow from the cycle's name, so that the
traces of its pods can link to it.

The W3C context travels in NATS headers (`traceparent`): the sender's span is the receiver's parent.
"""

import threading
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from allotment.adapters.telemetry.export import BoundedBatches, FileExporter, SpanCounts

AttributeValue = str | bool | int | float | list[str] | list[int] | list[float]
Kind = Literal["internal", "consumer", "producer", "client"]

QUEUE_SPANS_MAX = 8192
"""Room for a burst: a decision about 256 pods makes some 2,500 spans of theirs. About 20 MB."""
BATCH_SPANS_MAX = 512
_KINDS = {
    "internal": SpanKind.INTERNAL,
    "consumer": SpanKind.CONSUMER,
    "producer": SpanKind.PRODUCER,
    "client": SpanKind.CLIENT,
}
_TEXT_CHARS_MAX = 1024
"""Longer attribute texts are cut: the SDK has no limit of its own and viewers choke."""

_propagator = TraceContextTextMapPropagator()


class TelemetryError(Exception):
    """Raised when the tracing variables ask for something that cannot be done."""


def inject(headers: MutableMapping[str, str]) -> None:
    """Write the current span's context into NATS headers; nothing if there is none."""
    _propagator.inject(headers)


def extract(headers: Mapping[str, str] | None) -> Context:
    """The sender's context from NATS headers; an empty one if they carry none or a broken one."""
    return _propagator.extract(headers or {}, context=Context())


class BatchSpan:
    """What the body of `batch_span` may do with its span."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, **attributes: AttributeValue) -> None:
        """Add attributes; a double underscore in a name stands for the dot (`allot__log__seq`)."""
        self.update({name.replace("__", "."): value for name, value in attributes.items()})

    def update(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Add attributes by their dotted names."""
        for name, value in attributes.items():
            self._span.set_attribute(name, value[:_TEXT_CHARS_MAX] if type(value) is str else value)

    def fail(self, error_type: str, description: str = "") -> None:
        """Mark the operation as failed. `error_type` comes from a short documented list."""
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(Status(StatusCode.ERROR, description[:_TEXT_CHARS_MAX] or None))

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Make this span the parent of spans of the headers' reader."""
        _propagator.inject(headers, trace.set_span_in_context(self._span, Context()))

    @property
    def trace_id(self) -> str | None:
        """32 hex digits for a log line or an exemplar; None if the span is not recorded."""
        context = self._span.get_span_context()
        return f"{context.trace_id:032x}" if context.trace_flags.sampled else None


_NO_SPAN = BatchSpan(trace.INVALID_SPAN)


class _Off:
    """A scope around nothing, shared by everybody: what spans are while tracing is off."""

    def __enter__(self) -> BatchSpan:
        return _NO_SPAN

    def __exit__(self, *_: object) -> None:
        return None


class _Recording:
    """A scope that opens the span, makes it current, and ends it; a leaving error fails it."""

    __slots__ = ("_batch", "_scope", "_span")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._batch = BatchSpan(span)
        self._scope = trace.use_span(span, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> BatchSpan:
        self._scope.__enter__()
        return self._batch

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):  # a cancelled batch has not failed
            self._batch.fail(type(error).__name__, str(error))
        self._scope.__exit__(kind, error, where)
        self._span.end()


class _Ids(RandomIdGenerator):
    """Random ids, except for a span that is given its own."""

    def __init__(self) -> None:
        self.next: tuple[str, str] | None = None
        """The ids of the span that is being made, if it has no parent."""

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else int(self.next[0], 16)

    def generate_span_id(self) -> int:
        if self.next is None:
            return super().generate_span_id()
        _, span = self.next
        self.next = None
        return int(span, 16)


class Tracer:
    """Makes the spans of one service. Get it from `start_tracing` and `close` it at the end."""

    def __init__(
        self,
        provider: TracerProvider | None,
        counts: SpanCounts,
        scope: str,
        ids: _Ids | None = None,
        processors: Sequence[SpanProcessor] = (),
        queue_spans_max: int = QUEUE_SPANS_MAX,
    ) -> None:
        self.counts = counts
        self._provider = provider
        self._ids = ids
        self._processors = tuple(processors)
        self._queued_spans_max = queue_spans_max * len(processors)
        self._tracer = (
            provider.get_tracer(scope, version("allotment")) if provider is not None else None
        )
        self._off = _Off()

    def batch_span(
        self,
        name: str,
        parent: Mapping[str, str] | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        kind: Kind | None = None,
        ids: tuple[str, str] | None = None,
    ) -> AbstractContextManager[BatchSpan]:
        """One span around the work on one batch.

        `parent` are the headers of the message that brought the batch; without them the current
        span, if any, is the parent. `kind` is by default consumer with headers, else internal.
        A span without a parent may be given its `ids`, of trace and span, so that others can name
        it. Span names hold no names of pods, nodes or devices.
        """
        if self._tracer is None:
            return self._off
        if self._ids is not None:
            self._ids.next = ids
        span = self._tracer.start_span(
            name,
            context=extract(parent) if parent else None,
            kind=_KINDS[kind or ("consumer" if parent is not None else "internal")],
        )
        recording = _Recording(span)
        if attributes:
            BatchSpan(span).update(attributes)
        return recording

    @property
    def is_on(self) -> bool:
        """Whether the spans are exported."""
        return bool(self._processors)

    @property
    def is_filling(self) -> bool:
        """Whether more than half of the room for spans is taken: who can wait should."""
        return self.counts.waiting * 2 > self._queued_spans_max

    def hand_over(self, spans: Iterable[ReadableSpan]) -> None:
        """Queue spans that were made after the fact, along with those of the service itself."""
        for span in spans:
            for processor in self._processors:
                processor.on_end(span)

    def log_fields(self) -> Mapping[str, str]:
        """`trace_id` and `span_id` of the current span, for log lines."""
        if self._tracer is None:
            return {}
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def close(self, timeout_s: float) -> bool:
        """Export what is queued and stop; False if that took longer than allowed.

        Blocks; call it when the event loop has ended. What could not be sent in time is dropped
        with its thread, and counted.
        """
        if self._provider is None:
            return True
        closing = threading.Thread(target=self._provider.shutdown, daemon=True, name="otel-close")
        closing.start()
        closing.join(timeout_s)
        self.counts.give_up()
        return not closing.is_alive()


def start_tracing(service: str, instance: str, environ: Mapping[str, str]) -> Tracer:
    """Tracing as the environment asks for it. Raises TelemetryError when that is impossible.

    `environ` decides whether and where to; the SDK itself reads sampler, headers, time-outs and
    resource attributes from the process environment, as it does everywhere.
    """
    counts = SpanCounts()
    queue_max = _positive(environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS_MAX)
    batch_max = _positive(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS_MAX)
    exporters = (
        [] if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" else _exporters(environ)
    )
    if not exporters:
        return Tracer(None, counts, service)
    resource = Resource(
        {
            "service.name": service,
            "service.namespace": "allot",
            "service.version": version("allotment"),
            "service.instance.id": instance,
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": version("opentelemetry-sdk"),
        }
    ).merge(OTELResourceDetector().detect())
    ids = _Ids()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=ids)
    processors = [BoundedBatches(each, counts, queue_max, batch_max) for each in exporters]
    for processor in processors:
        provider.add_span_processor(processor)
    return Tracer(provider, counts, service, ids, processors, queue_max)


def _exporters(environ: Mapping[str, str]) -> list[SpanExporter]:
    is_remote = _wants_otlp(environ)  # judged first: a refusal must leave no file open
    exporters: list[SpanExporter] = []
    if path := environ.get("ALLOT_TRACE_FILE"):
        try:
            exporters.append(FileExporter(Path(path)))
        except OSError as error:
            raise TelemetryError(
                f"ALLOT_TRACE_FILE={path!r}: cannot be written ({error.strerror});"
                " expected a file in a directory that exists"
            ) from error
    if is_remote:
        # Imported here: protobuf and requests are 10 MB that are not needed while tracing is off.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporters.append(OTLPSpanExporter())
    return exporters


def _wants_otlp(environ: Mapping[str, str]) -> bool:
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    if not endpoint or environ.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none":
        return False
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol != "http/protobuf":
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: expected http/protobuf, the only one built"
            " in; collectors listen for it on port 4318"
        )
    if not endpoint.startswith(("http://", "https://")):
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint!r}: expected a URL such as http://otel:4318"
        )
    return True


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    raw = environ.get(name) or str(default)
    try:
        value = msgspec.convert(raw, int, strict=False)
    except msgspec.ValidationError:
        value = 0
    if value < 1:
        raise TelemetryError(f"{name}={raw!r}: expected a whole number of at least 1")
    return value
