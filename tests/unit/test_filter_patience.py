"""What failed is tried again with patience: no spinning, and no waiting twice."""

import io
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from allotment.adapters.log.bus import Message
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment_filter import __main__ as filter_module
from allotment_filter.__main__ import Filter
from allotment_filter.groups import Groups
from allotment_filter.settings import FilterSettings
from allotment_proto import subjects
from allotment_proto.codec import decode_message, encode
from allotment_proto.events import (
    BindFailed,
    Envelope,
    Event,
    GroupObserved,
    PodGone,
    QueueObserved,
)
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Outcome, Settled
from tests.build import node, pod, state_of
from tests.off_loop import AtOnce
from tests.waiting import patience

WATCHED_S = 0.5
"""Pauses of 10, 20, 40, … ms: about six cycles; without them thousands."""


class _Bus:
    """Every cycle comes back at once as a conflict."""

    def __init__(self) -> None:
        self.work: Filter | None = None

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert self.work is not None
        cycle = decode_message(Feasible, payload).cycle
        settled = Settled(v=MESSAGE_VERSION, cycle=cycle, outcome="conflict")
        await self.work.on_settled(Message("", encode(settled), {}, ""))
        await anyio.lowlevel.checkpoint()


class _Fold(AtOnce):
    def __init__(self, *events: Event) -> None:
        self.state = state_of(*(events or (node(), pod("a"))))
        self.listeners: list[Callable[..., None]] = []
        self.caught_up = anyio.Event()
        self.turn = anyio.Event()

    async def wait_for(self, seq: int) -> None: ...

    async def changed(self) -> None:
        await self.turn.wait()


def _context(group: TaskGroup) -> ServiceContext[FilterSettings]:
    settings = FilterSettings(instance="f-0")
    logger = Logger(LogSink("filter", "f-0", stream=io.StringIO()))
    tracer = start_tracing("filter", "f-0", {"OTEL_SDK_DISABLED": "true"})
    return ServiceContext("filter", settings, logger, ServiceMetrics("filter"), tracer, group)


@pytest.mark.anyio
async def test_conflict_upon_conflict_is_met_with_patience() -> None:
    bus = _Bus()
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=bus, fold=_Fold(), lease=lease))
    async with anyio.create_task_group() as group:
        work = bus.work = Filter(_context(group), world)
        with anyio.move_on_after(WATCHED_S):
            await work.run()
    assert 2 <= work.cycles < 50


@pytest.mark.anyio
async def test_a_failure_read_from_the_history_is_as_old_as_it_is() -> None:
    fold = _Fold()
    world = cast(World, SimpleNamespace(fold=fold))
    failed = BindFailed(
        uid="a", namespace="d", name="a", node="n1", decision=1, code="APIError", message=""
    )
    envelope = Envelope(v=1, at_ms=1, by="binder", events=(failed,))
    long_ago = Record(1, "allot.log.outcome", b"", 1, "id")
    async with anyio.create_task_group() as group:
        work = Filter(_context(group), world)
        fold.listeners[0](long_ago, envelope)
        assert work.held_back == {}
        fold.caught_up.set()
        fold.listeners[0](long_ago, envelope)  # told now: whatever the server's clock says
        assert work.held_back.keys() == {"a"}


@pytest.mark.anyio
async def test_a_pod_that_comes_before_its_podgroup_is_given_time() -> None:
    """And not one moment more than it takes the group to come."""
    batches: list[tuple[str, ...]] = []

    class Bus:
        async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
            batches.append(decode_message(Feasible, payload).batch)

    fold = _Fold(node(), QueueObserved(uid="q", name="default", rv=1), pod("a", group="default/g"))
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=Bus(), fold=fold, lease=lease))
    async with anyio.create_task_group() as group:
        work = Filter(_context(group), world)
        group.start_soon(work.run)
        while not work.held_back:
            await anyio.lowlevel.checkpoint()
        assert batches == []
        come = GroupObserved(
            uid="g", namespace="default", name="g", rv=1, min_member=1, phase="Inqueue"
        )
        apply(fold.state, come, 4)
        fold.turn.set()
        while not batches:
            await anyio.lowlevel.checkpoint()
        assert (batches, work.held_back) == ([("a",)], {})
        group.cancel_scope.cancel()


class _Failing:
    """A scorer and binder that raise an error about each cycle with one of `odd`."""

    def __init__(self, fold: _Fold, odd: set[str]) -> None:
        self.fold = fold
        self.odd = odd
        self.work: Filter | None = None
        self.batches: list[tuple[str, ...]] = []

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert self.work is not None
        opened = decode_message(Feasible, payload)
        self.batches.append(opened.batch)
        failed = not self.odd.isdisjoint(opened.batch)
        if not failed:
            for uid in opened.batch:
                apply(self.fold.state, PodGone(uid=uid, namespace="d", name=uid, rv=9), 99)
        outcome: Outcome = "failed" if failed else "decided"
        settled = Settled(v=MESSAGE_VERSION, cycle=opened.cycle, outcome=outcome)
        await self.work.on_settled(Message("", encode(settled), {}, ""))
        await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
@pytest.mark.parametrize("queues", [(), (QueueObserved(uid="q", name="default", rv=1),)])
async def test_a_pod_on_which_every_cycle_fails_holds_up_no_other(
    queues: tuple[Event, ...],
) -> None:
    pods = [pod(f"p{number:02}") for number in range(60)]
    fold = _Fold(node(), *queues, *pods)
    bus = _Failing(fold, {"p07", "p41"})
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=bus, fold=fold, lease=lease))
    async with anyio.create_task_group() as group:
        work = bus.work = Filter(_context(group), world)
        group.start_soon(work.run)
        with patience():
            while len(fold.state.pending) > len(bus.odd):  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        begun = len(bus.batches)
        await anyio.sleep(WATCHED_S)
        assert len(bus.batches) - begun < 20
        bus.odd.clear()
        with patience():
            while fold.state.pending:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert work._most > len(pods)
    assert sum("p07" in batch for batch in bus.batches) < 20


@pytest.mark.anyio
@pytest.mark.parametrize(("uids", "gathers"), [("a", False), ("ab", True)])
async def test_a_pod_that_comes_alone_lets_nobody_gather(
    uids: str, gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bus:
        async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
            cycle = decode_message(Feasible, payload).cycle
            settled = Settled(v=MESSAGE_VERSION, cycle=cycle, outcome="decided")
            await work.on_settled(Message("", encode(settled), {}, ""))

    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    queue = QueueObserved(uid="q", name="default", rv=1)
    fold = _Fold(node(), queue, *map(pod, uids))

    class Lease:
        epoch = 1

        @property
        def is_held(self) -> bool:
            return work.cycles == 0

    world = cast(World, SimpleNamespace(bus=Bus(), fold=fold, lease=Lease()))
    async with anyio.create_task_group() as group:
        work = Filter(_context(group), world)
        monkeypatch.setattr(anyio, "sleep", sleep)
        await work.run()
    assert work.cycles == 1
    assert bool(slept) is gathers


@pytest.mark.anyio
@pytest.mark.parametrize("is_told", [True, False])
async def test_a_cycle_that_is_worked_on_is_not_issued_again(is_told: bool) -> None:
    """For as long as it is said to be: after that it is, in time."""
    opened: list[str] = []

    class Bus:
        async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
            opened.append(decode_message(Feasible, payload).cycle)

    async def say(outcome: Outcome) -> None:
        settled = Settled(v=MESSAGE_VERSION, cycle=opened[0], outcome=outcome)
        await work.on_settled(Message("", encode(settled), {}, ""))

    fold, lease = _Fold(), SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=Bus(), fold=fold, lease=lease))
    async with anyio.create_task_group() as group:
        work = Filter(_context(group), world)
        deadline_s = 0.5
        work._deadline_s = lambda: time.monotonic() + deadline_s  # type: ignore[method-assign]
        group.start_soon(work.run)
        while not opened:
            await anyio.lowlevel.checkpoint()
        if is_told:
            deadline_s = 4.0
            await say("under_way")
            await anyio.sleep(1.0)
            assert (work.reissued, len(opened)) == (0, 1)
        with patience():
            while len(opened) < 2:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        assert work._patience == (2 if is_told else 1)
        group.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("subject", [subjects.DECISION, subjects.OUTCOME])
async def test_a_binder_that_begins_is_sent_the_cycle_at_once(subject: str) -> None:
    """Whatever the deadline: what was on its way to the binder before is lost."""
    opened: list[str] = []

    class Bus:
        async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
            opened.append(decode_message(Feasible, payload).cycle)

    fold, lease = _Fold(), SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=Bus(), fold=fold, lease=lease))
    async with anyio.create_task_group() as group:
        work = Filter(_context(group), world)
        work._deadline_s = lambda: time.monotonic() + 1_000_000  # type: ignore[method-assign]
        work._patience = 16
        group.start_soon(work.run)
        while not opened:
            await anyio.lowlevel.checkpoint()
        begins = Record(2, subject, b"", 1, f"life/binder/b/0123456789abcdef/{subject}")
        with patience():
            await anyio.sleep(0.01)
            fold.listeners[0](begins, Envelope(v=1, at_ms=1, by="binder/b", events=()))
            while len(opened) < 2:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        assert (work.reissued, work._patience) == (1, 1)
        group.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("queues", [False, True])
async def test_a_defect_in_the_order_does_not_end_the_service(
    queues: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept of the order may be what is wrong: the next look makes it anew."""
    monkeypatch.setattr(filter_module, "ORDER_AGAIN_S", 0.01)
    failures = 0
    sent: list[str] = []

    class Bus:
        async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
            sent.extend(decode_message(Feasible, payload).batch)
            group.cancel_scope.cancel()

    def fail(*_: object, **__: object) -> Any:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise KeyError("305a2b46")
        return chosen(*_, **__)

    kept, name = (Groups, "next_batch") if queues else (filter_module, "next_round")
    chosen = getattr(kept, name)
    monkeypatch.setattr(kept, name, fail)
    queue = [QueueObserved(uid="q", name="default", rv=1)] if queues else []
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(
        World, SimpleNamespace(bus=Bus(), fold=_Fold(node(), *queue, pod("a")), lease=lease)
    )
    with patience():
        async with anyio.create_task_group() as group:
            group.start_soon(Filter(_context(group), world).run)
    assert (failures, sent) == (3, ["a"])
