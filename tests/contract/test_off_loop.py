"""Long work beside an event loop that goes on: the state stands still, the lease is kept."""

import io
import threading
import time
from typing import Any, cast

import anyio
import pytest
from tests.build import card, node, pod
from tests.contract.binder_loops import add
from tests.memory_log import MemoryLog
from tests.waiting import PATIENCE_S, patience, until

from allotment.adapters.log import fold as fold_module
from allotment.adapters.log.bus import Message
from allotment.adapters.log.connection import connect
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.lease import TTL_S, Lease
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.codec import decode_message, encode
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal
from allotment_scorer.__main__ import Scorer
from allotment_scorer.settings import ScorerSettings

pytestmark = pytest.mark.anyio

WORK_CPU_S = 2 * TTL_S
BLOCKED_CPU_S_MAX = 0.5
"""So long the loop may compute without giving way: ten times what is wanted."""


class Bus:
    """Takes proposals."""

    def __init__(self) -> None:
        self.made: list[Proposal] = []

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        self.made.append(decode_message(Proposal, payload))

    def cycles(self, *, under_way: bool = False) -> list[str]:
        return [each.cycle for each in self.made if each.under_way == under_way]


class Held:
    """A lease that is held until somebody says that it is not."""

    is_held = True


class Ticks:
    """Watches how long the loop leaves others waiting: by the CPU time of its own thread, because
    other processes take the processor for as long as they like.
    """

    def __init__(self) -> None:
        self.blocked_cpu_s = self.silent_s = 0.0

    async def watch(self) -> None:
        while True:
            cpu_s, now_s = time.thread_time(), time.monotonic()
            await anyio.sleep(0.02)
            self.blocked_cpu_s = max(self.blocked_cpu_s, time.thread_time() - cpu_s)
            self.silent_s = max(self.silent_s, time.monotonic() - now_s)


def logger() -> Logger:
    return Logger(LogSink("scorer", "s-0", stream=io.StringIO()))


def scorer_on(fold: Fold, bus: Bus, lease: Any, group: Any) -> Scorer:
    tracer = start_tracing("scorer", "s-0", {"OTEL_SDK_DISABLED": "true"})
    settings, metrics = ScorerSettings(instance="s-0"), ServiceMetrics("scorer")
    ctx: Any = ServiceContext("scorer", settings, logger(), metrics, tracer, group)
    world = cast(World, type("W", (), {"fold": fold, "bus": bus, "lease": lease})())
    return Scorer(ctx, world)


async def ask(scorer: Scorer, cycle: str, *batch: str) -> None:
    basis = scorer.world.fold.state.seq
    opened = Feasible(v=MESSAGE_VERSION, cycle=cycle, basis=basis, batch=batch, classes=())
    await scorer.on_feasible(Message("", encode(opened), {}, ""))


async def test_records_wait_while_the_state_is_read() -> None:
    log = MemoryLog()
    await add(log, node())
    fold = Fold(log, logger())
    go_on, seen = threading.Event(), list[int]()

    def work() -> None:
        seen.append(fold.state.seq)
        go_on.wait(PATIENCE_S)
        seen.append(fold.state.seq)

    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        group.start_soon(fold.off_loop, work)
        await until(lambda: seen)
        await add(log, pod("a"), pod("b"))
        await anyio.sleep(0.1)
        assert fold.state.seq == seen[0] == 1
        go_on.set()
        with patience():
            await fold.wait_for(3)
        assert seen == [1, 1]
        group.cancel_scope.cancel()


async def test_records_wait_for_other_work_once_and_not_each() -> None:
    """However many want to read the state all the time, as those who ask for metrics may."""
    log, reads = MemoryLog(), 0
    await add(log, node())
    fold, go_on = Fold(log, logger()), threading.Event()

    def read() -> None:
        nonlocal reads
        reads += 1

    async def read_all_the_time() -> None:
        while True:
            await fold.off_loop(read)

    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        group.start_soon(fold.off_loop, lambda: go_on.wait(PATIENCE_S))
        await until(lambda: fold._still.locked())
        await add(log, *(pod(f"p{number}") for number in range(500)))
        for _ in range(3):
            group.start_soon(read_all_the_time)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        with patience():
            await fold.wait_for(501)
        assert reads < 250
        group.cancel_scope.cancel()


async def test_a_sequence_is_reached_although_records_had_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the state stands still: the log has the record."""
    monkeypatch.setattr(fold_module, "REACH_FIRST_S", 0.01)
    monkeypatch.setattr(fold_module, "REACH_S", 0.02)
    log = MemoryLog()
    await add(log, node())
    fold = Fold(log, logger())
    go_on = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        group.start_soon(fold.off_loop, lambda: go_on.wait(PATIENCE_S))
        await until(lambda: fold._still.locked())
        await add(log, pod("a"))
        reached = list[bool]()

        async def reach() -> None:
            reached.append(await fold.reach(2))

        group.start_soon(reach)
        await anyio.sleep(0.3)
        assert (reached, fold.state.seq) == ([], 1)
        go_on.set()
        await until(lambda: reached)
        assert reached == [True]
        group.cancel_scope.cancel()


async def test_the_lease_is_kept_while_a_round_takes_longer_than_it_lasts(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(rounds: Rounds, *_: Any, **__: Any) -> Outcome:
        while time.thread_time() - began_s[0] < WORK_CPU_S:
            pass
        return Outcome((), (), ())

    began_s = [0.0]

    def run(rounds: Rounds, *args: Any, **more: Any) -> Outcome:
        began_s[0] = time.thread_time()
        return slow(rounds, *args, **more)

    monkeypatch.setattr(Rounds, "run", run)
    log, bus, ticks = MemoryLog(), Bus(), Ticks()
    await add(log, node(), pod("a"))
    async with (
        connect(nats_server.url, "s-0") as connection,
        Lease(connection, name="off-loop", holder="s-0") as lease,
        anyio.create_task_group() as group,
    ):
        fold = Fold(log, logger())
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        with patience():
            epoch = await lease.acquired()
        scorer = scorer_on(fold, bus, lease, group)
        group.start_soon(scorer.tell_under_way)
        group.start_soon(ticks.watch)
        await ask(scorer, "c1", "a")
        assert ticks.blocked_cpu_s < BLOCKED_CPU_S_MAX
        if ticks.silent_s < TTL_S / 4:  # else others kept the processor for as long
            assert (lease.is_held, lease.epoch) == (True, epoch)
            assert "c1" in bus.cycles(under_way=True), "and the filter knows that it goes on"
        assert bus.cycles() == ["c1"]
        group.cancel_scope.cancel()


class Slow:
    """Rounds that go on until they are told to end, or abandoned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.may_end = threading.Event()
        monkeypatch.setattr(Rounds, "run", self.run_of())

    def run_of(self) -> Any:
        def run(rounds: Rounds, *_: Any, **__: Any) -> Outcome:
            self.begun += 1
            while not self.may_end.wait(0.001):
                rounds._checkpoint()
            return Outcome((), (), ())

        return run


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


async def test_a_superseded_cycle_is_dropped_in_the_middle_of_its_round(slow: Slow) -> None:
    log, bus = MemoryLog(), Bus()
    await add(log, node("n1", [card(0)]), pod("a"))
    async with anyio.create_task_group() as group:
        fold = Fold(log, logger())
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        scorer = scorer_on(fold, bus, Held(), group)
        group.start_soon(ask, scorer, "c1", "a")
        await until(lambda: slow.begun == 1)
        for number in range(2, 9):  # none of them but the last is begun
            group.start_soon(ask, scorer, f"c{number}", "a")
            await anyio.wait_all_tasks_blocked()
        await until(lambda: slow.begun >= 2)
        slow.may_end.set()
        await until(lambda: "c8" in bus.cycles())
        assert bus.cycles() == ["c8"]
        assert scorer.superseded == 7
        group.cancel_scope.cancel()


async def test_who_lost_the_lease_ends_its_round(slow: Slow) -> None:
    log, bus, lease = MemoryLog(), Bus(), Held()
    await add(log, node("n1", [card(0)]), pod("a"))
    async with anyio.create_task_group() as group:
        fold = Fold(log, logger())
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        scorer = scorer_on(fold, bus, lease, group)
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask, scorer, "c1", "a")
            await until(lambda: slow.begun == 1)
            lease.is_held = False
        assert (bus.made, scorer._asked) == ([], [])
        group.cancel_scope.cancel()
