"""The services on a real API server, each with the rights of its own account and no more."""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.apiserver.servers import (
    ASSETS,
    NAMESPACES,
    Api,
    Json,
    KubeApiserver,
    api_of,
    done,
    kube_apiserver,
    make_account,
    until_it,
)
from tests.contract.manifests import needs_kubectl
from tests.e2e.stack import KUBE_ROLES, Process

from allotment.adapters.log.nats_server import NatsServer
from allotment_cli.demo.apply import apply_examples, manifests_in
from allotment_local.apiserver.__main__ import now
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import parse_shapes
from allotment_proto.volcano import keys

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
NEEDED = {
    ("watcher", "watch", "", "pods"),
    ("binder", "create", "", "pods/binding"),
    ("binder", "patch", "", "pods/status"),
    ("binder", "create", "events.k8s.io", "events"),
    ("binder", "patch", "scheduling.volcano.sh", "podgroups/status"),
    ("controller", "create", "", "pods"),
    ("controller", "create", "scheduling.volcano.sh", "podgroups"),
    ("controller", "patch", "batch.volcano.sh", "jobs/status"),
}
"""What cannot have been left out."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[KubeApiserver]:
    """A server of this test's own: pods that other tests left would be scheduled as well."""
    with kube_apiserver(tmp_path, os.environ) as server:
        if server.audit is None:
            pytest.skip(f"needs the API server's audit log: set {ASSETS}")
        yield server


@pytest.fixture
async def api(own: KubeApiserver, tmp_path: Path) -> AsyncIterator[Api]:
    async with api_of(own, tmp_path) as made:
        yield made


async def test_the_examples_are_scheduled_with_the_rights_deployed(
    api: Api, tmp_path: Path
) -> None:
    assert api.real is not None
    assert api.real.audit is not None
    await api.kubectl("apply", "-k", str(ROOT / "deploy/base"))
    mindcluster = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}}
    done(await api.client.create(NAMESPACES, mindcluster))
    await api.kubectl("apply", "-f", str(ROOT / "deploy/base/watcher-mindcluster.yaml"))
    await make_account(api, "default", "default")
    await _add_nodes(api)
    with _running(tmp_path, {name: await _config(api, name) for name in KUBE_ROLES[:3]}):
        files = [*manifests_in(EXAMPLES), *(EXAMPLES / "batch" / name for name in JOBS)]
        await apply_examples(api.real.admin, [f for f in files if "ascend" not in f.name])
        await until_it(lambda: _are_placed(api))
    asked = _asked(api.real.audit)
    assert {each for each in asked if each[-1] in (401, 403)} == set()
    assert {each[:-1] for each in asked} >= NEEDED


async def _add_nodes(api: Api) -> None:
    """Nodes as kubelets and device plugins register them, and ready."""
    cluster = ROOT / "services/allotment_local/clusters/default.yaml"
    shapes = parse_shapes(cluster.read_text(), str(cluster))
    for node in node_objects(shapes, f"{now():%Y-%m-%dT%H:%M:%SZ}"):
        made = done(await api.client.create(NODES, node))
        # Admission holds new nodes back until a controller has seen that they are ready.
        own = node["spec"].get("taints")
        path = f"{NODES}/{made['metadata']['name']}"
        done(await api.client.patch(path, {"spec": {"taints": own}}))


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
                command += ["--policy-file", str(ROOT / "deploy/base/volcano-scheduler.conf")]
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


def _asked(audit: Path) -> set[tuple[str, str, str, str, int]]:
    """Who of the services asked for what, and the status of the answer."""
    found = set()
    prefix = f"system:serviceaccount:{SPACE}:allotment-"
    for line in audit.read_text().splitlines():
        event: Json = json.loads(line)
        user = event["user"]["username"]
        if user.startswith(prefix) and (about := event.get("objectRef")):
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            group = about.get("apiGroup", "")
            status = event.get("responseStatus", {}).get("code", 0)
            found.add((user.removeprefix(prefix), event["verb"], group, resource, status))
    return found
