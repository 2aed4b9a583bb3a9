"""Twenty gangs of eight race for room for ten while scorer and binder are killed at random.

Ten whole gangs run in the end, the others hold nothing, and at no moment of the log did a gang hold
a part of itself.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from allotment.core.logport import Record
from allotment.core.state import ClusterState, apply_all
from allotment_local.definitions import read_definitions
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided
from tests.e2e.audit import assert_not_oversold, assert_sound
from tests.e2e.stack import Stack

NODES = """
- prefix: g
  count: 4
  gpus: {model: Tesla T4, count: 4, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: deviceshare
    arguments:
      deviceshare.SchedulePolicy: binpack
  - name: predicates
  - name: nodeorder
  - name: binpack
"""
GANGS, SIZE, FIT = 20, 8, 10
KILLS = 6
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(POLICY)
    keep = ["--snapshot-dir", str(tmp_path / "snapshots")]
    kube = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--scheduler-names", "allotment,volcano"]
    options = {
        "watcher": ["--policy-file", str(config)],
        "controller": [*kube, "--no-admit"],
        **dict.fromkeys(("filter", "scorer", "binder"), keep),
    }
    with Stack(tmp_path, NODES, services=(), options=options) as running:
        for definition in read_definitions():
            running.call("POST", DEFINITIONS, definition)
        services = ("watcher", "filter", "scorer", "binder", "controller")
        for name in services:
            running.start(name, wait=False)
        for name in services:
            running.processes[name].announce()
            running.until(lambda name=name: running.is_ready(name), f"{name} is ready")  # type: ignore[misc]
        yield running


def create(stack: Stack, name: str) -> None:
    """A Job of eight workers with a fifth of a card each: two cards hold ten of them."""
    amounts = {"number": 1, "memory": 3200, "cores": 20}
    limits = {f"volcano.sh/vgpu-{key}": amount for key, amount in amounts.items()}
    container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "schedulerName": "volcano",
        "minAvailable": SIZE,
        "tasks": [{"name": "worker", "replicas": SIZE, "template": template}],
    }
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    stack.call("POST", JOBS, {**body, "metadata": {"name": name}, "spec": spec})


def bound(stack: Stack) -> Counter[str]:
    """How many pods of each Job have a node."""
    return Counter(name.rpartition("-worker-")[0] for name in stack.bound())


def phases(stack: Stack) -> Counter[str]:
    items = stack.call("GET", GROUPS)["items"]
    return Counter((item.get("status") or {}).get("phase", "") for item in items)


def assert_never_partial(records: list[Record]) -> None:
    """After every record each gang holds all of its minimum, or nothing."""
    state = ClusterState()
    for record in records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        for event in envelope.events:
            if isinstance(event, Decided):
                placed = Counter(state.pods[p.uid].fact.group for p in event.placements)
                assert set(placed.values()) <= {SIZE}, (record.seq, placed)
        held = Counter(pod.fact.group for pod in state.pods.values() if pod.allocation is not None)
        assert set(held.values()) <= {SIZE}, (record.seq, held)


def test_ten_of_twenty_gangs_run_whole_whoever_is_killed(stack: Stack) -> None:
    dice = Random(5)
    kills = set(dice.sample(range(GANGS), KILLS))
    for number in range(GANGS):
        create(stack, f"gang-{number}")
        if number in kills:
            time.sleep(dice.uniform(0.0, 0.5))
            role = dice.choice(("scorer", "binder"))
            stack.kill(role)
            assert_not_oversold(stack.pods(), stack.call("GET", "/api/v1/nodes")["items"])
            stack.start(role, wait=False).announce()
    stack.until(
        lambda: sum(bound(stack).values()) == FIT * SIZE,
        f"ten gangs are bound; {bound(stack)}",
        60.0,
    )
    assert set(bound(stack).values()) == {SIZE}
    stack.until(
        lambda: phases(stack) == {"Running": FIT, "Inqueue": GANGS - FIT},
        "their PodGroups run, the others wait",
    )
    waiting = {pod["metadata"]["name"] for pod in stack.pods()} - stack.bound()
    assert len(waiting) == (GANGS - FIT) * SIZE
    stack.until(lambda: all(stack.refusal(name) for name in waiting), "the others hear why")
    stack.until(
        lambda: stack.metric("scorer", "volcano_unschedule_job_count") == GANGS - FIT,
        "and it is counted",
    )
    time.sleep(0.5)
    assert_sound(stack)
    assert_never_partial(stack.records())
    assert stack.metric("binder", "allot_notices_lost_total") == 0
