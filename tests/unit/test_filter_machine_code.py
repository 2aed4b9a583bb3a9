"""The filter brings compiled loops in where it asks nodes, and only there: they cost each process
that loads them a third of a second and 100 MiB.
"""

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

import allotment_board
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.placement.cycle import place
from allotment.core.placement.evaluator import Evaluator
from allotment_filter.__main__ import Filter
from allotment_filter.settings import FilterSettings
from allotment_proto.events import Event, PodGone, QueueObserved, Refusal
from tests.build import decided, node, pod, request, state_of, wants
from tests.off_loop import AtOnce

QUEUE = QueueObserved(uid="q", name="default", rv=1)


class _Fold(AtOnce):
    """A state that does not move. Whoever waits for news is asleep."""

    def __init__(self, *events: Event) -> None:
        self.state = state_of(*events)
        self.listeners: list[Callable[..., None]] = []
        self.asleep = anyio.Event()

    async def changed(self) -> None:
        self.asleep.set()
        await anyio.sleep_forever()


class _Bus:
    """Takes one message, and holds up who sent it."""

    def __init__(self) -> None:
        self.sent = anyio.Event()

    async def publish(self, *_: object) -> None:
        self.sent.set()
        await anyio.sleep_forever()


@asynccontextmanager
async def _filter_on(fold: _Fold) -> AsyncIterator[_Bus]:
    """A filter that is the active one, for the length of the block."""
    bus, lease = _Bus(), SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(fold=fold, lease=lease, bus=bus))
    async with anyio.create_task_group() as group:
        logger = Logger(LogSink("filter", "f-0", stream=io.StringIO()))
        tracer = start_tracing("filter", "f-0", {"OTEL_SDK_DISABLED": "true"})
        settings = FilterSettings(instance="f-0")
        metrics = ServiceMetrics("filter")
        context: Any = ServiceContext("filter", settings, logger, metrics, tracer, group)
        group.start_soon(Filter(context, world).run)
        yield bus
        group.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize(("queues", "asked"), [((), True), ((QUEUE,), False)])
async def test_the_loops_are_there_before_the_first_pod_and_not_in_vain(
    monkeypatch: pytest.MonkeyPatch, queues: tuple[Event, ...], asked: bool
) -> None:
    nodes: list[int] = []
    monkeypatch.setattr(allotment_board, "prepare", lambda state, _: nodes.append(len(state.nodes)))
    fold = _Fold(*queues, node("n1"), node("n2"))
    async with _filter_on(fold):
        await fold.asleep.wait()  # nothing is due: no pod came yet
    assert nodes == ([2] if asked else [])


@pytest.mark.anyio
@pytest.mark.parametrize("is_loading", [True, False])
async def test_nodes_are_asked_for_who_was_refused_once_the_loops_are_there(
    monkeypatch: pytest.MonkeyPatch, is_loading: bool
) -> None:
    nodes: list[int] = []
    monkeypatch.setattr(allotment_board, "prepare", lambda state, _: nodes.append(len(state.nodes)))
    monkeypatch.setattr(allotment_board, "is_loading", lambda: is_loading)
    waits = pod("waits", request(wants(99_000, 0)), queue="default")
    there = QUEUE, node("n1"), waits
    told = place(waits, Evaluator(state_of(*there)))
    assert isinstance(told, Refusal)
    other = pod("other", node="n1", scheduler="other")
    gone = PodGone(uid="other", namespace="default", name=other.name, rv=2)
    refused = decided(batch=("waits",), refusals=(told,), basis=3)
    fold = _Fold(*there, refused, other, gone)
    async with _filter_on(fold) as bus:
        with anyio.fail_after(30):
            await (bus.sent if is_loading else fold.asleep).wait()
    assert nodes == [1]
    assert bus.sent.is_set() == is_loading, "it would be told what it was told"
