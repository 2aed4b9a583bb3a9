"""Jobs whose pods belong together, through all services as processes: tasks near each other or
apart, and partitions that start whole."""

from collections.abc import Iterator
from typing import Any

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_proto.codec import decode_envelope
from tests.e2e.audit import assert_sound
from tests.e2e.stack import Json, Stack, task

NODES = """
- prefix: n
  count: 3
  cpu: 3
  memory: 32Gi
"""
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: task-topology
    arguments:
      task-topology.weight: 10
  - name: proportion
  - name: nodeorder
"""
TOPOLOGY = "volcano.sh/task-topology-"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("together")
    with Stack(directory, NODES, policy=POLICY, controlled=True) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.leave_empty()


def create(stack: Stack, name: str, *tasks: Json, least: int, **topology: str) -> None:
    annotations = {TOPOLOGY + key.replace("_", "-"): text for key, text in topology.items()}
    stack.create_job(name, *tasks, least=least, annotations=annotations)


def cpus(name: str, replicas: int, cpu: int = 1, **fields: Any) -> Json:
    """A task whose pods ask for CPU."""
    return task(name, replicas, {"cpu": str(cpu), "memory": "64Mi"}, **fields)


def nodes_of(stack: Stack, count: int) -> dict[str, str]:
    """Where so many pods went, as soon as they have a node."""
    stack.until(lambda: len(stack.bound()) == count, f"{count} pods are bound")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in stack.pods()}


def test_each_server_has_its_workers_beside_it(stack: Stack) -> None:
    """By `nodeorder` alone pods go where least is in use, and no node would have three."""
    servers, workers = cpus("ps", 2), cpus("worker", 4)
    create(stack, "j", servers, workers, least=6, affinity="ps,worker", anti_affinity="ps")
    found = nodes_of(stack, 6)
    assert found["j-ps-0"] == found["j-worker-0"] == found["j-worker-2"]
    assert found["j-ps-1"] == found["j-worker-1"] == found["j-worker-3"]
    assert found["j-ps-0"] != found["j-ps-1"]
    assert_sound(stack)


def test_servers_that_avoid_each_other_are_spread(stack: Stack) -> None:
    create(stack, "apart", cpus("ps", 3), least=3, anti_affinity="ps")
    assert sorted(nodes_of(stack, 3).values()) == ["n-0", "n-1", "n-2"]


def test_a_value_that_cannot_be_followed_is_told_and_stops_nobody(stack: Stack) -> None:
    create(stack, "bad", cpus("ps", 2), least=2, affinity="ps,wroker")
    create(stack, "good", cpus("ps", 3), least=3, anti_affinity="ps")
    nodes = nodes_of(stack, 5)
    assert sorted(nodes[f"good-ps-{n}"] for n in range(3)) == ["n-0", "n-1", "n-2"]

    def told() -> list[str]:
        events = stack.call("GET", EVENTS)["items"]
        return [event["message"] for event in events if event["reason"] == "NoEffect"]

    stack.until(lambda: bool(told()), "the Job has an event")
    (said,) = told()
    assert "task-topology-affinity names the task 'wroker'" in said


def test_no_partition_starts_in_part(stack: Stack) -> None:
    """Pods of 2 CPUs: there is room for three, so for one of two partitions of two."""
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    create(stack, "parts", cpus("w", 4, cpu=2, partitionPolicy=policy), least=2)
    stack.until(lambda: len(stack.bound()) == 2, "one partition runs")

    def refused() -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in stack.pods()
            for said in (pod.get("status") or {}).get("conditions") or ()
            if said["type"] == "PodScheduled" and said["status"] == "False"
        }

    stack.until(lambda: len(refused()) == 2, "the others hear why they wait")
    assert {name.rpartition("-")[2] for name in refused()} == {"2", "3"}
    state = ClusterState()
    for record in stack.records():
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        held = [
            dict(pod.fact.labels)["volcano.sh/partition-id"]
            for pod in state.pods.values()
            if pod.allocation is not None and pod.fact.name.startswith("parts-")
        ]
        assert all(held.count(partition) == 2 for partition in held)
