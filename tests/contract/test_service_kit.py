"""A service's life as the world sees it: a real process, real signals, real HTTP."""

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.waiting import PATIENCE_S, patience, until_so

from allotment.adapters.service.heap import YOUNG_OBJECTS
from allotment.adapters.service.http import Readiness
from allotment.adapters.service.service import ServiceContext, serve
from allotment.adapters.service.settings import CommonSettings
from allotment.adapters.telemetry.log import Logger, LogSink, one_line
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.metrics.cards import Gauge
from allotment.core.metrics.histograms import Histogram

PROGRAM = """
import gc, logging, sys, time
import anyio
from allotment.adapters.service.heap import freeze_heap
from allotment.adapters.service.service import start_service
from allotment.adapters.service.settings import CommonSettings, SettingsError

async def until_told(ctx):
    ctx.ready("log", False, "folding")
    freeze_heap()
    ctx.log.info("folded", events=3, looks_after=gc.get_threshold()[0])
    logging.getLogger("nats").warning("from a %s", "library")
    ctx.metrics.observe_stage("filter", 0.01, "ab" * 16, 7)
    ctx.ready("log", True, "at 7")
    with ctx.until_stop():
        await anyio.sleep_forever()
    await anyio.sleep(0.05)
    ctx.log.info("drained")

async def deaf(ctx):
    ctx.ready("log", True)
    await anyio.sleep_forever()

async def stubborn(ctx):
    ctx.ready("log", True)
    await ctx.stop.wait()
    await anyio.sleep(0.1)
    time.sleep(600)

async def crash(ctx):
    async def inner():
        raise ValueError("the books\\ndo not balance")
    ctx.task_group.start_soon(inner)
    await anyio.sleep_forever()

async def wrong_policy(ctx):
    raise SettingsError(["--policy='x': no such plugin"])

async def finish(ctx):
    ctx.task_group.start_soon(anyio.sleep_forever)

import allotment.adapters.service.service as service
service.HARD_STOP_S = 0.3
service.FLUSH_S = 0.3
async def waited_for(ctx):
    await until_told(ctx)

sys.exit(start_service("allotment-x", CommonSettings, globals()[sys.argv[1]], "A test.",
                       argv=sys.argv[2:], drain_s=0.4, gives_way=sys.argv[1] != "waited_for"))
"""


class Process:
    """One running service and what it said."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen
        self.announced: dict[str, Any] = {}

    def read_announcement(self) -> None:
        assert self.popen.stdout is not None
        assert select.select([self.popen.stdout], [], [], PATIENCE_S)[0], "no announcement"
        self.announced = json.loads(self.popen.stdout.readline())

    def get(self, path: str, accept: str = "*/*") -> tuple[int, str]:
        url = f"http://{self.announced['http']}{path}"
        request = urllib.request.Request(url, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def until_ready(self) -> None:
        until_so(lambda: self.get("/readyz")[0] == 200)

    def end(self) -> tuple[int, list[str]]:
        """The exit status and the lines of stderr."""
        _, err = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode, err.splitlines()


@contextlib.contextmanager
def process(
    tmp_path: Path, main: str, *argv: str, announce: bool = True, **environ: str
) -> Iterator[Process]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    popen = subprocess.Popen(
        [sys.executable, str(program), main, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    running = Process(popen)
    try:
        if announce:
            running.read_announcement()
        yield running
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.communicate(timeout=PATIENCE_S)


def test_a_service_says_where_it_is_serves_and_stops_in_order(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    with process(
        tmp_path, "until_told", "--instance", "x-0", ALLOT_TRACE_FILE=str(traces)
    ) as running:
        assert running.announced["service"] == "allotment-x"
        assert running.announced["pid"] == running.popen.pid
        running.until_ready()
        assert running.get("/healthz") == (200, "ok\n")
        ready = json.loads(running.get("/readyz")[1])
        assert ready["ready"] is True
        assert ready["holds"] == {"log": "at 7"}
        plain = running.get("/metrics")[1]
        assert "allot_build_info{" in plain
        assert "process_resident_memory_bytes" in plain
        assert 'trace_id="' not in plain
        rich = running.get("/metrics", "application/openmetrics-text; version=1.0.0")[1]
        assert f'# {{log_seq="7",trace_id="{"ab" * 16}"}}' in rich
        assert rich.endswith("# EOF\n")
        running.popen.send_signal(signal.SIGTERM)
        status, lines = running.end()
    entries = [json.loads(line) for line in lines]
    assert status == 0
    messages = [entry["msg"] for entry in entries]
    for earlier, later in zip(
        ["started", "folded", "ready", "stopping", "drained"],
        ["folded", "ready", "stopping", "drained", "stopped"],
        strict=True,
    ):
        assert messages.index(earlier) < messages.index(later)
    folded = entries[messages.index("folded")]
    assert folded["service"] == "allotment-x"
    assert folded["instance"] == "x-0"
    assert (folded["level"], folded["events"]) == ("info", 3)
    assert folded["looks_after"] == YOUNG_OBJECTS, "a service's collector looks seldom"
    assert folded["ts"].endswith("Z")
    library = entries[messages.index("from a library")]
    assert (library["logger"], library["level"]) == ("nats", "warning")


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux knows this policy")
def test_a_service_that_nobody_waits_for_interrupts_nobody(tmp_path: Path) -> None:
    policies = {}
    for main in ("until_told", "waited_for"):
        with process(tmp_path, main) as running:
            policies[main] = os.sched_getscheduler(running.popen.pid)
    assert policies == {"until_told": os.SCHED_BATCH, "waited_for": os.SCHED_OTHER}


@pytest.mark.parametrize(
    ("main", "status", "last"),
    [("deaf", 0, "stopped"), ("stubborn", 1, "did not stop, ended by force")],
)
def test_a_service_that_does_not_stop_is_stopped_in_bounded_time(
    tmp_path: Path, main: str, status: int, last: str
) -> None:
    with process(tmp_path, main) as running:
        running.until_ready()
        running.popen.send_signal(signal.SIGINT)
        ended, lines = running.end()
    assert ended == status
    assert json.loads(lines[-1])["msg"] == last


def test_a_crash_is_one_clear_line_a_traceback_in_the_log_and_status_1(tmp_path: Path) -> None:
    with process(tmp_path, "crash") as running:
        status, lines = running.end()
    assert status == 1
    assert lines[-1] == "allotment-x: crashed: ValueError: the books do not balance"
    logged = json.loads(lines[-2])
    assert (logged["msg"], logged["level"]) == ("crashed", "error")
    assert "in inner" in logged["traceback"]


def test_wrong_settings_are_status_2_whenever_they_are_noticed(tmp_path: Path) -> None:
    with process(
        tmp_path, "deaf", "--http-port", "x", announce=False, ALLOT_LOG_LEVEL="loud"
    ) as running:
        status, lines = running.end()
        assert status == 2
        assert any("ALLOT_LOG_LEVEL='loud': expected one of" in line for line in lines)
        assert any("--http-port='x': expected a whole number" in line for line in lines)
    with process(tmp_path, "wrong_policy") as running:
        status, lines = running.end()
        assert (status, lines[-2]) == (2, "allotment-x: --policy='x': no such plugin")
    with process(tmp_path, "deaf", announce=False, ALLOT_TRACE_FILE="/no/dir/x") as running:
        status, lines = running.end()
        assert (status, "ALLOT_TRACE_FILE" in lines[0]) == (2, True)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with process(tmp_path, "deaf") as first:
        port = first.announced["http"].rpartition(":")[2]
        with process(tmp_path, "deaf", "--http-port", port, announce=False) as second:
            status, lines = second.end()
    assert status == 1
    assert f"cannot listen on 127.0.0.1:{port}: it is in use; give another" in lines[-1]


def test_a_service_may_finish_and_takes_its_tasks_with_it(tmp_path: Path) -> None:
    with process(tmp_path, "finish", "--log-format", "text") as running:
        status, lines = running.end()
    assert status == 0
    assert "INFO    allotment-x stopped" in lines[-1]


@pytest.mark.anyio
async def test_a_service_runs_inside_a_test_too() -> None:
    seen: list[bool] = []

    async def run(ctx: ServiceContext[CommonSettings]) -> None:
        ctx.ready("a", False)
        ctx.ready("b", True)
        seen.append(ctx.readiness.is_ready)
        ctx.ready("a", True)
        seen.append(ctx.readiness.is_ready)
        ctx.request_stop()
        ctx.request_stop()
        seen.append(ctx.readiness.is_ready)
        with ctx.until_stop():
            await anyio.sleep_forever()

    out = io.StringIO()
    log = Logger(LogSink("x", "0", stream=out, clock=lambda: 1_000_000))
    tracer = start_tracing("x", "0", {})
    with patience():
        await serve("x", CommonSettings(), run, log, tracer, handle_signals=False)
    assert seen == [False, True, False]
    assert json.loads(out.getvalue().splitlines()[0])["ts"] == "1970-01-01T00:00:00.001000Z"


def test_readiness_gives_reasons() -> None:
    readiness = Readiness()
    assert "started" in readiness.reasons()
    readiness.set("nats", False, "connecting to nats://x")
    readiness.set("fold", True)
    assert readiness.reasons() == {"nats": "connecting to nats://x"}
    readiness.set("nats", True)
    assert readiness.is_ready
    readiness.stop()
    assert list(readiness.reasons()) == ["stopping"]


def test_a_log_line_never_fails_its_writer() -> None:
    out = io.StringIO()
    log = Logger(LogSink("x", "0", stream=out, clock=lambda: 0)).bind(pod="a/b")
    log.info("odd", value=object(), many={1, 2}, keys={(1, 2): 3}, big=1 << 80, text="\ud800")
    log.info("clash", level="high", ts=1)
    log.debug("unheard")
    log.error("bad", error=ExceptionGroup("g", [ValueError("a\nb")]))
    lines = [json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{")]
    assert len(out.getvalue().splitlines()) == 3
    assert lines[-2]["level"] == "info"
    assert lines[-2]["level_"] == "high"
    assert lines[-1]["error"] == "ValueError: a b"
    assert lines[-1]["pod"] == "a/b"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_a_metric_that_cannot_be_read_takes_no_other_with_it(accept: str) -> None:
    metrics, failed = ServiceMetrics("allotment-filter"), list[str]()
    metrics.on_failed = lambda name, error: failed.append(f"{name}: {one_line(error)}")
    readings: dict[str, Any] = {"raises": None, "no_number": "many", "right": 7}

    def read(name: str) -> Any:
        return (lambda: 1 // 0) if name == "raises" else (lambda: readings[name])

    for name in readings:
        metrics.expose(f"allot_{name}", "for the test", read(name))
    metrics.expose_gauges(lambda: [Gauge("allot_group", "x", ("a",), {("b",): 1})] * readings["no"])
    for _ in range(3):
        text = metrics.encode(accept)[0].decode()
        assert "allot_right 7" in text
        assert "allot_log_append_conflicts_total 0" in text
        assert "python_gc" in text
        assert "# TYPE allot_raises" not in text
    assert 'allot_metrics_failed_total{metric="allot_raises"} 2' in text
    assert [said.split(":")[0] for said in failed] == ["allot_raises", "allot_no_number", "_Gauges"]
    assert failed[0] == "allot_raises: ZeroDivisionError: integer division or modulo by zero"
    readings["no_number"] = 2
    assert "allot_no_number 2" in metrics.encode(accept)[0].decode()


def test_services_of_one_process_add_up_what_they_count_by_one_name() -> None:
    metrics = ServiceMetrics("allotment-scheduler")
    metrics.parts = ("allotment-scorer", "allotment-binder")
    metrics.expose_sequences(lambda: 9, lambda: 8)
    for number, stage in ((1, "a"), (2, "b")):
        times = Histogram("allot_times", "x", (1.0,), ("stage",), unit_us=1)
        times.observe(1, stage)
        times.observe(number, "both")
        metrics.expose_histograms([times])
        metrics.expose("allot_dropped_total", "x", lambda n=number: n, kind="counter")  # type: ignore[misc]
        metrics.expose("allot_is_on", "x", lambda: 1)
    text = metrics.encode("")[0].decode()
    for line in (
        'allot_ledger_seq{service="allotment-scorer"} 8.0',
        'allot_ledger_seq{service="allotment-binder"} 8.0',
        'allot_times_count{stage="a"} 1.0',
        'allot_times_count{stage="b"} 1.0',
        'allot_times_sum{stage="both"} 3.0',
        "allot_dropped_total 3.0",
        "allot_is_on 1.0",
    ):
        assert f"\n{line}\n" in text, line
    assert text.count("# TYPE allot_times ") == 1


def test_metrics_read_plain_numbers_when_scraped() -> None:
    metrics = ServiceMetrics("allotment-filter", commit="abc")
    head = 5
    refusals: dict[tuple[str, ...], int] = {("NoGpu",): 2}
    metrics.expose_sequences(lambda: head, lambda: head - 1)
    metrics.expose(
        "allot_rejections_total", "refusals", lambda: refusals, ("reason",), kind="counter"
    )
    metrics.append_conflicts.inc()
    head = 9
    text = metrics.encode("")[0].decode()
    for line in (
        "allot_log_head_seq 9.0",
        'allot_ledger_seq{service="allotment-filter"} 8.0',
        'allot_rejections_total{reason="NoGpu"} 2.0',
        "allot_log_append_conflicts_total 1.0",
        'commit="abc"',
    ):
        assert line in text
    with pytest.raises(ValueError, match=r"[Dd]uplicate"):
        metrics.expose("allot_log_head_seq", "again", lambda: 0)
