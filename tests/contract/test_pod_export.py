"""Pods' traces exported while a log is followed, as a real OTLP receiver gets them; and that one
that is slow, failing or gone costs spans and nothing else.
"""

import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner
from tests.otlp import Receiver, receiving
from tests.recording import Recorder, uid_of, vgpu
from tests.waiting import until

from allotment.adapters.telemetry.pod_export import (
    BUSY_RATIO,
    FULL_PODS_PER_S,
    PodTraces,
    Sampling,
    sampling_of,
)
from allotment.adapters.telemetry.traces import TelemetryError, Tracer, start_tracing
from allotment.core.explain.history.spans import SpanView, final_spans
from allotment.core.explain.rows.life import Life
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.trace_ids import cycle_ids, root_id, trace_id
from allotment_cli.main import main
from allotment_proto.codec import decode_envelope

pytestmark = pytest.mark.anyio
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def tracing(otel: pytest.MonkeyPatch, **environ: str) -> Tracer:
    for name, value in environ.items():
        otel.setenv(name, value)
    return start_tracing("allotment-inspector", "inspector-0", environ)


class Following:
    """A log that is followed record by record, as the inspector's fold does."""

    def __init__(self, traces: PodTraces, log: Recorder) -> None:
        self.traces, self.log = traces, log
        self.state = ClusterState()
        self._changed = anyio.Event()

    def read(self) -> None:
        """Take in what is new in the log."""
        for record in self.log.records[self.state.seq :]:
            envelope = decode_envelope(record.payload)
            apply_all(self.state, envelope.events, record.seq)
            self.traces.follow(record, envelope, self.state)
        before, self._changed = self._changed, anyio.Event()
        before.set()

    async def changed(self) -> None:
        await self._changed.wait()

    async def run(self) -> None:
        await self.traces.run(lambda: self.state, self.changed)


def whole_life(log: Recorder, name: str) -> str:
    uid = log.pod(name, vgpu())
    log.decide(uid)
    log.bind(uid)
    log.observe(uid, phase="Succeeded")
    return uid


async def allot(*words: str) -> str:
    """What a command prints; it has an event loop of its own."""
    runner = CliRunner(env={"ALLOT_HOME": "/nonexistent", "ALLOT_NATS_URL": ""})
    result = await anyio.to_thread.run_sync(lambda: runner.invoke(main, words))
    assert result.exit_code == 0, result.output
    return result.output


def by_id(receiver: Receiver, uid: str) -> dict[str, Any]:
    return {
        span.span_id.hex(): span
        for span in receiver.spans()
        if span.trace_id.hex() == trace_id(uid)
    }


def said(span: Any) -> dict[str, Any]:
    return {
        a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value")
        for a in span.attributes
    }


async def test_the_receiver_finds_the_id_that_is_printed(
    otel: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = Recorder()
    log.node("n1")
    old = whole_life(log, "old")
    with receiving() as receiver:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
        tracer = tracing(otel, **environ)
        following = Following(PodTraces(tracer, Sampling()), log)
        following.read()
        async with anyio.create_task_group() as group:
            group.start_soon(following.run)
            await anyio.lowlevel.checkpoint()
            uid = log.pod("trainer", vgpu())
            log.decide(uid)
            log.bind(uid)
            following.read()
            await until(lambda: bool(by_id(receiver, uid)))  # what is final of a pod that runs
            assert root_id(uid) not in by_id(receiver, uid), "it runs"
            log.observe(uid, phase="Succeeded")
            following.read()
            await until(lambda: root_id(uid) in by_id(receiver, uid))  # the whole, at the end
            group.cancel_scope.cancel()
        assert tracer.close(5)
        found = by_id(receiver, uid)
        assert not by_id(receiver, old), "history is not exported again"
        path = log.write(tmp_path / "log.jsonl")
        words = ["explain", "pod", "default/trainer", "-o", "json", "--file", str(path)]
        assert trace_id(uid) in await allot(*words)
        with receiving() as other:
            words = ["trace", "default/trainer", "--file", str(path), "--export", other.url]
            await allot(*words)
            again = by_id(other, uid)
    assert len(found) == len([s for s in receiver.spans() if s.trace_id.hex() == trace_id(uid)])
    assert found == again, "exported on demand it is the same"
    for span in found.values():
        if span.parent_span_id:
            parent = found[span.parent_span_id.hex()]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    stages = {span.name: span for span in found.values() if span.name in ("filter", "score")}
    assert (stages["filter"].kind, stages["score"].kind) == (1, 5)  # internal, consumer
    message = said(stages["score"])
    assert message["messaging.system"] == "nats"
    assert message["messaging.destination.name"] == "allot.pipe.feasible"
    attempt = next(span for span in found.values() if span.name == "attempt")
    (link,) = attempt.links
    cycle = message["messaging.message.conversation_id"]
    assert (link.trace_id.hex(), link.span_id.hex()) == cycle_ids(cycle)


async def test_the_trace_of_a_cycle_begins_with_the_span_that_pods_link_to(
    otel: pytest.MonkeyPatch,
) -> None:
    with receiving() as receiver:
        tracer = tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        with tracer.batch_span("filter", ids=cycle_ids("c-1")):
            pass
        with tracer.batch_span("filter"):
            pass
        assert tracer.close(5)
        named, other = receiver.spans()
    assert (named.trace_id.hex(), named.span_id.hex()) == cycle_ids("c-1")
    assert named.trace_id != other.trace_id
    assert named.span_id != other.span_id


@pytest.mark.parametrize("trouble", ["down", "503", "slow"])
async def test_a_bad_receiver_costs_spans_which_are_counted_and_no_time(
    otel: pytest.MonkeyPatch, trouble: str
) -> None:
    with receiving() as receiver:
        receiver.status = 503
        if trouble == "slow":
            receiver.hold.clear()
        tracer = tracing(
            otel,
            OTEL_EXPORTER_OTLP_ENDPOINT=NOWHERE if trouble == "down" else receiver.url,
            OTEL_BSP_MAX_QUEUE_SIZE="50",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50",
        )
        log = Recorder()
        log.node("n1")
        following = Following(PodTraces(tracer, Sampling(1.0), delayed_max=0), log)
        following.read()
        async with anyio.create_task_group() as group:
            group.start_soon(following.run)
            await anyio.lowlevel.checkpoint()
            for number in range(20):
                whole_life(log, f"p{number}")
            following.read()
            await until(lambda: tracer.counts.dropped > 0)  # what finds no room is counted
            await until(lambda: not following.traces.lives.waiting)  # all were handed over
            group.cancel_scope.cancel()
        assert following.traces.spans > 50
        begun_s = time.monotonic()
        is_flushed = tracer.close(1)
        assert time.monotonic() - begun_s < 8, "stopping waits so long and no longer"
        assert not is_flushed or trouble != "slow"
    assert tracer.counts.exported == 0
    assert tracer.counts.dropped == following.traces.spans
    assert len(following.traces.lives) == 0


async def test_a_pod_of_whom_no_spans_can_be_made_harms_only_itself(
    otel: pytest.MonkeyPatch,
) -> None:
    def fails_for_one(found: Life, since_seq: int) -> list[SpanView]:
        if found.subject.name == "bad":
            raise ValueError("a defect")
        return final_spans(found, since_seq)

    otel.setattr("allotment.core.explain.history.lives.final_spans", fails_for_one)
    errors: list[Exception] = []
    with receiving() as receiver:
        tracer = tracing(otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        log = Recorder()
        log.node("n1")
        traces = PodTraces(tracer, Sampling(1.0), on_failed=errors.append)
        following = Following(traces, log)
        async with anyio.create_task_group() as group:
            group.start_soon(following.run)
            await anyio.lowlevel.checkpoint()
            uids = [whole_life(log, name) for name in ("before", "bad", "after")]
            following.read()
            await until(lambda: not traces.lives.waiting)
            group.cancel_scope.cancel()
        assert tracer.close(5)
        found = {span.trace_id.hex() for span in receiver.spans()}
    assert found == {trace_id(uids[0]), trace_id(uids[2])}
    assert {str(error) for error in errors} == {"a defect"}


async def test_stopping_flushes_what_is_queued(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        tracer = tracing(
            otel, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_BSP_SCHEDULE_DELAY="600000"
        )
        log = Recorder()
        log.node("n1")
        following = Following(PodTraces(tracer, Sampling()), log)
        async with anyio.create_task_group() as group:
            group.start_soon(following.run)
            await anyio.lowlevel.checkpoint()
            uid = whole_life(log, "p")
            following.read()
            await until(lambda: following.traces.spans > 0)  # handed over
            group.cancel_scope.cancel()
        assert receiver.spans() == []
        assert tracer.close(5)
        assert root_id(uid) in by_id(receiver, uid)


async def test_a_burst_waits_for_room_and_loses_nothing(otel: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        tracer = tracing(
            otel,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_BSP_MAX_QUEUE_SIZE="200",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50",
        )
        log = Recorder()
        log.node("n1")
        following = Following(PodTraces(tracer, Sampling(1.0)), log)
        async with anyio.create_task_group() as group:
            group.start_soon(following.run)
            await anyio.lowlevel.checkpoint()
            uids = [whole_life(log, f"p{number}") for number in range(100)]
            following.read()
            await until(lambda: not following.traces.lives.waiting)
            group.cancel_scope.cancel()
        assert tracer.close(5)
        assert following.traces.spans > 2 * 200
        assert (tracer.counts.dropped, tracer.counts.exported) == (0, following.traces.spans)
        assert {root_id(uid) for uid in uids} <= {s.span_id.hex() for s in receiver.spans()}


def test_a_busy_cluster_is_sampled_by_uid_and_the_remarkable_are_kept() -> None:
    sampling = Sampling()
    uids = [uid_of(str(number)) for number in range(5_000)]
    sampling.note(1_000, 10 * FULL_PODS_PER_S)
    assert all(map(sampling.chooses, uids))
    sampling.note(1_500, 1)
    taken = set(filter(sampling.chooses, uids))
    assert len(uids) * BUSY_RATIO / 3 < len(taken) < len(uids) * BUSY_RATIO * 3
    assert taken <= set(filter(Sampling(0.5).chooses, uids)), "who takes more takes these as well"
    sampling.note(20_000, 1)
    assert all(map(sampling.chooses, uids)), "as soon as it is calm again"


def test_the_standard_variables_set_the_sample() -> None:
    def ratio(**environ: str) -> float | None:
        found = sampling_of(environ)
        return None if found is None else found.ratio

    assert ratio() == 1.0
    assert ratio(OTEL_TRACES_SAMPLER="always_off") is None
    assert ratio(OTEL_TRACES_SAMPLER="parentbased_always_on") == 1.0
    sampler = "parentbased_traceidratio"
    assert ratio(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG="0.25") == 0.25
    for wrong in ("2", "-0.1", "many", "nan"):
        with pytest.raises(TelemetryError, match="expected a number from 0 to 1"):
            ratio(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG=wrong)
