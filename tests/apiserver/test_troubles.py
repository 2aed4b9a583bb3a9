"""A kube-apiserver that is overloaded, stands still, or has a certificate of an old CA."""

import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest
from tests.apiserver.servers import (
    ASSETS,
    NAMESPACES,
    RBAC,
    Json,
    KubeApiserver,
    done,
    kube_apiserver,
    until_it,
    write_kubeconfig,
)
from tests.contract.authorities import old_authority, server_of
from tests.waiting import until

from allotment.adapters.kube.client import KubeClient, connect
from allotment.adapters.kube.objects import AnnotatedObject
from allotment.adapters.kube.result import Ok, Unknown
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import Added, WatchEvent

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(ASSETS not in os.environ, reason=f"starts an API server: set {ASSETS}"),
]
MAPS = f"{NAMESPACES}/default/configmaps"
WRITERS = 100
FROZEN_S = 2.0


def config_map(name: str) -> Json:
    """Large enough that several are on their way at once."""
    data = {"k": "x" * 100_000}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[KubeApiserver]:
    """Takes one write at a time, and says 429 with Retry-After to all others."""
    options = ("--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1")
    with kube_apiserver(tmp_path, os.environ, *options) as server:
        yield server


@pytest.fixture
def old(tmp_path: Path) -> Iterator[KubeApiserver]:
    """With a certificate of a CA as older clusters have it."""
    authority = old_authority()
    issued = server_of(authority)
    files = {"ca.crt": authority.pem, "server.crt": issued.pem, "server.key": issued.key_pem}
    for name, pem in files.items():
        (tmp_path / name).write_bytes(pem)
    cert, key = (f"--tls-{name}" for name in ("cert-file", "private-key-file"))
    options = (f"{cert}={tmp_path}/server.crt", f"{key}={tmp_path}/server.key")
    ca = tmp_path / "ca.crt"
    with kube_apiserver(tmp_path, os.environ, *options, authority=ca) as server:
        yield server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[KubeApiserver]:
    with kube_apiserver(tmp_path, os.environ) as server:
        yield server


async def test_what_is_throttled_is_asked_again_and_done_once(
    narrow: KubeApiserver, tmp_path: Path
) -> None:
    async with connect(await _account(narrow, tmp_path)) as client:

        async def write(name: str) -> None:
            answer = await client.create(MAPS, config_map(name))
            while isinstance(answer, Unknown) and answer.status == 429:
                answer = await client.create(MAPS, config_map(name))
            done(answer)

        async with anyio.create_task_group() as writers:
            for number in range(WRITERS):
                writers.start_soon(write, f"m{number}")
        assert client.throttled > 0


async def test_a_server_that_stood_still_is_followed_again(own: KubeApiserver) -> None:
    """Meanwhile a request has no answer, and that is what the client says."""
    seen: set[str] = set()

    async def hear(event: WatchEvent[AnnotatedObject]) -> None:
        if isinstance(event, Added):
            seen.add(event.object.metadata.name)

    async with connect(own.admin) as client, anyio.create_task_group() as tasks:
        decoder = msgspec.json.Decoder(AnnotatedObject)
        tasks.start_soon(Reflector(client, MAPS, decoder, hear, random=Random(1)).run)
        done(await client.create(MAPS, config_map("before")))
        await until(lambda: "before" in seen)
        os.kill(own.pid, signal.SIGSTOP)
        try:
            await until(lambda: ") T " in Path(f"/proc/{own.pid}/stat").read_text())
            answer = await client.request("GET", MAPS, timeout_s=FROZEN_S)
            assert isinstance(answer, Unknown), answer
        finally:
            os.kill(own.pid, signal.SIGCONT)
        await until_it(lambda: _is_written(client, "after"))
        await until(lambda: "after" in seen)
        tasks.cancel_scope.cancel()


async def _account(server: KubeApiserver, directory: Path) -> Path:
    """A kubeconfig with all rights, but not the group of administrators, which is not throttled."""
    async with connect(server.admin) as client:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "writer"}}
        path = f"{NAMESPACES}/default/serviceaccounts"
        done(await client.create(path, account))
        subject = {"kind": "ServiceAccount", "name": "writer", "namespace": "default"}
        role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC.split("/")[2]}
        binding = {"metadata": {"name": "writer"}, "subjects": [subject], "roleRef": role}
        done(await client.create(f"{RBAC}/clusterrolebindings", binding))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = done(await client.create(f"{path}/writer/token", request))["status"]["token"]
    return write_kubeconfig(directory / "writer.kubeconfig", server.cluster, str(token))


async def _is_written(client: KubeClient, name: str) -> bool:
    answer = await client.create(MAPS, config_map(name))
    return isinstance(answer, Ok) or getattr(answer, "status", 0) == 409


async def test_a_ca_without_key_usage_is_accepted(
    old: KubeApiserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the Python that ships, whose default is stricter."""
    made = ssl.create_default_context

    def strict(cafile: str | None = None) -> ssl.SSLContext:
        context = made(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    async with connect(old.admin) as client:
        assert isinstance(await client.get(MAPS), Ok)
