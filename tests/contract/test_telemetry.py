"""Spans as a real OTLP receiver sees them; and that a bad receiver costs spans and nothing else."""

import json
from pathlib import Path

import pytest
from opentelemetry import trace
from tests.otlp import receiving

from allotment.adapters.telemetry.traces import (
    TelemetryError,
    Tracer,
    extract,
    inject,
    start_tracing,
)

NOWHERE = "http://127.0.0.1:1"
SENDER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The OTEL_* variables of the test alone."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def tracing(otel: pytest.MonkeyPatch, **environ: str) -> Tracer:
    for name, value in environ.items():
        otel.setenv(name, value)
    return start_tracing("allotment-filter", "filter-0", environ)


def test_a_batch_arrives_as_one_span_with_stable_resource(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        tracer = tracing(
            otel,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_RESOURCE_ATTRIBUTES="k8s.cluster.name=lab",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        )
        headers: dict[str, str] = {}
        with tracer.batch_span(
            "filter", parent={"traceparent": SENDER}, attributes={"allot.batch.pods": 3}
        ) as span:
            span.set(allot__ledger__seq=7, note="x" * 5000)
            assert tracer.log_fields()["trace_id"] == span.trace_id == SENDER[3:35]
            span.inject(headers)
            with tracer.batch_span("inner"):
                pass
        assert tracer.log_fields() == {}
        assert tracer.close(5)
        inner, outer = sorted(receiver.spans(), key=lambda span: span.name, reverse=True)
        resource = receiver.resource()
    assert (outer.name, inner.name) == ("filter", "inner")
    assert outer.trace_id.hex() == inner.trace_id.hex() == SENDER[3:35]
    assert outer.parent_span_id.hex() == SENDER[36:52]
    assert inner.parent_span_id == outer.span_id
    assert headers["traceparent"] == f"00-{SENDER[3:35]}-{outer.span_id.hex()}-01"
    values = {attribute.key: attribute.value for attribute in outer.attributes}
    assert values["allot.batch.pods"].int_value == 3
    assert values["allot.ledger.seq"].int_value == 7
    assert len(values["note"].string_value) == 1024
    assert outer.kind == 5  # consumer
    assert resource["service.name"] == "allotment-filter"
    assert resource["service.namespace"] == "allot"
    assert resource["service.instance.id"] == "filter-0"
    assert resource["service.version"]
    assert resource["k8s.cluster.name"] == "lab"
    assert (tracer.counts.exported, tracer.counts.dropped, tracer.counts.waiting) == (2, 0, 0)


def test_a_failed_batch_says_so_and_a_stopped_one_does_not(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        tracer = tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        with pytest.raises(ValueError, match="bad"), tracer.batch_span("a failed"):
            raise ValueError("bad")
        with pytest.raises(KeyboardInterrupt), tracer.batch_span("b stopped"):
            raise KeyboardInterrupt
        with tracer.batch_span("c refused", kind="client") as span:
            span.fail("wrong_last_sequence")
        assert tracer.close(5)
        failed, stopped, refused = sorted(receiver.spans(), key=lambda span: span.name)
    assert (failed.status.code, stopped.status.code, refused.status.code) == (2, 0, 2)
    assert failed.attributes[0].value.string_value == "ValueError"
    assert refused.attributes[0].value.string_value == "wrong_last_sequence"


def test_without_a_reader_spans_are_nothing(otel: pytest.MonkeyPatch, tmp_path: Path) -> None:
    off = [
        tracing(otel),
        tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=NOWHERE, OTEL_SDK_DISABLED="true"),
        tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=NOWHERE, OTEL_TRACES_EXPORTER="none"),
    ]
    for tracer in off:
        headers: dict[str, str] = {}
        with tracer.batch_span("filter", parent={"traceparent": SENDER}) as span:
            span.set(a=1)
            span.fail("x")
            span.inject(headers)
        assert (span.trace_id, headers) == (None, {})
        assert tracer.batch_span("a") is tracer.batch_span("b")
        assert tracer.close(1)


def test_a_file_gets_otlp_json_lines(otel: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    tracer = tracing(otel, ALLOT_TRACE_FILE=str(path))
    with tracer.batch_span("filter", parent={"traceparent": SENDER}, attributes={"n": 1}):
        pass
    assert tracer.close(5)
    [line] = path.read_text().splitlines()
    [span] = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["traceId"] == SENDER[3:35]
    assert span["parentSpanId"] == SENDER[36:52]
    assert len(span["spanId"]) == 16
    assert span["kind"] == 5
    assert span["startTimeUnixNano"].isdigit()
    assert span["attributes"] == [{"key": "n", "value": {"intValue": "1"}}]


def test_a_full_disk_loses_spans_and_counts_them(otel: pytest.MonkeyPatch) -> None:
    tracer = tracing(otel, ALLOT_TRACE_FILE="/dev/full")
    with tracer.batch_span("filter"):
        pass
    tracer.close(5)
    assert (tracer.counts.exported, tracer.counts.dropped) == (0, 1)


def test_the_sampler_variable_is_honoured(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        tracer = tracing(
            otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_TRACES_SAMPLER="always_off"
        )
        with tracer.batch_span("filter") as span:
            assert span.trace_id is None
        assert tracer.close(5)
        assert receiver.spans() == []
    assert tracer.counts.dropped == 0


def test_a_receiver_that_refuses_costs_spans_which_are_counted(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        receiver.status = 400
        tracer = tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        for _ in range(5):
            with tracer.batch_span("filter"):
                pass
        assert tracer.close(5)
        assert (tracer.counts.exported, tracer.counts.dropped) == (0, 5)


def test_a_stuck_receiver_delays_neither_work_nor_exit(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        receiver.hold.clear()
        tracer = tracing(
            otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_BSP_MAX_QUEUE_SIZE="10"
        )
        for _ in range(100):
            with tracer.batch_span("filter"):
                pass
        assert not tracer.close(0.3)
        assert (tracer.counts.exported, tracer.counts.dropped) == (0, 100)


def test_headers_carry_the_context_and_broken_ones_carry_none() -> None:
    context = trace.get_current_span(extract({"traceparent": SENDER})).get_span_context()
    assert f"{context.trace_id:032x}" == SENDER[3:35]
    for headers in (None, {}, {"traceparent": "00-zz-1-01"}, {"traceparent": ""}):
        assert not trace.get_current_span(extract(headers)).get_span_context().is_valid
    written: dict[str, str] = {}
    inject(written)
    assert written == {}


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ALLOT_TRACE_FILE": "/no/such/dir/x"}, "ALLOT_TRACE_FILE='/no/such/dir/x': cannot be"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            },
            "'grpc': expected http/protobuf",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x:4318"}, "'x:4318': expected a URL"),
        (
            {"ALLOT_TRACE_FILE": "/dev/null", "OTEL_BSP_MAX_QUEUE_SIZE": "0"},
            "OTEL_BSP_MAX_QUEUE_SIZE='0': expected a whole number",
        ),
    ],
)
def test_wrong_variables_are_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(TelemetryError) as caught:
        start_tracing("a", "b", environ)
    assert words in str(caught.value)
