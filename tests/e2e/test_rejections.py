"""A kubelet rejects what was decided: that pod fails, and its remains harm nobody else."""

import signal
import time
from pathlib import Path

from tests.e2e.audit import assert_sound, fold, held
from tests.e2e.stack import Stack, vgpu

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
        assert stack.pod("unlucky")["status"]["phase"] == "Failed"
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
