"""Jobs through all services as processes: three workers start, rest, go on, and finish."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.audit import assert_sound, held
from tests.e2e.jobs import NODES, create
from tests.e2e.stack import JOBS, Json, Stack

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
LASTING = "allotment.dev/run-duration"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("jobs"), NODES, controlled=True) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.leave_empty()


def command(stack: Stack, action: str, job: str) -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job}
    body = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action}
    stack.call("POST", COMMANDS, {**body, "metadata": {"generateName": "c-"}, "target": target})


def status(stack: Stack, job: str) -> Json:
    return dict(stack.call("GET", f"{JOBS.format('default')}/{job}").get("status") or {})


def reaches(stack: Stack, job: str, phase: str) -> None:
    def holds() -> bool:
        return str((status(stack, job).get("state") or {}).get("phase")) == phase

    stack.until(holds, f"{job} is {phase}")


def test_three_workers_start_rest_go_on_and_finish(stack: Stack) -> None:
    create(stack, "three")
    reaches(stack, "three", "Running")
    pods = {pod["metadata"]["name"]: pod for pod in stack.pods()}
    assert sorted(pods) == ["three-worker-0", "three-worker-1", "three-worker-2"]
    for index in range(3):
        pod = pods[f"three-worker-{index}"]
        env = {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}
        assert env["VC_TASK_INDEX"] == str(index)
        assert pod["spec"]["nodeName"] == "v"
        assert [share[1] for share in held(pod)] == [2000]
    (group,) = stack.call("GET", GROUPS)["items"]
    assert group["spec"]["minMember"] == 3
    command(stack, "AbortJob", "three")
    reaches(stack, "three", "Aborted")
    stack.until(lambda: not stack.pods(), "suspended, it holds nothing")
    command(stack, "ResumeJob", "three")
    reaches(stack, "three", "Running")
    stack.until(lambda: len(stack.bound()) == 3, "all three are back")
    for name in pods:
        body = {"metadata": {"annotations": {LASTING: "100ms"}}}
        path = f"/api/v1/namespaces/default/pods/{name}"
        stack.call("PATCH", path, body, "application/merge-patch+json")
    reaches(stack, "three", "Completed")
    found = status(stack, "three")
    assert (found["succeeded"], found["retryCount"]) == (3, 1)
    assert_sound(stack)


def test_a_controller_that_is_killed_midway_loses_and_doubles_nothing(stack: Stack) -> None:
    for number in range(4):
        create(stack, f"many-{number}", 4)
        if number % 2:
            stack.kill("controller")
            stack.start("controller")
    for number in range(4):
        reaches(stack, f"many-{number}", "Running")
    stack.until(lambda: len(stack.bound()) == 16, "all sixteen")
    assert len(stack.pods()) == 16
    assert {status(stack, f"many-{number}").get("retryCount") for number in range(4)} == {0}
    assert stack.metric("controller", "allot_controller_defects_total") == 0
    assert_sound(stack)


def test_a_second_controller_is_a_standby_and_takes_over(stack: Stack) -> None:
    stack.start("controller-2")
    stack.until(
        lambda: "standby" in str(stack.readiness("controller-2")[1]), "the second one stands by"
    )
    stack.kill("controller")
    create(stack, "taken-over", 1)
    reaches(stack, "taken-over", "Running")
    assert stack.metric("controller-2", "allot_controller_pods_created_total") == 1
    stack.kill("controller-2")
    stack.start("controller")


def test_it_stands_aside_while_volcanos_controllers_run(stack: Stack) -> None:
    stack.call(
        "POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "volcano-system"}}
    )
    leases = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
    spec = {"holderIdentity": "vc-0", "leaseDurationSeconds": 60}
    body = {"metadata": {"name": "vc-controller-manager"}, "spec": spec}
    stack.call("POST", leases, body)
    stack.until(
        lambda: "standing aside" in str(stack.readiness("controller")[1]), "it stands aside"
    )
    assert stack.is_ready("controller")
    create(stack, "not-ours", 1)
    time.sleep(0.5)
    assert status(stack, "not-ours") == {}
    stack.call("DELETE", f"{leases}/vc-controller-manager", {})
    reaches(stack, "not-ours", "Running")
