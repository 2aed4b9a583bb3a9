"""The controller against the local API server: Jobs, other pods, queues, Commands, its rights."""

import contextlib
import io
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from aiohttp import web
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import counting_ids

from allotment.adapters.kube import KubeClient, connect
from allotment.adapters.metrics import ServiceMetrics
from allotment.adapters.service import ServiceContext
from allotment.adapters.service_log import Logger, LogSink
from allotment.adapters.telemetry import start_tracing
from allotment_controller.controller import Controller
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.settings import ControllerSettings
from allotment_controller.volcano import Presence
from allotment_local.apiserver.app import build_app
from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    PODS,
    ResourceKey,
)
from allotment_local.apiserver.store import Store
from allotment_local.cluster import now
from allotment_local.definitions import read_definitions

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "deploy" / "examples" / "batch").glob("*.yaml"))
JOBS = ResourceKey("batch.volcano.sh", "jobs")
GROUPS = ResourceKey("scheduling.volcano.sh", "podgroups")
QUEUES = ResourceKey("scheduling.volcano.sh", "queues")
COMMANDS = ResourceKey("bus.volcano.sh", "commands")
REPLICASETS = ResourceKey("apps", "replicasets")
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+)?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
Json = dict[str, Any]
Right = tuple[str, str, str]


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
        for _ in range(1500):
            self.reap()
            if holds():
                return
            await anyio.sleep(0.01)
        shown = [self.job(job["metadata"]["name"])["status"] for job in self.store.list(JOBS)[0]]
        raise AssertionError(f"never: {what}; jobs: {shown}; log:\n{self.log.getvalue()[-3000:]}")

    async def runs(self, pods: int, name: str = "j") -> None:
        """The Job has its pods, and they run."""
        await self.until(lambda: len(self.pods()) == pods, f"{pods} pods")
        self.run_pods()
        await self.until(lambda: self.phase(name) == "Running", "it runs")


def phase_of(group: Json) -> str:
    return str((group.get("status") or {}).get("phase", ""))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
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
        - {name: main, image: i, resources: {limits: {volcano.sh/vgpu-number: 1}}}
"""


async def test_a_job_from_its_beginning_to_its_end(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        (group,) = scene.groups()
        assert group["spec"]["minMember"] == 3
        assert group["spec"]["minResources"]["volcano.sh/vgpu-number"] == "3"
        pods = scene.pods()
        env = {
            name: {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}
            for name, pod in pods.items()
        }
        assert [env[f"j-worker-{n}"]["VC_TASK_INDEX"] for n in range(3)] == ["0", "1", "2"]
        assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"volcano"}
        secret = scene.store.get(ResourceKey("", "secrets"), "default", "j-ssh")
        assert set(secret["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
        await scene.until(lambda: phase_of(scene.groups()[0]) == "Running", "the PodGroup runs")
        scene.run_pods("Succeeded")
        await scene.until(lambda: scene.phase() == "Completed", "it completes")
        await scene.until(lambda: not scene.groups(), "the PodGroup is gone")
        assert len(scene.pods()) == 3, "finished pods stay"
        status = scene.job()["status"]
        assert status["taskStatusCount"] == {"worker": {"phase": {"Succeeded": 3}}}
        passed = [condition["status"] for condition in status["conditions"]]
        assert passed == ["Pending", "Running", "Completed"]


async def test_suspend_and_resume(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        scene.command("AbortJob", "j")
        await scene.until(lambda: scene.phase() == "Aborting", "it aborts")
        await scene.until(lambda: scene.phase() == "Aborted", "it is aborted")
        assert (scene.groups(), scene.pods()) == ([], {})
        scene.command("ResumeJob", "j")
        await scene.runs(3)
        assert scene.store.list(COMMANDS)[0] == []
        status = scene.job()["status"]
        assert (status["retryCount"], status["version"]) == (1, 2)
        assert {
            pod["metadata"]["annotations"]["volcano.sh/job-version"]
            for pod in scene.pods().values()
        } == {"2"}


async def test_an_evicted_pod_restarts_the_job_and_our_own_deletions_do_not(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        scene.store.delete(PODS, "default", "j-worker-1", grace_seconds=0)
        await scene.until(
            lambda: scene.phase() == "Restarting" or scene.job()["status"]["retryCount"], "restart"
        )
        await scene.until(lambda: len(scene.pods()) == 3, "new pods")
        await scene.runs(3)
        assert scene.job()["status"]["retryCount"] == 1
        assert len(scene.events("ExecuteAction")) == 1


async def test_scaling_and_the_lists_of_hosts(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        tasks = scene.job()["spec"]["tasks"]

        def hosts() -> list[str]:
            config = scene.store.get(ResourceKey("", "configmaps"), "default", "j-svc")
            return list(config["data"]["worker.host"].split("\n"))

        async def scale(replicas: int) -> None:
            spec = {"minAvailable": 2, "tasks": [{**tasks[0], "replicas": replicas}]}
            scene.store.merge_patch(JOBS, "default", "j", {"spec": spec})
            await scene.until(lambda: len(scene.pods()) == replicas, f"{replicas} pods")
            assert sorted(scene.pods()) == [f"j-worker-{n}" for n in range(replicas)]
            await scene.until(lambda: len(hosts()) == replicas, "the hosts follow")
            scene.run_pods()

        await scale(5)
        await scale(2)
        await scene.until(lambda: scene.groups()[0]["spec"]["minMember"] == 2, "the group follows")
        assert scene.job()["status"].get("retryCount") == 0


async def test_a_new_controller_goes_on_where_the_old_one_was(scene: Scene) -> None:
    scene.apply(JOB)
    async with scene.controller():
        await scene.until(lambda: len(scene.pods()) > 0, "first pods")
    scene.store.delete(PODS, "default", "j-worker-0", grace_seconds=0)
    async with scene.controller():
        await scene.runs(3)
    created = [pod["metadata"]["uid"] for pod in scene.pods().values()]
    async with scene.controller():
        await anyio.sleep(0.3)
    assert [pod["metadata"]["uid"] for pod in scene.pods().values()] == created
    assert scene.job()["status"]["retryCount"] == 0


async def test_a_failed_create_is_told_and_tried_again(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB.replace("restartPolicy: Never", "priorityClassName: later"))
        await scene.until(lambda: scene.events("FailedCreate"), "it is told")
        assert "no PriorityClass with name later" in scene.events("FailedCreate")[0]
        scene.apply(
            "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: later},"
            " value: 7}"
        )
        await scene.runs(3)


async def test_an_invalid_job_says_what_is_wrong_and_begins_when_it_is_mended(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB.replace("minAvailable: 3", "minAvailable: 4"))
        await scene.until(lambda: scene.events("InvalidJob"), "it is told")
        state = scene.job()["status"]["state"]
        assert state["message"] == "spec.minAvailable: 4 is more than all replicas (3)"
        assert (scene.pods(), scene.groups()) == ({}, [])
        scene.store.merge_patch(JOBS, "default", "j", {"spec": {"minAvailable": 3}})
        await scene.runs(3)


async def test_a_finished_job_is_deleted_after_its_time(scene: Scene) -> None:
    completed, failed = (gauge.name for gauge in JobMetrics().gauges())
    async with scene.controller():
        scene.apply(JOB.replace("minAvailable: 3", "ttlSecondsAfterFinished: 1"))
        await scene.runs(3)
        scene.run_pods("Succeeded")
        await scene.until(lambda: scene.phase() == "Completed", "it is over")
        rows = {gauge.name: gauge.rows for gauge in scene.metrics.gauges()}
        assert rows == {completed: {("default/j", "default"): 1}, failed: {}}
        assert sum(scene.metrics.creation.rows[()].counts) == 3
        await scene.until(lambda: not scene.store.list(JOBS)[0], "the Job is gone")
        await scene.until(lambda: not scene.pods(), "and its pods")


async def test_bare_pods_and_pods_of_an_owner_get_podgroups(scene: Scene) -> None:
    async with scene.controller():
        owner = scene.store.create(
            REPLICASETS,
            "default",
            {
                "metadata": {
                    "name": "rs",
                    "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
                },
                "spec": {"replicas": 3},
            },
        )
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "rs",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        for name, owners, scheduler in [
            ("rs-1", [reference], "volcano"),
            ("rs-2", [reference], "volcano"),
            ("bare", [], "allotment"),
            ("foreign", [], "default-scheduler"),
        ]:
            metadata = {"name": name, "ownerReferences": owners}
            spec = {"schedulerName": scheduler, "containers": [container]}
            scene.store.create(PODS, "default", {"metadata": metadata, "spec": spec})

        def tied() -> dict[str, str | None]:
            return {
                name: (pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name")
                for name, pod in scene.pods().items()
            }

        await scene.until(lambda: sum(bool(group) for group in tied().values()) == 3, "tied")
        shared, own = f"podgroup-{reference['uid']}", tied()["bare"]
        assert tied() == {"rs-1": shared, "rs-2": shared, "bare": own, "foreign": None}
        by_name = {group["metadata"]["name"]: group for group in scene.groups()}
        assert set(by_name) == {shared, own}
        assert by_name[shared]["spec"]["minMember"] == 2
        assert by_name[shared]["spec"]["minResources"]["cpu"] == "2"
        await scene.until(
            lambda: [phase_of(group) for group in scene.groups()] == ["Inqueue"] * 2, "admitted"
        )
        scene.run_pods("Running", "rs-1", "rs-2")
        await scene.until(
            lambda: phase_of(scene.store.get(GROUPS, "default", shared)) == "Running", "it runs"
        )


async def test_without_admission_podgroups_wait_for_the_scheduler(scene: Scene) -> None:
    async with scene.controller(admit=False):
        scene.apply(JOB)
        await scene.until(scene.groups, "the PodGroup")
        await anyio.sleep(0.2)
        (group,) = scene.groups()
        assert phase_of(group) == ""
        assert scene.pods() == {}
        conditions = [{"type": "Unschedulable", "status": "True", "message": "quota is used up"}]
        status: Json = {"status": {"phase": "Pending", "conditions": conditions}}
        name = group["metadata"]["name"]
        scene.store.merge_patch(GROUPS, "default", name, status, subresource="status")
        await scene.until(lambda: scene.events("PodGroupPending"), "it is told")
        assert scene.job()["status"]["state"]["message"] == "quota is used up"
        status = {"status": {"phase": "Inqueue", "conditions": None}}
        scene.store.merge_patch(GROUPS, "default", name, status, subresource="status")
        await scene.until(lambda: len(scene.pods()) == 3, "pods")


QUEUE = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}, spec: {}}"


def state_of(scene: Scene, name: str) -> str:
    return str((scene.store.get(QUEUES, "", name).get("status") or {}).get("state", ""))


async def test_queues_open_close_and_hold_jobs_back(scene: Scene) -> None:
    async with scene.controller():
        await scene.until(lambda: len(scene.store.list(QUEUES)[0]) == 2, "root and default")
        scene.apply(QUEUE)
        await scene.until(lambda: state_of(scene, "q") == "Open", "it opens")
        scene.apply(JOB.replace("minAvailable: 3", "queue: q"))
        await scene.runs(3)
        scene.command("CloseQueue", "q", "Queue")
        await scene.until(lambda: state_of(scene, "q") == "Closing", "it closes")
        scene.apply(JOB.replace("minAvailable: 3", "queue: q").replace("name: j}", "name: late}"))
        await scene.until(lambda: scene.phase("late") == "Pending", "the late one waits")
        assert "takes no new Jobs" in scene.job("late")["status"]["state"]["message"]
        scene.run_pods("Succeeded")
        await scene.until(lambda: state_of(scene, "q") == "Closed", "the last PodGroup is gone")
        scene.command("OpenQueue", "q", "Queue")
        await scene.until(lambda: len(scene.pods()) == 6, "the late one begins")
        scene.store.delete(QUEUES, "", "default")
        await scene.until(lambda: scene.store.find(QUEUES, "", "default"), "default is back")
        scene.command("CloseQueue", "default", "Queue")
        await scene.until(lambda: not scene.store.list(COMMANDS)[0], "the Command is taken")
        said = "CloseQueue is not done: queue 'default' is always open"
        await scene.until(lambda: scene.events("CommandDenied") == [said], "and refused")
        await scene.until(lambda: state_of(scene, "default") == "Open", "default is open")


async def test_a_command_may_be_seen_before_its_job(scene: Scene) -> None:
    async with scene.controller():
        scene.command("AbortJob", "j")
        await anyio.sleep(0.1)
        scene.apply(JOB)
        await scene.until(lambda: scene.phase() == "Aborted", "it is aborted all the same")


async def test_commands_for_nobody_go_away(scene: Scene) -> None:
    async with scene.controller():
        scene.command("AbortJob", "nobody")
        scene.command("AbortJob", "nobody", "Pod")
        await scene.until(lambda: not scene.store.list(COMMANDS)[0], "they are gone")


@pytest.mark.parametrize("text", [file.read_text() for file in EXAMPLES])
async def test_the_examples_run(scene: Scene, text: str) -> None:
    assert text.startswith("# "), "a comment says what it shows"
    async with scene.controller():
        scene.apply(text)
        wanted = sum(
            task["replicas"]
            for body in yaml.safe_load_all(text)
            if body["kind"] == "Job"
            for task in body["spec"]["tasks"]
        ) + text.count("kind: Pod\n")
        await scene.until(lambda: len(scene.pods()) == wanted, f"{wanted} pods")
        assert not scene.events("InvalidJob")


async def test_volcanos_own_controllers_are_noticed_by_lease_or_deployment(scene: Scene) -> None:
    presence = Presence(scene.client, "volcano-system")
    await presence.look()
    assert presence.why == ""
    scene.store.create(NAMESPACES, "", {"metadata": {"name": "volcano-system"}})
    spec = {"holderIdentity": "vc-0", "renewTime": "2026-11-20T14:00:00.000000Z"}
    lease = {"metadata": {"name": "vc-controller-manager"}, "spec": spec}
    scene.store.create(LEASES, "volcano-system", lease)
    await presence.look()
    assert presence.why == "the Lease volcano-system/vc-controller-manager is held by vc-0"
    left = {"spec": {"holderIdentity": ""}}
    scene.store.merge_patch(LEASES, "volcano-system", "vc-controller-manager", left)
    await presence.look()
    assert presence.why == ""
    deployments = ResourceKey("apps", "deployments")
    body = {"metadata": {"name": "volcano-controllers"}, "spec": {}}
    scene.store.create(deployments, "volcano-system", body)
    await presence.look()
    assert presence.why == ""
    scene.store.merge_patch(
        *(deployments, "volcano-system", "volcano-controllers"),
        {"status": {"availableReplicas": 1}},
        subresource="status",
    )
    await presence.look()
    assert presence.why == "the Deployment volcano-system/volcano-controllers is available"


def granted() -> set[Right]:
    documents = yaml.safe_load_all((ROOT / "deploy/base/rbac.yaml").read_text())
    (role,) = (
        body
        for body in documents
        if body["kind"] == "ClusterRole" and body["metadata"]["name"] == "allotment-controller"
    )
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


ASKED_ELSEWHERE: set[Right] = {
    ("batch.volcano.sh", "jobs/finalizers", "update"),  # asked by admission in our name
    ("", "persistentvolumeclaims", "create"),
    ("apps", "statefulsets", "get"),
    ("apps", "daemonsets", "get"),
    ("batch", "jobs", "get"),
}
"""Rights of the same kind as those that are used here, for other kinds of objects."""


async def test_the_role_holds_what_the_code_asks_for(scene: Scene) -> None:
    await test_bare_pods_and_pods_of_an_owner_get_podgroups(scene)
    for name in list(scene.pods()):
        scene.store.delete(PODS, "default", name, grace_seconds=0)
    scene.store.delete(REPLICASETS, "default", "rs")
    await test_scaling_and_the_lists_of_hosts(scene)
    scene.store.delete(JOBS, "default", "j")
    await scene.until(lambda: not scene.pods(), "room")
    await test_a_finished_job_is_deleted_after_its_time(scene)
    await test_suspend_and_resume(scene)
    async with scene.controller():
        scene.command("CloseQueue", "default", "Queue")
        parent = QUEUE.replace("name: q", "name: p")
        scene.apply(parent + "\n---\n" + QUEUE.replace("spec: {}", "spec: {parent: p}"))
        await scene.until(lambda: state_of(scene, "q") == "Open", "it opens")
        scene.command("CloseQueue", "p", "Queue")
        await scene.until(lambda: state_of(scene, "q") == "Closed", "the child closes")
    await Presence(scene.client, "volcano-system").look()
    assert scene.asked - granted() == set()
    assert granted() - scene.asked == ASKED_ELSEWHERE
