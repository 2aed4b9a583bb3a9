"""What a manifest says, holds: played through the API server, on every family of devices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment_local.nodes.objects import card_id
from allotment_proto.codec import decode_envelope
from allotment_proto.events import NodeObserved
from tests.e2e.stack import Stack

Json = dict[str, Any]
NODES = """
- {name: c1, kind: cpu, cpu: 8, memory: 32Gi}
- {name: v, gpus: {model: Tesla T4, count: 2, memory_mib: 15360}}
- {name: w1, kind: whole, gpus: {model: NVIDIA H100 80GB HBM3, count: 8, memory_mib: 81559}}
- {name: w2, kind: whole, gpus: {model: Tesla V100-SXM2-32GB, count: 1, memory_mib: 32768}}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory: Path = tmp_path_factory.mktemp("manifests")
    with Stack(directory, NODES) as running:
        yield running


def is_running(stack: Stack, name: str) -> bool:
    return bool(stack.pod(name)["status"]["phase"] == "Running")


def refused(stack: Stack, name: str) -> str:
    """Wait until a pod is refused; gives what is said about it. It must not be bound."""
    stack.until(lambda: bool(stack.refusal(name)), f"{name} is refused")
    assert not stack.node_of(name)
    return stack.refusal(name)


def test_what_a_pod_asks_itself_beside_its_containers_has_to_fit(stack: Stack) -> None:
    """Kubernetes counts spec.resources in place of the containers' sum."""
    there: Json = {"nodeSelector": {"kubernetes.io/hostname": "c1"}}
    stack.create_pod("too-much", {}, resources={"requests": {"cpu": "12"}}, **there)
    assert "1 InsufficientCPU" in refused(stack, "too-much")
    stack.create_pod("most", {}, resources={"limits": {"cpu": "6"}}, **there)
    stack.until(lambda: is_running(stack, "most"), "a pod that fits runs")
    stack.create_pod("no-more", {"cpu": "500m"}, resources={"requests": {"cpu": "3"}}, **there)
    assert "1 InsufficientCPU" in refused(stack, "no-more")


def test_whole_cards_are_of_a_type_that_the_manifest_lists(stack: Stack) -> None:
    """The type list of a manifest that asks for ``nvidia.com/gpu``."""
    either = {"nvidia.com/use-gputype": "A100,V100"}
    whole = {"nvidia.com/gpu": 1}
    stack.create_pod("specific", whole, annotations=either)
    stack.until(lambda: is_running(stack, "specific"), "the pod for V100 runs")
    assert stack.node_of("specific") == "w2"
    stack.create_pod("second", whole, annotations=either)
    text = refused(stack, "second")
    assert "1 GPUModelMismatch" in text
    assert "1 NotEnoughGPUsOnNode" in text
    assert "NVIDIA-H100-80GB-HBM3 (1)" in text
    stack.create_pod("not", whole, annotations={"nvidia.com/nouse-gputype": "V100"})
    stack.until(lambda: stack.node_of("not") == "w1", "the pod that wants no V100 is on the H100")
    stack.create_pod("index", whole, annotations={"volcano.sh/gpu-index": "0"})
    assert "kubelet chooses the cards" in refused(stack, "index")


def health(stack: Stack, node: str) -> list[bool]:
    """Of each vGPU card of a node, as the log says last."""
    found: list[bool] = []
    for record in stack.records():
        for event in decode_envelope(record.payload).events:
            if isinstance(event, NodeObserved) and event.name == node:
                found = [c.healthy for i in event.inventories for c in i.cards]
    return found


def test_a_card_that_a_node_names_unhealthy_takes_nothing_new(stack: Stack) -> None:
    uuids = [card_id("v", index) for index in range(2)]
    ids = "volcano.sh/gpu-unhealthy-ids"
    share = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1000}
    there: Json = {"nodeSelector": {"kubernetes.io/hostname": "v"}}
    for number, (named, other) in enumerate(((uuids[0], uuids[1]), ("1", uuids[0]))):
        stack.patch_node("v", {"metadata": {"annotations": {ids: named}}})
        wanted = [number == 1, number == 0]
        stack.until(lambda wanted=wanted: health(stack, "v") == wanted, "the log says so")  # type: ignore[misc]
        for name in (f"well-{number}a", f"well-{number}b"):
            stack.create_pod(name, share, **there)
            stack.until(lambda name=name: is_running(stack, name), f"{name} runs")  # type: ignore[misc]
            held = stack.pod(name)["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"]
            assert held.startswith(other), (named, held)
    stack.patch_node("v", {"metadata": {"annotations": {ids: f"0,{uuids[1]}"}}})
    stack.until(lambda: health(stack, "v") == [False, False], "the log says so")
    stack.create_pod("ill", share, **there)
    assert "1 GPUUnhealthy" in refused(stack, "ill")


@pytest.mark.parametrize(
    "share",
    [
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1000},
        {"volcano.sh/gpu-memory": 1000},
    ],
)
def test_devices_in_init_containers_are_refused_before_the_binding(
    stack: Stack, share: Json
) -> None:
    kind = next(iter(share)).removeprefix("volcano.sh/")
    for what, more in (("init", {}), ("sidecar", {"restartPolicy": "Always"})):
        name = f"{kind}-{what}"
        first = {"name": "first", "image": "i:1", "resources": {"limits": share}, **more}
        stack.create_pod(name, share, initContainers=[first])
        assert "init containers first ask for parts of a GPU" in refused(stack, name)
    stack.create_pod(f"{kind}-two", share, share)
    assert "containers c0, c1" in refused(stack, f"{kind}-two")


def test_static_local_volumes_are_given_with_the_node(stack: Stack) -> None:
    """Two disks on two nodes, three pods at once: a disk goes to one pod, and that to its node."""
    core, pods = "/api/v1", "/api/v1/namespaces/default"
    stack.call(
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name, node, size in (("small", "c1", "5Gi"), ("d1", "c1", "20Gi"), ("d2", "w1", "10Gi")):
        there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec: Json = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        stack.call("POST", f"{core}/persistentvolumes", {**body, "spec": spec})
    for name in ("a", "b", "c"):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "8Gi"}},
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        stack.call("POST", f"{pods}/persistentvolumeclaims", {**body, "spec": spec})
    for name in ("a", "b", "c"):
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        stack.create_pod(f"with-{name}", {}, volumes=[volume])
    stack.until(
        lambda: sum(is_running(stack, f"with-{name}") for name in "abc") == 2, "two of them run"
    )
    left = next(name for name in "abc" if not is_running(stack, f"with-{name}"))
    refused(stack, f"with-{left}")
    found = {}
    for name in {*"abc"} - {left}:
        claim = stack.call("GET", f"{pods}/persistentvolumeclaims/{name}")
        assert claim["status"]["phase"] == "Bound"
        given = claim["spec"]["volumeName"]
        shown = stack.call("GET", f"{core}/persistentvolumes/{given}")
        assert shown["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert shown["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
        found[given] = stack.node_of(f"with-{name}")
    assert found == {"d1": "c1", "d2": "w1"}
