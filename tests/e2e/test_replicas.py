"""Two of each: the lease decides who works, the log alone decides what is true."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment_proto.codec import decode_envelope
from allotment_proto.events import Bound
from tests.e2e.audit import assert_sound, fold
from tests.e2e.stack import ROLES, TOGETHER, Stack, vgpu

NODES = """
- prefix: g
  count: 4
  gpus: {model: Tesla T4, count: 4, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
DOUBLED = ("filter", "scorer", "binder")
WORK_DONE = {
    "filter": "allot_cycles_total",
    "scorer": "allot_proposals_total",
    "binder": "allot_decisions_total",
    "scheduler": "allot_decisions_total",
}
TAKEN_OVER_S_MAX = 30.0
"""Ten times as long as it takes on two busy processors: a lease of 2 s, and one cycle."""
FROZEN_S = 4.0
"""Longer than a lease lives."""


@pytest.fixture(params=[DOUBLED, TOGETHER], ids=["apart", "together"])
def doubled(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The services that have a second replica, the one that binds last."""
    names: tuple[str, ...] = request.param
    return names


@pytest.fixture
def stack(tmp_path: Path, doubled: tuple[str, ...]) -> Iterator[Stack]:
    others = TOGETHER if doubled == TOGETHER else ROLES
    services = (*others, *(f"{role}-2" for role in doubled))
    with Stack(tmp_path, NODES, services=services) as running:
        yield running


def active(stack: Stack, role: str) -> str:
    """The replica that did the work so far."""
    work = {name: stack.metric(name, WORK_DONE[role]) for name in (role, f"{role}-2")}
    idle, busy = sorted(work, key=lambda name: work[name])
    assert work[idle] == 0 < work[busy], work
    for name, works in ((busy, True), (idle, False)):  # and each says so
        assert stack.metric(name, "allot_active") == works
        status, body = stack.readiness(name)
        assert (status, body["holds"]["lease"].partition(" ")[0].rstrip(",:")) == (
            200,
            "active" if works else "standby",
        )
    assert '"msg":"active"' in stack.processes[busy].log_path.read_text()
    stack.until(lambda: shown(stack, role) == busy, f"a Lease names {busy}")
    return busy


def shown(stack: Stack, role: str) -> str:
    """Who is active, as `kubectl get leases` prints it."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/allotment-system/leases"
    found = {one["metadata"]["name"]: one["spec"] for one in stack.call("GET", leases)["items"]}
    return str(found.get(f"allotment-{role}", {}).get("holderIdentity", ""))


def next_bound_ns(stack: Stack, after_ns: int) -> int:
    """When the log first says after a moment that a pod was bound."""
    return min(
        record.time_ns
        for record in stack.records()
        if record.time_ns > after_ns
        and any(isinstance(event, Bound) for event in decode_envelope(record.payload).events)
    )


def create(stack: Stack, first: int, last: int) -> None:
    for number in range(first, last):
        stack.create_pod(f"p{number}", vgpu(1600, 10))


def all_bound(stack: Stack, number: int) -> None:
    stack.until(lambda: len(stack.bound()) == number, f"{number} pods are bound")
    stack.until(lambda: all(pod["status"]["phase"] == "Running" for pod in stack.pods()), "all run")
    time.sleep(0.5)


def test_standbys_take_over_from_the_killed(stack: Stack, doubled: tuple[str, ...]) -> None:
    create(stack, 0, 40)
    all_bound(stack, 40)
    for number, role in enumerate(doubled, start=1):
        busy = active(stack, role)
        create(stack, number * 40, number * 40 + 20)
        stack.kill(busy)
        killed_ns = time.time_ns()
        create(stack, number * 40 + 20, number * 40 + 40)
        all_bound(stack, number * 40 + 40)
        if role == doubled[-1]:
            took_s = (next_bound_ns(stack, killed_ns) - killed_ns) / 1e9
            print(f"a pod was bound {took_s:.1f} s after its binder was killed")
            assert took_s < TAKEN_OVER_S_MAX
    assert_sound(stack)


def test_a_frozen_binder_that_wakes_up_late_does_no_harm(
    stack: Stack, doubled: tuple[str, ...]
) -> None:
    create(stack, 0, 40)
    all_bound(stack, 40)
    frozen = stack.processes[active(stack, doubled[-1])]
    create(stack, 40, 60)
    frozen.signal(signal.SIGSTOP)
    try:
        create(stack, 60, 100)
        time.sleep(FROZEN_S)
    finally:
        frozen.signal(signal.SIGCONT)
    create(stack, 100, 140)
    all_bound(stack, 140)
    assert frozen.is_running
    assert_sound(stack)


def test_a_fact_that_lands_after_its_objects_end_is_taken_back(stack: Stack) -> None:
    """What a watcher had on its way when it was cut off may arrive much later."""
    create(stack, 0, 4)
    all_bound(stack, 4)
    late = [
        record
        for record in stack.records()
        if b'"name":"p0"' in record.payload and b'"phase":"Running"' in record.payload
    ][-1]
    stack.delete_pod("p0")
    stack.until(lambda: len(fold(stack.records()).pods) == 3, "p0 is gone from the log")
    stack.append(late.subject, late.payload, "a watcher of the past")
    assert len(fold(stack.records()).pods) == 4
    stack.until(lambda: len(fold(stack.records()).pods) == 3, "it is taken back")
    assert_sound(stack)
