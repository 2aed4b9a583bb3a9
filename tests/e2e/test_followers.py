"""Services whose reads of the log bring nothing, while the server's heartbeats go on: they notice,
and find another way.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import ApiError, JetStream
from allotment_proto.subjects import STREAM
from tests.e2e.audit import assert_sound
from tests.e2e.stack import ROLES, Stack, vgpu

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
NEVER = "2199-01-01T00:00:00Z"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, NODES) as running:
        yield running


async def pause_all(url: str) -> int:
    """Pause every consumer of the log that is not paused; how many there were."""
    async with connect(url, "e2e-pauser") as connection:
        jetstream = JetStream(connection)
        names = (await jetstream.request(f"CONSUMER.NAMES.{STREAM}"))["consumers"] or []
        for name in names:
            with contextlib.suppress(ApiError):  # its reader may have left it in between
                await jetstream.request(f"CONSUMER.PAUSE.{STREAM}.{name}", {"pause_until": NEVER})
        return len(names)


def paused(stack: Stack) -> int:
    return anyio.run(pause_all, stack.nats.url)


def is_at_the_end(stack: Stack, service: str) -> bool:
    status, body = stack.readiness(service)
    return status == 200 and body["figures"]["log"]["recordsBehind"] == 0


def test_paused_consumers_hold_up_nobody_for_long(stack: Stack) -> None:
    stack.create_pod("before", vgpu(1000))
    stack.until(lambda: "before" in stack.bound(), "a pod is bound")
    assert paused(stack) == len(ROLES)
    stack.create_pod("after", vgpu(1000))
    took_s = stack.until(lambda: "after" in stack.bound(), "a pod is bound again")
    print(f"bound {took_s:.1f} s after all consumers were paused")
    for role in ROLES:
        stack.until(lambda role=role: stack.metric(role, "allot_log_refollows_total") > 0, role)  # type: ignore[misc]
        stack.until(lambda role=role: is_at_the_end(stack, role), f"{role} has read it all")  # type: ignore[misc]
    assert_sound(stack)
