"""The binder's loops on a log in memory and a scripted API server."""

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
from aiohttp import web
from tests.contract.kube_server import client_of, scripted
from tests.memory_log import MemoryLog
from tests.waiting import until

from allotment.adapters.log.bus import Message
from allotment.adapters.log.fold import Fold
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_binder.__main__ import WRITTEN
from allotment_binder.binder import Binder
from allotment_binder.fence import live_once
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, decode_message, encode
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    Event,
    Evicted,
)
from allotment_proto.messages import MESSAGE_VERSION, Proposal, Settled


class Bus:
    def __init__(self) -> None:
        self.settled: list[Settled] = []

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert subject == subjects.SETTLED
        self.settled.append(decode_message(Settled, payload))


class Lease:
    is_held = True
    lost_because = "the test took it"

    def __init__(self) -> None:
        self.gone = anyio.Event()

    async def lost(self) -> None:
        await self.gone.wait()


class Api:
    """Answers Bindings with `status`, remembers them and what pods were told."""

    def __init__(self) -> None:
        self.status = 201
        self.there: dict[str, Any] = {}
        self.bindings: list[str] = []
        self.looks: list[str] = []
        self.told: list[str] = []
        self.events: list[tuple[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path.split("/")[6] if "/pods/" in request.path else ""
        body = await request.json() if request.method in ("POST", "PATCH") else {}
        if request.path.endswith("/binding"):
            self.bindings.append(name)
            return web.json_response({"message": "may not bind"}, status=self.status)
        if request.method == "GET":
            self.looks.append(name)
            return web.json_response(self.there[name])
        if request.method == "PATCH":
            self.told.append(f"{name}: {body['status']['conditions'][0]['message']}")
        else:
            self.events.append((body["regarding"]["name"], body["reason"]))
        return web.json_response({}, status=201)


class Scene:
    """A binder at work, and all that it touches."""

    def __init__(
        self, log: MemoryLog, fold: Fold, binder: Binder, bus: Bus, api: Api, told: io.StringIO
    ) -> None:
        self.log, self.fold, self.binder, self.bus, self.api = log, fold, binder, bus, api
        self.told = told
        """What the service logged."""

    async def live(self) -> None:
        """A life of the binder, until another one ends it."""
        binder = self.binder
        await live_once(binder.ctx, binder.world, WRITTEN, binder.decider.full, binder.run)

    async def propose(self, *uids: str, cycle: str = "c1") -> Proposal:
        """Score these pods on the state as it is and send the proposal."""
        state = self.fold.state
        outcome = run_cycle(state, uids, Evaluator(state))
        proposal = Proposal(
            v=MESSAGE_VERSION,
            cycle=cycle,
            basis=state.seq,
            policy=state.policy_seq,
            batch=uids,
            placements=outcome.placements,
            refusals=outcome.refusals,
        )
        await self.send(proposal)
        return proposal

    async def send(self, proposal: Proposal) -> None:
        before = len(self.bus.settled)
        await self.binder.decider.on_proposal(Message(subjects.PROPOSAL, encode(proposal), {}, ""))
        await until(lambda: len(self.bus.settled) > before)

    async def add(self, *events: Event) -> None:
        await add(self.log, *events)
        await self.fold.wait_for(self.log.core.last_seq)

    def decisions(self) -> list[Decided]:
        return [e for e in self.events() if isinstance(e, Decided)]

    def events(self) -> list[Event]:
        return [e for r in self.log.core.records for e in decode_envelope(r.payload).events]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events()]


async def add(log: MemoryLog, *events: Event) -> None:
    for event in events:
        envelope = Envelope(at_ms=1, by="test", events=(event,))
        is_outcome = isinstance(event, Bound | BindFailed | Evicted)
        subject = subjects.OUTCOME if is_outcome else subjects.FACTS
        if isinstance(event, Decided):
            subject = subjects.DECISION
        await log.append(subject, encode(envelope), msg_id=f"test/{log.core.last_seq}")


@contextlib.asynccontextmanager
async def at_work(
    tmp_path: Path,
    *history: Event,
    log: MemoryLog | None = None,
    api: Api | None = None,
    at_once: int = 32,
) -> AsyncIterator[Scene]:
    log = log or MemoryLog()
    api = api or Api()
    await add(log, *history)
    told = io.StringIO()
    logger = Logger(LogSink("binder", "0", stream=told))
    tracer = start_tracing("binder", "0", {"OTEL_SDK_DISABLED": "true"})
    settings = BinderSettings(instance="binder-0", kube_concurrency=at_once)
    async with (
        scripted() as script,
        client_of(script, tmp_path) as client,
        anyio.create_task_group() as group,
    ):
        script.otherwise = api.answer
        fold, bus = Fold(log, logger), Bus()
        world = cast(World, type("W", (), {})())
        world.log, world.fold = cast(Any, log), fold
        world.bus, world.lease = cast(Any, bus), cast(Any, Lease())
        ctx = ServiceContext("binder", settings, logger, ServiceMetrics("binder"), tracer, group)
        binder = Binder(ctx, world, client, client)
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        scene = Scene(log, fold, binder, bus, api, told)
        group.start_soon(scene.live)
        await until(lambda: binder.pacer is not None)
        await anyio.wait_all_tasks_blocked()
        yield scene
        group.cancel_scope.cancel()
