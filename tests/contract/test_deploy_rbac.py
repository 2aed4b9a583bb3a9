"""What the services may ask of Kubernetes is what they ask: no more, no less.

The table is not written down but taken: the code that speaks to the API server is run against a
server that records, and its requests are turned into the verbs of RBAC. A second test finds calls
that were added elsewhere, so that the first one cannot silently miss them.
"""

import ast
import base64
import io
import re
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import anyio
import msgspec
import pytest
import yaml
from aiohttp import web
from tests.build import decided, pod, state_of
from tests.contract.kube_server import Script, client_of, refuse, reply, scripted
from tests.contract.manifests import KUSTOMIZATIONS, ROOT, Object, needs_kubectl, of_kind, services
from tests.memory_log import MemoryLog
from tests.waiting import patience, until

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import WatchEvent
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.nats_users import SEED, SERVICES, USERS, new_key, secret_of
from allotment.adapters.service.http import Readiness
from allotment.adapters.service.identity import kept_of
from allotment.adapters.service.world import NATS_WRITES, World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.ledger.model import RESERVED, Allocation
from allotment.core.placement.devices.mindcluster import MindclusterInfo
from allotment_binder.bindings import Target, bind
from allotment_binder.evictions import Evictions
from allotment_binder.groups import GroupStatuses
from allotment_binder.locks import Held, NodeLocks
from allotment_binder.notices import Notices, Refused, Scheduled
from allotment_binder.queue_status import QueueStatuses
from allotment_binder.readers import Readers
from allotment_binder.records import erase
from allotment_binder.volume_claims import bind_claims, tell_claims
from allotment_cli.setup.nats_setup import create_certificate, create_keys
from allotment_cli.setup.nats_users import PUBLIC
from allotment_proto.events import Admission, Eviction, GroupObserved, QueueObserved
from allotment_proto.facts import Holding, PluginUse, Policy
from allotment_watcher import objects
from allotment_watcher.__main__ import Context
from allotment_watcher.batch_watch import KINDS
from allotment_watcher.config_map_watch import config_map_path
from allotment_watcher.device_source import places_of
from allotment_watcher.lease_mirror import LeaseMirror
from allotment_watcher.namespace_watch import NAMESPACES
from allotment_watcher.node_info import path_of
from allotment_watcher.observer import NODES, PODS
from allotment_watcher.policy_source import place_of
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.unrecorded import Unrecorded
from allotment_watcher.volume_watch import CLAIMS, CLASSES, CSI_NODES, VOLUMES

PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+)?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
CLIENT_METHODS = {name for name in vars(KubeClient) if not name.startswith("_")}
CALLS = {
    "allotment_binder/bindings.py": {"bind", "get"},
    "allotment_binder/budgets.py": {"get", "list"},
    "allotment_binder/evictions.py": {"create", "patch"},
    "allotment_binder/volume_claims.py": {"patch"},
    "allotment_binder/groups.py": {"get", "patch"},
    "allotment_binder/queue_status.py": {"patch"},
    "allotment_binder/locks.py": {"get", "patch"},
    "allotment_binder/records.py": {"get", "patch"},
    "allotment/adapters/kube/events.py": {"create", "patch"},
    "allotment/adapters/kube/kept_text.py": {"create", "get", "patch"},
    "allotment/adapters/kube/watch.py": {"list", "watch"},
    "allotment_watcher/lease_mirror.py": {"create", "patch"},
    "allotment_watcher/unrecorded.py": {"list"},
}
"""Where the services call the client; each of these is run below."""

Right = tuple[str, str, str, str]
"""API group, resource with its subresource, verb, name of the one object (empty: any)."""


def right_of(request: web.Request) -> Right:
    found = PATH.fullmatch(request.path)
    assert found, request.path
    verb = VERBS.get(request.method)
    if verb is None:
        verb = "get" if found["name"] else "watch" if request.query.get("watch") else "list"
    resource = found["resource"]
    if found["subresource"]:
        resource += f"/{found['subresource']}"
    field, _, name = request.query.get("fieldSelector", "").partition("=")
    return found["group"] or "", resource, verb, name if field == "metadata.name" else ""


async def identity_asks(service: str, client: KubeClient, script: Script) -> set[Right]:
    """What is asked about the one ConfigMap, in the namespace of the services alone."""
    kept = kept_of(client, WatcherSettings().log_config_map)
    assert kept is not None
    seen = len(script.requests)
    assert await kept.read() is None
    if service == "watcher":
        script.then(refuse(404, "NotFound"))
        await kept.write("{}")
    asked = script.requests[seen:]
    assert {request.path.split("/")[4] for request in asked} == {"allotment-system"}
    rights = {right_of(request) for request in asked}
    return {(*r[:3], "" if r[2] == "create" else "allotment-log") for r in rights}


async def leases_ask(client: KubeClient, script: Script) -> set[Right]:
    """What is asked about the copies of the leases, in the namespace of the services alone."""
    seen = len(script.requests)
    mirror = LeaseMirror(client, MagicMock(), "allotment-system", MagicMock())
    for service in SERVICES:
        script.then(refuse(404, "NotFound"))
        await mirror.copy(service, "holder", 1)
    asked = script.requests[seen:]
    assert {request.path.split("/")[5] for request in asked} == {"allotment-system"}
    return {
        (*right_of(request)[:3], "" if request.method == "POST" else request.path.split("/")[-1])
        for request in asked
    }


async def binder_asks(client: KubeClient, script: Script) -> None:
    allocation = Allocation("uid", "node", (), 0, 0, (), phase=RESERVED, seq=7)
    await bind(client, Target("default", "pod", allocation), 0, look_first=True)
    await erase(client, pod("pod", node="n1", phase="Failed"), lambda text: None)
    where = Target("default", "pod", allocation)
    assert await tell_claims(client, where, ("data",), lambda: True, lambda _: None) is None
    local = Allocation(
        "uid", "node", (), 0, 0, (), phase=RESERVED, seq=7, volumes=(("data", "disk"),)
    )
    most = len(script.requests) + 4
    where = Target("default", "pod", local)
    await bind_claims(client, where, lambda: len(script.requests) < most, lambda _: None)
    notices = Notices(client, "test", Readers())
    await evictions_and_groups_ask(client, notices)
    notices.put(Refused("a", "default", "a", "does not fit", is_news=True))
    notices.put(Scheduled("b", "default", "b", "node"))
    async with anyio.create_task_group() as group:
        group.start_soon(notices.run)
        while notices.sent < 2:  # noqa: ASYNC110 - notices are only counted
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()


async def node_locks_ask(client: KubeClient) -> None:
    share = Holding("vgpu", 0, "GPU-0", 1_000, 10)
    locked = Allocation("uid", "node", (share,), 0, 0, (), phase=RESERVED, seq=7)
    locks = NodeLocks(client, lambda text: None, lambda: 0.0)
    assert await locks.take(Target("default", "pod", locked), lambda: True) is None
    await locks.release(Held.of(locked))


async def evictions_and_groups_ask(client: KubeClient, notices: Notices) -> None:
    victims = [
        Eviction(uid, "default", "pod", "node", "preempt", "default/top") for uid in ("a", "b")
    ]
    state = state_of(
        QueueObserved(uid="q", name="default", rv=1),
        GroupObserved(uid="uid", namespace="default", name="g", rv=1),
        decided(admissions=(Admission("default/g"),)),
    )
    evictions = Evictions(client, notices, Readers(), lambda *_: None)
    assert not any(each.code for each in await evictions.carry_out(state, victims))
    fold = Fold(MemoryLog(), Logger(LogSink("binder", "0", stream=io.StringIO())))
    fold.state = state
    statuses = GroupStatuses(client, "test", lambda: False, lambda *_: None, Readers())
    queues = QueueStatuses(client, lambda *_: None)
    async with anyio.create_task_group() as group:
        group.start_soon(statuses.run, fold)
        group.start_soon(queues.run, fold)
        while not (statuses.written and queues.written):  # noqa: ASYNC110 - writes are only counted
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()


async def watcher_asks(client: KubeClient, script: Script) -> None:
    policy = place_of(WatcherSettings().policy_config_map)
    assert policy is not None
    maps = (*places_of(Policy()).all, policy)
    places = [config_map_path(p.namespace, p.name) for p in maps]
    kinds = [kind.path for kind in KINDS]
    volumes = (CLAIMS, VOLUMES, CLASSES, CSI_NODES)
    core = (NODES, PODS, NAMESPACES)
    await lists_and_watches(client, script, *core, *kinds, *volumes, *places)
    await watcher_tells(client, script)


async def watcher_tells(client: KubeClient, script: Script) -> None:
    """A pod that waits is told that the log takes no records."""
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"schedulerName": "allotment"},
    }
    script.then(reply({"metadata": {}, "items": [pod]}))
    context = SimpleNamespace(settings=WatcherSettings(), readiness=Readiness())
    context.readiness.set(NATS_WRITES, False)
    unrecorded = Unrecorded(cast(Context, context), cast(World, MagicMock()), client)
    await unrecorded.look()


async def lists_and_watches(client: KubeClient, script: Script, *paths: str) -> None:
    """Each of the paths is listed and then watched."""

    async def ignore(_: WatchEvent[objects.PodObject]) -> None:
        pass

    decoder = msgspec.json.Decoder(objects.PodObject)
    for path in paths:
        seen = len(script.requests)
        async with anyio.create_task_group() as group:
            group.start_soon(Reflector(client, path, decoder, ignore, random=Random(1)).run)
            await until(lambda seen=seen: any(r.query.get("watch") for r in script.requests[seen:]))  # type: ignore[misc]
            group.cancel_scope.cancel()


async def answer(request: web.Request) -> web.StreamResponse:
    """An empty list, a pod that is not bound, or success."""
    if request.query.get("watch"):
        return web.Response()
    if request.method == "GET" and right_of(request)[2] == "list":
        return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
    return web.json_response({"metadata": {"uid": "uid"}, "spec": {}})


@pytest.mark.anyio
@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
@pytest.mark.parametrize("service", ["watcher", "binder"])
async def test_the_roles_hold_what_the_code_asks_for(
    where: str, service: str, tmp_path: Path
) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        with patience():
            await {"watcher": watcher_asks, "binder": binder_asks}[service](client, script)
        asked = {right_of(request) for request in script.requests}
        asked |= await identity_asks(service, client, script)
        if service == "watcher":
            asked |= await leases_ask(client, script)
    assert granted(where, f"allotment-{service}") == asked


@pytest.mark.anyio
async def test_node_locks_have_a_component_of_their_own(tmp_path: Path) -> None:
    """Who may patch a node may change its taints and labels: granted only where it is needed."""
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        with patience():
            await node_locks_ask(client)
        asked = {right_of(request) for request in script.requests}
    manifest = ROOT / "deploy/components/node-locks/rbac.yaml"
    role, binding = yaml.safe_load_all(manifest.read_text())
    (rule,) = role["rules"]
    assert rights_of(rule) == asked == {("", "nodes", verb, "") for verb in ("get", "patch")}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("allotment-binder", "allotment-system")


@pytest.mark.parametrize("account", ["watcher", "binder", "controller"])
def test_the_readme_lists_what_is_granted(account: str) -> None:
    """Every right of the roles, in the words of the table under "Rights"."""
    documents = yaml.safe_load_all((ROOT / "deploy/base/rbac.yaml").read_text())
    granted = {
        (resource, verb)
        for found in documents
        if found["kind"] in ("Role", "ClusterRole")
        if found["metadata"]["name"] == f"allotment-{account}"
        for rule in found["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert listed_in_readme(account) == granted


def listed_in_readme(account: str) -> set[tuple[str, str]]:
    """The rows ``| account | verbs | resources | why |``."""
    found: set[tuple[str, str]] = set()
    for line in (ROOT / "deploy/README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] == account:
            found |= {
                (resource.strip(" `"), verb)
                for resource in cells[2].split(",")
                for verb in cells[1].split(", ")
            }
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("use_cluster_info", [True, False])
async def test_clusters_with_mindcluster_grant_one_namespace(
    use_cluster_info: bool, tmp_path: Path
) -> None:
    arguments = (("useClusterInfoManager", use_cluster_info),)
    path = path_of(
        MindclusterInfo(), Policy(configurations=(PluginUse("init-params", arguments=arguments),))
    )
    assert path is not None
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        await lists_and_watches(client, script, path)
        asked = {right_of(request) for request in script.requests}
        namespaces = {request.path.split("/")[4] for request in script.requests}
    manifest = ROOT / "deploy/base/watcher-mindcluster.yaml"
    role, binding = (
        document
        for document in yaml.safe_load_all(manifest.read_text())
        if document["metadata"]["namespace"] in namespaces
    )
    (rule,) = role["rules"]
    assert rights_of(rule) == asked
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("allotment-watcher", "allotment-system")


@pytest.mark.anyio
@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
async def test_the_job_that_makes_secrets_has_the_rights_that_it_uses(
    where: str, tmp_path: Path
) -> None:
    """After an interrupted run: seeds exist, the ConfigMap with their public keys does not."""
    seed = base64.b64encode(new_key().seed.encode()).decode()

    async def interrupted(request: web.Request) -> web.StreamResponse:
        if request.method == "POST" and request.path.endswith("/secrets"):
            return await refuse(409, "AlreadyExists")(request)
        if request.method in ("GET", "PATCH") and "/configmaps/" in request.path:
            return await refuse(404, "NotFound")(request)
        return web.json_response({"data": {SEED: seed}})

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = interrupted
        await create_certificate(client, "allotment-system", datetime.now(UTC))
        await create_keys(client, "allotment-system")
        asked = {
            (
                *right_of(request)[:3],
                "" if request.method == "POST" else request.path.split("/")[-1],
            )
            for request in script.requests
        }
    (job,) = of_kind(where, "Job")
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    assert granted(where, account) == asked
    assert {right[3] for right in asked} == {"", PUBLIC, *map(secret_of, USERS)}


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
def test_filter_and_scorer_have_no_rights_and_no_token(where: str) -> None:
    for service in ("filter", "scorer", "archiver"):
        spec = services(where)[f"allotment_{service}"]
        assert spec["automountServiceAccountToken"] is False
        assert granted(where, spec["serviceAccountName"]) == set()


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
def test_each_service_has_an_account_of_its_own(where: str) -> None:
    accounts = {found["metadata"]["name"] for found in of_kind(where, "ServiceAccount")}
    used = [spec["serviceAccountName"] for spec in services(where).values()]
    (job,) = of_kind(where, "Job")
    used.append(job["spec"]["template"]["spec"]["serviceAccountName"])
    assert sorted(used) == sorted(accounts)


def test_the_client_is_called_where_this_test_looks() -> None:
    found: dict[str, set[str]] = {}
    for service in ("watcher", "filter", "scorer", "binder"):
        collect(ROOT / "services", ROOT / "services" / f"allotment_{service}", found)
    collect(ROOT / "libs", ROOT / "libs" / "allotment" / "adapters", found)
    del found["allotment/adapters/kube/client.py"]
    del found["allotment/adapters/kube/portforward.py"]  # people's, with their own rights
    assert found == CALLS, "another request to Kubernetes: run it above and grant it in rbac.yaml"


def collect(root: Path, folder: Path, found: dict[str, set[str]]) -> None:
    """Calls of a method of the Kubernetes client in the files that mention the client."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if "KubeClient" not in text:
            continue
        calls = {
            node.func.attr
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CLIENT_METHODS
            and ast.unparse(node.func.value).endswith(("client", "self"))
        }
        if calls:
            found[str(path.relative_to(root))] = calls


def granted(where: str, account: str) -> set[Right]:
    """Every right that the bindings give to an account, but for the one that no request needs: the
    admission policy asks for it (test_deploy_policies)."""
    rights: set[Right] = set()
    for binding in of_kind(where, "ClusterRoleBinding", "RoleBinding"):
        if account not in [subject["name"] for subject in binding["subjects"]]:
            continue
        role = role_of(where, binding)
        if role["metadata"]["name"] == "allotment-assignment-writers":
            continue
        for subject in binding["subjects"]:
            assert subject["namespace"] == "allotment-system"
        for rule in role["rules"]:
            rights |= rights_of(rule)
    return rights


def rights_of(rule: Object) -> set[Right]:
    assert rule.keys() - {"resourceNames"} == {"apiGroups", "resources", "verbs"}
    return {
        (group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def role_of(where: str, binding: Object) -> Object:
    wanted = binding["roleRef"]
    (role,) = (
        found
        for found in of_kind(where, wanted["kind"])
        if found["metadata"]["name"] == wanted["name"]
    )
    return role
