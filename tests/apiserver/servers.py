"""The API servers that the cases of this folder run against: local mode's, and a kube-apiserver.

`KUBEBUILDER_ASSETS=DIR` names a folder with `etcd` and `kube-apiserver`, which are started on free
ports of loopback; `KUBECONFIG_UNDER_TEST=FILE` an empty cluster of your own and its administrator.
"""

import contextlib
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import pytest
import yaml
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.contract.nats_three import free_ports
from tests.waiting import PATIENCE_S, POLL_S, patience, until_so

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment_local.apiserver.__main__ import new_id, new_store, now
from allotment_local.apiserver.app import build_app
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import parse_shapes

Json = dict[str, Any]
Right = tuple[str, str, str, str]
"""Who, the verb, the API group, the resource."""
ASSETS, KUBECONFIG = "KUBEBUILDER_ASSETS", "KUBECONFIG_UNDER_TEST"
SPACE = "allotment-system"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
ROOT = Path(__file__).parents[2]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMIN = "admin-token"
_FIRST_REVISION = 5
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def done(result: KubeResult) -> Json:
    """The body of an answer that must be a success."""
    assert isinstance(result, Ok), result
    return dict(json.loads(result.body))


def refused(result: KubeResult, status: int, reason: str) -> Refused:
    """An answer that must be this refusal."""
    assert isinstance(result, Refused), result
    assert (result.status, result.reason) == (status, reason), result
    return result


def write_kubeconfig(path: Path, cluster: Json, token: str | None) -> Path:
    """A kubeconfig with one cluster and one user; without a token it is anonymous."""
    user = {} if token is None else {"token": token}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


class KubeApiserver:
    """A cluster with a real kube-apiserver: who administers it, and what it wrote down of requests
    where this run started it."""

    def __init__(self, admin: Path, audit: Path | None, pid: int = 0) -> None:
        self.admin = admin
        self.audit = audit
        self.pid = pid
        """Of the process, where this run started it."""

    @property
    def cluster(self) -> Json:
        """The address, as a kubeconfig has it, with paths that hold anywhere."""
        config = yaml.safe_load(self.admin.read_text())
        context = {each["name"]: each["context"] for each in config["contexts"]}
        name = context[config["current-context"]]["cluster"]
        (found,) = [each["cluster"] for each in config["clusters"] if each["name"] == name]
        if authority := found.get("certificate-authority"):
            found["certificate-authority"] = str(self.admin.parent / authority)
        return dict(found)


@contextlib.contextmanager
def kube_apiserver(
    directory: Path, environ: Mapping[str, str], *options: str, authority: Path | None = None
) -> Iterator[KubeApiserver]:
    """The one that the environment names; skips the test without one. `options` are more of its
    options, `authority` signed its certificate if they name one.
    """
    if given := environ.get(KUBECONFIG):
        yield KubeApiserver(Path(given).resolve(), None)
        return
    if not (assets := environ.get(ASSETS)):
        pytest.skip(f"needs a real kube-apiserver: set {ASSETS} or {KUBECONFIG}")
    with _started(Path(assets).resolve(), directory, options, authority) as server:
        yield server


@contextlib.contextmanager
def _started(
    assets: Path, directory: Path, more: Sequence[str], authority: Path | None
) -> Iterator[KubeApiserver]:
    etcd, peers, port = free_ports(3)
    etcd_url, peers_url = (f"http://127.0.0.1:{number}" for number in (etcd, peers))
    (directory / "tokens.csv").write_text(f'{_ADMIN},admin,1,"system:masters"\n')
    (directory / "audit.yaml").write_text(json.dumps(_AUDIT))
    (directory / "accounts.pem").write_bytes(
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    audit = directory / "audit.log"
    commands = {
        "etcd": [
            "--unsafe-no-fsync",
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peers_url}",
            f"--initial-advertise-peer-urls={peers_url}",
            f"--initial-cluster=default={peers_url}",
        ],
        "kube-apiserver": [
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--cert-dir={directory}",
            f"--token-auth-file={directory / 'tokens.csv'}",
            f"--service-account-key-file={directory / 'accounts.pem'}",
            f"--service-account-signing-key-file={directory / 'accounts.pem'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.254.0.0/16",
            "--authorization-mode=Node,RBAC",
            f"--audit-policy-file={directory / 'audit.yaml'}",
            f"--audit-log-path={audit}",
            *more,
        ],
    }
    running: list[subprocess.Popen[bytes]] = []
    try:
        for program, options in commands.items():
            with open(directory / f"{program}.log", "wb") as log:
                command = [str(assets / program), *options]
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
            if program == "etcd":
                until_so(lambda: _has_history(etcd_url))
        # It makes its own certificate, with its authority behind it.
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(authority or directory / "apiserver.crt"),
        }
        admin = write_kubeconfig(directory / "admin.kubeconfig", cluster, _ADMIN)
        until_so(
            lambda: _is_ready(running, admin, directory, Path(cluster["certificate-authority"]))
        )
        yield KubeApiserver(admin, audit, running[-1].pid)
    finally:
        for process in reversed(running):
            process.kill()
            process.wait(PATIENCE_S)


def _has_history(etcd_url: str) -> bool:
    """Whether etcd could be written to: no version that clients see is its first one then."""
    body = json.dumps({"key": "YQ==", "value": "YQ=="}).encode()
    try:
        with urlopen(f"{etcd_url}/v3/kv/put", body, timeout=PATIENCE_S) as answer:
            return int(json.loads(answer.read())["header"]["revision"]) > _FIRST_REVISION
    except OSError:
        return False


def _is_ready(
    running: list[subprocess.Popen[bytes]], admin: Path, directory: Path, authority: Path
) -> bool:
    for process, name in zip(running, ("etcd", "kube-apiserver"), strict=True):
        tail = (directory / f"{name}.log").read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n{tail}"

    async def ask() -> bool:
        async with connect(admin) as client:
            return isinstance(await client.get("/readyz"), Ok)  # with the roles that all have

    return authority.exists() and anyio.run(ask)


class Api:
    """One of the two servers, and a namespace of the test's own in it."""

    def __init__(self, directory: Path, real: KubeApiserver | None, cluster: Json) -> None:
        self.real = real
        self.client: KubeClient
        """May do everything."""
        self.namespace = ""
        self._directory = directory
        self._cluster = cluster

    def at(self, plural: str, name: str = "", group: str = "") -> str:
        """The path of a collection of the namespace, or of an object in it."""
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join(filter(None, (root, "namespaces", self.namespace, plural, name)))

    async def create(self, plural: str, body: Json, group: str = "") -> Json:
        return done(await self.client.create(self.at(plural, group=group), body))

    async def pod(self, name: str, **spec: Any) -> Json:
        """A new pod."""
        return await self.create("pods", pod(name, **spec))

    async def read(self, path: str) -> Json:
        return done(await self.client.get(path))

    async def token(self, account: str, namespace: str) -> str:
        """A new token of a service account of the real server."""
        path = f"{NAMESPACES}/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(done(await self.client.create(path, request))["status"]["token"])

    def kubeconfig(self, name: str, token: str | None) -> Path:
        return write_kubeconfig(self._directory / f"{name}.kubeconfig", self._cluster, token)

    async def kubectl(self, *arguments: str, status: int = 0) -> str:
        """What kubectl prints, as the client that may do everything."""
        config = self.real.admin if self.real else self._directory / "admin.kubeconfig"
        command = ["kubectl", "--cache-dir", str(self._directory / "cache"), *arguments]
        with patience():
            ended = await anyio.run_process(
                command, check=False, env={**os.environ, "KUBECONFIG": str(config)}
            )
        said = (ended.stdout + ended.stderr).decode()
        assert ended.returncode == status, said
        return said


def pod(name: str, **spec: Any) -> Json:
    """A pod that asks for nothing."""
    metadata = {"name": name, "labels": {"app": name}}
    containers = [{"name": "c", "image": "busybox:1"}]
    whole = {"schedulerName": "allotment", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


@contextlib.asynccontextmanager
async def api_of(real: KubeApiserver | None, directory: Path) -> AsyncIterator[Api]:
    """The server with a new namespace; `real` None: local mode's, started for this test."""
    async with contextlib.AsyncExitStack() as stack:
        if real is None:
            url = await stack.enter_async_context(_local())
            api = Api(directory, None, {"server": url})
            config = api.kubeconfig("admin", _ADMIN)
        else:
            api, config = Api(directory, real, real.cluster), real.admin
        api.client = await stack.enter_async_context(connect(config))
        space = {"apiVersion": "v1", "kind": "Namespace"}
        made = {**space, "metadata": {"generateName": "allotment-contract-"}}
        api.namespace = done(await api.client.create(NAMESPACES, made))["metadata"]["name"]
        await make_account(api, "default")
        try:
            yield api
        finally:
            await api.client.delete(f"{NAMESPACES}/{api.namespace}")  # if the test left it


async def make_account(api: Api, name: str, namespace: str = "") -> None:
    """A service account of the namespace (or another one); a controller may have made it."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    path = f"{NAMESPACES}/{namespace or api.namespace}/serviceaccounts"
    answer = await api.client.create(path, account)
    assert isinstance(answer, Ok) or getattr(answer, "status", 0) == 409, answer


@contextlib.asynccontextmanager
async def _local() -> AsyncIterator[str]:
    app = build_app(new_store(), clock=now, ids=new_id, writer=_ADMIN)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def until_it(holds: Any) -> None:
    """Wait for what an answer of the server shows; `holds` is asked again and again."""
    with patience():
        while not await holds():  # noqa: ASYNC110 - nobody announces it
            await anyio.sleep(POLL_S)


async def add_nodes(api: Api) -> None:
    """Nodes as kubelets and device plugins register them, and ready."""
    cluster = ROOT / "services/allotment_local/clusters/default.yaml"
    shapes = parse_shapes(cluster.read_text(), str(cluster))
    for node in node_objects(shapes, f"{now():%Y-%m-%dT%H:%M:%SZ}"):
        made = done(await api.client.create(NODES, node))
        # Admission holds new nodes back until a controller has seen that they are ready.
        own = node["spec"].get("taints")
        path = f"{NODES}/{made['metadata']['name']}"
        done(await api.client.patch(path, {"spec": {"taints": own}}))


def asked_of(audit: Path) -> dict[Right, set[int]]:
    """Who of the services asked for what, and the statuses of the answers."""
    found: dict[Right, set[int]] = defaultdict(set)
    prefix = f"system:serviceaccount:{SPACE}:allotment-"
    for line in audit.read_text().splitlines():
        event: Json = json.loads(line)
        user = event["user"]["username"]
        if user.startswith(prefix) and (about := event.get("objectRef")):
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            group = about.get("apiGroup", "")
            status = event.get("responseStatus", {}).get("code", 0)
            right = (user.removeprefix(prefix), event["verb"], group, resource)
            found[right].add(status)
    return found
