"""The services on a real API server, each with the rights of its own account and no more."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
import yaml
from tests.apiserver.servers import (
    NAMESPACES,
    Api,
    Json,
    KubeApiserver,
    add_nodes,
    api_of,
    asked_of,
    done,
    make_account,
    until_it,
)
from tests.contract.manifests import needs_kubectl
from tests.e2e.stack import KUBE_ROLES, Process
from tests.waiting import until

from allotment.adapters.kube.result import Ok
from allotment.adapters.log.nats_server import NatsServer
from allotment_cli.demo.apply import apply_examples, manifests_in
from allotment_proto.volcano import keys

Right = tuple[str, str, str, str]
"""Who, the verb, the API group, the resource."""
pytestmark = [pytest.mark.anyio, needs_kubectl, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SERVICES = ("watcher", "filter", "scorer", "binder", "controller")
SPACE = "allotment-system"
PODS = f"{NAMESPACES}/default/pods"
NODES = "/api/v1/nodes"
EXAMPLES = ROOT / "deploy/examples"
JOBS = ("01-gpu-memory-gang.yaml", "02-vgpu-trainer.yaml")
OF_JOBS = {"memory-gang-0", "memory-gang-1", "vgpu-trainer-trainer-0"}
WAITING = {"never-fits", "turn-2"}
IN_DOUBT = "only after an answer that was lost"
NO_RECORDS = "only while the log takes no records"
IN_THE_WAY = "only where an object of that name exists before the Job's"
NO_BINDER = "only while no scheduler admits PodGroups"
AT_ADMISSION = "asked by OwnerReferencesPermissionEnforcement, which is off by default; no request"
NOT_HERE: dict[Right, str] = {
    ("binder", "get", "", "pods"): IN_DOUBT,
    ("watcher", "patch", "", "pods/status"): NO_RECORDS,
    ("watcher", "create", "events.k8s.io", "events"): NO_RECORDS,
    ("controller", "get", "", "configmaps"): IN_THE_WAY,
    ("controller", "get", "", "services"): IN_THE_WAY,
    ("controller", "get", "networking.k8s.io", "networkpolicies"): IN_THE_WAY,
    ("controller", "patch", "scheduling.volcano.sh", "podgroups/status"): NO_BINDER,
    **{
        ("controller", "update", group, f"{resource}/finalizers"): AT_ADMISSION
        for group, resources in (
            ("", ("pods",)),
            ("apps", ("daemonsets", "replicasets", "statefulsets")),
            ("batch", ("jobs",)),
            ("batch.volcano.sh", ("jobs",)),
        )
        for resource in resources
    },
}
"""Rights that nothing here uses, and why. All others must be used, or they are too many."""
MORE = (ROOT / "tests/apiserver/more.yaml").read_text()
"""What the examples do not need: volumes, plugins of Jobs, an end, a priority."""


@pytest.fixture
async def api(own: KubeApiserver, tmp_path: Path) -> AsyncIterator[Api]:
    async with api_of(own, tmp_path) as made:
        yield made


async def test_the_examples_are_scheduled_with_the_rights_deployed(
    api: Api, tmp_path: Path
) -> None:
    assert api.real is not None
    audit = api.real.audit
    assert audit is not None
    await api.kubectl("apply", "-k", str(ROOT / "deploy/base"))
    mindcluster = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}}
    done(await api.client.create(NAMESPACES, mindcluster))
    await api.kubectl("apply", "-f", str(ROOT / "deploy/base/watcher-mindcluster.yaml"))
    await make_account(api, "default", "default")
    await add_nodes(api)
    with _running(tmp_path, {name: await _config(api, name) for name in KUBE_ROLES[:3]}):
        files = [*manifests_in(EXAMPLES), *(EXAMPLES / "batch" / name for name in JOBS)]
        await apply_examples(api.real.admin, [f for f in files if "ascend" not in f.name])
        await until_it(lambda: _are_placed(api))
        await _use_the_rest(api)
        granted = _granted()
        await until(lambda: granted - asked_of(audit).keys() <= NOT_HERE.keys())
    asked = asked_of(audit)
    assert {each: codes for each, codes in asked.items() if codes & {401, 403}} == {}
    assert asked.keys() <= granted
    assert NOT_HERE.keys() <= granted


async def _config(api: Api, service: str) -> Path:
    return api.kubeconfig(service, await api.token(f"allotment-{service}", SPACE))


@contextlib.contextmanager
def _running(directory: Path, configs: Mapping[str, Path]) -> Iterator[None]:
    with NatsServer(directory / "nats") as nats, contextlib.ExitStack() as stack:
        started = []
        for name in SERVICES:
            command = [f"allotment_{name}", "--nats-url", nats.url]
            if name in configs:
                command += ["--kubeconfig", str(configs[name])]
            if name in ("watcher", "controller"):
                command += ["--scheduler-names", "allotment,volcano"]
            if name == "watcher":
                policy = (ROOT / "deploy/base/volcano-scheduler.conf").read_text()
                file = directory / "volcano-scheduler.conf"
                file.write_text(policy.replace("backfill", "preempt, backfill"))
                command += ["--policy-file", str(file)]
            started.append(Process(name, command, directory))
            stack.callback(started[-1].kill)
        for process in started:
            process.announce()
        yield


async def _are_placed(api: Api) -> bool:
    """Whether all pods have their nodes that are to get one. What waits for a device plugin on
    its node is served, as one would, and runs."""
    pods = (await api.read(PODS))["items"]
    waiting = set()
    absent = set(OF_JOBS)
    for pod in pods:
        name = pod["metadata"]["name"]
        absent.discard(name)
        if not pod["spec"].get("nodeName"):
            waiting.add(name)
        elif pod["status"]["phase"] == "Pending":
            await _serve(api, name, pod["metadata"].get("annotations", {}))
    return not absent and waiting <= WAITING


async def _serve(api: Api, name: str, annotations: Mapping[str, str]) -> None:
    served: dict[str, str] = {}
    for key in annotations:
        if key.endswith("devices-to-allocate"):
            served[key] = ";"
        elif key in (keys.BIND_PHASE, keys.HAMI_BIND_PHASE):
            served[key] = keys.PHASE_SUCCESS
        elif key == keys.GPU_ASSIGNED:
            served[key] = "true"
    path = f"{PODS}/{name}"
    done(await api.client.patch(path, {"metadata": {"annotations": served}}))
    done(await api.client.patch(f"{path}/status", {"status": {"phase": "Running"}}))


async def _use_the_rest(api: Api) -> None:
    """Owners of pods, volumes, Jobs that grow, end or are aborted, a preemption, closed queues."""
    node = "gpu-a100"
    for body in yaml.safe_load_all(MORE.replace("NODE", node)):
        await _create(api, body)
    for kind, (group, plural) in OWNERS.items():
        template = {"metadata": {"labels": {"o": "x"}}, "spec": {**POD, "restartPolicy": "Always"}}
        spec: Json = {"selector": {"matchLabels": {"o": "x"}}, "template": template}
        if kind == "Job":
            spec = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
        elif kind == "StatefulSet":
            spec["serviceName"] = "x"
        owner = {"apiVersion": group, "kind": kind, "metadata": {"name": "own"}, "spec": spec}
        made = done(await api.client.create(f"/apis/{group}/namespaces/default/{plural}", owner))
        by = {"apiVersion": group, "kind": kind, "name": "own", "uid": made["metadata"]["uid"]}
        await _pod(api, f"of-{plural}", owners=[{**by, "controller": True}])
    for claim in ("later", "local"):
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
        await _pod(api, f"with-{claim}", volumes=[volume])
    running = [f"background-w-{number}" for number in range(3)]
    for name in (*running, "helped-w-0", "aborted-w-0"):
        await until_it(lambda name=name: _is_on_a_node(api, name))
    await _evict(api, node)
    await _scale(api, "helped", 2)
    await until_it(lambda: _is_on_a_node(api, "helped-w-1"))
    for name in ("helped-w-0", "helped-w-1"):
        ended = {"status": {"phase": "Succeeded"}}
        done(await api.client.patch(f"{PODS}/{name}/status", ended))
    for about, action in (("Job/aborted", "AbortJob"), ("Queue/top", "CloseQueue")):
        kind, name = about.split("/")
        await _command(api, kind, name, action)


async def _evict(api: Api, node: str) -> None:
    """A Job for which two pods have to go, which a budget counts."""
    budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 3, "selector": {}}}
    await _create(api, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    resources = {"requests": {"cpu": 60}, "limits": {"cpu": 60}}
    pod = {**POD, "nodeSelector": {"kubernetes.io/hostname": node}, "restartPolicy": "Never"}
    pod["containers"] = [{**POD["containers"][0], "resources": resources}]
    task = {"name": "w", "replicas": 1, "template": {"spec": pod}}
    spec = {"minAvailable": 1, "priorityClassName": "high", "tasks": [task]}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "urgent"}}
    await _create(api, {**job, "spec": {"schedulerName": "allotment", **spec}})


async def _scale(api: Api, name: str, count: int) -> None:
    path = f"{JOBS_PATH}/{name}"
    tasks = (await api.read(path))["spec"]["tasks"]
    spec = {"minAvailable": count, "tasks": [{**tasks[0], "replicas": count}]}
    done(await api.client.patch(path, {"spec": spec}))


async def _command(api: Api, kind: str, name: str, action: str) -> None:
    """A Command of Volcano's."""
    path = f"{JOBS_PATH}/{name}" if kind == "Job" else f"{QUEUES}/{name}"
    about = await api.read(path)
    target = {"kind": kind, "name": name, "uid": about["metadata"]["uid"], "controller": True}
    target["apiVersion"] = about["apiVersion"]
    metadata = {"name": action.lower(), "ownerReferences": [target]}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": metadata}
    await _create(api, {**command, "action": action, "target": target})


OWNERS = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Job": ("batch/v1", "jobs"),
}
JOBS_PATH = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
POD: Json = {"schedulerName": "allotment", "containers": [{"name": "c", "image": "i:1"}]}


async def _pod(api: Api, name: str, owners: Sequence[Json] = (), **spec: object) -> None:
    metadata = {"name": name, "ownerReferences": [*owners]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**POD, **spec}}
    done(await api.client.create(PODS, body))


async def _create(api: Api, body: Json) -> None:
    """An object of the namespace `default`, or of none."""
    file = Path(api.kubeconfig("x", None)).with_name("object.json")
    file.write_text(json.dumps(body))
    await api.kubectl("create", "--namespace", "default", "-f", str(file))


async def _is_on_a_node(api: Api, name: str) -> bool:
    answer = await api.client.get(f"{PODS}/{name}")
    return isinstance(answer, Ok) and bool(json.loads(answer.body)["spec"].get("nodeName"))


def _granted() -> set[Right]:
    """Every right of the roles of `base`, by service."""
    found = set()
    for role in yaml.safe_load_all((ROOT / "deploy/base/rbac.yaml").read_text()):
        if role["kind"] in ("Role", "ClusterRole"):
            for rule in role["rules"]:
                for group, resource, verb in product(
                    rule["apiGroups"], rule["resources"], rule["verbs"]
                ):
                    service = role["metadata"]["name"].removeprefix("allotment-")
                    found.add((service, verb, group, resource))
    return found
