"""A reflector at work on a scripted API server, and what it tells of the pods there."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import anyio
import msgspec
from tests.contract.kube_server import Script, client_of, stream
from tests.waiting import patience

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import (
    Added,
    Backoff,
    Deleted,
    Modified,
    Synced,
    Undecodable,
    WatchEvent,
)

PODS = "/api/v1/pods"


class Spec(msgspec.Struct):
    nodeName: str = ""


class Meta(msgspec.Struct):
    name: str


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec


class Watched:
    """A reflector at work: what it told, in short words, and what it complained about."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.events: list[WatchEvent[Pod]] = []
        self.problems: list[str] = []
        self.changed = anyio.Event()
        self.reflector: Reflector[Pod]
        self.client: KubeClient

    async def on_event(self, event: WatchEvent[Pod]) -> None:
        self.events.append(event)
        match event:
            case Added(identity=identity, object=found):
                self.told.append(f"+{identity.name} {found.spec.nodeName}".rstrip())
            case Modified(identity=identity, object=found):
                self.told.append(f"~{identity.name} {found.spec.nodeName}".rstrip())
            case Deleted(identity=identity):
                self.told.append(f"-{identity.name} {identity.uid}")
            case Undecodable():
                self.told.append(f"?{event.name}")
            case Synced():
                self.told.append(f"={event.resource_version}/{event.objects}")
        self.changed.set()

    async def until(self, *told: str) -> None:
        with patience():
            while len(self.told) < len(told):
                self.changed = anyio.Event()
                await self.changed.wait()
        assert self.told == list(told)


@contextlib.asynccontextmanager
async def watching(
    script: Script,
    tmp_path: Path,
    absent_ok: bool = False,
    page_objects: int = 500,
    watch_s: int = 290,
    silent_s: float = 15.0,
) -> AsyncIterator[Watched]:
    watched = Watched()
    async with client_of(script, tmp_path) as client, anyio.create_task_group() as group:
        watched.client = client
        watched.reflector = Reflector(
            client,
            PODS,
            msgspec.json.Decoder(Pod),
            watched.on_event,
            random=Random(1),
            on_problem=watched.problems.append,
            absent_ok=absent_ok,
            absent_retry_s=0.01,
            page_objects=page_objects,
            watch_s=watch_s,
            silent_s=silent_s,
            backoff=Backoff(first_s=0.01, max_s=0.05),
        )
        script.otherwise = stream(hold=True)
        group.start_soon(watched.reflector.run)
        yield watched
        group.cancel_scope.cancel()
