"""Pods' traces on their way to a backend: the SDK's spans, made after the fact with true times.

No clock and no dice: what is exported follows from the spans that the log gave, so that an export
that is made again by the same release has the same spans with the same ids, and a backend that
drops equal spans shows it once.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from allotment.adapters.telemetry.export import FileExporter, traces_json
from allotment.core.explain.history.spans import Link as PodLink
from allotment.core.explain.history.spans import SpanView

NS_PER_US = 1_000
BATCH_SPANS = 512
TEXT_CHARS_MAX = 1024
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {"internal": SpanKind.INTERNAL, "consumer": SpanKind.CONSUMER}
TRACES_PATH = "/v1/traces"


class ExportFailedError(Exception):
    """Raised when a receiver or a file did not take the spans; says which and why."""


def readable(spans: Iterable[SpanView]) -> list[ReadableSpan]:
    """The SDK's spans of a pod's."""
    return [_readable(span) for span in spans]


def _readable(span: SpanView) -> ReadableSpan:
    is_bad = bool(span.error)
    attributes: dict[str, str | int | bool] = {
        name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        for name, value in span.attributes.items()
    }
    if is_bad:
        attributes["error.type"] = span.error
    if span.is_open:
        attributes["allot.open"] = True
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=_resource(span.service, span.instance),
        attributes=attributes,
        links=[_link(link) for link in span.links],
        kind=_KINDS[span.kind],
        instrumentation_scope=_scope(),
        status=Status(StatusCode.ERROR, span.message[:TEXT_CHARS_MAX] or None)
        if is_bad
        else Status(StatusCode.UNSET),
        start_time=span.start_us * NS_PER_US,
        end_time=span.end_us * NS_PER_US,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=SAMPLED)


def _link(link: PodLink) -> Link:
    return Link(_context(link.trace_id, link.span_id), {"allot.link": link.why})


@cache
def _scope() -> InstrumentationScope:
    """Made once: the version is read from files."""
    return InstrumentationScope("allotment", version("allotment"))


@cache
def _resource(service: str, instance: str) -> Resource:
    """Who did the work, in addition to what OTEL_RESOURCE_ATTRIBUTES says. Nothing random in it:
    equal spans are to stay equal.
    """
    of = {"service.namespace": "allot", "service.version": version("allotment")}
    of["service.name"] = service if service == "allotment" else f"allotment-{service}"
    if instance:
        of["service.instance.id"] = instance
    return OTELResourceDetector().detect().merge(Resource(of))


def as_json(spans: Iterable[SpanView]) -> bytes:
    """One TracesData object in OTLP JSON."""
    return traces_json(readable(spans))


def export_to_file(path: Path, spans: Iterable[SpanView]) -> None:
    """Append the spans to a file, OTLP JSON, one object on a line. Raises `ExportFailedError`."""
    try:
        exporter = FileExporter(path)
    except OSError as error:
        raise ExportFailedError(f"{path} cannot be written: {error.strerror}") from error
    try:
        _export(exporter, readable(spans), str(path))
    except OSError as error:
        raise ExportFailedError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        exporter.shutdown()


def export_to_receiver(endpoint: str, spans: Iterable[SpanView], timeout_s: float) -> None:
    """Send the spans to an OTLP receiver over HTTP (protobuf). Raises `ExportFailedError`.

    `endpoint` is the receiver's address, as in `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    url = endpoint if endpoint.endswith(TRACES_PATH) else endpoint.rstrip("/") + TRACES_PATH
    exporter: SpanExporter = OTLPSpanExporter(endpoint=url, timeout=timeout_s)
    try:
        _export(exporter, readable(spans), without_credentials(url))
    finally:
        exporter.shutdown()


def without_credentials(target: str) -> str:
    """An address as it may be shown; what is none stays as it is."""
    scheme, separator, rest = target.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}" if separator else target


def _export(exporter: SpanExporter, spans: Sequence[ReadableSpan], where: str) -> None:
    for first in range(0, len(spans), BATCH_SPANS):
        if exporter.export(spans[first : first + BATCH_SPANS]) is not SpanExportResult.SUCCESS:
            raise ExportFailedError(f"{where} did not take the spans")
