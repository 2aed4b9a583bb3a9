"""The trace of a pod on its way to a backend: from services that run, to a receiver of OTLP."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from allotment_cli.main import main
from tests.e2e.stack import Stack, vgpu
from tests.otlp import Receiver, receiving
from tests.waiting import PATIENCE_S

NODES = """
- {name: gpu-1, gpus: {model: Tesla V100, count: 2, memory_mib: 16384}, cpu: 16, memory: 64Gi}
"""
TRACEPARENT = "allotment.dev/traceparent"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def stack(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with Stack(tmp_path, NODES) as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=lab")
        running.start("inspector")
        yield running


def spans_of(receiver: Receiver, trace_id: str) -> list[Any]:
    return [span for span in receiver.spans() if span.trace_id.hex() == trace_id]


def explained_id(stack: Stack, name: str) -> str:
    words = ["explain", "pod", f"default/{name}", "--nats", stack.nats.url, "-o", "json"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return str(json.loads(result.stdout)["trace"]["traceId"])


def test_the_id_that_is_explained_is_found_and_the_pod_goes_on_with_it(
    stack: Stack, receiver: Receiver
) -> None:
    stack.create_pod("trainer", vgpu(memory=4000))
    stack.create_pod("too-big", vgpu(memory=40_000))
    stack.until(lambda: stack.bound() == {"trainer"}, "one is bound")
    trace_id = explained_id(stack, "trainer")
    stack.until(lambda: len(spans_of(receiver, trace_id)) > 3, "what is final of it is there")
    annotation = stack.pod("trainer")["metadata"]["annotations"][TRACEPARENT]
    stack.delete_pod("trainer")

    def root() -> Any:
        found = [span for span in spans_of(receiver, trace_id) if not span.parent_span_id]
        return found[0] if found else None

    stack.until(lambda: root() is not None, "the whole, when it is gone")
    assert annotation == f"00-{trace_id}-{root().span_id.hex()}-01"
    found = {span.span_id: span for span in spans_of(receiver, trace_id)}
    assert len(found) == len(spans_of(receiver, trace_id)), "each once"
    assert {"waiting", "reserved", "bound", "attempt", "filter", "score", "check"} <= {
        span.name for span in found.values()
    }
    for span in found.values():
        if span.parent_span_id:
            parent = found[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    assert receiver.resource()["k8s.cluster.name"] == "lab"
    log = [json.loads(line) for line in stack.processes["binder"].log_path.read_text().splitlines()]
    named = [pod for line in log for pod in line.get("placed_pods", ())]
    assert {"pod": "default/trainer", "node": "gpu-1", "trace_id": trace_id} in named


def test_a_receiver_that_fails_costs_spans_and_scheduling_goes_on(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.status = 400
    for number in range(3):
        stack.create_pod(f"p{number}", vgpu(memory=1000))
    stack.until(lambda: len(stack.bound()) == 3, "all are bound")
    dropped = "allot_trace_spans_dropped_total"
    stack.until(lambda: stack.metric("inspector", dropped) > 0, "losses are counted")
    stack.create_pod("later", vgpu(memory=1000))
    stack.until(lambda: "later" in stack.bound(), "the next is bound as well")
    assert stack.is_ready("inspector")
    assert receiver.spans() == []


def test_stopping_sends_what_is_queued(
    stack: Stack, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    stack.start("inspector")
    stack.create_pod("p", vgpu(memory=1000))
    stack.until(lambda: stack.bound() == {"p"}, "it is bound")
    trace_id = explained_id(stack, "p")
    followed = "allot_trace_pods_followed"
    stack.until(lambda: stack.metric("inspector", followed) == 1, "it is followed")
    stack.delete_pod("p")
    stack.until(lambda: stack.metric("inspector", followed) == 0, "it is over")
    assert spans_of(receiver, trace_id) == []
    stack.processes["inspector"].signal(signal.SIGTERM)
    assert stack.processes["inspector"].wait(PATIENCE_S) == 0
    assert any(not span.parent_span_id for span in spans_of(receiver, trace_id))
