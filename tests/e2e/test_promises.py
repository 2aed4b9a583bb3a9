"""What one tenant's groups claim, and never use, costs another tenant neither a place nor a turn.

Each claim takes no more than the right to create PodGroups, Jobs and pods in a namespace.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.queued import NODES, POLICY, pod
from tests.e2e.stack import GROUPS, Json, Stack, container, task
from tests.replaying import verify

GROUP = "scheduling.k8s.io/group-name"
CPUS = 24
"""What the nodes have together."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    policy = POLICY.replace("name: gang", "name: gang\n    enablePreemptable: false")
    with Stack(tmp_path, NODES, policy=policy, controlled=True) as running:
        for name in ("ta", "tb"):
            running.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield running


def group(stack: Stack, name: str, **spec: object) -> None:
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    stack.call("POST", GROUPS.format("ta"), {**body, "metadata": {"name": name}, "spec": spec})


def pods_of(stack: Stack, namespace: str) -> dict[str, Json]:
    found = stack.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {each["metadata"]["name"]: each for each in found}


def placed(stack: Stack, namespace: str) -> set[str]:
    found = pods_of(stack, namespace)
    return {name for name, each in found.items() if each["spec"].get("nodeName")}


def test_what_is_promised_and_not_used_keeps_nobody_out(stack: Stack) -> None:
    for number in range(9):
        group(stack, f"hog{number}", minMember=2, minResources={"cpu": CPUS // 8})
        made = container("main", {}, {"cpu": "10m"})
        in_group = {GROUP: f"hog{number}"}
        pod(stack, f"hog{number}", 0, in_group, namespace="ta", containers=[made])
    stack.until(
        lambda: any(
            (g.get("status") or {}).get("phase") == "Inqueue"
            for g in stack.call("GET", GROUPS.format("ta"))["items"]
        ),
        "groups are let in",
    )
    mistyped = {"nodeSelector": {"gpu": "h2000"}}
    stack.create_job("typo", task("t", 3, {"cpu": 8}, mistyped), least=3, namespace="ta")
    stack.until(lambda: len(pods_of(stack, "ta")) == 12, "the job with the typo is let in, too")
    pod(stack, "meek", 8, namespace="tb")
    stack.create_job("good", task("t", 2, {"cpu": 8}), least=2, namespace="tb")
    wanted = {"meek", "good-t-0", "good-t-1"}
    stack.until(lambda: placed(stack, "tb") == wanted, "all of the other tenant's pods run")
    assert not placed(stack, "ta")

    # anybody may write any class into a PodGroup
    group(stack, "top", minMember=1, priorityClassName="system-node-critical")
    pod(stack, "top", 8, {GROUP: "top"}, namespace="ta")

    def is_refused() -> bool:
        conditions = pods_of(stack, "ta")["top"]["status"].get("conditions") or ()
        return any(each["type"] == "PodScheduled" for each in conditions)

    stack.until(is_refused, "the pod whose group names a high class is refused")
    assert placed(stack, "tb") == wanted
    report = verify(stack.records())
    assert report.identical == report.decisions > 0
