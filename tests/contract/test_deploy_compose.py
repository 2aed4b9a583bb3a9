"""compose.yaml against the code: modules, settings, ports, health checks, what listens where."""

import importlib.util
import json
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import anyio
import pytest
import yaml
from tests.contract.manifests import ROOT, SETTINGS, load_settings
from tests.waiting import PATIENCE_S, patience

from allotment.adapters.log.certificates import CA, CERTIFICATE, KEY
from allotment.adapters.log.nats_users import PUBLIC_KEYS, USERS, seed_file, write_keys
from allotment.adapters.service.http import Readiness, serve_http
from allotment.adapters.service.settings import KubeSettings
from allotment.adapters.telemetry.metrics import ServiceMetrics

Object = dict[str, Any]
COMPOSE: Object = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Object] = COMPOSE["services"]
KUBECONFIG: Object = yaml.safe_load((ROOT / "deploy/local/kubeconfig").read_text())
START_S = 20.0


FOREIGN = ("nats", "prometheus", "grafana", "jaeger")
"""Services that run somebody else's image."""
MONITORING = ROOT / "deploy/local/monitoring"


def ours() -> dict[str, Object]:
    """The services that run our image without a profile, by the module each runs."""
    return {
        service["command"][0]: service
        for service in SERVICES.values()
        if service["image"].startswith("allotment:") and "profiles" not in service
    }


def server(context: str) -> tuple[str | None, int | None]:
    """Host and port of the API server in a context of the kubeconfig."""
    (names,) = (c["context"] for c in KUBECONFIG["contexts"] if c["name"] == context)
    (cluster,) = (c["cluster"] for c in KUBECONFIG["clusters"] if c["name"] == names["cluster"])
    address = urlsplit(cluster["server"])
    return address.hostname, address.port


def test_no_key_that_an_older_compose_refuses() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is missing")
def test_docker_compose_takes_the_file() -> None:
    done = subprocess.run(
        ["docker-compose", "-f", ROOT / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"] == "20s"
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:"), "nothing may listen outside this machine"
    for mount in service.get("volumes", ()):
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (ROOT / source).is_file()
            assert rest.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_waited_for_says_that_it_is_healthy(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "test" in SERVICES[other]["healthcheck"]


def test_the_image_is_built_once_and_before_it_is_needed() -> None:
    """Several builds of one tag at a time get into each other's way."""
    builders = [name for name, service in SERVICES.items() if "build" in service]
    assert builders == ["cluster"]
    assert (ROOT / SERVICES["cluster"]["build"]["dockerfile"]).is_file()
    for service in ours().values():
        assert "build" in service or "cluster" in service["depends_on"]


def test_a_volume_with_keys_can_be_written_by_the_user_of_the_image() -> None:
    """Docker makes a volume root's own, unless it says otherwise."""
    for name, volume in COMPOSE["volumes"].items():
        if name.startswith("keys-"):
            assert volume["driver_opts"]["o"] == "uid=65532,gid=65532,mode=0755", name


def test_one_process_can_take_the_place_of_four_services() -> None:
    """It writes device records with the token that the binder has otherwise."""
    one = SERVICES["scheduler"]
    assert (one["profiles"], one["command"]) == (["one-process"], ["allotment_scheduler"])
    assert "keys-binder:/binder-keys:ro" in one["volumes"]
    (user,) = (user["user"] for user in KUBECONFIG["users"] if user["name"] == "scheduler")
    (binder,) = (user["user"] for user in KUBECONFIG["users"] if user["name"] == "binder")
    assert user["tokenFile"].replace("/binder-keys/", "/keys/") == binder["tokenFile"]
    assert server(one["environment"]["ALLOT_KUBE_CONTEXT"])[0] == "cluster"
    four = [SERVICES[name]["environment"] for name in ("watcher", "filter", "scorer", "binder")]
    theirs = {key for environment in four for key in environment}
    assert one["environment"].keys() == theirs


def test_all_services_are_there() -> None:
    assert ours().keys() == {*SETTINGS, "allotment_local.cluster"}


@pytest.mark.parametrize("module", SETTINGS)
def test_every_setting_is_known_and_its_value_taken(module: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec(f"{module}.__main__")
    service = ours()[module]
    assert service["command"] == [module]
    mounts = [mount.split(":") for mount in service.get("volumes", ())]
    files = {target: ROOT / source for source, target, *_ in mounts}
    files.pop("/var/lib/allotment/archive", None)  # a volume
    role = module.removeprefix("allotment_")
    assert files.pop("/keys") == ROOT / f"keys-{role}", "a key of its own"
    files["/keys/nats.nk"] = seed_file(tmp_path, role)
    files["/keys/ca.crt"] = seed_file(tmp_path, role).with_name(CA)
    write_keys(tmp_path)
    files["/keys/ca.crt"].touch()
    settings = load_settings(module, service["environment"], files)
    assert settings.nats_nkey == seed_file(tmp_path, role)
    nats = urlsplit(settings.nats_url)
    assert (nats.scheme, nats.hostname in SERVICES, nats.port) == ("tls", True, 4222)
    assert settings.nats_monitor_url is None, "NATS shows its monitoring pages to nobody"
    assert settings.http_host == "0.0.0.0"
    if isinstance(settings, KubeSettings):
        assert settings.kubeconfig == ROOT / "deploy/local/kubeconfig"
        host, port = server(settings.kube_context or "")
        assert host == "cluster"
        assert str(port) in SERVICES["cluster"]["command"]


def test_the_kubeconfig_shows_people_the_published_port() -> None:
    (published,) = SERVICES["cluster"]["ports"]
    host, port = server(KUBECONFIG["current-context"])
    assert published.startswith(f"{host}:{port}:")


@pytest.mark.anyio
@pytest.mark.parametrize("name", [name for name in SERVICES if name not in FOREIGN])
async def test_the_health_check_believes_readyz(name: str) -> None:
    service = SERVICES[name]
    how, python, flag, script = service["healthcheck"]["test"]
    assert (how, python, flag) == ("CMD", "python", "-c")
    port = service.get("environment", {}).get("ALLOT_HTTP_PORT") or service["command"][-1]
    assert script.count(port) == 1
    readiness = Readiness()
    metrics = ServiceMetrics("test", "")
    async with serve_http("127.0.0.1", 0, "test", readiness, metrics) as address:
        here = script.replace(port, address.rpartition(":")[2])
        for ready, status in ((False, 1), (True, 0)):
            readiness.set("all", ready)
            done = await anyio.run_process([sys.executable, "-c", here], check=False)
            assert done.returncode == status, done.stderr


@pytest.mark.anyio
async def test_the_cluster_takes_its_arguments(tmp_path: Path) -> None:
    """It must listen where other containers reach it; here on loopback and a free port."""
    command = list(SERVICES["cluster"]["command"])
    module, *flags = command
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    names = {"--host", "--names", "--port", "--nats-keys", "--nats-names", "--writer-token"}
    assert given.keys() == names
    hosts = {urlsplit(c["cluster"]["server"]).hostname for c in KUBECONFIG["clusters"]}
    assert hosts == {given["--names"], "127.0.0.1"}, "others get no answer"
    (binder,) = (user["user"] for user in KUBECONFIG["users"] if user["name"] == "binder")
    assert given["--writer-token"] == binder["tokenFile"].replace("/keys/", "/keys/binder/")
    mounts = [mount.split(":")[1] for mount in SERVICES["cluster"]["volumes"]]
    expected = {seed_file(Path(given["--nats-keys"]), user).parent for user in USERS}
    others = {Path("/keys/public"), Path("/keys/tls")}
    assert {Path(mount) for mount in mounts} - others == expected
    command = [sys.executable, "-m", module, "--host", "127.0.0.1", "--port", "0"]
    command += ["--nats-keys", str(tmp_path), "--nats-names", given["--nats-names"]]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None) as process:
        try:
            assert process.stdout is not None
            with patience():
                announced = await process.stdout.receive()
            assert (tmp_path / PUBLIC_KEYS).is_file()
            made = ssl.create_default_context(cafile=str(tmp_path / "tls" / CA))
            made.load_cert_chain(tmp_path / "tls" / CERTIFICATE, tmp_path / "tls" / KEY)
            authority = (tmp_path / "tls" / CA).read_bytes()
            for user in USERS:
                assert seed_file(tmp_path, user).with_name(CA).read_bytes() == authority
            assert not (tmp_path / "public" / KEY).exists()
            http = cast(str, json.loads(announced)["http"])
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{http}/readyz") as answer:
                    assert answer.status == 200
                async with session.get(f"http://{http}/api/v1/nodes") as answer:
                    assert (await answer.json())["items"]
        finally:
            process.terminate()
            with patience():
                assert await process.wait() == 0


def test_only_nats_sees_the_key_of_its_certificate() -> None:
    """And it has it under the names that its clients use."""
    mounts = {name: one.get("volumes", ()) for name, one in SERVICES.items()}
    (key,) = (mount for mount in mounts["nats"] if mount.startswith("keys-tls:"))
    assert key == "keys-tls:/etc/nats/tls:ro"
    sees = {name for name, found in mounts.items() if any("keys-tls" in one for one in found)}
    assert sees == {"nats", "cluster"}
    command = SERVICES["cluster"]["command"]
    names = command[command.index("--nats-names") + 1].split(",")
    assert urlsplit(COMPOSE["x-environment"]["ALLOT_NATS_URL"]).hostname in names
    assert {"localhost", "127.0.0.1"} <= set(names), "the published port"


def test_compose_and_kubernetes_run_the_same_nats() -> None:
    statefulset = yaml.safe_load((ROOT / "deploy/nats/statefulset.yaml").read_text())
    (container,) = statefulset["spec"]["template"]["spec"]["containers"]
    nats = SERVICES["nats"]
    assert nats["image"] == container["image"]
    assert nats["command"] == container["command"]
    assert nats["healthcheck"]["test"][1] == "wget", "all that the alpine image has"
    assert Path(nats["command"][-1]).name == "nats.conf"


def test_what_is_not_always_wanted_is_in_a_profile() -> None:
    profiles = {name: service.get("profiles") for name, service in SERVICES.items()}
    assert {name for name, found in profiles.items() if found == ["metrics"]} == {
        "prometheus",
        "grafana",
    }
    assert {name for name, found in profiles.items() if found == ["traces"]} == {
        "jaeger",
        "trace-exporter",
    }
    exporter, pages = SERVICES["trace-exporter"], ours()["allotment_inspector"]
    assert exporter["command"] == pages["command"]
    assert exporter["volumes"] == pages["volumes"][:1], "its key; it needs no archive"
    receiver = urlsplit(exporter["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"])
    assert (receiver.hostname in SERVICES, receiver.port) == (True, 4318)
    for name in FOREIGN:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.[\w.-]+", SERVICES[name]["image"]), "a release"


def mounted(service: str) -> dict[str, Path]:
    """The files of this repository that a service sees, by where it sees them."""
    mounts = (mount.split(":") for mount in SERVICES[service].get("volumes", ()))
    return {target: ROOT / source for source, target, *_ in mounts if source.startswith(".")}


def test_prometheus_scrapes_every_replica_and_has_the_rules() -> None:
    files = mounted("prometheus")
    (given,) = (w for w in SERVICES["prometheus"]["command"] if w.startswith("--config.file="))
    config: Object = yaml.safe_load(files[given.partition("=")[2]].read_text())
    assert all(files[path].is_file() for path in config["rule_files"])
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "allotment"
    assert "static_configs" not in job, "a name that several replicas have is one target there"
    (found,) = job["dns_sd_configs"]
    names = {name for name, one in SERVICES.items() if one.get("command", [""])[0] in SETTINGS}
    assert names > {module.removeprefix("allotment_") for module in SETTINGS}
    assert sorted(found["names"]) == sorted(names)
    port = COMPOSE["x-environment"]["ALLOT_HTTP_PORT"]
    assert (found["type"], str(found["port"])) == ("A", port)


def test_grafana_finds_prometheus_jaeger_and_the_dashboard() -> None:
    files = mounted("grafana")
    (home,) = (path for path in files if path.endswith(".json"))
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == home
    provided: Object = yaml.safe_load((MONITORING / "dashboards.yaml").read_text())
    (provider,) = provided["providers"]
    assert home.startswith(provider["options"]["path"] + "/")
    sources: Object = yaml.safe_load((MONITORING / "datasources.yaml").read_text())
    by_uid = {source["uid"]: source for source in sources["datasources"]}
    for source in by_uid.values():
        assert urlsplit(source["url"]).hostname in SERVICES
    (link,) = by_uid["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert (link["name"], link["datasourceUid"] in by_uid) == ("trace_id", True)
