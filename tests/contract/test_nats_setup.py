"""The Job that makes NATS's keys and certificate: a real server runs on what it leaves."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result
from tests.bench.failover import ThreeServers
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import Api
from tests.contract.local_apiserver import running as apiserver
from tests.contract.manifests import KUSTOMIZATIONS, Object, needs_kubectl, of_kind
from tests.contract.nats_shipped import RIGHTS, SINGLE, on_loopback, running, tls_of
from tests.contract.nats_three import cluster_texts
from tests.waiting import patience

from allotment.adapters.log.certificates import CA, CERTIFICATE, KEY
from allotment.adapters.log.connection import NatsUnavailable, connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_users import (
    PUBLIC_KEYS,
    SEED,
    USERS,
    Key,
    inbox_of,
    public_keys,
    secret_of,
)
from allotment.core.logport import Landed
from allotment_cli.main import main
from allotment_cli.setup.nats_setup import SECRET
from allotment_cli.setup.nats_users import PUBLIC

pytestmark = [pytest.mark.anyio, needs_kubectl]
NAMESPACE = "allotment-system"
FACT = "allot.log.node.n1"


class Cluster:
    """A cluster and the Job's command in it, as the manifests start it."""

    def __init__(self, api: Api, folder: Path) -> None:
        (job,) = of_kind(KUSTOMIZATIONS[0], "Job")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        module, *self._words = container["args"]
        assert module == "allotment_cli.main"
        self._api = api
        self._kubeconfig = str(kubeconfig(folder / "kubeconfig", api.url))

    async def run(self, *more: str, namespace: str = NAMESPACE) -> Result:
        given = [word.replace("$(NAMESPACE)", namespace) for word in self._words]
        runner = CliRunner(env={"ALLOT_KUBECONFIG": self._kubeconfig})
        return await anyio.to_thread.run_sync(lambda: runner.invoke(main, [*given, *more]))

    def _path(self, kind: str, name: str = "") -> str:
        return f"{self._api.url}/api/v1/namespaces/{NAMESPACE}/{kind}/{name}".rstrip("/")

    async def contents(self) -> dict[str, dict[str, str]]:
        """What the Secrets and the ConfigMap hold, by their names."""
        found: dict[str, dict[str, str]] = {}
        async with self._api.session.get(self._path("secrets")) as answer:
            for secret in (await answer.json())["items"]:
                found[secret["metadata"]["name"]] = {
                    name: base64.b64decode(text).decode() for name, text in secret["data"].items()
                }
        async with self._api.session.get(self._path("configmaps", PUBLIC)) as answer:
            if answer.status == 200:
                found[PUBLIC] = (await answer.json())["data"]
        return found

    async def delete(self, kind: str, name: str) -> None:
        async with self._api.session.delete(self._path(kind, name)) as answer:
            assert answer.status == 200

    async def put(self, kind: str, name: str, found: Object) -> None:
        body = {"metadata": {"name": name}, **found}
        async with self._api.session.post(self._path(kind), json=body) as answer:
            assert answer.status == 201, await answer.text()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with apiserver() as api:
        yield Cluster(api, tmp_path)


def mounted(folder: Path, contents: dict[str, dict[str, str]]) -> None:
    """The files of the server's volume, and each user's seed."""
    files = {f"tls/{name}": contents[SECRET][name] for name in (CA, CERTIFICATE, KEY)}
    files[f"keys/{PUBLIC_KEYS.name}"] = contents[PUBLIC][PUBLIC_KEYS.name]
    files[RIGHTS.name] = RIGHTS.read_text()
    files |= {f"users/{user}/{SEED}": contents[secret_of(user)][SEED] for user in USERS}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def as_user(folder: Path, user: str, ca: Path | None = None) -> dict[str, Any]:
    seed = str(folder / "users" / user / SEED)
    known = Credentials(nkey_seed_file=seed, tls_ca_file=str(ca or tls_of(folder) / CA))
    return {"credentials": known, "inbox_prefix": inbox_of(user)}


async def test_a_real_server_accepts_every_user_with_what_the_job_made(
    cluster: Cluster, tmp_path: Path
) -> None:
    done = await cluster.run()
    assert done.exit_code == 0, done.output
    assert "keys created" in done.stdout
    contents = await cluster.contents()
    assert contents.keys() == {SECRET, PUBLIC, *map(secret_of, USERS)}
    mounted(tmp_path, contents)
    with running([on_loopback(SINGLE.read_text(), tmp_path / "store")], tmp_path) as ((url, _),):
        for user in USERS:
            with patience():
                async with connect(url, user, **as_user(tmp_path, user)) as connection:
                    assert connection.connected
        stranger = as_user(tmp_path, "watcher")
        await cluster.delete("configmaps", PUBLIC)
        for user in USERS:
            await cluster.delete("secrets", secret_of(user))
        assert (await cluster.run()).exit_code == 0
        mounted(tmp_path, await cluster.contents())
        with patience(), pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
            async with connect(url, "x", **stranger):
                pass


async def test_nothing_that_exists_is_changed(cluster: Cluster) -> None:
    await cluster.run()
    made = await cluster.contents()
    again = await cluster.run()
    assert "exists already and was not changed" in again.stdout
    assert "have keys already; none was changed" in again.stdout
    assert await cluster.contents() == made
    await cluster.delete("secrets", secret_of("admin"))  # its seed is kept elsewhere
    await cluster.run()
    del made[secret_of("admin")]
    assert await cluster.contents() == made


async def test_a_lost_key_is_replaced(cluster: Cluster) -> None:
    """Otherwise the pods that mount it would wait for ever."""
    await cluster.run()
    made = await cluster.contents()
    await cluster.delete("secrets", secret_of("filter"))
    done = await cluster.run()
    assert "NATS users filter; if NATS runs already, restart it" in done.stdout
    found = await cluster.contents()
    assert {name for name in made if found[name] != made[name]} == {PUBLIC, secret_of("filter")}
    public = public_keys(found[PUBLIC][PUBLIC_KEYS.name])
    assert public["filter"] == Key.of(found[secret_of("filter")][SEED]).public


async def test_an_interrupted_run_is_completed(cluster: Cluster) -> None:
    await cluster.run()
    made = await cluster.contents()
    await cluster.delete("configmaps", PUBLIC)
    await cluster.delete("secrets", secret_of("reader"))
    await cluster.run()
    completed = await cluster.contents()
    assert {name for name in made if completed[name] != made[name]} == {PUBLIC, secret_of("reader")}
    lines = made[PUBLIC][PUBLIC_KEYS.name].splitlines()
    now = completed[PUBLIC][PUBLIC_KEYS.name].splitlines()
    assert [line.split(":")[0] for line in set(lines) ^ set(now)] == ["ALLOT_READER_NKEY"] * 2


async def test_a_user_of_a_newer_release_gets_a_key(cluster: Cluster) -> None:
    await cluster.run()
    made = await cluster.contents()
    text = made[PUBLIC][PUBLIC_KEYS.name]
    older = "".join(line for line in text.splitlines(True) if "INSPECTOR" not in line)
    await cluster.delete("configmaps", PUBLIC)
    await cluster.delete("secrets", secret_of("inspector"))
    await cluster.put("configmaps", PUBLIC, {"data": {PUBLIC_KEYS.name: older}})
    done = await cluster.run()
    assert f"keys created in {NAMESPACE} for the NATS users inspector;" in done.stdout
    found = await cluster.contents()
    assert {name for name in made if found[name] != made[name]} == {PUBLIC, secret_of("inspector")}
    assert set(older.splitlines()) < set(found[PUBLIC][PUBLIC_KEYS.name].splitlines())


@pytest.mark.parametrize(
    ("left_out", "made"),
    [("--no-certificate", {PUBLIC, *map(secret_of, USERS)}), ("--no-keys", {SECRET})],
)
async def test_a_part_can_be_left_to_others(
    cluster: Cluster, left_out: str, made: set[str]
) -> None:
    assert (await cluster.run(left_out)).exit_code == 0
    assert (await cluster.contents()).keys() == made


async def test_what_cannot_be_made_is_named(cluster: Cluster) -> None:
    nowhere = await cluster.run(namespace="nowhere")
    assert nowhere.exit_code == 2
    assert f"secret nowhere/{SECRET} cannot be created" in nowhere.stderr
    seed = base64.b64encode(b"typed by hand").decode()
    await cluster.put("secrets", secret_of("watcher"), {"data": {SEED: seed}})
    unreadable = await cluster.run()
    assert unreadable.exit_code == 2
    assert f"secret {NAMESPACE}/{secret_of('watcher')}: not the seed of a NATS" in unreadable.stderr


async def test_a_certificate_of_a_new_ca_comes_without_a_pause(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In three steps, after each of which servers and services restart one after the other. Whoever
    comes to a server meanwhile, with the files of before or of now, is accepted.
    """
    await cluster.run()
    mounted(tmp_path, await cluster.contents())
    servers = ThreeServers(tmp_path)
    try:
        servers.start_with(cluster_texts(tmp_path))
        urls = servers.url.split(",")
        async with connect(urls, "maker", **as_user(tmp_path, "watcher")) as maker:
            await JetStreamLog.open(maker, replicas=3, allow_unsynced=True)
        authorities = []
        for said in ("1 of 3", "2 of 3", "3 of 3"):
            now = tls_of(tmp_path) / CA
            authorities.append(now.read_text())
            before = tmp_path / f"before-{len(authorities)}.crt"
            before.write_text(authorities[-1])
            done = await cluster.run("--replace-certificate")
            assert said in done.output, done.output
            mounted(tmp_path, await cluster.contents())
            for number in (2, 1, 0):
                await anyio.to_thread.run_sync(servers.restart, number)
                for ca in (before, now):
                    for url in urls:
                        async with connect(url, "x", **as_user(tmp_path, "watcher", ca)) as one:
                            log = await JetStreamLog.open(one, makes=False, allow_unsynced=True)
                            fact = f"{said}/{number}/{ca.name}/{url}"
                            landed = await log.append(FACT, b"1", msg_id=fact)
                            assert isinstance(landed, Landed)
        contents = await cluster.contents()
        assert contents[SECRET].keys() == {CA, CERTIFICATE, KEY}
        assert contents[SECRET][CA] != authorities[0]
        first = as_user(tmp_path, "watcher", tmp_path / "before-1.crt")
        with patience(), pytest.raises(NatsUnavailable, match="certificate"):
            async with connect(urls, "x", **first):
                pass
    finally:
        servers.stop()
