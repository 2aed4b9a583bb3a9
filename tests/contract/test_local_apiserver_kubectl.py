"""Unmodified kubectl against the local API server, command by command."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.contract.local_apiserver import Kubectl, node, pod, process
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(not Kubectl.is_installed(), reason="kubectl is not installed")

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "groups.test.allotment.dev"},
    "spec": {
        "group": "test.allotment.dev",
        "scope": "Namespaced",
        "names": {"kind": "Group", "plural": "groups", "shortNames": ["gr"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Members", "type": "integer", "jsonPath": ".spec.members"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "members": {
                                        "type": "integer",
                                        "minimum": 1,
                                        "description": "How many belong together.",
                                    }
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with process() as address:
        yield address


@pytest.fixture
def kubectl(url: str, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, url)


def _pod(name: str, **labels: str) -> dict[str, object]:
    plain = pod(name)
    plain["metadata"]["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", **plain}


def _node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", **node(name)}


def test_apply_creates_then_changes_nothing_then_configures(kubectl: Kubectl) -> None:
    manifest = _pod("applied", app="a")
    assert kubectl("apply", "-f", "-", manifest=manifest) == "pod/applied created\n"
    assert kubectl("apply", "-f", "-", manifest=manifest) == "pod/applied unchanged\n"
    changed = _pod("applied", app="b")
    assert "+    app: b" in kubectl("diff", "-f", "-", manifest=changed, code=1)
    dry = kubectl("apply", "--dry-run=server", "-f", "-", manifest=changed)
    assert dry == "pod/applied configured (server dry run)\n"
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.metadata.labels.app}") == "a"
    assert kubectl("apply", "-f", "-", manifest=changed) == "pod/applied configured\n"
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.metadata.labels.app}") == "b"


def test_get_in_every_form(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=_pod("shown", app="shown"))
    wide = kubectl("get", "pods", "-l", "app=shown", "-o", "wide").splitlines()
    assert wide[0].split()[:6] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert wide[1].split()[:4] == ["shown", "0/1", "Pending", "0"]
    assert "shown" in kubectl("get", "po", "-A")
    assert kubectl("get", "pods", "-l", "app in (shown)", "-o", "name") == "pod/shown\n"
    by_field = kubectl("get", "pods", "--field-selector", "metadata.name=shown,spec.nodeName=")
    assert "shown" in by_field
    assert "field label not supported" in kubectl(
        "get", "pods", "--field-selector", "no.such=x", code=1
    )
    assert yaml.safe_load(kubectl("get", "pod", "shown", "-o", "yaml"))["kind"] == "Pod"
    assert yaml.safe_load(kubectl("get", "pod", "shown", "-o", "json"))["apiVersion"] == "v1"
    assert 'pods "absent" not found' in kubectl("get", "pod", "absent", code=1)


def test_describe_a_pod_and_its_node(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=[_node("described"), _pod("on-node")])
    uid = kubectl("get", "pod", "on-node", "-o", "jsonpath={.metadata.uid}")
    about = {"kind": "Pod", "name": "on-node", "namespace": "default", "uid": uid}
    about["apiVersion"] = "v1"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "on-node.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedScheduling",
        "type": "Warning",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
    }
    kubectl("create", "-f", "-", manifest=event)
    assert "0/1 nodes are available" in kubectl("describe", "pod", "on-node")
    assert "FailedScheduling" in kubectl("events", "--for", "pod/on-node")
    assert "pod/on-node" in kubectl("get", "events")
    assert "pod/on-node" in kubectl("get", "events", "--sort-by=.lastTimestamp")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "on-node"},
        "target": {"kind": "Node", "name": "described"},
    }
    kubectl("create", "--raw=/api/v1/namespaces/default/bindings", "-f", "-", manifest=binding)
    described = kubectl("describe", "node", "described")
    assert "on-node" in described
    assert "pods:    110" in described


def test_patch_in_every_form(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=[_pod("patched", app="a"), _node("patched")])
    kubectl("patch", "pod", "patched", "-p", '{"metadata":{"labels":{"app":"b"}}}')
    kubectl("patch", "pod", "patched", "--type=merge", "-p", '{"metadata":{"labels":{"m":"1"}}}')
    operation = '[{"op":"replace","path":"/metadata/labels/app","value":"c"}]'
    kubectl("patch", "pod", "patched", "--type=json", "-p", operation)
    labels = kubectl("get", "pod", "patched", "-o", "jsonpath={.metadata.labels}")
    assert yaml.safe_load(labels) == {"app": "c", "m": "1"}
    status = '{"status":{"phase":"Running"}}'
    kubectl("patch", "pod", "patched", "--subresource=status", "-p", status)
    assert "Running" in kubectl("get", "pod", "patched")
    kubectl("patch", "pod", "patched", "-p", '{"status":{"phase":"Failed"}}')
    assert "Running" in kubectl("get", "pod", "patched")


def test_label_annotate_and_replace(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=_pod("labelled"))
    assert kubectl("label", "pod", "labelled", "a=b") == "pod/labelled labeled\n"
    assert kubectl("annotate", "pod", "labelled", "c=d") == "pod/labelled annotated\n"
    kubectl("label", "pod", "labelled", "a-")
    replaced = kubectl("replace", "-f", "-", manifest=_pod("labelled", e="f"))
    assert replaced == "pod/labelled replaced\n"
    got = yaml.safe_load(kubectl("get", "pod", "labelled", "-o", "yaml"))["metadata"]
    assert got["labels"] == {"e": "f"}
    assert "annotations" not in got


def test_taint_and_cordon(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=_node("marked"))
    kubectl("taint", "node", "marked", "a=b:NoSchedule", "c=d:NoExecute")
    kubectl("taint", "node", "marked", "a-")
    taints = kubectl("get", "node", "marked", "-o", "jsonpath={.spec.taints}")
    assert yaml.safe_load(taints) == [{"effect": "NoExecute", "key": "c", "value": "d"}]
    assert kubectl("cordon", "marked") == "node/marked cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "nodes")
    assert kubectl("uncordon", "marked") == "node/marked uncordoned\n"


def test_wait_for_a_condition_a_value_and_the_end(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", manifest=_pod("awaited"))
    waiters = [
        subprocess.Popen(
            kubectl.command("wait", "pod/awaited", f"--for={goal}", f"--timeout={PATIENCE_S:g}s"),
            env=kubectl.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for goal in ("condition=Ready", "jsonpath={.status.phase}=Running", "delete")
    ]
    try:
        condition = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
        kubectl("patch", "pod", "awaited", "--subresource=status", "-p", condition)
        for waiter in waiters[:2]:
            assert waiter.communicate(timeout=PATIENCE_S)[0] == "pod/awaited condition met\n"
        kubectl("delete", "pod", "awaited")
        assert waiters[2].wait(PATIENCE_S) == 0
    finally:
        for waiter in waiters:
            waiter.kill()
            waiter.communicate()


def test_a_watch_shows_changes_as_they_come(kubectl: Kubectl) -> None:
    command = kubectl.command("get", "pods", "-l", "watched=yes", "-w", "--output-watch-events")
    with subprocess.Popen(
        command, env=kubectl.environment(), stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        try:
            kubectl("create", "-f", "-", manifest=_pod("seen", watched="yes"))
            header, line = watcher.stdout.readline(), watcher.stdout.readline()
            assert header.split()[:3] == ["EVENT", "NAME", "READY"]
            assert line.split()[:2] == ["ADDED", "seen"]
            kubectl("delete", "pod", "seen")
            for kind in ("MODIFIED", "DELETED"):
                assert watcher.stdout.readline().split()[:2] == [kind, "seen"]
        finally:
            watcher.kill()


def test_run_and_delete(kubectl: Kubectl) -> None:
    assert kubectl("run", "ran", "--image=busybox") == "pod/ran created\n"
    assert 'pod "ran" deleted' in kubectl("delete", "pod", "ran", "--grace-period=1")
    kubectl("create", "-n", "kube-public", "-f", "-", manifest=[_pod("d1"), _pod("d2")])
    kubectl(
        "create",
        "--raw=/api/v1/namespaces/kube-public/bindings",
        "-f",
        "-",
        manifest={"target": {"name": "nowhere"}, "metadata": {"name": "d1"}},
    )
    kubectl("delete", "pod", "d1", "-n", "kube-public", "--wait=false")
    assert "Terminating" in kubectl("get", "pod", "d1", "-n", "kube-public")
    kubectl("delete", "pod", "d1", "-n", "kube-public", "--force", "--grace-period=0")
    assert 'pod "d2" deleted' in kubectl("delete", "pods", "--all", "-n", "kube-public")
    assert "No resources found" in kubectl("get", "pods", "-n", "kube-public")


def test_a_command_that_sends_protobuf_says_what_to_do_instead(kubectl: Kubectl) -> None:
    said = kubectl("create", "namespace", "typed", code=1)
    assert "with kubectl, write a manifest and use 'kubectl create -f'" in said


def test_a_definition_brings_its_resource(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", manifest=DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/groups.test.allotment.dev")
    group = {
        "apiVersion": "test.allotment.dev/v1",
        "kind": "Group",
        "metadata": {"name": "g"},
        "spec": {"members": 3},
    }
    assert "created" in kubectl("apply", "-f", "-", manifest=group)
    assert "unchanged" in kubectl("apply", "-f", "-", manifest=group)
    kubectl(
        "patch",
        "gr",
        "g",
        "--type=merge",
        "--subresource=status",
        "-p",
        '{"status":{"phase":"Up"}}',
    )
    header, row = kubectl("get", "gr").splitlines()
    assert header.split() == ["NAME", "PHASE", "MEMBERS", "AGE"]
    assert row.split()[:3] == ["g", "Up", "3"]
    assert "groups" in kubectl("api-resources", "--api-group=test.allotment.dev")
    misspelt = {**group, "spec": {"member": 3}}
    assert 'unknown field "spec.member"' in kubectl("apply", "-f", "-", manifest=misspelt, code=1)
    wrong = {**group, "spec": {"members": 0}}
    assert "spec.members" in kubectl("apply", "-f", "-", manifest=wrong, code=1)
    kubectl("delete", "crd", "groups.test.allotment.dev")
    assert "NotFound" in kubectl("get", "groups", code=1)


def test_resources_are_listed(kubectl: Kubectl) -> None:
    resources = kubectl("api-resources")
    for kind in ("Pod", "Node", "Lease", "PriorityClass", "ClusterRoleBinding", "Deployment"):
        assert kind in resources


def test_kubectl_warns_that_nothing_makes_pods_of_a_workload(kubectl: Kubectl) -> None:
    template = {
        "metadata": {"labels": {"app": "idle"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "idle"}}, "template": template}
    for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"):
        body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "idle"}, "spec": spec}
        for verb in ("create", "delete", "apply"):
            said = kubectl(verb, "-f", "-", manifest=body)
            warned = f"no controller for {kind}: no Pods will be made of it" in said
            assert warned == (verb != "delete"), said
    kubectl("delete", "deploy,sts,rs,ds", "idle")
