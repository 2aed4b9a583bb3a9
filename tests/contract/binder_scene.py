"""A binder at work on a log in memory and the local API server, with its custom resources."""

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from tests.build import pod as pod_fact
from tests.contract.binder_loops import Api as Scripted
from tests.contract.binder_loops import Bus, Lease, Scene, add
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import Api, running
from tests.memory_log import MemoryLog
from tests.waiting import patience, until

from allotment.adapters.kube.client import connect
from allotment.adapters.log.fold import Fold
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment_binder.binder import Binder
from allotment_binder.settings import BinderSettings
from allotment_local.definitions import read_definitions
from allotment_proto.events import Event, GroupObserved, PodObserved

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/api/v1/namespaces/default/events"


class Cluster:
    """The API server, as facts and as objects."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def group(self, name: str, members: int, phase: str = "", **spec: Any) -> GroupObserved:
        """Create a PodGroup; what the log would tell of it."""
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": members, **spec},
        }
        made = await self.api.post(GROUPS, body)
        if phase:
            made = await self.api.patch(f"{GROUPS}/{name}/status", {"status": {"phase": phase}})
        return group_fact(made, members)

    async def seen(self, name: str, members: int) -> GroupObserved:
        """What the log would tell of a PodGroup now."""
        return group_fact(await self.api.get(f"{GROUPS}/{name}"), members)

    async def status(self, name: str) -> Any:
        return (await self.api.get(f"{GROUPS}/{name}")).get("status") or {}

    async def pod(self, name: str, group: str = "", **changes: Any) -> PodObserved:
        """Create a pod; what the log would tell of it."""
        labels = changes.pop("labels", {})
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "c", "image": "i:1"}],
            },
        }
        made = await self.api.post(PODS, body)
        uid = made["metadata"]["uid"]
        about = {"name": name, "group": f"default/{group}" if group else "", **changes}
        rv = int(made["metadata"]["resourceVersion"])
        return pod_fact(uid, **{"scheduler": "volcano", "rv": rv, **about})

    async def conditions(self, name: str) -> dict[str, Any]:
        """The conditions of a pod by type."""
        found = (await self.api.get(f"{PODS}/{name}")).get("status") or {}
        return {c["type"]: c for c in found.get("conditions") or ()}

    async def events(self, name: str) -> list[tuple[str, str, str]]:
        """Type, reason and message of the Events about an object."""
        items = (await self.api.get(EVENTS))["items"]
        return [
            (e["type"], e["reason"], e["message"])
            for e in items
            if e["involvedObject"]["name"] == name
        ]


def group_fact(made: Any, members: int) -> GroupObserved:
    return GroupObserved(
        uid=made["metadata"]["uid"],
        namespace="default",
        name=made["metadata"]["name"],
        rv=int(made["metadata"]["resourceVersion"]),
        min_member=members,
        phase=(made.get("status") or {}).get("phase", ""),
    )


def changed(fact: PodObserved, **changes: Any) -> PodObserved:
    """A pod as it is observed later."""
    return msgspec.structs.replace(fact, **{"rv": fact.rv + 1, **changes})


async def running_pod(there: Cluster, name: str, **changes: Any) -> PodObserved:
    """A pod that runs on n1 and is ready."""
    fact = await there.pod(name, **changes)
    path = f"{PODS}/{name}"
    target = {"kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
    await there.api.post(f"{path}/binding", {**target, "metadata": {"name": name}})
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    seen = await there.api.patch(f"{path}/status", status)
    rv = int(seen["metadata"]["resourceVersion"])
    return changed(fact, node="n1", phase="Running", rv=rv)


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as api:
        for definition in read_definitions():
            await api.post(DEFINITIONS, definition)
        yield Cluster(api)


@contextlib.asynccontextmanager
async def at_work(
    tmp_path: Path, there: Cluster, *history: Event, log: MemoryLog | None = None
) -> AsyncIterator[Scene]:
    """A binder's life on these events; the log outlives it."""
    log = log or MemoryLog()
    await add(log, *history)
    told = io.StringIO()
    logger = Logger(LogSink("binder", "0", stream=told))
    tracer = start_tracing("binder", "0", {"OTEL_SDK_DISABLED": "true"})
    settings = BinderSettings(instance="binder-0")
    config = kubeconfig(tmp_path / "kubeconfig", there.api.url)
    async with (
        connect(config) as client,
        connect(config, throttle_wait_s_max=0.0) as aside,
        anyio.create_task_group() as group,
    ):
        fold, bus = Fold(log, logger), Bus()
        world = cast(World, type("W", (), {})())
        world.log, world.fold = cast(Any, log), fold
        world.bus, world.lease = cast(Any, bus), cast(Any, Lease())
        ctx = ServiceContext("binder", settings, logger, ServiceMetrics("binder"), tracer, group)
        binder = Binder(ctx, world, client, aside)
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        scene = Scene(log, fold, binder, bus, Scripted(), told)
        group.start_soon(scene.live)
        await until(lambda: binder.pacer is not None)
        yield scene
        group.cancel_scope.cancel()


async def comes_to(holds: Any) -> None:
    """Wait until an async question is answered with yes."""
    with patience():
        while not await holds():  # noqa: ASYNC110 - the server tells nobody
            await anyio.sleep(0.02)
