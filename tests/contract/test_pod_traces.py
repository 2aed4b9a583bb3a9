"""A pod's trace as a real OTLP receiver gets it: the id that is printed, parents, true times."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.otlp import Receiver, receiving
from tests.recording import Recorder, busy_cluster, vgpu
from tests.recording_batch import preempted

from allotment_cli.main import main
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return busy_cluster()


@pytest.fixture(scope="module")
def log(recorded: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.write(tmp_path_factory.mktemp("log") / "busy.jsonl")


def allot(*words: str, code: int = 0, **env: str) -> Result:
    found = {"ALLOT_HOME": "/nonexistent", "ALLOT_NATS_URL": "", **env}
    result = CliRunner(env=found).invoke(main, words)
    assert result.exit_code == code, result.output
    return result


def facts(log: Path, name: str) -> Any:
    return json.loads(allot("story", name, "--file", str(log), "-o", "json").stdout)


def exported(receiver: Receiver) -> dict[str, Any]:
    """Spans by id."""
    return {span.span_id.hex(): span for span in receiver.spans()}


def said(span: Any) -> dict[str, Any]:
    return {
        a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value")
        for a in span.attributes
    }


@pytest.mark.parametrize("name", ["default/pair", "research/llama", "default/wrong"])
def test_the_printed_id_is_found_and_parents_enclose_their_children(name: str, log: Path) -> None:
    story = facts(log, name)
    with receiving() as receiver:
        result = allot("trace", name, "--file", str(log), "--export", receiver.url)
    spans = exported(receiver)
    trace_id = story["subject"]["uid"].replace("-", "")
    assert {span.trace_id.hex() for span in spans.values()} == {trace_id}
    assert f"spans of trace {trace_id} exported to {receiver.url}" in result.stderr
    assert f"Trace      {trace_id}" in allot("trace", name, "--file", str(log)).stdout
    (root,) = [span for span in spans.values() if not span.parent_span_id]
    assert said(root)["k8s.pod.uid"] == story["subject"]["uid"]
    assert len(spans) == len(receiver.spans()), "no id twice"
    for span in spans.values():
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span.parent_span_id:
            parent = spans[span.parent_span_id.hex()]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_phases_have_the_times_of_the_log_and_attempts_their_stages(log: Path) -> None:
    story = facts(log, "default/pair")
    with receiving() as receiver:
        allot("trace", "default/pair", "--file", str(log), "--export", receiver.url)
    by_name: dict[str, list[Any]] = {}
    for span in receiver.spans():
        by_name.setdefault(span.name, []).append(span)
    assert by_name["pod"][0].start_time_unix_nano == story["seenMs"] * 1_000_000
    for phase in story["phases"]:
        times = [(s.start_time_unix_nano, s.end_time_unix_nano) for s in by_name[phase["name"]]]
        end_ms = phase.get("endMs", story["asOf"]["timeMs"])
        assert (phase["startMs"] * 1_000_000, end_ms * 1_000_000) in times
    for stage in ("filter", "score", "check"):
        assert len(by_name[stage]) == len(by_name["attempt"]) == len(story["attempts"])
    services = {
        attribute.value.string_value
        for request in receiver.requests
        for resource in request.resource_spans
        for attribute in resource.resource.attributes
        if attribute.key == "service.name"
    }
    assert {"allotment", "allotment-filter", "allotment-scorer", "allotment-binder"} <= services


def test_being_refused_is_no_error_and_ending_badly_is(tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1")
    waits = log.pod("waits", vgpu(8))
    fails = log.pod("fails", vgpu())
    log.decide(waits, fails)
    log.bind(fails)
    log.observe(fails, node="n1", phase="Failed", reason="UnexpectedAdmissionError")
    path = log.write(tmp_path / "log.jsonl")
    errors = {}
    for name in ("waits", "fails"):
        with receiving() as receiver:
            allot("trace", name, "--file", str(path), "--export", receiver.url)
        errors[name] = [
            (span.name, said(span).get("error.type"))
            for span in receiver.spans()
            if span.status.code == 2
        ]
    assert errors["waits"] == []
    assert [name for name, _ in errors["fails"]] == ["pod"]
    assert errors["fails"][0][1] == "UnexpectedAdmissionError"


def test_a_victim_and_its_preemptor_are_linked(tmp_path: Path) -> None:
    log = preempted()
    path = log.write(tmp_path / "log.jsonl")
    decided = [
        event
        for record in log.records
        for event in decode_envelope(record.payload).events
        if isinstance(event, Decided) and event.evictions
    ]
    victim = decided[0].evictions[0]
    name = f"{victim.namespace}/{victim.name}"
    gained = facts(path, name)["end"]["evicted"]["gained"][0]
    with receiving() as receiver:
        allot("trace", name, "--file", str(path), "--export", receiver.url)
        allot(
            "trace",
            f"{gained['namespace']}/{gained['name']}",
            "--file",
            str(path),
            "--export",
            receiver.url,
        )
    of_victim, of_preemptor = (
        next(s for s in receiver.spans() if not s.parent_span_id and s.trace_id.hex() == trace_id)
        for trace_id in (victim.uid.replace("-", ""), gained["uid"].replace("-", ""))
    )
    for one, other in ((of_victim, of_preemptor), (of_preemptor, of_victim)):
        assert (other.trace_id, other.span_id) in [(k.trace_id, k.span_id) for k in one.links]


def test_exported_again_it_is_the_same(log: Path, tmp_path: Path) -> None:
    files = [tmp_path / "first", tmp_path / "again"]
    for target in files:
        allot("trace", "default/pair", "--file", str(log), "--export", str(target))
    assert files[0].read_bytes() == files[1].read_bytes()
    printed = allot("trace", "default/pair", "--file", str(log), "--export", "-").stdout
    assert printed.encode() == files[0].read_bytes()


def test_the_standard_variable_names_the_receiver(log: Path) -> None:
    words = ("trace", "default/pair", "--file", str(log), "--export", "otlp")
    assert "set OTEL_EXPORTER_OTLP_ENDPOINT" in allot(*words, code=2).stderr
    with receiving() as receiver:
        allot(*words, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    assert receiver.spans()


def test_a_receiver_or_file_that_takes_nothing_is_said(log: Path, tmp_path: Path) -> None:
    words = ("trace", "default/pair", "--file", str(log), "--export")
    with receiving() as receiver:
        receiver.status = 400
        refused = allot(*words, receiver.url, code=2)
    assert f"{receiver.url}/v1/traces did not take the spans" in refused.stderr
    nowhere = tmp_path / "absent" / "trace.jsonl"
    assert f"{nowhere} cannot be written" in allot(*words, str(nowhere), code=2).stderr


def test_what_is_no_url_is_no_receiver_and_no_secret_is_shown(log: Path, tmp_path: Path) -> None:
    words = ("trace", "default/pair", "--file", str(log), "--export")
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector.monitoring:4317"}
    refused = allot(*words, "otlp", code=2, **named)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is no URL" in refused.stderr
    with receiving() as receiver:
        with_secret = receiver.url.replace("://", "://user:secret@")
        told = allot(*words, with_secret).stderr
        receiver.status = 400
        told += allot(*words, with_secret, code=2).stderr
    assert receiver.url in told
    assert "secret" not in told


def test_nothing_of_a_message_moves_the_cursor(tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1")
    fails = log.pod("fails", vgpu())
    log.decide(fails)
    log.bind(fails)
    log.observe(fails, node="n1", phase="Failed", reason="Odd\x9b2J\x1b[2J")
    path = log.write(tmp_path / "log.jsonl")
    printed = allot("trace", "default/fails", "--file", str(path), "--export", "-").stdout
    assert printed.rstrip("\n").isprintable()
    assert json.loads(printed)["resourceSpans"]


def test_a_trace_is_a_document_with_schema_and_moment(log: Path) -> None:
    found = json.loads(allot("trace", "default/pair", "--file", str(log), "-o", "json").stdout)
    assert found["schema"] == "allotment.dev/trace/v1"
    assert found["asOf"]["seq"] > 0
    assert {span["traceId"] for span in found["spans"]} == {found["traceId"]}
