"""The controller at work against the local API server, and all that it asks of it."""

import contextlib
import io
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import yaml
from aiohttp import web
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import counting_ids
from tests.waiting import PATIENCE_S, POLL_S

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment_controller.controller import Controller
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.settings import ControllerSettings
from allotment_local.apiserver.app import build_app
from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    PODS,
    ResourceKey,
)
from allotment_local.apiserver.store import Store
from allotment_local.cluster import now
from allotment_local.definitions import read_definitions

JOBS = ResourceKey("batch.volcano.sh", "jobs")
GROUPS = ResourceKey("scheduling.volcano.sh", "podgroups")
QUEUES = ResourceKey("scheduling.volcano.sh", "queues")
COMMANDS = ResourceKey("bus.volcano.sh", "commands")
REPLICASETS = ResourceKey("apps", "replicasets")
JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j}
spec:
  minAvailable: 3
  plugins: {env: [], svc: [], ssh: []}
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - name: worker
    replicas: 3
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: i
          resources: {limits: {volcano.sh/vgpu-number: 1}, requests: {memory: 256Mi}}
"""
"""Three workers that begin together."""
QUEUE = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}, spec: {}}"
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+)?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
Json = dict[str, Any]
Right = tuple[str, str, str]
"""API group, resource, verb."""


class Scene:
    """A cluster, the controller at work in it, and what was asked of the API server."""

    def __init__(self, store: Store, client: KubeClient, url: str) -> None:
        self.store = store
        self.client = client
        self.url = url
        self.asked: set[Right] = set()
        self.log = io.StringIO()
        self.nodes: set[str] = set()
        self.metrics = JobMetrics()

    def context(self, **settings: Any) -> ServiceContext[ControllerSettings]:
        told = ControllerSettings(
            scheduler_names=("allotment", "volcano"), instance="controller-0", **settings
        )
        log = Logger(LogSink("controller", "controller-0", "text", "debug", stream=self.log))
        return ServiceContext(
            "allotment-controller",
            told,
            log,
            ServiceMetrics("controller"),
            start_tracing("controller", "controller-0", {}),
            None,  # type: ignore[arg-type]
        )

    @contextlib.asynccontextmanager
    async def controller(self, **settings: Any) -> AsyncIterator[Controller]:
        """A controller that stands in for the scheduler at the gate, unless told otherwise."""
        context = self.context(**{"admit": True, **settings})
        self.metrics = JobMetrics()
        made = Controller(context, self.client, self.metrics)
        async with anyio.create_task_group() as group:
            group.start_soon(made.run)
            yield made
            group.cancel_scope.cancel()
        assert made.work.defects == 0, self.log.getvalue()

    def apply(self, text: str) -> None:
        for body in yaml.safe_load_all(text):
            api_version, kind = body["apiVersion"], body["kind"]
            group = api_version.rpartition("/")[0]
            plural = "priorityclasses" if kind == "PriorityClass" else f"{kind.lower()}s"
            key = ResourceKey(group, plural)
            namespaced = self.store.registry.stored(key).namespaced
            self.store.create(key, "default" if namespaced else "", body)

    def command(self, action: str, name: str, kind: str = "Job") -> None:
        metadata = {"generateName": "c-"}
        target = {"kind": kind, "name": name}
        body = {"metadata": metadata, "action": action, "target": target}
        self.store.create(COMMANDS, "default", body)

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.store.list(PODS)[0]}

    def job(self, name: str = "j") -> Json:
        return self.store.get(JOBS, "default", name)

    def phase(self, name: str = "j") -> str:
        found = self.job(name).get("status") or {}
        return str((found.get("state") or {}).get("phase", ""))

    def groups(self) -> list[Json]:
        return self.store.list(GROUPS)[0]

    def events(self, reason: str) -> list[str]:
        found = self.store.list(EVENTS)[0]
        return [event["message"] for event in found if event["reason"] == reason]

    def run_pods(self, phase: str = "Running", *names: str) -> None:
        """Bind the pods that are not bound, and bring them into a phase."""
        for name, pod in self.pods().items():
            if names and name not in names:
                continue
            if not pod["spec"].get("nodeName"):
                target = {"metadata": {"name": name}, "target": {"name": "n"}}
                bind(self.store, "default", name, target, dry_run=False)
            ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
            status = {"status": {"phase": phase, "conditions": ready}}
            self.store.merge_patch(PODS, "default", name, status, subresource="status")

    def reap(self) -> None:
        """What a kubelet does with pods that are being deleted."""
        for name, pod in self.pods().items():
            if "deletionTimestamp" in pod["metadata"]:
                self.store.delete(PODS, "default", name, grace_seconds=0)

    async def until(self, holds: Callable[[], object], what: str) -> None:
        end_s = anyio.current_time() + PATIENCE_S
        while anyio.current_time() < end_s:
            self.reap()
            if holds():
                return
            await anyio.sleep(POLL_S)
        shown = [self.job(job["metadata"]["name"])["status"] for job in self.store.list(JOBS)[0]]
        raise AssertionError(f"never: {what}; jobs: {shown}; log:\n{self.log.getvalue()[-3000:]}")

    async def runs(self, pods: int, name: str = "j") -> None:
        """The Job has its pods, and they run."""
        await self.until(lambda: len(self.pods()) == pods, f"{pods} pods")
        self.run_pods()
        await self.until(lambda: self.phase(name) == "Running", "it runs")


def phase_of(group: Json) -> str:
    return str((group.get("status") or {}).get("phase", ""))


def state_of(scene: Scene, name: str) -> str:
    return str((scene.store.get(QUEUES, "", name).get("status") or {}).get("state", ""))


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[Scene]:
    """An API server that knows Volcano's kinds, and a client; the controller is not there yet."""
    store = Store(clock=now, ids=counting_ids())
    for definition in read_definitions():
        store.create(CUSTOM_RESOURCE_DEFINITIONS, "", definition)
    app = build_app(store, clock=now, ids=counting_ids())
    found: list[Scene] = []

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if found:
            found[0].asked.add(right_of(request))
        response: web.StreamResponse = await handler(request)
        return response

    app.middlewares.append(record)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with connect(kubeconfig(tmp_path / "kubeconfig", url)) as client:
            found.append(Scene(store, client, url))
            yield found[0]
    finally:
        await runner.cleanup()


def right_of(request: web.Request) -> Right:
    place = PATH.fullmatch(request.path)
    assert place, request.path
    verb = VERBS.get(request.method)
    if verb is None:
        verb = "get" if place["name"] else "watch" if request.query.get("watch") else "list"
    resource = place["resource"] + (f"/{place['subresource']}" if place["subresource"] else "")
    return place["group"] or "", resource, verb
