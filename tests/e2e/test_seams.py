"""Segments are closed under load while anything is killed: nothing is lost, nothing is doubled."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from allotment.adapters.log.checkpoints import digest_of_image
from allotment.core.ledger import snapshot
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import Envelope, LevelRaised
from tests.e2e.audit import assert_sound, fold
from tests.e2e.stack import LAYOUTS, ROLES, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- prefix: g
  count: 4
  gpus: {model: Tesla T4, count: 4, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
PODS = 96
SEGMENT_BYTES = 1 << 16
KILLS = 5
BATCHES_MAX = 30


@pytest.fixture(params=LAYOUTS)
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    keep = ["--snapshot-dir", str(tmp_path / "snapshots")]
    small = ["--segment-bytes", str(SEGMENT_BYTES)]
    options = {**dict.fromkeys(ROLES, keep), "binder": [*keep, *small], "scheduler": small}
    with Stack(tmp_path, NODES, services=request.param, options=options) as running:
        yield running


def live(stack: Stack) -> int:
    """How many segments are closed."""
    return len(fold(stack.records()).segments.live)


def are_bound(stack: Stack, pods: set[str]) -> bool:
    return pods <= stack.bound()


def test_segments_are_closed_under_load_while_anything_is_killed(stack: Stack) -> None:
    dice = random.Random(7)
    each = PODS // (KILLS + 1)
    for number in range(KILLS + 1):
        for pod in range(number * each, (number + 1) * each):
            stack.create_pod(f"p{pod}", vgpu(1600, 10))
        if number == KILLS:
            break
        role = dice.choice((*stack.scheduling, stack.scheduling[-1], "nats"))
        if role == "nats":
            stack.nats.kill()
            stack.nats.start()
        else:
            stack.kill(role)
            stack.start(role, wait=False).announce()
    stack.until(lambda: len(stack.bound()) >= each * KILLS, "all are bound")
    wanted, batches = max(live(stack) + 1, 3), 0
    while live(stack) < wanted and batches < BATCHES_MAX:
        batch = {f"q{batches}-{number}" for number in range(each)}
        for name in batch:
            stack.create_pod(name, vgpu(16, 0))
        stack.until(partial(are_bound, stack, batch), "the next ones are bound")
        for name in batch:
            stack.delete_pod(name)
        batches += 1
    stack.until(lambda: live(stack) >= wanted, "segments are closed")
    assert_sound(stack)
    state = fold(stack.records())
    numbers = [each.closed.number for each in state.segments.live]
    assert numbers == list(range(1, len(numbers) + 1))
    for one, other in zip(state.segments.live, state.segments.live[1:], strict=False):
        assert other.closed.first_seq == one.closed.last_seq + 1
    for row in state.segments.live:
        at = fold(stack.records()[: row.closed.last_seq])
        assert digest_of_image(snapshot.encode(at)) == row.closed.digest
    for role in stack.scheduling:
        stack.kill(role)
        stack.start(role, wait=False).announce()
    stack.until(lambda: all(map(stack.is_ready, stack.scheduling)), "all are ready again")
    stack.create_pod("last", vgpu(16, 1))
    stack.until(lambda: "last" in stack.bound(), "it goes on")
    assert_sound(stack)


def test_a_log_of_a_newer_release_stops_every_service_and_is_named(stack: Stack) -> None:
    raised = Envelope(v=1, at_ms=1, by="binder/newer", events=(LevelRaised(level=2),))
    stack.append(subjects.SEGMENT, encode(raised), "raised")
    seq = next(r.seq for r in stack.records() if r.msg_id == "raised")
    for role in stack.scheduling:
        process = stack.processes[role]
        stack.until(lambda process=process: not process.is_running, f"{role} stops")  # type: ignore[misc]
        assert process.wait(1) != 0
        assert f"level 2 since record {seq}" in process.tail()
        assert "start a newer release" in process.tail()
        again = stack.start(role, wait=False)
        assert again.wait(PATIENCE_S) != 0
