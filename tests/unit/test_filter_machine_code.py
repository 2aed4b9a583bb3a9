"""The filter brings compiled loops in where it asks nodes, and only there: they cost each process
that loads them a third of a second and 100 MiB.
"""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from allotment.adapters.service import machine_code
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment_filter.__main__ import Filter
from allotment_filter.settings import FilterSettings
from allotment_proto.events import Event, QueueObserved
from tests.build import node, state_of

QUEUE = QueueObserved(uid="q", name="default", rv=1)


class _Fold:
    """A state that does not move. Whoever waits for news is asleep."""

    def __init__(self, *events: Event) -> None:
        self.state = state_of(*events)
        self.listeners: list[Callable[..., None]] = []
        self.asleep = anyio.Event()

    async def changed(self) -> None:
        self.asleep.set()
        await anyio.sleep_forever()


@pytest.mark.anyio
@pytest.mark.parametrize(("queues", "asked"), [((), True), ((QUEUE,), False)])
async def test_the_loops_are_there_before_the_first_pod_and_not_in_vain(
    monkeypatch: pytest.MonkeyPatch, queues: tuple[Event, ...], asked: bool
) -> None:
    nodes: list[int] = []
    monkeypatch.setattr(machine_code, "load_if_worth", lambda count, *_: nodes.append(count))
    fold = _Fold(*queues, node("n1"), node("n2"))
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(fold=fold, lease=lease))
    async with anyio.create_task_group() as group:
        logger = Logger(LogSink("filter", "f-0", stream=io.StringIO()))
        tracer = start_tracing("filter", "f-0", {"OTEL_SDK_DISABLED": "true"})
        settings = FilterSettings(instance="f-0")
        metrics = ServiceMetrics("filter")
        context: Any = ServiceContext("filter", settings, logger, metrics, tracer, group)
        group.start_soon(Filter(context, world).run)
        await fold.asleep.wait()  # nothing is due: no pod came yet
        group.cancel_scope.cancel()
    assert nodes == ([2] if asked else [])
