"""What became of a pod, asked through the command line of a real cluster: each way to end, and why.

One cluster for all: its scenes use cards of their own, or none.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from allotment_cli.main import main
from tests.e2e.audit import fold
from tests.e2e.stack import Stack, task, vgpu

NODES = """
- {name: contested, gpus: {model: Tesla V100, count: 2, memory_mib: 32768}, cpu: 16, memory: 64Gi}
- {name: lost, gpus: {model: Tesla T4, count: 1, memory_mib: 16000}, cpu: 16, memory: 64Gi}
- {name: drained, gpus: {model: Tesla P4, count: 1, memory_mib: 8000}, cpu: 16, memory: 64Gi}
"""
POLICY = """
actions: "enqueue, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - name: deviceshare
    arguments: {deviceshare.SchedulePolicy: binpack}
  - name: predicates
  - name: nodeorder
"""
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NOT_KNOWN_EXIT = 2
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("stories")
    with Stack(directory, NODES, policy=POLICY, controlled=True) as running:
        yield running


def allot(stack: Stack, *words: str) -> str:
    at = words.index("show") if "show" in words else len(words)
    asked = [*words[:at], "--nats", stack.nats.url, *words[at:]]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    return result.stdout


def story(stack: Stack, name: str, *more: str) -> Any:
    """Empty while the log does not know the pod yet, or none before it."""
    words = ["story", name, *more, "-o", "json", "--nats", stack.nats.url]
    result = CliRunner().invoke(main, words)
    if result.exit_code == NOT_KNOWN_EXIT:
        return {}
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def attempts(stack: Stack, name: str) -> int:
    return int(story(stack, name).get("attemptsTotal", 0))


def ends(stack: Stack, name: str, *more: str) -> Any:
    """Wait until the log tells how a pod ended, and that it is over; then its end."""

    def is_over() -> bool:
        found = story(stack, name, *more)
        return "end" in found and found["status"] in ("Gone", "Failed", "Succeeded")

    stack.until(is_over, f"{name} ended")
    return story(stack, name, *more)["end"]


def pod(stack: Stack, name: str, node: str, limits: dict[str, str], **annotations: str) -> None:
    container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
    spec = {
        "schedulerName": "allotment",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
    }
    metadata = {"name": name, "annotations": annotations}
    stack.call("POST", PODS, {"metadata": metadata, "spec": spec})


def runs(stack: Stack, name: str) -> None:
    def is_running() -> bool:
        found = [pod for pod in stack.pods() if pod["metadata"]["name"] == name]
        return any(pod["status"].get("phase") == "Running" for pod in found)

    stack.until(is_running, f"{name} runs")


def job(stack: Stack, name: str, replicas: int, priority: str) -> None:
    there = {"nodeSelector": {"kubernetes.io/hostname": "contested"}}
    workers = task("worker", replicas, vgpu(0, 100), there)
    stack.create_job(name, workers, least=1, priorityClassName=priority)


def is_seen_cordoned(stack: Stack, node: str) -> bool:
    fact = fold(stack.records()).nodes[node].fact
    return fact is not None and fact.unschedulable


def test_a_victim_and_its_preemptor_know_of_each_other(stack: Stack) -> None:
    for name, value in (("low", 10), ("high", 1000)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        stack.call("POST", CLASSES, {**body, "metadata": {"name": name}})
    job(stack, "calm", 2, "low")
    for number in range(2):
        runs(stack, f"calm-worker-{number}")
    job(stack, "urgent", 1, "high")
    runs(stack, "urgent-worker-0")
    preemptor = story(stack, "urgent-worker-0")
    (displaced,) = preemptor["displaced"]
    assert (displaced["node"], displaced["action"]) == ("contested", "preempt")
    victim = displaced["name"]
    stack.until(lambda: "predecessor" in story(stack, victim), "the victim has a successor")
    end = ends(stack, victim, "--previous")
    assert end["kind"] == "Evicted"
    assert end["evicted"]["decision"] == displaced["decision"]
    assert end["evicted"]["preemptor"].startswith("default/urgent-")
    (gain,) = end["evicted"]["gained"]
    assert (gain["name"], gain["node"]) == ("urgent-worker-0", "contested")
    waiting = allot(stack, "explain", "pod", victim)
    assert f"preempted for {end['evicted']['preemptor']} by decision" in waiting
    log = json.loads(allot(stack, "log", "--pod", victim, "-o", "json"))
    assert {displaced["decision"], gain["decision"], end["seq"]} <= {line["seq"] for line in log}
    evicted = next(line for line in log if line["type"] == "Evicted")
    assert f"to preempt for {end['evicted']['preemptor']}" in evicted["text"]
    led_to = allot(stack, "log", "show", str(displaced["decision"]))
    assert "Led to    seq" in led_to
    placed = allot(stack, "explain", "pod", "urgent-worker-0")
    assert f"Displaced  default/{victim} on contested (preempt, decision" in placed
    assert "AffinityMismatch" not in placed


def test_a_refusal_at_the_node_is_told_in_the_plugins_words(stack: Stack) -> None:
    pod(stack, "unlucky", "drained", vgpu(1000), **{"allotment.dev/fault": "allocate-fails"})
    end = ends(stack, "unlucky")
    status = stack.pod("unlucky")["status"]
    assert (end["kind"], end["code"], end["message"]) == (
        "RefusedByNode",
        status["reason"],
        status["message"],
    )
    assert status["message"] in allot(stack, "explain", "pod", "unlucky")


def test_who_evicted_a_pod_is_told_as_kubernetes_says(stack: Stack) -> None:
    pod(stack, "moved", "drained", vgpu(1000))
    runs(stack, "moved")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "moved"}}
    stack.call("POST", f"{PODS}/moved/eviction", body)
    end = ends(stack, "moved")
    assert (end["kind"], end["code"]) == ("Disrupted", "EvictionByEvictionAPI")
    assert end["text"].startswith("evicted through the Eviction API, as kubectl drain does")


def test_a_pod_whose_node_vanished_ends_with_it(stack: Stack) -> None:
    pod(stack, "stranded", "lost", vgpu(1000))
    runs(stack, "stranded")
    stack.call("DELETE", "/api/v1/nodes/lost", {})
    end = ends(stack, "stranded")
    assert (end["kind"], end["node"]) == ("NodeGone", "lost")
    log = json.loads(allot(stack, "log", "--pod", "stranded", "-o", "json"))
    gone = next(line for line in log if line["type"] == "NodeGone")
    assert gone["seq"] == end["nodeGoneSeq"]


def test_a_long_wait_is_a_few_lines_and_its_end_says_for_what(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a node can be used again it is tried again, and refused for the same reason."""
    stack.create_pod("patient", vgpu(999_999))
    stack.until(lambda: attempts(stack, "patient") > 0, "it was tried")
    for _ in range(3):
        before = attempts(stack, "patient")
        for is_cordoned in (True, False):
            stack.patch_node("drained", {"spec": {"unschedulable": is_cordoned}})
            stack.until(
                lambda now=is_cordoned: is_seen_cordoned(stack, "drained") is now,  # type: ignore[misc]
                "the watcher has seen it",
            )
        stack.until(
            lambda seen=before: attempts(stack, "patient") > seen,  # type: ignore[misc]
            "it is tried again",
        )
    monkeypatch.setattr("allotment_cli.show.output.screen_width", lambda: 80)
    shown = allot(stack, "explain", "pod", "patient").splitlines()
    timeline = shown[shown.index("Timeline") + 2 :]
    assert len(timeline) <= 8
    assert "attempts in" in " ".join(timeline)
    stack.delete_pod("patient")
    end = ends(stack, "patient")
    assert end["kind"] == "DeletedWhileWaiting"
    assert "InsufficientGPUMemory" in end["waitedFor"]
