"""Cluster autoscalers add nodes for pods that nodes help, and for no others.

The autoscaler here picks pods as cluster-autoscaler and Karpenter do: those with the condition
`PodScheduled=False` and the reason `Unschedulable` that wait for no nominated node. For these it
adds one node at a time, as long as there are some.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shapes import CPU, NodeShape
from tests.e2e.audit import assert_sound
from tests.e2e.queued import POLICY, pod
from tests.e2e.stack import QUEUES, Json, Stack, task

NODES = "- {name: n0, cpu: 8, memory: 32Gi}\n"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


class Autoscaler:
    """Adds nodes like the first one."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.added = 0

    def pending(self) -> set[str]:
        """The pods for which nodes are to be added."""
        found: set[str] = set()
        for each in self.stack.pods():
            status = each["status"]
            is_asked = any(
                (one["type"], one["status"], one.get("reason"))
                == ("PodScheduled", "False", "Unschedulable")
                for one in status.get("conditions") or ()
            )
            waits = not each["spec"].get("nodeName") and not status.get("nominatedNodeName")
            if is_asked and waits:
                found.add(each["metadata"]["name"])
        return found

    def add(self) -> None:
        self.added += 1
        shape = NodeShape(f"n{self.added}", CPU, cpu="8", memory="32Gi")
        for body in node_objects((shape,), "2026-11-20T14:00:00Z"):
            self.stack.call("POST", "/api/v1/nodes", body)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, NODES, policy=POLICY, controlled=True) as running:
        yield running


def said(stack: Stack, name: str) -> Json:
    """The condition of a pod that waits; empty before it has one."""
    conditions = stack.pod(name)["status"].get("conditions") or ()
    return next((dict(one) for one in conditions if one["type"] == "PodScheduled"), {})


def test_nodes_are_added_for_room_and_never_for_a_quota(stack: Stack) -> None:
    scaler = Autoscaler(stack)
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    spec = {"weight": 1, "capability": {"cpu": "4"}}
    stack.call("POST", QUEUES, {**body, "metadata": {"name": "small"}, "spec": spec})
    pod(stack, "quota-a", 4, {QUEUE_NAME: "small"})
    stack.until(lambda: "quota-a" in stack.bound(), "the queue's part is used")
    pod(stack, "quota-b", 4, {QUEUE_NAME: "small"})
    pod(stack, "unread", 1, {QUEUE_NAME: "no-such-queue"})
    for name in ("quota-b", "unread"):
        stack.until(lambda name=name: bool(said(stack, name)), f"{name} says why it waits")  # type: ignore[misc]
    assert said(stack, "quota-b")["reason"] == "QueueQuotaInsufficient"
    assert said(stack, "unread")["reason"] == "QueueUnknown"
    assert scaler.pending() == set()

    pod(stack, "large", 6)
    stack.until(lambda: scaler.pending() == {"large"}, "a node is wanted for the large pod")
    scaler.add()
    stack.until(lambda: "large" in stack.bound(), "it is bound")
    stack.until(lambda: scaler.pending() == set(), "no other node is wanted")
    assert stack.node_of("large") == "n1"
    assert said(stack, "large")["status"] == "True"
    assert_sound(stack)


def test_a_pod_that_evicts_others_wants_no_node(tmp_path: Path) -> None:
    policy = POLICY.replace("  - name: gang\n", "").replace("enqueue, ", "")
    with Stack(tmp_path, NODES, policy=policy, controlled=True) as stack:
        scaler = Autoscaler(stack)
        stack.create_class("high", 1_000)
        pod(stack, "low", 6)
        stack.until(lambda: "low" in stack.bound(), "the node is full")
        pod(stack, "high", 6, priorityClassName="high")
        stack.until(lambda: "high" in stack.bound(), "it has evicted the other")
        assert scaler.pending() == set()


def test_a_gang_gets_as_many_nodes_as_it_needs(tmp_path: Path) -> None:
    """Without the action enqueue: a gang that waits at its queue's gate has no pods."""
    with Stack(tmp_path, NODES, policy=POLICY.replace("enqueue, ", ""), controlled=True) as stack:
        scaler = Autoscaler(stack)
        stack.create_job("wide", task("w", 3, {"cpu": "6"}), least=3)
        for number in (1, 2):
            stack.until(lambda: len(scaler.pending()) == 3, "its pods want nodes")
            scaler.add()
            assert scaler.added == number
        stack.until(lambda: len(stack.bound()) == 3, "all three are bound")
        assert scaler.pending() == set()
        assert_sound(stack)
