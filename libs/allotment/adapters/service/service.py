"""The life of a service process: start, say so, be watched, stop in order, leave nothing behind.

    def main() -> None:
        sys.exit(start_service("allotment-filter", FilterSettings, run, "Finds feasible nodes."))

    async def run(ctx: ServiceContext[FilterSettings]) -> None:
        ctx.ready("log", False, "folding")
        async with connect(ctx.settings) as conn:     # closed in order, also when stopping
            with ctx.until_stop():                    # its body is cancelled by SIGTERM
                await follow(conn, ctx)

A signal makes the service not ready, sets `ctx.stop` and cancels every `until_stop` body; `run`
then has `drain_s` to return, after which it is cancelled. Spans are flushed for at most FLUSH_S. A
thread that needs no event loop ends the process if all that hangs. A second signal cancels at once.

stdout carries one line, the announcement: {"service": …, "pid": …, "http": "127.0.0.1:PORT"}.
Logs go to stderr. Exit status: 0 stopped or finished, 1 crashed, 2 wrong settings.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from allotment.adapters.service.heap import collect_seldom
from allotment.adapters.service.http import CannotListen, Readiness, serve_http
from allotment.adapters.service.loop_watch import LoopWatch
from allotment.adapters.service.settings import CommonSettings, SettingsError, as_fields, load
from allotment.adapters.telemetry.log import Logger, LogSink, library_lines, one_line
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.refusals import Refusals
from allotment.adapters.telemetry.traces import TelemetryError, Tracer, start_tracing

DRAIN_S = 5.0
FLUSH_S = 3.0
HARD_STOP_S = 5.0
"""How long after drain and flush the process may still live before it is ended by force."""

S = TypeVar("S", bound=CommonSettings)


class ServiceContext(Generic[S]):
    """What a service's `run` is given. Nothing in it outlives `run`."""

    def __init__(
        self,
        name: str,
        settings: S,
        log: Logger,
        metrics: ServiceMetrics,
        tracer: Tracer,
        task_group: TaskGroup,
    ) -> None:
        self.name = name
        self.settings = settings
        self.log = log
        self.metrics = metrics
        self.tracer = tracer
        self.task_group = task_group
        """For tasks next to `run`; they are cancelled when it returns, their errors end it."""
        self.stop = anyio.Event()
        """Set when the service was asked to stop."""
        self.http_address = ""
        self.refusals = Refusals(log)
        """What is refused because of what it holds, while everything else continues."""
        self.refusals.expose(metrics)
        metrics.on_failed = lambda metric, error: log.error(
            "a metric cannot be read and is left out, the others are answered",
            metric=metric,
            error=error,
        )
        self.readiness = Readiness(self.refusals.shown)
        self._until_stop: set[anyio.CancelScope] = set()

    def ready(self, name: str, holds: bool, detail: str = "") -> None:
        """Declare or update one condition; the service is ready when all declared ones hold.

        Declare every condition (as False) before the first one is true, or /readyz flickers.
        """
        before = self.readiness.is_ready
        self.readiness.set(name, holds, detail)
        if self.readiness.is_ready is not before:
            self.log.info("ready" if not before else "not ready", reasons=self.readiness.reasons())

    @contextlib.contextmanager
    def until_stop(self) -> Iterator[anyio.CancelScope]:
        """A scope whose body is cancelled when the service is asked to stop."""
        with anyio.CancelScope() as scope:
            self._until_stop.add(scope)
            if self.stop.is_set():
                scope.cancel()
            try:
                yield scope
            finally:
                self._until_stop.discard(scope)

    def request_stop(self) -> None:
        """Begin to stop, as SIGTERM does. Asking twice is harmless."""
        self.readiness.stop()
        self.stop.set()
        for scope in list(self._until_stop):
            scope.cancel()


Run = Callable[[ServiceContext[S]], Awaitable[None]]


async def serve(
    name: str,
    settings: S,
    run: Run[S],
    log: Logger,
    tracer: Tracer,
    *,
    drain_s: float = DRAIN_S,
    announce: Callable[[Mapping[str, object]], None] | None = None,
    on_stop: Callable[[], None] = lambda: None,
    handle_signals: bool = True,
) -> None:
    """The asynchronous life of a service; `run_service` wraps it. Errors of `run` come out."""
    metrics = ServiceMetrics(name, os.environ.get("ALLOT_COMMIT", ""))
    metrics.expose(
        "allot_trace_spans_dropped_total",
        "spans that were lost: no room, or the receiver failed",
        lambda: tracer.counts.dropped,
        kind="counter",
    )
    metrics.expose(
        "allot_trace_spans_exported_total",
        "spans that the receiver, or the file, took",
        lambda: tracer.counts.exported,
        kind="counter",
    )
    async with anyio.create_task_group() as beside:
        ctx = ServiceContext(name, settings, log, metrics, tracer, beside)
        metrics.expose("allot_ready", "1 while /readyz says yes", lambda: ctx.readiness.is_ready)
        http = serve_http(settings.http_host, settings.http_port, name, ctx.readiness, metrics)
        async with http as ctx.http_address:
            if announce is not None:
                announce({"service": name, "pid": os.getpid(), "http": ctx.http_address})
            log.info("started", http=ctx.http_address, settings=as_fields(settings))
            with anyio.CancelScope() as whole:
                beside.start_soon(_drain, ctx, whole, drain_s, on_stop)
                beside.start_soon(LoopWatch(metrics).run)
                if handle_signals:
                    await beside.start(_watch_signals, ctx, whole)
                await run(ctx)
            beside.cancel_scope.cancel()
    log.info("stopped")


async def _watch_signals(
    ctx: ServiceContext[S],
    whole: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if ctx.stop.is_set():
                ctx.log.warning("stopping at once", signal=number.name)
                whole.cancel()
            else:
                ctx.log.info("stopping", signal=number.name)
                ctx.request_stop()


async def _drain(
    ctx: ServiceContext[S],
    whole: anyio.CancelScope,
    drain_s: float,
    on_stop: Callable[[], None],
) -> None:
    await ctx.stop.wait()
    on_stop()
    await anyio.sleep(drain_s)
    ctx.log.warning("did not finish in time, cancelling", drain_s=drain_s)
    whole.cancel()


def run_service(
    name: str,
    settings: S,
    run: Run[S],
    *,
    drain_s: float = DRAIN_S,
    gives_way: bool = True,
) -> int:
    """Run one service until it ends or is stopped; returns the process's exit status.

    `gives_way` is for all but the service that others wait for: see `_give_way`.
    """
    sink = LogSink(name, settings.instance, settings.log_format, settings.log_level)
    log = Logger(sink)
    collect_seldom()
    if gives_way:
        _give_way(log)
    try:
        tracer = start_tracing(name, settings.instance, os.environ)
    except TelemetryError as error:
        return _refuse(name, [str(error)])
    sink.trace_fields = tracer.log_fields
    status = 0

    watchdog = _watchdog(drain_s + FLUSH_S + HARD_STOP_S, log)

    async def life() -> None:
        await serve(
            *(name, settings, run, log, tracer),
            drain_s=drain_s,
            announce=_announce,
            on_stop=watchdog.start,
        )

    with library_lines(sink):
        try:
            anyio.run(
                life,
                backend="asyncio",
                backend_options={"use_uvloop": find_spec("uvloop") is not None},
            )
        except Exception as error:
            status = _explain(name, error, log)
        if not tracer.close(FLUSH_S):
            log.warning("spans were lost: the receiver did not take them in time", wait_s=FLUSH_S)
    watchdog.cancel()
    return status


def start_service(
    name: str,
    settings_type: type[S],
    run: Run[S],
    description: str,
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    drain_s: float = DRAIN_S,
    gives_way: bool = True,
) -> int:
    """Load the settings, then `run_service`; wrong settings are printed and give status 2."""
    argv = sys.argv[1:] if argv is None else argv
    environ = os.environ if environ is None else environ
    try:
        settings = load(settings_type, argv, environ, name, description)
    except SettingsError as error:
        return _refuse(name, error.problems)
    return run_service(name, settings, run, drain_s=drain_s, gives_way=gives_way)


def _give_way(log: Logger) -> None:
    """Have the kernel not interrupt others when a message wakes this process (Linux, sched(7)).

    One decision is a record that every follower of the log is woken for. Each that interrupts
    the running process costs two switches and the caches, to read one record; a moment later it
    reads several for the same price. Shares of the processor stay equal.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:  # a sandbox may forbid it; everything works without
        log.info("the kernel does not let this process give way to others", error=error)


def _announce(facts: Mapping[str, object]) -> None:
    print(msgspec.json.encode(facts).decode(), flush=True)


def _refuse(name: str, problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"{name}: {problem}", file=sys.stderr)
    print(f"{name}: see {name} --help", file=sys.stderr)
    return 2


def _explain(name: str, error: BaseException, log: Logger) -> int:
    """Say what ended the service, once for people and once with the traceback; the exit status."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, SettingsError):  # settings that only turn out wrong when they are used
        return _refuse(name, error.problems)
    if isinstance(error, CannotListen):
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    log.error("crashed", error=error)
    print(f"{name}: crashed: {one_line(error)}", file=sys.stderr)
    return 1


def _watchdog(limit_s: float, log: Logger) -> threading.Timer:
    def end() -> None:
        log.error("did not stop, ended by force", limit_s=limit_s)
        os._exit(1)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    return timer
