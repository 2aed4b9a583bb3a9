"""The kustomize base and its overlay, rendered, against the API's schema and against the code.

A manifest that names a module, a setting or a port that does not exist is found on somebody's
cluster otherwise.
"""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from tests.contract.manifests import (
    KUSTOMIZATIONS,
    SETTINGS,
    Object,
    load_settings,
    needs_kubectl,
    of_kind,
    rendered,
    services,
)

from allotment.adapters.log.certificates import CA, CERTIFICATE, KEY
from allotment.adapters.log.nats_users import (
    ADMIN,
    READER,
    SCHEDULER,
    SEED,
    USERS,
    secret_of,
    seed_file,
    write_keys,
)
from allotment.adapters.service.http import Readiness, serve_http
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.config import known
from allotment.core.config.policy import parse
from allotment_cli.setup.nats_setup import SECRET
from allotment_cli.setup.nats_users import PUBLIC, nats_users
from allotment_inspector.settings import InspectorSettings
from allotment_watcher.settings import WatcherSettings

SCHEMAS = ("1.32", "1.37")
ROOT = Path(__file__).parents[2]

both = pytest.mark.parametrize("where", KUSTOMIZATIONS)
pytestmark = needs_kubectl


def named(where: str, kind: str, name: str) -> Object:
    (found,) = (found for found in of_kind(where, kind) if found["metadata"]["name"] == name)
    return found


def environment(where: str, container: Object) -> dict[str, str]:
    """The variables that a container is started with."""
    told: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        told |= named(where, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container.get("env", ()):
        if "valueFrom" in variable:
            field = variable["valueFrom"]["fieldRef"]["fieldPath"]
            value = {"metadata.namespace": "allotment-system"}[field]
        else:
            value = re.sub(r"\$\((\w+)\)", lambda match: told[match[1]], variable["value"])
        told[variable["name"]] = value
    return told


@both
@pytest.mark.parametrize("version", SCHEMAS)
def test_every_object_fits_the_schema(where: str, version: str) -> None:
    for found in rendered(where):
        kubernetes_validate.validate(found, version, strict=True)


@both
def test_the_services_are_there_and_can_be_started(where: str) -> None:
    assert services(where).keys() == SETTINGS.keys()
    for module, spec in services(where).items():
        assert importlib.util.find_spec(f"{module}.__main__")
        (container,) = spec["containers"]
        assert "command" not in container, "the image's entrypoint is python -m"
        assert container["args"] == [module]


@both
def test_every_setting_is_known_and_its_value_taken(where: str, tmp_path: Path) -> None:
    for module, spec in services(where).items():
        (container,) = spec["containers"]
        files: dict[str, Path] = {}
        for mount in container["volumeMounts"]:
            (volume,) = (v for v in spec["volumes"] if v["name"] == mount["name"])
            if volume["name"] == "nats-ca":
                assert [item["key"] for item in volume["secret"]["items"]] == [CA]
                files[f"{mount['mountPath']}/{CA}"] = tmp_path / CA
                (tmp_path / CA).touch()
            elif "secret" in volume:
                role = module.removeprefix("allotment_")
                assert volume["secret"]["secretName"] == secret_of(role), "a key of its own"
                files[f"{mount['mountPath']}/{SEED}"] = seed_file(tmp_path, role)
                write_keys(tmp_path)
            if "configMap" not in volume:
                continue
            content = named(where, "ConfigMap", volume["configMap"]["name"])["data"]
            for name, text in content.items():
                files[f"{mount['mountPath']}/{name}"] = tmp_path / name
                (tmp_path / name).write_text(text)
        settings = load_settings(module, environment(where, container), files)
        assert settings.nats_nkey is not None
        assert settings.nats_ca is not None
        assert {urlsplit(url).scheme for url in settings.nats_url.split(",")} == {"tls"}
        (port,) = container["ports"]
        assert port["containerPort"] == settings.http_port
        assert settings.http_host == "0.0.0.0"
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert str(settings.snapshot_dir) in mounted
        if isinstance(settings, WatcherSettings):
            assert settings.policy_file is not None
            parsed = parse(settings.policy_file.read_text(), "policy", settings.scheduler_names)
            assert parsed.warnings == ()


@both
def test_the_printed_keys_are_what_is_mounted(where: str) -> None:
    """Each Secret is mounted by one service; the servers read the public keys only."""
    done = CliRunner().invoke(nats_users, [])
    assert done.exit_code == 0, done.output
    printed = {found["metadata"]["name"]: found for found in yaml.safe_load_all(done.stdout)}
    assert printed.keys() == {PUBLIC, *map(secret_of, USERS)}
    for found in printed.values():
        kubernetes_validate.validate(found, SCHEMAS[-1], strict=True)
    server = named(where, "StatefulSet", "allotment-nats")["spec"]["template"]["spec"]
    (config,) = (volume for volume in server["volumes"] if volume["name"] == "config")
    sources = config["projected"]["sources"]
    assert PUBLIC in [source["configMap"]["name"] for source in sources if "configMap" in source]
    (tls,) = (source["secret"] for source in sources if "secret" in source)
    assert tls["name"] == SECRET
    assert {item["path"] for item in tls["items"]} == {f"tls/{n}" for n in (CA, CERTIFICATE, KEY)}
    mounted = [
        volume["secret"]["secretName"]
        for spec in (*services(where).values(), server)
        for volume in spec["volumes"]
        if "secret" in volume and volume["name"] != "nats-ca"
    ]
    assert sorted(mounted) == sorted(map(secret_of, set(USERS) - {READER, ADMIN, SCHEDULER}))
    assert len(
        {found["stringData"][SEED] for name, found in printed.items() if name != PUBLIC}
    ) == (len(USERS))


@both
def test_the_log_has_as_many_replicas_as_there_are_servers(where: str) -> None:
    servers = named(where, "StatefulSet", "allotment-nats")["spec"]["replicas"]
    for spec in services(where).values():
        told = environment(where, spec["containers"][0])
        assert int(told.get("ALLOT_LOG_REPLICAS", "1")) == servers


@pytest.mark.anyio
@both
async def test_probes_ask_what_the_services_answer(where: str) -> None:
    readiness = Readiness()
    readiness.set("all", True)
    async with (
        serve_http("127.0.0.1", 0, "test", readiness, ServiceMetrics("test", "")) as address,
        aiohttp.ClientSession() as session,
    ):
        for spec in services(where).values():
            (container,) = spec["containers"]
            (port,) = container["ports"]
            paths = {}
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container[kind]["httpGet"]
                assert probe["port"] == port["name"]
                paths[kind] = probe["path"]
                async with session.get(f"http://{address}{probe['path']}") as answer:
                    assert answer.status == 200
            assert paths["readinessProbe"] == "/readyz"
            assert paths["livenessProbe"] == "/healthz"


@both
def test_nothing_runs_with_more_rights_than_it_needs(where: str) -> None:
    (namespace,) = of_kind(where, "Namespace")
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "restricted"
    for found in of_kind(where, "Deployment", "StatefulSet", "Job"):
        spec = found["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


@both
def test_every_selector_finds_its_pods_and_every_port_its_name(where: str) -> None:
    pods = [found["spec"]["template"] for found in of_kind(where, "Deployment", "StatefulSet")]
    for found in of_kind(where, "Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
        selector = found["spec"]["selector"]
        if found["kind"] == "Service":
            selector = {"matchLabels": selector}
        chosen = select(pods, selector)
        assert len(chosen) == 1, found["metadata"]["name"]
        for port in found["spec"].get("ports", ()):
            assert port["targetPort"] in ports_of(chosen)
    for policy in of_kind(where, "NetworkPolicy"):
        chosen = select(pods, policy["spec"]["podSelector"])
        assert chosen, policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", ()):
            assert {port["port"] for port in rule["ports"]} <= ports_of(chosen)
            assert all(select(pods, peer["podSelector"]) for peer in rule.get("from", ()))
        for rule in policy["spec"].get("egress", ()):
            to = [pod for peer in rule.get("to", ()) for pod in select(pods, peer["podSelector"])]
            names = {port["port"] for port in rule["ports"] if isinstance(port["port"], str)}
            assert names <= ports_of(to)


def select(pods: list[Object], selector: Object) -> list[Object]:
    def fits(labels: Mapping[str, str]) -> bool:
        wanted = selector.get("matchLabels", {})
        return all(labels.get(name) == value for name, value in wanted.items()) and all(
            labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", ())
        )

    return [pod for pod in pods if fits(pod["metadata"]["labels"])]


def ports_of(pods: list[Object]) -> set[str]:
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    return {port["name"] for container in containers for port in container["ports"]}


KEPT = {"CustomResourceDefinition", "Namespace", "PersistentVolumeClaim"}
"""With the first go all Jobs, PodGroups and Queues, with the others the log and its archive."""


def test_uninstalling_deletes_all_but_the_definitions_and_the_log() -> None:
    def names(where: str) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in rendered(where)}

    installed = names("deploy/overlays/default")
    assert {kind for kind, _ in installed} >= KEPT
    assert names("deploy/overlays/uninstall") == {one for one in installed if one[0] not in KEPT}


def test_the_page_about_migration_names_what_the_configuration_reader_knows() -> None:
    page = (ROOT / "deploy" / "MIGRATION.md").read_text(encoding="utf-8")

    def row(start: str) -> set[str]:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {start} |"))
        return set(re.findall(r"`([\w-]+)`", line.split("|")[2]))

    assert row("actions") == {*known.ACTIONS, *known.ACTIONS_NOT_SUPPORTED}
    assert row("plugins") == known.PLUGINS.keys()
    assert row("plugins accepted but ignored") == {*known.PLUGINS_WITHOUT_EFFECT}


@both
def test_the_inspector_reads_the_archivers_volume_where_that_is(where: str) -> None:
    specs = [services(where)[f"allotment_{name}"] for name in ("archiver", "inspector")]
    claims, places = [], []
    for spec in specs:
        (volume,) = (v for v in spec["volumes"] if v["name"] == "archive")
        (mount,) = (m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "archive")
        claims.append(volume["persistentVolumeClaim"]["claimName"])
        places.append((mount["mountPath"], mount.get("readOnly", False)))
    assert claims[0] == claims[1]
    path = environment(where, specs[0]["containers"][0])["ALLOT_ARCHIVE"]
    assert places == [(path, False), (path, True)], "the log names the archiver's path"
    affinities = [spec["affinity"] for spec in specs]
    assert affinities[0] == affinities[1], "neither comes up where the other's volume is not"
    (term,) = affinities[0]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = term["labelSelector"]["matchLabels"].items()
    near = [
        found["metadata"]["name"]
        for found in of_kind(where, "Deployment")
        if wanted <= found["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert sorted(near) == ["allotment-archiver", "allotment-inspector"], "the first finds itself"


def test_the_inspector_gets_a_service_only_with_a_token(tmp_path: Path) -> None:
    """The base's pages listen on the pod's loopback; the component opens them, and closes them."""
    (container,) = services("deploy/base")["allotment_inspector"]["containers"]
    assert "ALLOT_PAGE_HOST" not in environment("deploy/base", container)
    component = ROOT / "deploy/components/inspector-service"
    (token,) = yaml.safe_load_all((component / "deployment.patch.yaml").read_text())
    (patched,) = token["spec"]["template"]["spec"]["containers"]
    told = {variable["name"]: variable["value"] for variable in patched["env"]}
    file = tmp_path / "token"
    file.write_text("x" * 48)
    settings = load_settings("allotment_inspector", told, {"/var/run/allotment-token/token": file})
    assert isinstance(settings, InspectorSettings)
    assert (settings.page_host, settings.page_token_file) == ("0.0.0.0", file)
    service, policy = yaml.safe_load_all((component / "service.yaml").read_text())
    (port,) = patched["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert service["spec"]["publishNotReadyAddresses"], "why it is not ready is on its pages"
    assert policy["spec"]["ingress"][0]["ports"][0]["port"] == port["name"]
    assert port["containerPort"] == int(environment("deploy/base", container)["ALLOT_PAGE_PORT"])
    assert "allotment-inspector.allotment-system.svc" in settings.page_names
