"""A kubelet rejects what was decided: that pod fails, and its remains harm nobody else."""

import signal
import time
from pathlib import Path

from allotment.core.explain.doctor import findings
from tests.e2e.audit import assert_sound, fold, held
from tests.e2e.stack import Json, Stack, vgpu
from tests.replaying import verify

NODES = (
    "- {name: g, gpus: {model: Tesla T4, count: 4, memory_mib: 16000}, cpu: 64, memory: 256Gi}\n"
)
MERGE_PATCH = "application/merge-patch+json"


def offer(stack: Stack, cores: int) -> None:
    status = {"allocatable": {"volcano.sh/vgpu-cores": str(cores)}}
    stack.call("PATCH", "/api/v1/nodes/g/status", {"status": status}, MERGE_PATCH)


def test_a_rejected_pods_record_is_not_served_to_the_next_one(tmp_path: Path) -> None:
    """The kubelet finds too little of one resource before it asks the plugin for the cards.

    The plugin chooses by annotations alone: unless the dead pod's are erased, each later pod of the
    node gets the cards of the one before it.
    """
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("first", vgpu(1000, 100))
        stack.until(lambda: stack.pod("first")["status"]["phase"] == "Running", "first runs")
        binder, watcher = stack.processes["binder"], stack.processes["watcher"]
        binder.signal(signal.SIGSTOP)
        stack.create_pod("rejected", vgpu(1000, 100))
        stack.until(
            lambda: any(p.fact.name == "rejected" for p in fold(stack.records()).pods.values()),
            "the watcher has seen the pod; it will not see what the node offers from now on",
        )
        watcher.signal(signal.SIGSTOP)
        offer(stack, 100)
        binder.signal(signal.SIGCONT)
        stack.until(lambda: stack.pod("rejected")["status"]["phase"] == "Failed", "it is rejected")
        offer(stack, 400)
        watcher.signal(signal.SIGCONT)
        for name, memory in (("a", 2000), ("b", 3000), ("c", 4000)):
            stack.create_pod(name, vgpu(memory, 100))
        stack.until(lambda: len(stack.bound()) == 5, "all are bound")
        stack.until(
            lambda: all(stack.pod(name)["status"]["phase"] == "Running" for name in "abc"),
            "all run",
        )
        assert len({held(stack.pod(name))[0][0] for name in ("first", "a", "b", "c")}) == 4
        annotations = stack.pod("rejected")["metadata"]["annotations"]
        assert annotations["volcano.sh/bind-phase"] == "failed"
        assert annotations["volcano.sh/devices-to-allocate"] == ""
        assert_sound(stack, rejected=frozenset({"rejected"}))


def test_a_plugin_that_fails_fails_one_pod_only(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        fault = {"allotment.dev/fault": "allocate-fails"}
        stack.create_pod("unlucky", vgpu(1000, 100), annotations=fault)
        for name in "abcd":
            stack.create_pod(name, vgpu(1000, 100))
        stack.until(
            lambda: all(stack.pod(name)["status"]["phase"] == "Running" for name in "abcd"),
            "the others run",
        )
        stack.until(lambda: stack.pod("unlucky")["status"]["phase"] == "Failed", "it fails")
        assert_sound(stack)


def test_a_node_that_refuses_everybody_costs_three_pods(tmp_path: Path) -> None:
    """Lone pods have no owner, and binpack sends each to the same node: 30 of 30 died there."""
    nodes = "".join(NODES.replace("name: g,", f"name: {name},") for name in "abc")
    with Stack(tmp_path, nodes) as stack:
        fault = ",".join(f"allocate-fails={number}" for number in range(4))
        stack.patch_node("a", {"metadata": {"annotations": {"allotment.dev/fault": fault}}})
        names = [f"p{number}" for number in range(8)]
        for name in names:
            stack.create_pod(name, vgpu(1000, 10))
            stack.until(
                lambda name=name: stack.pod(name)["status"]["phase"] in ("Running", "Failed"),  # type: ignore[misc]
                f"{name} has ended or runs",
            )
            time.sleep(0.2)
        died = frozenset(name for name in names if stack.pod(name)["status"]["phase"] == "Failed")
        assert 0 < len(died) <= 3
        assert {stack.node_of(name) for name in died} == {"a"}
        state = assert_sound(stack)
        assert state.health["a", "", ""].since


def make_in_turn(stack: Stack, pods: list[tuple[str, str, dict[str, str]]]) -> list[Json]:
    """Pods, each of a namespace, an image and annotations, one after the other has ended or runs;
    those that failed."""
    for namespace in {namespace for namespace, _, _ in pods}:
        stack.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for number, (namespace, image, annotations) in enumerate(pods):
        path = f"/api/v1/namespaces/{namespace}/pods"
        container = {"name": "main", "image": image, "resources": {"limits": vgpu(1000, 10)}}
        spec = {"schedulerName": "allotment", "containers": [container]}
        name = f"p{number}"
        stack.call(
            "POST", path, {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        )
        stack.until(
            lambda at=f"{path}/{name}": (  # type: ignore[misc]
                stack.call("GET", at)["status"]["phase"] in ("Running", "Failed")
            ),
            f"{name} has ended or runs",
        )
        time.sleep(0.5)  # what exits does so at once
    everybody = stack.call("GET", "/api/v1/pods")["items"]
    return [pod for pod in everybody if pod["status"]["phase"] == "Failed"]


def three_nodes() -> str:
    return "".join(NODES.replace("name: g,", f"name: {name},") for name in "abc")


def test_a_node_on_which_everybody_dies_at_once_costs_three_pods(tmp_path: Path) -> None:
    with Stack(tmp_path, three_nodes()) as stack:
        fault = ",".join(f"exits={number}" for number in range(4))
        stack.patch_node("a", {"metadata": {"annotations": {"allotment.dev/fault": fault}}})
        died = make_in_turn(stack, [(f"ns{n}", f"i:{n}", {}) for n in range(8)])
        assert 0 < len(died) <= 3
        assert {pod["spec"]["nodeName"] for pod in died} == {"a"}
        state = fold(stack.records())
        assert state.health["a", "", ""].since
        said = {each.code: each.message for each in findings(state, 0) if each.subject == "node a"}
        assert "exit code 1" in said["NodeFailing"]
        assert verify(stack.records()).different == 0


def test_a_tenant_whose_pods_crash_holds_back_no_node_for_others(tmp_path: Path) -> None:
    """Six images that crash wherever they run, in two namespaces of one tenant."""
    crashes = {"allotment.dev/fault": "exits"}
    with Stack(tmp_path, three_nodes()) as stack:
        pods = [(f"red{n % 2}", f"bad:{n}", crashes) for n in range(6)]
        died = make_in_turn(stack, [*pods, ("blue", "good:1", {}), ("green", "good:2", {})])
        assert {pod["metadata"]["namespace"] for pod in died} == {"red0", "red1"}
        state = fold(stack.records())
        for health in state.health.values():
            assert not health.concerns("blue")


def test_a_plugin_that_never_answers_keeps_one_pod(tmp_path: Path) -> None:
    """It refuses nothing, kubelet waits for it. Those that wait for their turn go elsewhere."""
    with Stack(tmp_path, three_nodes()) as stack:
        stack.patch_node("a", {"metadata": {"annotations": {"allotment.dev/allocate-time": "2h"}}})
        names = [f"p{number}" for number in range(8)]
        for name in names:
            stack.create_pod(name, vgpu(1000, 10))
            time.sleep(0.5)
        stack.until(
            lambda: all(stack.pod(name)["status"]["phase"] == "Running" for name in names[1:]),
            "all but the first run",
        )
        assert [name for name in names if stack.node_of(name) == "a"] == ["p0"]
        said = {each.code: each.message for each in findings(fold(stack.records()), 0)}
        assert "has not acknowledged it" in said["NodeFailing"]
        assert verify(stack.records()).different == 0
