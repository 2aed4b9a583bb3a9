"""Dashboard, alerts and runbook against the metrics that there are; Prometheus' own check of both.

A panel or an alert about a metric that does not exist says "all is well" for ever.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.contract.manifests import needs_kubectl, of_kind, services
from tests.documented_metrics import documented
from tests.documents import check_allot, commands
from tests.waiting import PATIENCE_S

from allotment.adapters.service.settings import KubeSettings
from allotment.core.reasons import REASONS, Cure

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "deploy/components/monitoring"
LOCAL = ROOT / "deploy/local/monitoring"
DASHBOARD: Object = json.loads((COMPONENT / "dashboard.json").read_text())
RULES: Object = yaml.safe_load((LOCAL / "rules.yaml").read_text())
ALERTS: list[Object] = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "deploy/RUNBOOK.md").read_text()
METRICS = documented()
FOREIGN = {
    "up": {"job"},
    "kubelet_volume_stats_available_bytes": {"persistentvolumeclaim"},
    "kubelet_volume_stats_capacity_bytes": {"persistentvolumeclaim"},
}
"""What Prometheus and the kubelet say themselves, with the labels that are asked for."""
OF_NO_NAMESPACE = {
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
NAME = re.compile(r"\b(?:allot|volcano|kubelet)_\w+|\bup\b")
SELECTOR = re.compile(r"\b((?:allot|volcano|kubelet)_\w+|up)\s*\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|group_right|group_left)\s*\(([^)]*)\)")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing (Debian's package prometheus)"
)


def panels() -> list[Object]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Every PromQL that is asked, by where it stands."""
    found = {rule["alert"]: rule["expr"] for rule in ALERTS}
    for panel in panels():
        for target in panel["targets"]:
            found[f"{panel['title']}/{target['refId']}"] = target["expr"]
    return found


def labels_of(metric: str) -> set[str] | None:
    """The labels of a metric, or of one of a histogram's; None if there is none of the name."""
    if metric in FOREIGN:
        return FOREIGN[metric]
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    row = METRICS.get(metric) or METRICS.get(base)
    if row is None or (base != metric and metric not in METRICS and row["kind"] != "histogram"):
        return None
    own = set(re.findall(r"`(\w+)`", row["labels"]))
    return own | {"le"} if metric.endswith("_bucket") else own


@pytest.mark.parametrize("where", expressions())
def test_every_metric_and_label_that_is_asked_for_exists(where: str) -> None:
    text = expressions()[where]
    names = set(NAME.findall(re.sub(r'"[^"]*"', '""', text)))
    assert names
    known: set[str] = set()
    for name in names:
        labels = labels_of(name)
        assert labels is not None, f"{name} is not in METRICS.md"
        known |= labels
    for name, selected in SELECTOR.findall(text):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected))
        assert asked <= (labels_of(name) or set()), name
    for grouped in GROUPING.findall(text):
        assert {label.strip() for label in grouped.split(",") if label.strip()} <= known, grouped
    assert text.count("(") == text.count(")")


def test_reasons_and_their_cures_are_those_that_alerts_and_docs_name() -> None:
    known = {cure.name.lower() for cure in Cure}
    for text in expressions().values():
        for values in re.findall(r'cured_by=~"([^"]+)"', text):
            assert set(values.split("|")) <= known
        for values in re.findall(r'reason=~?"([^"]+)"', text):
            assert set(values.split("|")) <= REASONS.keys()
    said = METRICS["allot_pending_pods"]
    assert "`cured_by`" in said["labels"]
    text = (ROOT / "deploy/METRICS.md").read_text()
    explained = text.partition("`cured_by` says what ends\nit:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", explained)) == known - {"nothing"}


def test_the_operators_rules_are_the_same() -> None:
    rule: Object = yaml.safe_load((COMPONENT / "rules.yaml").read_text())
    assert (rule["kind"], rule["spec"]) == ("PrometheusRule", RULES)


def test_every_alert_says_what_to_do() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert headings == [rule["alert"] for rule in ALERTS]
    assert len(set(headings)) == len(headings)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        notes = rule["annotations"]
        assert notes.keys() == {"summary", "description", "command", "runbook_url"}
        assert notes["runbook_url"] == f"deploy/RUNBOOK.md#{rule['alert'].lower()}"
        paragraph = RUNBOOK.partition(f"## {rule['alert']}\n")[2].partition("\n## ")[0]
        assert paragraph.strip().partition("\n")[0].endswith(f"({rule['labels']['severity']}).")
        assert f"    {typed(notes['command'])}\n" in paragraph


TEMPLATE = re.compile(r"{{ (.*?) }}")
LABEL = re.compile(r"\$labels\.(\w+)")
PRINTED = {
    "": "{:g}",
    "humanizeDuration": "{:g}s",
    "humanizePercentage": "{:.4g}%",
    "humanize": "{:.4g}",
    "humanize1024": "{:.4g}",
    'printf "%.0f"': "{:.0f}",
}
"""The functions that alerts use for `$value`; the units of large numbers are Prometheus' own."""
OF_TARGETS = {"job": "allotment", "namespace": "allotment-system", "container": "service"}
OF_TARGETS |= {"pod": "allotment-binder-0", "instance": "10.0.0.1:8080"}
"""What Prometheus adds to every series of a pod, unless it is aggregated away."""


def typed(command: str) -> str:
    """A command as the runbook has it: with the names of labels in capitals."""
    return TEMPLATE.sub(lambda found: LABEL.findall(found[1])[0].upper(), command)


def rendered(text: str, labels: dict[str, str], value: float) -> str:
    """As Prometheus renders it. A label that the alert has not is empty, and so an error here,
    unless the template names another one, or a word, to write in its place.
    """

    def one(found: re.Match[str]) -> str:
        words = shlex.split(found[1])
        if words[0] == "$value":
            return PRINTED[found[1].removeprefix("$value").removeprefix(" | ")].format(value)
        choices = words[1:] if words[0] == "or" else words
        values = [labels.get(w.removeprefix("$labels."), "") if "$" in w else w for w in choices]
        shown = next(filter(None, values), "")
        assert shown, f"{found[0]} is empty in {text!r} with {labels}"
        return shown

    assert text.count("{{") == len(TEMPLATE.findall(text))
    return TEMPLATE.sub(one, text)


def label_sets(expression: str) -> Iterator[dict[str, str]]:
    """The labels of what each branch of an alert's expression gives, with values made up."""
    for branch in re.split(r"\nor |\s+and ", expression.strip()):
        asked = dict(re.findall(r'(\w+)="([^"]*)"', branch))
        aggregated = re.match(r"(?:sum|max|min)(?: by \(([^)]*)\))?\s*\(", branch)
        if branch.startswith("absent("):
            yield asked
        elif aggregated:
            by = (aggregated[1] or "").split(", ")
            yield {label: f"the-{label}" for label in by if label}
        else:
            name = NAME.findall(branch)[0]
            own = (labels_of(name) or set()) - {"le"}
            yield {**OF_TARGETS, **{label: f"the-{label}" for label in own}, **asked}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_renders_with_the_labels_that_it_has(rule: Object) -> None:
    """On-call people read who it is about, with numbers, and can paste the command."""
    sets = list(label_sets(rule["expr"]))
    assert sets
    for labels in sets:
        notes = {key: rendered(text, labels, 17.5) for key, text in rule["annotations"].items()}
        assert "  " not in "".join(notes.values())
        names = {value for key, value in labels.items() if key not in OF_TARGETS}
        names.discard("wall")  # the clock of AllotmentLoopBlocked
        said = " ".join(notes.values())
        assert {name for name in names if name not in said} == set(), said
    if sets == [{}]:
        assert "$value" in rule["annotations"]["summary"], "neither a name nor a number"


def test_labels_of_metrics_outrank_those_of_their_target() -> None:
    """The namespace of `allot_objects_recorded_late` is the tenant's, not that of the services."""
    own = set().union(*(labels_of(name) or set() for name in METRICS))
    monitor = yaml.safe_load((COMPONENT / "pod-monitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert own & OF_TARGETS.keys() == {"namespace"}
    assert endpoint["honorLabels"]


def _value(shown: str, found: re.Match[str]) -> str:
    return shown if found[1].startswith("$value") else found[0]


@needs_promtool
def test_prometheus_renders_alerts_the_same_way(tmp_path: Path) -> None:
    """The series of some alerts, and the summaries that Prometheus itself makes of them."""
    late = 'allot_bind_unacknowledged_seconds{node="gpu-1"}'
    tests = [
        (late, "AllotmentAcknowledgementLate", {"node": "gpu-1"}, 200, "3m 20s"),
        ('allot_ready{pod="binder-0"}', "AllotmentServiceNotReady", {"pod": "binder-0"}, 0, ""),
        ("allot_log_bytes", "AllotmentLogNearlyFull", {}, 90, "90%"),
    ]
    rules = {rule["alert"]: rule for rule in ALERTS}
    groups = []
    for series, alert, labels, value, shown in tests:
        own = rules[alert]["annotations"]
        said = {key: TEMPLATE.sub(partial(_value, shown), text) for key, text in own.items()}
        notes = {key: rendered(text, labels, value) for key, text in said.items()}
        expected = {"exp_labels": {**labels, **rules[alert]["labels"]}, "exp_annotations": notes}
        groups.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": f"{value}+0x60"},
                    {"series": "allot_log_limit_bytes", "values": "100+0x60"},
                ],
                "alert_rule_test": [
                    {"eval_time": "30m", "alertname": alert, "exp_alerts": [expected]}
                ],
            }
        )
    file = tmp_path / "tests.yaml"
    paths = [str(LOCAL / "rules.yaml")]
    file.write_text(yaml.safe_dump({"rule_files": paths, "tests": groups}))
    run(["promtool", "test", "rules", str(file)])


def named(program: str) -> Iterator[list[str]]:
    """Every command line of a program that the runbook, the alerts and the panels name."""
    asked = "".join(f"`{typed(rule['annotations']['command'])}`\n" for rule in ALERTS)
    panel_texts = "\n".join(panel["description"] for panel in panels())
    return commands(f"{RUNBOOK}\n{asked}\n{panel_texts}", program)


def test_every_command_that_is_named_can_be_typed() -> None:
    found = list(named("allot"))
    assert len(found) > len(ALERTS) / 2
    for words in found:
        check_allot(words)


@needs_kubectl
def test_every_kubectl_command_finds_what_it_names() -> None:
    """In the namespace, with the labels, by the name and at the port that it says."""
    where = "deploy/overlays/default"
    pods = {one["metadata"]["name"]: one for one in of_kind(where, "Deployment", "StatefulSet")}
    found = [words for words in named("kubectl") if words[0] == "-n"]
    assert len(found) > 5
    for _, namespace, verb, *words in found:
        there = {
            name: one for name, one in pods.items() if one["metadata"]["namespace"] == namespace
        }
        assert there, f"nothing of ours is in {namespace}"
        templates = [one["spec"]["template"] for one in there.values()]
        match verb, words:
            case "get", ["pods" | "deployments", *_]:
                pass
            case "logs", ["-l", label, "--prefix", "--tail", count]:
                key, _, value = label.partition("=")
                assert count.isdecimal()
                assert any(one["metadata"]["labels"].get(key) == value for one in templates), label
            case "exec", [pod, "--", "df", "-h", path]:
                spec = there[re.sub(r"-\d+$", "", pod)]["spec"]["template"]["spec"]
                mounts = [m for one in spec["containers"] for m in one.get("volumeMounts", ())]
                assert path in [mount["mountPath"] for mount in mounts]
            case "delete", ["configmap", name]:
                assert f"{namespace}/{name}" == KubeSettings().log_config_map
            case "delete", ["pod", pod]:
                assert pod == "POD" or there[re.sub(r"-\d+$", "", pod)]["kind"] == "StatefulSet"
            case "rollout", ["restart", "statefulset", name]:
                assert there[name]["kind"] == "StatefulSet"
            case "port-forward", ["POD", port]:
                ports = [p for s in services(where).values() for p in s["containers"][0]["ports"]]
                assert int(port) in {one["containerPort"] for one in ports if one["name"] == "http"}
                assert f"localhost:{port}/" in RUNBOOK
            case _:
                pytest.fail(f"nobody looked at: kubectl -n {namespace} {verb} {shlex.join(words)}")


def test_the_dashboard_can_be_loaded_anywhere() -> None:
    assert DASHBOARD["uid"] == "allotment"
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert at["x"] + at["w"] <= 24
        taken |= cells
    for panel in panels():
        assert panel["targets"], panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    latency = [
        target
        for panel in panels()
        for target in panel["targets"]
        if "allot_scheduling_duration_seconds" in target["expr"]
    ]
    assert latency
    assert all(target["exemplar"] for target in latency)


@needs_promtool
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    asked = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "1m")}
        for number, text in enumerate(expressions().values())
    ]
    everything = tmp_path / "expressions.yaml"
    everything.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": asked}]}))
    for path in (LOCAL / "rules.yaml", everything):
        run(["promtool", "check", "rules", str(path)])


@needs_promtool
def test_prometheus_takes_the_configuration(tmp_path: Path) -> None:
    text = (LOCAL / "prometheus.yaml").read_text()
    config = tmp_path / "prometheus.yaml"
    config.write_text(text.replace("/etc/prometheus/rules.yaml", str(LOCAL / "rules.yaml")))
    run(["promtool", "check", "config", str(config)])


@needs_kubectl
def test_the_component_adds_to_an_overlay(tmp_path: Path) -> None:
    found = {each["kind"]: each for each in overlaid(tmp_path, [], ["monitoring"])}
    assert found.keys() == {"ConfigMap", "PodMonitor", "PrometheusRule"}
    assert found["ConfigMap"]["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(found["ConfigMap"]["data"]["allotment.json"]) == DASHBOARD
    assert found["PrometheusRule"]["spec"] == RULES
    (endpoint,) = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    service = yaml.safe_load((ROOT / "deploy/base/service.patch.yaml").read_text())
    (container,) = service["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]


@needs_kubectl
def test_the_traces_component_tells_the_inspector_alone_where_to_send_them(tmp_path: Path) -> None:
    """With the base beneath it: the patch has to find what it is about."""
    found = overlaid(tmp_path, ["../../base"], ["traces"])
    receivers = {
        each["metadata"]["name"]: urlsplit(variable["value"])
        for each in found
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env", ())
        if variable["name"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    }
    assert receivers.keys() == {"allotment-inspector"}
    (policy,) = [each for each in found if each["metadata"]["name"] == "allotment-traces"]
    (rule,) = policy["spec"]["egress"]
    assert [port["port"] for port in rule["ports"]] == [receivers["allotment-inspector"].port]
    (inspector,) = [
        each
        for each in found
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "allotment-inspector"
    ]
    labels = inspector["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


@needs_kubectl
def test_components_are_where_the_services_are(tmp_path: Path) -> None:
    """In an overlay that names no namespace, as the README shows one: a PodMonitor or a network
    policy in another namespace finds no pod of ours.
    """
    components = sorted(path.name for path in COMPONENT.parent.iterdir())
    found = overlaid(tmp_path, ["../default"], components)
    namespaces = {
        (each["kind"], each["metadata"]["name"]): each["metadata"].get("namespace")
        for each in found
        if each["kind"] not in OF_NO_NAMESPACE
    }
    assert {"PodMonitor", "PrometheusRule", "NetworkPolicy"} <= {kind for kind, _ in namespaces}
    assert {name: ns for name, ns in namespaces.items() if ns != "allotment-system"} == {}


def overlaid(tmp_path: Path, resources: list[str], components: list[str]) -> list[Object]:
    """What an overlay of somebody's own renders to."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    overlay = tmp_path / "deploy/overlays/own"
    overlay.mkdir()
    kinds = {"kind": "Kustomization", "apiVersion": "kustomize.config.k8s.io/v1beta1"}
    parts = {"resources": resources, "components": [f"../../components/{c}" for c in components]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump({**kinds, **parts}))
    return list(yaml.safe_load_all(run(["kubectl", "kustomize", str(overlay)])))


def run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
