"""The first queue comes, the last one goes: the filter opens cycles by one order or the other."""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from allotment.adapters.log.bus import Message
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment_filter.__main__ import Filter
from allotment_filter.settings import FilterSettings
from allotment_proto.codec import decode_message, encode
from allotment_proto.events import Envelope, Event, PodGone, QueueGone, QueueObserved
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Settled
from tests.build import node, pod, state_of
from tests.off_loop import AtOnce
from tests.waiting import patience


class _Log(AtOnce):
    """A log, its fold, and a scorer and binder who are through with each pod at once."""

    def __init__(self) -> None:
        self.state = state_of(node())
        self.listeners: list[Callable[..., None]] = []
        self.caught_up = anyio.Event()
        self.batches: list[tuple[str, ...]] = []
        self.work: Filter | None = None
        self._turn = anyio.Event()

    def tell(self, event: Event) -> None:
        seq = self.state.seq + 1
        apply(self.state, event, seq)
        envelope = Envelope(v=1, at_ms=1, by="watcher", events=(event,))
        for heard in self.listeners:
            heard(Record(seq, "allot.log.fact.pod", b"", 1, "id"), envelope)
        self._turn.set()
        self._turn = anyio.Event()

    async def wait_for(self, seq: int) -> None: ...

    async def changed(self) -> None:
        await self._turn.wait()

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert self.work is not None
        opened = decode_message(Feasible, payload)
        self.batches.append(opened.batch)
        for uid in opened.batch:
            self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=9))
        settled = Settled(v=MESSAGE_VERSION, cycle=opened.cycle, outcome="decided")
        await self.work.on_settled(Message("", encode(settled), {}, ""))
        await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_pods_have_their_turn_whether_there_are_queues_or_not() -> None:
    log = _Log()
    lease = SimpleNamespace(is_held=True, epoch=1)
    world = cast(World, SimpleNamespace(bus=log, fold=log, lease=lease))
    logger = Logger(LogSink("filter", "f-0", stream=io.StringIO()))
    tracer = start_tracing("filter", "f-0", {"OTEL_SDK_DISABLED": "true"})
    came = 0
    async with anyio.create_task_group() as group:
        context: Any = ServiceContext(
            "filter",
            FilterSettings(instance="f-0"),
            logger,
            ServiceMetrics("filter"),
            tracer,
            group,
        )
        log.work = Filter(context, world)
        group.start_soon(log.work.run)
        for change in (
            None,
            QueueObserved(uid="q", name="default", rv=1),
            QueueGone(uid="q", name="default", rv=2),
            QueueObserved(uid="q2", name="default", rv=3),
            QueueGone(uid="q2", name="default", rv=4),
        ):
            if change is not None:
                log.tell(change)
            for _ in range(3):
                came += 1
                log.tell(pod(f"p{came:02}", queue="default"))
            with patience():
                while log.state.pending:  # noqa: ASYNC110 - nobody tells
                    await anyio.sleep(0.01)
            assert (log.work._waiting is None) == log.state.is_batched, "else kept for nobody"
        group.cancel_scope.cancel()
    assert [uid for batch in log.batches for uid in batch] == [f"p{n + 1:02}" for n in range(came)]
