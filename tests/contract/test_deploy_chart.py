"""The Helm chart against the kustomizations, whose manifests it reads: the same objects.

Without helm (`make helm` builds it) these tests are skipped.
"""

import contextlib
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.contract.manifests import HELM, ROOT, Object, needs_helm, needs_kubectl, rendered
from tests.contract.nats_shipped import SINGLE, admit, credentials_of, on_loopback, running
from tests.waiting import PATIENCE_S, patience

from allotment.adapters.log.certificates import CA
from allotment.adapters.log.connection import connect
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_users import READER, SEED, inbox_of
from allotment_cli.main import main

CHART = ROOT / "deploy/chart"
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())
NAMESPACE = "allotment-system"
OWN_LABELS = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of")
"""Kustomize and Helm each give these to what they make."""
THREE: Object = {"replicas": 2, "nats": {"servers": 3}}
VARIANTS: dict[str, tuple[str, list[str], Object]] = {
    "base": ("base", [], {}),
    "default": ("overlays/default", [], THREE),
    "alongside-volcano": ("overlays/alongside-volcano", [], {**THREE, "alongsideVolcano": True}),
    "recorder": ("overlays/recorder", [], {"recorder": True}),
    "archive-s3": (
        "base",
        ["archive-s3"],
        {
            "archive": {
                "url": "s3://backups/allotment",
                "secret": "allotment-archive",
                "readerSecret": "allotment-archive-reader",
            }
        },
    ),
    "cert-manager": ("base", ["cert-manager"], {"nats": {"certificate": "cert-manager"}}),
    "inspector-service": ("base", ["inspector-service"], {"inspector": {"service": True}}),
    "monitoring": (
        "overlays/default",
        ["monitoring"],
        {**THREE, "monitoring": dict.fromkeys(("podMonitor", "rules", "dashboard"), True)},
    ),
    "node-locks": ("base", ["node-locks"], {"nodeLocks": True}),
    "one-process": ("base", ["one-process"], {"oneProcess": True}),
    "one-process with locks": (
        "base",
        ["node-locks", "one-process"],
        {"nodeLocks": True, "oneProcess": True},
    ),
    "traces": ("base", ["traces"], {"traces": "http://otel-collector.observability:4318"}),
}
SAMPLES: dict[str, tuple[Any, str]] = {
    "image.repository": ("registry.example.com/allotment", "Deployment/* Job/* Pod/*"),
    "image.tag": ("0.1.0-2", "Deployment/* Job/* Pod/*"),
    "image.digest": (f"sha256:{'0' * 64}", "Deployment/* Job/* Pod/*"),
    "image.pullPolicy": ("Always", "Deployment/* Job/* Pod/*"),
    "image.pullSecrets": (["registry"], "Deployment/* Job/* Pod/* StatefulSet/allotment-nats"),
    "schedulerNames": (
        ["allotment", "other"],
        "Deployment/allotment-watcher Deployment/allotment-controller"
        " ValidatingAdmissionPolicy/allotment-assignments",
    ),
    "alongsideVolcano": (True, "Deployment/allotment-watcher"),
    "recorder": (
        True,
        "Deployment/* ServiceAccount/* Role/* RoleBinding/* ClusterRole/* ClusterRoleBinding/*"
        " ValidatingAdmissionPolicy/* ValidatingAdmissionPolicyBinding/* Pod/*"
        " PersistentVolumeClaim/*",
    ),
    "oneProcess": (
        True,
        "Deployment/* ServiceAccount/allotment-scheduler RoleBinding/* ClusterRoleBinding/*",
    ),
    "replicas": (3, "Deployment/* PodDisruptionBudget/*"),
    "policy": ('actions: "allocate"\ntiers: []\n', "ConfigMap/allotment-policy"),
    "policyConfigMap": (
        "elsewhere/policy",
        "Deployment/allotment-watcher ClusterRole/allotment-watcher",
    ),
    "configMaps": (["geometries"], "ClusterRole/allotment-watcher"),
    "settings.watcher": ({"ALLOT_GROUP_PODS": "false"}, "Deployment/allotment-watcher"),
    "settings.filter": ({"ALLOT_LOG_LEVEL": "debug"}, "Deployment/allotment-filter"),
    "settings.scorer": ({"ALLOT_LOG_LEVEL": "debug"}, "Deployment/allotment-scorer"),
    "settings.binder": ({"ALLOT_LOG_LEVEL": "debug"}, "Deployment/allotment-binder"),
    "settings.controller": ({"ALLOT_LOG_LEVEL": "debug"}, "Deployment/allotment-controller"),
    "settings.archiver": (
        {"ALLOT_KEEP_LIVE_DAYS": "30"},
        "Deployment/allotment-archiver",
    ),
    "settings.inspector": ({"ALLOT_LOG_LEVEL": "debug"}, "Deployment/allotment-inspector"),
    "nats.servers": (
        3,
        "ConfigMap/allotment-nats ConfigMap/allotment-settings NetworkPolicy/allotment-nats"
        " PodDisruptionBudget/allotment-nats Service/allotment-nats StatefulSet/allotment-nats",
    ),
    "nats.logSavedFrom": (1, ""),
    "nats.image": ("registry.example.com/nats:2.15-alpine", "StatefulSet/allotment-nats"),
    "nats.storage.sizeGiB": (
        100,
        "ConfigMap/allotment-nats Deployment/allotment-watcher StatefulSet/allotment-nats",
    ),
    "nats.storage.className": ("fast", "StatefulSet/allotment-nats"),
    "nats.resources": ({"limits": {"memory": "4Gi"}}, "StatefulSet/allotment-nats"),
    "nats.goMemLimit": ("3GiB", "StatefulSet/allotment-nats"),
    "nats.keys": ("existing", "Job/allotment-nats-setup"),
    "nats.certificate": ("existing", "Job/allotment-nats-setup"),
    "archive.url": (
        "s3://backups/allotment",
        "Deployment/allotment-archiver Deployment/allotment-inspector"
        " NetworkPolicy/allotment-archive"
        " PersistentVolumeClaim/allotment-archive",
    ),
    "archive.storage.sizeGiB": (100, "PersistentVolumeClaim/allotment-archive"),
    "archive.storage.className": ("slow", "PersistentVolumeClaim/allotment-archive"),
    "annotationPolicy.enabled": (
        False,
        "ValidatingAdmissionPolicy/allotment-assignments"
        " ValidatingAdmissionPolicyBinding/allotment-assignments",
    ),
    "annotationPolicy.writers": (
        [{"namespace": "gpu-operator", "serviceAccount": "plugin"}],
        "ClusterRoleBinding/allotment-assignment-writers",
    ),
    "annotationPolicy.resources": (
        ["example.com/gpu"],
        "ValidatingAdmissionPolicy/allotment-assignments",
    ),
    "annotationPolicy.schedulers": (["own"], "ValidatingAdmissionPolicy/allotment-assignments"),
    "nodeLocks": (True, "ClusterRole/allotment-node-locks ClusterRoleBinding/allotment-node-locks"),
    "mindcluster": (
        True,
        "Role/allotment-watcher-mindcluster RoleBinding/allotment-watcher-mindcluster",
    ),
    "inspector.service": (
        True,
        " ".join(
            f"{kind}/allotment-inspector" for kind in ("Deployment", "NetworkPolicy", "Service")
        ),
    ),
    "monitoring.podMonitor": (True, "PodMonitor/allotment"),
    "monitoring.rules": (True, "PrometheusRule/allotment"),
    "monitoring.dashboard": (True, "ConfigMap/allotment-dashboard"),
    "traces": (
        "https://otel.example.com",
        "Deployment/allotment-inspector NetworkPolicy/allotment-traces",
    ),
    "resources": ({"limits": {"memory": "2Gi"}}, "Deployment/* Pod/*"),
    **{
        f"resourcesOf.{service}": ({"limits": {"memory": "3Gi"}}, f"Deployment/allotment-{service}")
        for service in (
            "watcher",
            "filter",
            "scorer",
            "binder",
            "controller",
            "archiver",
            "inspector",
        )
    },
    "nodeSelector": ({"pool": "system"}, "Deployment/* Job/* Pod/* StatefulSet/allotment-nats"),
    "tolerations": (
        [{"key": "dedicated", "operator": "Exists"}],
        "Deployment/* Job/* Pod/* StatefulSet/allotment-nats",
    ),
    "priorityClassName": (
        "system-cluster-critical",
        "Deployment/* Job/* Pod/* StatefulSet/allotment-nats",
    ),
}
"""A value that is not the default, and the objects that it changes."""
WITH_OTHERS: dict[str, tuple[Object, Object]] = {
    "settings.scheduler": (
        {"oneProcess": True},
        {"oneProcess": True, "settings": {"scheduler": {"ALLOT_LOG_LEVEL": "debug"}}},
    ),
    "resourcesOf.scheduler": (
        {"oneProcess": True},
        {"oneProcess": True, "resourcesOf": {"scheduler": {"limits": {"memory": "3Gi"}}}},
    ),
    "archive.secret": (
        {"archive": {"url": "s3://backups/allotment"}},
        {"archive": {"url": "s3://backups/allotment", "secret": "allotment-archive"}},
    ),
    "archive.readerSecret": (
        {"archive": {"url": "s3://backups/allotment"}},
        {"archive": {"url": "s3://backups/allotment", "readerSecret": "allotment-archive-reader"}},
    ),
    "nats.url": (
        {"nats": {"certificate": "existing"}},
        {"nats": {"certificate": "existing", "url": "tls://nats-0:4222,tls://nats-1:4333"}},
    ),
    "inspector.names": (
        {"inspector": {"service": True}},
        {"inspector": {"service": True, "names": ["gpus.example.com"]}},
    ),
    "inspector.ingress": (
        {"inspector": {"service": True}},
        {
            "inspector": {
                "service": True,
                "ingress": {
                    "enabled": True,
                    "className": "nginx",
                    "host": "gpus.example.com",
                    "tlsSecret": "gpus-tls",
                    "annotations": {"nginx.ingress.kubernetes.io/auth-url": "https://sso/auth"},
                },
            }
        },
    ),
    "monitoring.runbookUrl": (
        {"monitoring": {"rules": True}},
        {"monitoring": {"rules": True, "runbookUrl": "https://wiki/runbook"}},
    ),
}
"""Values that need others: those, and all together."""

pytestmark = [needs_helm, needs_kubectl]


def helm(*words: str | Path, given: Object | None = None) -> subprocess.CompletedProcess[str]:
    values = ["--values", "-"] if given is not None else []
    return subprocess.run(
        [str(HELM), *words, *values],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@cache
def _template(values: str, namespace: str, chart: Path) -> str:
    words = ("template", "allotment", chart, "--namespace", namespace, "--include-crds")
    done = helm(*words, given=json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def template(values: Object, namespace: str = NAMESPACE, chart: Path = CHART) -> list[Object]:
    """The objects that the chart installs, hooks included."""
    text = _template(json.dumps(values, sort_keys=True), namespace, chart)
    return [found for found in yaml.safe_load_all(text) if found]


Key = tuple[str, str]


def by_name(objects: list[Object]) -> dict[Key, Object]:
    named = {(each["kind"], each["metadata"]["name"]): each for each in map(plain, objects)}
    if not any(kind == "Role" and name.endswith("mindcluster") for kind, name in named):
        assert len(named) == len(objects)
    return named


def plain(found: Object) -> Object:
    """An object without what has to differ: names of generated ConfigMaps, and marks of Helm's."""
    text = re.sub(r'"(allotment-(?:settings|nats))-[a-z0-9]{10}"', r'"\1"', json.dumps(found))
    made: Object = json.loads(text)
    metadata = made["metadata"]
    for label in OWN_LABELS:
        metadata.get("labels", {}).pop(label, None)
    metadata["annotations"] = {
        name: value
        for name, value in metadata.get("annotations", {}).items()
        if not name.startswith("helm.sh/")
    }
    for key in ("labels", "annotations"):
        if not metadata.get(key):
            metadata.pop(key, None)
    if made["kind"].startswith("ValidatingAdmission"):
        metadata.pop("namespace", None)  # which kustomize gives them, and the API server ignores
    if made["kind"] in ("Deployment", "StatefulSet"):
        annotations = made["spec"]["template"]["metadata"].pop("annotations", {})
        assert annotations.keys() <= {"checksum/config"}
    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_installs_what_kustomize_does(variant: str, tmp_path: Path) -> None:
    """But for the namespace, which helm creates, and the Pod of `helm test`."""
    base, components, values = VARIANTS[variant]
    up = os.path.relpath(ROOT / "deploy", tmp_path.resolve())
    parts = {
        "resources": [f"{up}/{base}"],
        "components": [f"{up}/components/{component}" for component in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    wanted = by_name(list(rendered(str(tmp_path))))
    found = by_name(template(values))
    only_here = set() if variant == "recorder" else {("Pod", "allotment-test")}
    if variant in (
        "alongside-volcano",
        "recorder",
    ):  # Helm leaves existing definitions
        only_here |= {key for key in found if key[0] == "CustomResourceDefinition"}
    assert found.keys() - wanted.keys() == only_here
    assert wanted.keys() - found.keys() == {("Namespace", NAMESPACE)}
    for key in found.keys() & wanted.keys():
        assert found[key] == wanted[key], key


def test_every_component_has_a_value() -> None:
    components = {path.name for path in (ROOT / "deploy/components").iterdir()}
    assert components == {name for _, names, _ in VARIANTS.values() for name in names}


def leaves(schema: Object, path: str = "") -> Iterator[str]:
    """The values that a person can set, as `a.b.c`."""
    for name, part in schema["properties"].items():
        if name != "global":
            here = f"{path}.{name}" if path else name
            yield from leaves(part, here) if "properties" in part else [here]


def nested(path: str, value: Any) -> Object:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def test_every_value_is_tried_below() -> None:
    tried = SAMPLES.keys() | WITH_OTHERS.keys()
    assert {each for each in leaves(SCHEMA) if not each.startswith("inspector.ingress.")} == (
        tried - {"inspector.ingress"}
    )


def changed(before: Object, after: Object) -> set[Key]:
    """The objects that differ, checked against the schema of their kind."""
    old, new = by_name(template(before)), by_name(template(after))
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    for kind, name in differing & new.keys():
        if kind not in ("PodMonitor", "PrometheusRule"):
            kubernetes_validate.validate(new[kind, name], "1.37", strict=True)
    return differing


@pytest.mark.parametrize("path", SAMPLES)
def test_a_value_changes_its_objects(path: str) -> None:
    value, wanted = SAMPLES[path]
    found = changed({}, nested(path, value))
    exact = {tuple(each.split("/")) for each in wanted.split() if not each.endswith("*")}
    kinds = {each.removesuffix("/*") for each in wanted.split() if each.endswith("*")}
    assert {key for key in found if key[0] not in kinds} == exact
    assert {kind for kind, _ in found} >= kinds


@pytest.mark.parametrize("path", WITH_OTHERS)
def test_a_value_that_needs_others_changes_its_objects(path: str) -> None:
    assert changed(*WITH_OTHERS[path])


def runs(found: Object) -> bool:
    return found["kind"] in ("Pod", "Deployment", "StatefulSet", "Job")


def one(values: Object, kind: str, name: str) -> Object:
    return by_name(template(values))[kind, name]


def environment(values: Object, service: str) -> dict[str, str]:
    (container,) = one(values, "Deployment", f"allotment-{service}")["spec"]["template"]["spec"][
        "containers"
    ]
    own = {each["name"]: each.get("value", "") for each in container["env"]}
    return {**one(values, "ConfigMap", "allotment-settings")["data"], **own}


def test_one_process_has_standbys_and_a_disruption_budget_of_its_own() -> None:
    found = by_name(template({**THREE, "oneProcess": True}))
    names = {name for kind, name in found if kind == "Deployment"}
    assert names == {
        "allotment-scheduler",
        "allotment-controller",
        "allotment-archiver",
        "allotment-inspector",
    }
    budgets = {name for kind, name in found if kind == "PodDisruptionBudget"}
    assert budgets == {"allotment-nats", "allotment-scheduler", "allotment-controller"}
    rights = template({"oneProcess": True, "nodeLocks": True, "mindcluster": True})
    accounts = {
        subject["name"]
        for each in rights
        if each["metadata"]["name"] in ("allotment-node-locks", "allotment-watcher-mindcluster")
        for subject in each.get("subjects", ())
    }
    assert accounts == {"allotment-scheduler"}
    spec = found["Deployment", "allotment-scheduler"]["spec"]
    assert spec["replicas"] == 2
    assert environment({**THREE, "oneProcess": True}, "scheduler")["ALLOT_LOG_MIB_MAX"] == "8192"


def test_with_an_existing_nats_there_is_no_server() -> None:
    url = "tls://nats-0.example.com:4222,tls://nats-1.example.com:4333"
    values = {"nats": {"url": url, "certificate": "existing", "servers": 3}}
    found = by_name(template(values))
    assert ("NetworkPolicy", "allotment-services") in found
    named = {key for key in found if key[1].startswith("allotment-nats")}
    assert {name for _, name in named} == {"allotment-nats-setup"}
    (container,) = found["Job", "allotment-nats-setup"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--no-certificate"
    told = found["ConfigMap", "allotment-settings"]["data"]
    assert told["ALLOT_NATS_URL"] == url
    assert told["ALLOT_LOG_REPLICAS"] == "3"
    egress = found["NetworkPolicy", "allotment-services"]["spec"]["egress"]
    assert egress[0] == {"ports": [{"port": port, "protocol": "TCP"} for port in (4222, 4333)]}


def test_pods_restart_when_their_configuration_changes() -> None:
    """Except for the policy, which the watcher reads again by itself."""

    def sums(values: Object) -> dict[str, str]:
        return {
            found["metadata"]["name"]: found["spec"]["template"]["metadata"]["annotations"][
                "checksum/config"
            ]
            for found in template(values)
            if found["kind"] in ("Deployment", "StatefulSet")
        }

    assert sums({"policy": "tiers: []"}) == sums({})
    three, one_server = sums({"nats": {"servers": 3}}), sums({})
    assert [name for name in one_server if three[name] == one_server[name]] == []
    larger = sums({"nats": {"storage": {"sizeGiB": 20}}})
    assert [name for name in larger if larger[name] != one_server[name]] == ["allotment-nats"]


def test_uninstalling_keeps_the_archive() -> None:
    """Helm deletes what is part of a release, except for hooks, definitions and such objects."""
    (claim,) = [each for each in template({}) if each["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_every_volume_that_a_pod_mounts_is_installed() -> None:
    """Else the pod stays Pending, and `helm test` fails where the archive is a bucket."""
    for values in ({}, {"archive": {"url": "s3://backups/allotment"}}, {"recorder": True}):
        found = by_name(template(values))
        pods = [each["spec"].get("template", each)["spec"] for each in found.values() if runs(each)]
        claims = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in pods
            for volume in pod.get("volumes", ())
            if "persistentVolumeClaim" in volume
        }
        assert claims == {name for kind, name in found if kind == "PersistentVolumeClaim"}


def test_of_a_recorder_no_service_is_missed_that_it_does_not_run() -> None:
    values = {"recorder": True, "monitoring": {"rules": True}}
    (group,) = one(values, "PrometheusRule", "allotment")["spec"]["groups"]
    (rule,) = (each for each in group["rules"] if each["alert"] == "AllotmentServiceMissing")
    assert re.findall(r"allotment-(\w+)", rule["expr"]) == ["watcher"]


def test_the_log_has_room_on_its_volume() -> None:
    values = {"nats": {"storage": {"sizeGiB": 25}}}
    (claim,) = one(values, "StatefulSet", "allotment-nats")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "25Gi"
    conf = one(values, "ConfigMap", "allotment-nats")["data"]["nats.conf"]
    assert re.findall(r"max_file_store: (\w+)", conf) == ["22GB"]
    assert environment(values, "watcher")["ALLOT_LOG_MIB_MAX"] == str(25 * 1024 * 8 // 10)


def test_the_annotation_policy_knows_more_resources_and_schedulers() -> None:
    values = {
        "schedulerNames": ["allotment", "volcano", "ours"],
        "annotationPolicy": {"resources": ["example.com/gpu"], "schedulers": ["theirs"]},
    }
    policy = one(values, "ValidatingAdmissionPolicy", "allotment-assignments")
    expressions = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert expressions["shares"].endswith("'huawei.com/npu-core', 'example.com/gpu']")
    assert "'volcano', 'hami-scheduler', 'ours', 'theirs'])" in expressions["passesSchedulers"]


def test_a_release_is_of_its_namespace() -> None:
    everything = {
        "mindcluster": True,
        "nodeLocks": True,
        "inspector": {"service": True},
        "monitoring": dict.fromkeys(("podMonitor", "rules"), True),
        "traces": "http://collector:4318",
        "nats": {"certificate": "cert-manager"},
    }
    assert NAMESPACE not in yaml.safe_dump_all(template(everything, "gpus"))
    for found in template(everything, "gpus"):
        namespace = found["metadata"].get("namespace")
        in_cluster = found["kind"].startswith(("Cluster", "Validating", "CustomResource"))
        assert namespace in ((None,) if in_cluster else ("gpus", "mindx-dl", "kube-system"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replcas": 2}, "at '': additional properties 'replcas' not allowed"),
        ({"nats": {"server": 3}}, "at '/nats': additional properties 'server' not allowed"),
        ({"replicas": "2"}, "at '/replicas': got string, want integer"),
        ({"nats": {"servers": 2}}, "at '/nats/servers': value must be one of 1, 3"),
        ({"schedulerNames": "allotment"}, "at '/schedulerNames': got string, want array"),
        ({"settings": {"watcher": {"ALLOT_X": 1}}}, "got number, want string"),
        (
            {"nats": {"url": "nats://plain:4222"}},
            "at '/nats/url': 'nats://plain:4222' does not match",
        ),
        ({"nats": {"url": "tls://nats:4222"}}, "nats.url needs nats.certificate: existing"),
        ({"inspector": {"ingress": {"enabled": True}}}, "needs inspector.service: true"),
        ({"recorder": True, "oneProcess": True}, "recorder runs no scheduler"),
    ],
)
def test_wrong_values_are_refused_with_their_place(values: Object, said: str) -> None:
    done = helm("template", "allotment", CHART, given=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_chart_has_no_complaint_of_lint() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_has_the_linked_files(tmp_path: Path) -> None:
    """And every definition as it is: there is no second copy."""
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    package = tmp_path / f"allotment-{version}.tgz"
    assert template(THREE, chart=package) == template(THREE)
    definitions = helm("show", "crds", package).stdout
    for path in (ROOT / "deploy/base/crds").iterdir():
        assert path.read_text().strip() in definitions


def test_every_value_has_a_default_and_a_comment() -> None:
    def names(values: Mapping[str, Any], path: str = "") -> set[str]:
        known = set(leaves(SCHEMA))
        found = set()
        for name, value in values.items():
            here = f"{path}.{name}" if path else name
            is_leaf = here in known or not isinstance(value, dict)
            found |= {here} if is_leaf else names(value, here)
        return found

    optional = {each for each in leaves(SCHEMA) if each.startswith(("settings.", "resourcesOf."))}
    assert names(VALUES) - {"settings", "resourcesOf"} == set(leaves(SCHEMA)) - optional
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"^[a-zA-Z]", line) and not line.endswith(":"):
            above = next(
                each for each in reversed(lines[:number]) if not re.match(r"[a-zA-Z]", each)
            )
            assert above.startswith("#"), line


@pytest.mark.anyio
async def test_helm_test_passes_when_every_service_is_active(tmp_path: Path) -> None:
    """The command of its Pod, with the Pod's variables, against a real server."""
    (container,) = one({}, "Pod", "allotment-test")["spec"]["containers"]
    module, *words = container["args"]
    assert module == "allotment_cli.main"
    variables = dict(one({}, "ConfigMap", "allotment-settings")["data"])
    assert {variables["ALLOT_NATS_NKEY"], variables["ALLOT_NATS_CA"]} == {
        f"{mount['mountPath']}/{name}"
        for mount in container["volumeMounts"]
        for name in {"nats-key": [SEED], "nats-ca": [CA]}.get(mount["name"], [])
    }
    admit(tmp_path)
    known = credentials_of(tmp_path, READER)
    variables["ALLOT_NATS_NKEY"] = str(known.nkey_seed_file)
    variables["ALLOT_NATS_CA"] = str(known.tls_ca_file)
    async with contextlib.AsyncExitStack() as stack:
        text = on_loopback(SINGLE.read_text(), tmp_path / "store")
        ((url, _),) = stack.enter_context(running([text], tmp_path))
        runner = CliRunner(env={**variables, "ALLOT_NATS_URL": url})

        async def run() -> Result:
            return await anyio.to_thread.run_sync(lambda: runner.invoke(main, words))

        # Not the controller, which does nothing beside Volcano's.
        for service in ("watcher", "filter", "scorer", "binder", "archiver"):
            connection = await stack.enter_async_context(
                connect(
                    url,
                    service,
                    credentials=credentials_of(tmp_path, service),
                    inbox_prefix=inbox_of(service),
                )
            )
            if service == "watcher":
                await JetStreamLog.open(connection, allow_unsynced=True)
            done = await run()
            assert done.exit_code == 1, done.output
            assert "no replica is active" in done.stdout
            held = Lease(connection, name=service, holder="pod-0")
            with patience():
                await (await stack.enter_async_context(held)).acquired()
        done = await run()
        assert done.exit_code == 0, done.output
        assert "archiver" in done.stdout
