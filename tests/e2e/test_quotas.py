"""Quota, gate and minimum bind pods that nobody made a PodGroup for, however fast they are placed.

The pods come alone, or by an owner, and the controller makes their PodGroups while the scheduler is
at work. What each queue may have, and who starts with whom, is the same as with PodGroups first.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.audit import assert_sound
from tests.e2e.queued import NAMESPACES, NODES, POLICY, pod
from tests.e2e.stack import QUEUES, Json, Stack

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"

QUEUE_NAME = "scheduling.volcano.sh/queue-name"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTING = """
actions: "allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: conformance
- plugins:
  - name: predicates
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("quotas")
    with Stack(directory, NODES, policy=POLICY, controlled=True) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.leave_empty()
    for found in running.call("GET", QUEUES)["items"]:
        if found["metadata"]["name"] not in ("root", "default"):
            running.call("DELETE", f"{QUEUES}/{found['metadata']['name']}", {})


@pytest.fixture
def preempting(tmp_path: Path) -> Iterator[Stack]:
    """A full cluster; pods of the class high have others evicted."""
    with Stack(tmp_path, NODES, policy=PREEMPTING, controlled=True) as stack:
        stack.create_class("high", 1000)
        yield stack


def metadata_of(stack: Stack, name: str) -> Json:
    return {p["metadata"]["name"]: dict(p["metadata"]) for p in stack.pods()}[name]


def queue(stack: Stack, name: str, **spec: object) -> None:
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    stack.call("POST", QUEUES, {**body, "metadata": {"name": name}, "spec": spec})


def replica_set(stack: Stack, name: str, **annotations: str) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": name, "annotations": annotations}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    return stack.call("POST", REPLICA_SETS, body)


def allocated(stack: Stack, name: str) -> Json | None:
    """What a queue's status says it has, its state being there as well."""
    status = stack.call("GET", f"{QUEUES}/{name}").get("status") or {}
    assert status.get("state") == "Open"
    return status.get("allocated")


def told(stack: Stack, *names: str) -> bool:
    """Whether each of these pods has been told why it waits."""
    return all(stack.refusal(name) for name in names)


def unbound_and_told(stack: Stack, count: int) -> bool:
    """Whether so many pods wait, and all of them have been told why, by their group's queue."""
    waiting = [p["metadata"]["name"] for p in stack.pods() if not p["spec"].get("nodeName")]
    return len(waiting) == count and told(stack, *waiting)


def test_bare_pods_at_once_get_no_more_than_their_queues_capability(stack: Stack) -> None:
    queue(stack, "small", weight=1, capability={"cpu": "4"})
    for n in range(24):
        pod(stack, f"p{n}", 1, {QUEUE_NAME: "small"})
    stack.until(lambda: unbound_and_told(stack, 20), "20 of 24 wait and know why")
    assert len(stack.bound()) == 4
    has = {"cpu": "4", "memory": "0", "pods": "4"}
    for name in ("small", "root"):
        stack.until(lambda name=name: allocated(stack, name) == has, f"{name} says what it has")  # type: ignore[misc]
    assert allocated(stack, "default") == {"cpu": "0", "memory": "0"}
    stack.delete_pod(min(stack.bound()))
    stack.until(lambda: len(stack.pods()) == 23 and len(stack.bound()) == 4, "another has its part")
    assert_sound(stack)


def test_pods_in_a_namespace_that_names_a_queue_share_its_capability(stack: Stack) -> None:
    """From the first pod on, also by those that name the queue `default` to get out of it."""
    queue(stack, "team", weight=1, capability={"cpu": "4"})
    annotations = {QUEUE_NAME: "team"}
    body = {"metadata": {"name": "team-a", "annotations": annotations}}
    stack.call("POST", NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **body})
    for n in range(12):
        named = {QUEUE_NAME: "default"} if n % 2 else None
        pod(stack, f"p{n}", 1, named, namespace="team-a")

    def pods() -> list[Json]:
        return list(stack.call("GET", f"{NAMESPACES}/team-a/pods")["items"])

    def waiting() -> list[Json]:
        return [
            p
            for p in pods()
            if not p["spec"].get("nodeName") and "PodScheduled" in str(p.get("status"))
        ]

    def bound() -> list[Json]:
        return [p for p in pods() if p["spec"].get("nodeName")]

    stack.until(
        lambda: (len(bound()), len(waiting())) == (4, 8), "4 of 12 are bound, 8 wait and know why"
    )
    has = {"cpu": "4", "memory": "0", "pods": "4"}
    stack.until(lambda: allocated(stack, "team") == has, "the queue says what it has")
    pod(stack, "elsewhere", 1)
    stack.until(lambda: bool(stack.node_of("elsewhere")), "a pod of another namespace is placed")
    assert allocated(stack, "team") == has


def test_pods_of_an_owner_in_a_queue_of_less_than_they_ask_for(stack: Stack) -> None:
    owner = replica_set(stack, "over")
    for n in range(6):
        pod(stack, f"over-{n}", 2, {QUEUE_NAME: "late"}, owner)
    queue(stack, "late", weight=1, capability={"cpu": "4"})
    stack.until(lambda: len(stack.bound()) == 2, "two of six run")
    stack.until(lambda: unbound_and_told(stack, 4), "the others know why not")
    assert_sound(stack)


def test_pods_of_an_owner_start_together_or_not_at_all(stack: Stack) -> None:
    owner = replica_set(stack, "gang", **{MIN_MEMBER: "4"})
    for n in range(4):
        pod(stack, f"gang-{n}", 7, None, owner)
    stack.until(lambda: unbound_and_told(stack, 4), "all four are told why they wait")
    assert not stack.bound()


def test_the_guarantee_of_another_queue_is_left_alone_by_bare_pods(stack: Stack) -> None:
    queue(stack, "owner", weight=1, guarantee={"resource": {"cpu": "14"}})
    for n in range(8):
        pod(stack, f"p{n}", 2)
    stack.until(lambda: unbound_and_told(stack, 3), "three of eight wait and know why")
    assert len(stack.bound()) == 5
    for n in range(7):
        pod(stack, f"owner-{n}", 2, {QUEUE_NAME: "owner"})
    stack.until(lambda: len(stack.bound()) == 12, "the owner of the guarantee gets all of it")
    assert_sound(stack)


def test_a_queue_that_is_closed_or_missing_takes_no_bare_pod(stack: Stack) -> None:
    queue(stack, "shut", weight=1)
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "shut"}
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "close"},
        "action": "CloseQueue",
        "target": target,
    }
    stack.call("POST", "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", command)

    def is_closed() -> bool:
        status = stack.call("GET", f"{QUEUES}/shut").get("status") or {}
        return status.get("state") == "Closed"

    stack.until(is_closed, "the queue is closed")
    pod(stack, "late", 1, {QUEUE_NAME: "shut"})
    pod(stack, "lost", 1, {QUEUE_NAME: "nowhere"})
    stack.until(lambda: told(stack, "late", "lost"), "both are told")
    assert "shut is Clos" in stack.refusal("late")
    assert "nowhere" in stack.refusal("lost")
    assert not stack.bound()


def test_an_annotation_lifts_no_pod_over_those_of_others(stack: Stack) -> None:
    """A full cluster, older pods that wait, and a pod that calls itself important."""
    for n in range(3):
        pod(stack, f"full-{n}", 8)
    stack.until(lambda: len(stack.bound()) == 3, "the cluster is full")
    for n in range(2):
        pod(stack, f"older-{n}", 8)
    stack.until(lambda: told(stack, "older-0", "older-1"), "those wait that came before")
    made_at = datetime.fromisoformat(stack.pod("older-1")["metadata"]["creationTimestamp"])
    stack.until(lambda: time.time() >= made_at.timestamp() + 1, "the next is younger")
    pod(stack, "pushy", 8, {TASK_PRIORITY: "2000000000"})
    stack.until(lambda: told(stack, "pushy"), "it waits as well")
    assert {"full-0", "full-1", "full-2"} == stack.bound()
    stack.delete_pod("full-1")
    stack.until(lambda: {"older-0", "older-1"} & stack.bound() != set(), "an older one is next")
    assert "pushy" not in stack.bound()


def test_a_pod_that_takes_a_day_to_end_keeps_no_preemptor_waiting(preempting: Stack) -> None:
    """Its owner deletes it, and it stays: another one makes room, or it has to end sooner."""
    day_s = 86_400
    slow = {"allotment.dev/stop-delay": f"{day_s}s"}
    stack = preempting
    for n in range(3):
        pod(stack, f"full-{n}", 8, slow if n == 0 else None)
    stack.until(lambda: len(stack.bound()) == 3, "the cluster is full")
    path = f"{NAMESPACES}/default/pods/full-0"
    stack.call("DELETE", path, {"gracePeriodSeconds": day_s})
    stack.until(lambda: "deletionTimestamp" in metadata_of(stack, "full-0"), "it is ending")
    pod(stack, "high", 8, priorityClassName="high")
    stack.until(lambda: "high" in stack.bound(), "the one of a higher class has its place")
    assert "full-0" in stack.bound(), "it takes its time"
    assert len(stack.pods()) == 3
    assert_sound(stack)


def test_what_is_freed_by_eviction_goes_to_whom_it_was_freed_for(preempting: Stack) -> None:
    """The preemptor's PodGroup is made while its victim leaves, and older pods wait too. One that
    only calls itself important has nobody evicted.
    """
    stack = preempting
    for n in range(3):
        pod(stack, f"full-{n}", 8)
    stack.until(lambda: len(stack.bound()) == 3, "the cluster is full")
    pod(stack, "older", 8)
    pod(stack, "pushy", 8, {TASK_PRIORITY: "2000000000"})
    stack.until(lambda: told(stack, "older", "pushy"), "both wait")
    pod(stack, "high", 8, priorityClassName="high")
    stack.until(lambda: "high" in stack.bound(), "the one of a higher class has its place")
    assert len(stack.bound()) == 3
    assert not {"older", "pushy"} & stack.bound()
    assert len(stack.pods()) == 5, "one went for it, and nobody else"
    assert_sound(stack)
