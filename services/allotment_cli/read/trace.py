"""`allot trace`: a pod's story as one trace, drawn here or given to a tracing backend.

The trace is made from the log, so it is there for every pod that the log tells of, whether anybody
traced it or not.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from allotment.adapters.telemetry.pod_traces import (
    ExportFailedError,
    as_json,
    export_to_file,
    export_to_receiver,
    without_credentials,
)
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.history.spans import SpanView, spans_of
from allotment.core.explain.rows.life import RUNNING, TERMINATING, WAITING, Life
from allotment.core.explain.rows.schema import AsOf
from allotment.core.units import duration_text
from allotment_cli.options import completion
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import at_option, namespace_option, output_option
from allotment_cli.options.source import source_options
from allotment_cli.read import story
from allotment_cli.show.explain_text import field
from allotment_cli.show.output import (
    DOCUMENTS,
    emit,
    emit_document,
    heading,
    note,
    printable_json,
    suggest,
    table,
)

TRACE_SCHEMA = "allotment.dev/trace/v1"
BAR_CHARS = 30
TIMEOUT_S = 10.0
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTLP = "otlp"
WEB = ("http://", "https://")
US_PER_MS = 1_000


class Trace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's trace as `-o json` has it: parents before their children."""

    schema: str
    as_of: AsOf
    trace_id: str
    spans: tuple[SpanView, ...]


@click.command()
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=completion.pods)
@namespace_option
@source_options
@at_option
@click.option("--previous", is_flag=True, help="The pod that had the name before.")
@click.option(
    "--export",
    "target",
    metavar="URL|FILE|otlp",
    shell_complete=completion.words("otlp", files=True),
    help="Give the trace to an OTLP receiver (http://HOST:4318, or `otlp`: the one that"
    " OTEL_EXPORTER_OTLP_ENDPOINT names), or append it to a file as OTLP JSON (`-`: stdout).",
)
@output_option(*DOCUMENTS)
def trace(
    name: str,
    namespace: str | None,
    origin: Origin,
    at: str | None,
    previous: bool,
    target: str | None,
    output: str,
) -> None:
    """Draw a pod's story as one trace, or export it.

    The trace's id is the pod's uid without dashes. It is made from the log: exported again it is
    the same, but for what went on meanwhile.
    """
    space, bare = pod_name(name, "pod", namespace)
    # The words of the spans that services export, which ask no nodes.
    told = partial(story.run, asks_nodes=False)
    found = anyio.run(told, origin, space, bare, at, previous)
    spans = spans_of(found)
    if target is not None:
        _export(target, spans)
    elif output in DOCUMENTS:
        document = Trace(
            schema=TRACE_SCHEMA, as_of=found.as_of, trace_id=found.trace_id, spans=tuple(spans)
        )
        emit_document(document, output)
    else:
        emit(trace_lines(found, spans))
        suggest(f"allot story {space}/{bare}")


def _export(target: str, spans: Sequence[SpanView]) -> None:
    if target == "-":
        click.echo(printable_json(as_json(spans).decode()))
        return
    is_receiver = target == OTLP or target.startswith(WEB)
    if target == OTLP:
        target = _receiver()
    try:
        if is_receiver:
            export_to_receiver(target, spans, TIMEOUT_S)
        else:
            export_to_file(Path(target), spans)
    except ExportFailedError as error:
        remedy = "is that the address of an OTLP/HTTP receiver?" if is_receiver else ""
        raise AllotError(str(error), remedy) from error
    note(
        f"{len(spans)} spans of trace {spans[0].trace_id} exported to {without_credentials(target)}"
    )


def _receiver() -> str:
    """The address in the environment. Raises `AllotError` where there is none, or it is no URL."""
    name = next((name for name in ENDPOINTS if os.environ.get(name)), None)
    if name is None:
        raise AllotError(
            "no OTLP receiver is named", f"set {ENDPOINTS[1]}, or give --export its address"
        )
    if not os.environ[name].startswith(WEB):
        raise AllotError(f"{name} is no URL", "wanted: http://HOST:4318 or https://…")
    return os.environ[name]


def trace_lines(found: Life, spans: Sequence[SpanView]) -> Iterator[str]:
    """The screen: a line a span, below its parent, with a bar on a scale that ends when the pod was
    running (what comes after that would hide all before it), or at the end.
    """
    who = found.subject
    yield field("Pod", f"{who.namespace}/{who.name}")
    yield field("Trace", found.trace_id)
    yield field("Status", f"{found.status}: {found.cause}" if found.cause else found.status)
    yield ""
    start_us, until_us = spans[0].start_us, _scale_end(spans)
    scale = duration_text(max(until_us - start_us, 0) // US_PER_MS)
    yield heading(f"Spans; the bars cover {scale}")
    depths = _depths(spans)
    rows = [
        [
            f"+{duration_text(max(span.start_us - start_us, 0) // US_PER_MS)}",
            "  " * depths[span.span_id] + span.name,
            _bar(span, start_us, until_us),
            _took(span),
            _what(span),
        ]
        for span in spans
    ]
    headers = ["AT", "SPAN", "WHEN", "TOOK", "WHAT"]
    yield from table(headers, rows, right=("AT", "TOOK"), indent="  ", blank=("WHAT",))


def _depths(spans: Sequence[SpanView]) -> dict[str, int]:
    found: dict[str, int] = {}
    for span in spans:
        found[span.span_id] = found[span.parent_id] + 1 if span.parent_id else 0
    return found


def _scale_end(spans: Sequence[SpanView]) -> int:
    """When it ran first; of a pod that never did, when it ended, or now."""
    running = [span.start_us for span in spans if span.name in (RUNNING, TERMINATING)]
    return min(running, default=spans[0].end_us)


def _bar(span: SpanView, start_us: int, until_us: int) -> str:
    """``[   ====>  ]``: from where to where; an arrow where it continues beyond the scale."""
    whole_us = max(until_us - start_us, 1)
    first = min(max(span.start_us - start_us, 0) * BAR_CHARS // whole_us, BAR_CHARS - 1)
    last = min(-(-max(span.end_us - start_us, 0) * BAR_CHARS // whole_us), BAR_CHARS)
    filled = max(last - first, 1)
    goes_on = span.is_open or span.end_us > until_us
    bar = "=" * (filled - 1) + (">" if goes_on else "=")
    return f"|{' ' * first}{bar}{' ' * (BAR_CHARS - first - filled)}|"


def _took(span: SpanView) -> str:
    took_us = span.end_us - span.start_us
    if took_us and took_us < US_PER_MS:
        return f"{took_us} µs"
    return duration_text(took_us // US_PER_MS) + ("+" if span.is_open else "")


def _what(span: SpanView) -> str:
    of = span.attributes
    if span.name == "attempt":
        return f"{of.get('allot.attempt.number', '')}: {of.get('allot.message', '')}"
    if span.instance:
        return f"instance {span.instance}"
    if span.name == WAITING:
        return str(of.get("allot.reason") or of.get("allot.message") or "")
    if "k8s.node.name" in of and span.parent_id:
        return f"on {of['k8s.node.name']}"
    return str(of.get("allot.outcome", ""))
