"""Twenty gangs of eight race for room for ten in batches, and in the midst of each the scorer
or the binder is killed.

Ten whole gangs run in the end, the others hold nothing, and at no moment of the log did a gang hold
a part of itself.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.logport import Record
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided, Evicted
from tests.e2e.audit import assert_not_oversold, assert_sound, events
from tests.e2e.stack import CLASSES, GROUPS, Stack, task, vgpu

NODES = """
- prefix: g
  count: 4
  gpus: {model: Tesla T4, count: 4, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
POLICY = """
actions: "enqueue, allocate, backfill, preempt"
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
AT_ONCE = 4


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    keep = ["--snapshot-dir", str(tmp_path / "snapshots")]
    options = dict.fromkeys(("filter", "scorer", "binder"), keep)
    with Stack(tmp_path, NODES, policy=POLICY, controlled=True, options=options) as running:
        yield running


def create(
    stack: Stack, name: str, replicas: int = SIZE, least: int = SIZE, priority: str = ""
) -> None:
    """A Job whose workers have a fifth of a card each: two cards hold ten of them."""
    workers = task("worker", replicas, vgpu(3200, 20))
    stack.create_job(name, workers, least=least, priorityClassName=priority)


def bound(stack: Stack) -> Counter[str]:
    """How many pods of each Job have a node."""
    return Counter(name.rpartition("-worker-")[0] for name in stack.bound())


def phases(stack: Stack) -> Counter[str]:
    items = stack.call("GET", GROUPS.format("default"))["items"]
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
    for first in range(0, GANGS, AT_ONCE):
        before = bound(stack).total()
        for number in range(first, first + AT_ONCE):
            create(stack, f"gang-{number}")
        stack.until(
            lambda n=before: bound(stack).total() > n or n == FIT * SIZE,  # type: ignore[misc]
            "their pods are being bound, while there is room",
        )
        time.sleep(dice.uniform(0.0, 0.1))
        role = dice.choice(("scorer", "binder"))
        stack.kill(role)
        assert_not_oversold(stack.pods(), stack.call("GET", "/api/v1/nodes")["items"])
        stack.start(role)
    stack.until(
        lambda: bound(stack).total() == FIT * SIZE,
        f"ten gangs are bound; {bound(stack)}",
    )
    assert set(bound(stack).values()) == {SIZE}
    stack.until(
        lambda: phases(stack) == {"Running": FIT, "Inqueue": GANGS - FIT},
        "their PodGroups run, the others wait",
    )
    stack.until(lambda: len(stack.pods()) == GANGS * SIZE, "all pods are made")
    waiting = {pod["metadata"]["name"] for pod in stack.pods()} - stack.bound()
    assert len(waiting) == (GANGS - FIT) * SIZE
    stack.until(lambda: all(stack.refusal(name) for name in waiting), "the others hear why")
    stack.until(
        lambda: stack.metric("scorer", "volcano_unschedule_job_count") == GANGS - FIT,
        "and it is counted",
    )
    assert_sound(stack)
    assert_never_partial(stack.records())
    assert stack.metric("binder", "allot_notices_lost_total") == 0


def test_a_high_gang_takes_no_more_room_than_it_needs(stack: Stack) -> None:
    for name, value in (("high", 100), ("low", 1)):
        stack.call("POST", CLASSES, {"metadata": {"name": name}, "value": value})
    create(stack, "low", FIT * SIZE, 1, "low")
    stack.until(lambda: bound(stack) == {"low": FIT * SIZE}, "the cluster is full")
    create(stack, "high", SIZE, SIZE, "high")
    stack.until(lambda: bound(stack)["high"] == SIZE, f"the gang runs; {bound(stack)}")
    stack.until(lambda: len(stack.pods()) == (FIT + 1) * SIZE, "the evicted ones are made anew")
    stack.until(lambda: bound(stack) == {"low": (FIT - 1) * SIZE, "high": SIZE}, "the rest stays")
    stack.until(lambda: phases(stack) == {"Running": 2}, "both run, one on less")
    assert_sound(stack)
    outcomes = [event for event in events(stack) if isinstance(event, Evicted)]
    assert [event.code for event in outcomes] == [""] * SIZE
    chosen = [e for event in events(stack) if isinstance(event, Decided) for e in event.evictions]
    assert sorted(e.uid for e in chosen) == sorted(event.uid for event in outcomes)
    for eviction in chosen:
        assert eviction.action == "preempt"
        assert eviction.preemptor.startswith("default/high-")
        (said,) = stack.events(eviction.name, "Evict")
        assert said.startswith("Preempted by default/high-")


def test_pods_wait_for_their_podgroup_and_say_so(stack: Stack) -> None:
    link = {"scheduling.k8s.io/group-name": "late"}
    for name in ("a", "b"):
        stack.create_pod(name, vgpu(3200, 20), annotations=link)
    for name in ("a", "b"):
        stack.until(lambda name=name: bool(stack.events(name, "FailedScheduling")), name)  # type: ignore[misc]
        assert stack.refusal(name).startswith("GroupMissing: PodGroup default/late does not exist")
        assert stack.events(name, "FailedScheduling") == [stack.refusal(name)]
    assert stack.bound() == set()
    stack.call(
        "POST", GROUPS.format("default"), {"metadata": {"name": "late"}, "spec": {"minMember": 2}}
    )
    stack.until(lambda: stack.bound() == {"a", "b"}, "the group is there")
    assert_sound(stack)
