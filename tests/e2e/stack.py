"""A whole Allotment for one test: nats-server, API server with fake nodes, the services, by pid.

    with Stack(tmp_path, nodes=NODES) as stack:
        stack.create_pod("a", vgpu(memory=3000))
        stack.until(lambda: stack.is_bound("a"), "a is bound")

Everything runs as a process of its own on a free port of loopback, so that anything can be killed,
frozen and started again. Leaving the block ends every process, however the test went.
"""

import contextlib
import json
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import anyio
import pytest
import yaml

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.core.logport import Landed, Record
from allotment_local.definitions import read_definitions
from tests.forking import Forked
from tests.waiting import PATIENCE_S

Json = dict[str, Any]
ROLES = ("watcher", "filter", "scorer", "binder")
TOGETHER = ("scheduler",)
"""The same as one process."""
LAYOUTS = [pytest.param(ROLES, id="apart"), pytest.param(TOGETHER, id="together")]
"""For fixtures of tests that hold for both."""
KUBE_ROLES = ("watcher", "binder", "controller", "scheduler")
POLL_S = 0.05
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVERYWHERE = "/api/v1/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
IDENTITY = "/api/v1/namespaces/allotment-system/configmaps/allotment-log"


class Process:
    """One child process: its first line of output is JSON, its errors go to a file."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        with open(self.log_path, "ab") as log:
            self._popen = Forked(arguments, log.fileno())
        self.announced: Json = {}

    @property
    def pid(self) -> int:
        return self._popen.pid

    def announce(self) -> Json:
        """Wait for the first line of output and keep it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S), f"{self.name} says nothing:\n{self.tail()}"
        line = self._popen.stdout.readline()
        assert line, f"{self.name} ended with {self._popen.wait(PATIENCE_S)}:\n{self.tail()}"
        self.announced = json.loads(line)
        return self.announced

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """The exit status."""
        return self._popen.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        """End it at once, frozen or not, and leave nothing open."""
        if self.is_running:
            self._popen.kill()
        self._popen.wait(PATIENCE_S)
        self._popen.stdout.close()

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Stack:
    """See the module. Services are known by name: ``binder``, or ``binder-2`` for a second one."""

    def __init__(
        self,
        directory: Path,
        nodes: str,
        *,
        services: Sequence[str] = ROLES,
        options: Mapping[str, Sequence[str]] | None = None,
        configured: bool = False,
        controlled: bool = False,
        policy: str = "",
    ) -> None:
        """`configured`: the device plugins bring their ConfigMap and do as it says; `controlled`:
        there are queues, groups and Jobs, and the controller; `policy`: a scheduler configuration.
        """
        self.directory = directory
        self.nats = NatsServer(directory / "nats")
        self.processes: dict[str, Process] = {}
        self.options = dict(options or {})
        self.url = ""
        self._nodes = nodes
        self._books = ""
        self._controlled = controlled
        self.scheduling = services
        self._services = (*services, "controller") if controlled else services
        if policy:
            config = directory / "volcano-scheduler.conf"
            config.write_text(policy)
            self.options["watcher"] = [
                *self.options.get("watcher", ()),
                "--policy-file",
                str(config),
            ]
        self._configured = configured

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            for process in self.processes.values():
                print(f"--- {process.name} (running: {process.is_running})\n{process.tail()}")
        self.close()

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.nats.start()
        nodes = self.directory / "nodes.yaml"
        nodes.write_text(self._nodes)
        more = ["configured"] if self._configured else []
        cluster = self.launch("cluster", ["tests.e2e.cluster_process", str(nodes), "0", *more])
        said = cluster.announce()
        self.url, self._books = said["url"], said["books"]
        self._write_kubeconfig()
        if self._controlled:
            self.define()
        for name in self._services:
            self.start(name, wait=False)
        for name in self._services:
            self.processes[name].announce()
        for name in self._services:
            self.until(lambda name=name: self.is_ready(name), f"{name} is ready")  # type: ignore[misc]
        if "controller" in self._services:
            self.until(lambda: len(self.call("GET", QUEUES)["items"]) == 2, "queues are there")

    def _write_kubeconfig(self) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (self.directory / "kubeconfig").write_text(yaml.safe_dump(config))

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        self.nats.stop()

    # Processes

    def launch(self, name: str, arguments: Sequence[str]) -> Process:
        if name in self.processes:
            self.processes[name].kill()
        process = self.processes[name] = Process(name, arguments, self.directory)
        return process

    def start(self, name: str, *, wait: bool = True) -> Process:
        """Start a service; with `wait`, return when it is ready."""
        role = name.partition("-")[0]
        arguments = [f"allotment_{role}", "--nats-url", self.nats.url, "--instance", name]
        if role in KUBE_ROLES:
            arguments += ["--kubeconfig", str(self.directory / "kubeconfig")]
        if role in ("watcher", "controller", "scheduler"):
            arguments += ["--scheduler-names", "allotment,volcano"]
        if role == "scheduler" and {*self.scheduling} == {"watcher", role}:
            arguments += ["--roles", "filter,scorer,binder"]
        for part in ROLES if role in TOGETHER else (role,):
            arguments += self.options.get(part, ())
        process = self.launch(name, arguments)
        if wait:
            process.announce()
            self.until(lambda: self.is_ready(name), f"{name} is ready")
        return process

    def kill(self, name: str) -> None:
        """kill -9."""
        self.processes[name].kill()

    def readiness(self, name: str) -> tuple[int, Json]:
        """The answer of /readyz: status and body; status 0 when nobody answers."""
        try:
            status, body = _get(f"http://{self.processes[name].announced['http']}/readyz")
        except (URLError, OSError):
            return 0, {}
        return status, body

    def trouble(self, name: str) -> str:
        """Why a service has not opened the log, "" if it has."""
        status, body = self.readiness(name)
        return str(body.get("reasons", {}).get("log", "")) if status == 503 else ""

    def kept(self) -> Json:
        """The identity of the log, as the watcher keeps it; empty before it does."""
        try:
            text = self.call("GET", IDENTITY)["data"]["text"]
        except HTTPError:
            return {}
        return dict(json.loads(text))

    def is_ready(self, name: str) -> bool:
        return self.readiness(name)[0] == 200

    def metrics_page(self, name: str) -> str:
        """All metrics of a service, as a scraper gets them."""
        url = f"http://{self.processes[name].announced['http']}/metrics"
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, metric: str) -> float:
        """The value of one metric without labels."""
        for line in self.metrics_page(name).splitlines():
            if line.startswith(metric + " "):
                return float(line.split()[1])
        raise AssertionError(f"{name} has no metric {metric}")

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> float:
        """Wait until `holds`; returns the seconds it took, fails with `what` when it never does."""
        begin = time.monotonic()
        while not holds():
            if time.monotonic() - begin > timeout_s:
                raise AssertionError(f"not within {timeout_s:g} s: {what}")
            time.sleep(POLL_S)
        return time.monotonic() - begin

    # The cluster

    def define(self) -> None:
        """Bring the custom resources: queues, groups, jobs."""
        for definition in read_definitions():
            self.call("POST", DEFINITIONS, definition)

    def call(self, method: str, path: str, body: object = None, media: str = "") -> Json:
        """Ask the API server. Raises urllib's HTTPError for a refusal."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, method=method)
        request.add_header("Content-Type", media or "application/json")
        with urlopen(request, timeout=PATIENCE_S) as answer:
            return dict(json.loads(answer.read()))

    def create_pod(
        self,
        name: str,
        *limits: Mapping[str, Any],
        requests: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        scheduler: str = "allotment",
        namespace: str = "default",
        owner: Json | None = None,
        **spec: Any,
    ) -> Json:
        """A pod with a container for each of `limits`; `spec` are more fields of its spec."""
        containers = [
            container(f"c{number}", given, requests) for number, given in enumerate(limits)
        ]
        metadata: Json = {"name": name, "annotations": dict(annotations or {})}
        if owner is not None:
            about = {key: owner["metadata"][key] for key in ("name", "uid")}
            kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
            metadata["ownerReferences"] = [{**kind, **about}]
        whole = {"schedulerName": scheduler, "containers": containers, **spec}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}
        return self.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    def create_job(
        self,
        name: str,
        *tasks: Json,
        least: int,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """A Job of Volcano; see `task`."""
        metadata = {"name": name, "annotations": dict(annotations or {})}
        spec = {"schedulerName": "volcano", "minAvailable": least, "tasks": list(tasks), **spec}
        body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata}
        return self.call("POST", JOBS.format(namespace), {**body, "spec": spec})

    def create_class(self, name: str, value: int) -> None:
        """A PriorityClass."""
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        self.call("POST", CLASSES, {**body, "metadata": {"name": name}})

    def leave_empty(self) -> None:
        """Delete all Jobs, groups and pods, and wait until they are gone."""
        kinds = [JOBS.format("default"), GROUPS.format("default")] if self._controlled else []
        for kind in kinds:
            for item in self.call("GET", kind)["items"]:
                self.call("DELETE", f"{kind}/{item['metadata']['name']}", {})
        for pod in self.call("GET", EVERYWHERE)["items"]:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
            with contextlib.suppress(HTTPError):
                self.call("DELETE", f"{path}/{pod['metadata']['name']}", {})
        self.until(lambda: not self.call("GET", EVERYWHERE)["items"], "all pods are gone")

    def delete_pod(self, name: str) -> None:
        with contextlib.suppress(HTTPError):
            self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", {})

    def pod(self, name: str) -> Json:
        return self.call("GET", f"/api/v1/namespaces/default/pods/{name}")

    def pods(self) -> list[Json]:
        return list(self.call("GET", "/api/v1/namespaces/default/pods")["items"])

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName") or "")

    def bound(self) -> set[str]:
        return {p["metadata"]["name"] for p in self.pods() if p["spec"].get("nodeName")}

    def events(self, pod: str, reason: str) -> list[str]:
        """The messages of the pod's events of one reason."""
        items = self.call("GET", "/api/v1/namespaces/default/events")["items"]
        return [
            e["message"]
            for e in items
            if e["involvedObject"]["name"] == pod and e["reason"] == reason
        ]

    def refusal(self, pod: str) -> str:
        """The message of PodScheduled=False, empty without."""
        conditions = (self.pod(pod).get("status") or {}).get("conditions") or []
        said = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
        return str(said[0].get("message", "")) if said else ""

    def patch_node(self, name: str, body: Json) -> None:
        self.call("PATCH", f"/api/v1/nodes/{name}", body, "application/merge-patch+json")

    def books(self) -> Json:
        """What the fake device plugins handed out."""
        return _get(f"{self._books}/debug/cards")[1]

    # The log

    def records(self) -> list[Record]:
        """The whole log, read afresh."""
        return anyio.run(self._records)

    def append(self, subject: str, payload: bytes, msg_id: str) -> None:
        """Append to the log past all services."""
        anyio.run(self._append, subject, payload, msg_id)

    async def _append(self, subject: str, payload: bytes, msg_id: str) -> None:
        async with connect(self.nats.url, "e2e-writer") as connection:
            log = await JetStreamLog.open(connection)
            answer = await log.append(subject, payload, msg_id=msg_id)
            assert isinstance(answer, Landed), answer

    async def _records(self) -> list[Record]:
        async with connect(self.nats.url, "e2e-reader") as connection:
            log = await JetStreamLog.open(connection)
            out: list[Record] = []
            async with contextlib.aclosing(log.read(1, await log.last_seq())) as batches:
                async for batch in batches:
                    out.extend(batch)
            return out


def _get(url: str) -> tuple[int, Json]:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def container(
    name: str, limits: Mapping[str, Any], requests: Mapping[str, Any] | None = None
) -> Json:
    """A container as a manifest has it."""
    resources = {"limits": dict(limits), "requests": dict(requests or {})}
    return {"name": name, "image": "i:1", "resources": resources}


def task(
    name: str,
    replicas: int,
    limits: Mapping[str, Any],
    spec: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Json:
    """A task of a Job; `spec` are more fields of its pods, `fields` of the task."""
    made = {"restartPolicy": "Never", "containers": [container("main", limits)], **(spec or {})}
    return {"name": name, "replicas": replicas, "template": {"spec": made}, **fields}


def vgpu(memory: int = 0, cores: int = 0, number: int = 1) -> dict[str, str]:
    """Limits of a vGPU container; a 0 is left out."""
    amounts = {"number": number, "memory": memory, "cores": cores}
    return {f"volcano.sh/vgpu-{name}": str(n) for name, n in amounts.items() if n}
