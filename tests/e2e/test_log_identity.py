"""A log that was lost is never begun anew, and everybody is told what to do."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment_proto.subjects import STREAM
from tests.e2e.audit import assert_sound
from tests.e2e.stack import IDENTITY, KUBE_ROLES, LAYOUTS, Stack, vgpu

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""


@pytest.fixture(params=LAYOUTS)
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    with Stack(tmp_path, NODES, services=request.param) as running:
        yield running


def has_stream(stack: Stack) -> bool:
    async def look() -> bool:
        async with connect(stack.nats.url, "e2e") as connection:
            return await JetStream(connection).stream_info(STREAM) is not None

    return anyio.run(look)


def restart(stack: Stack, *, store: Path | None) -> None:
    """All services and NATS end; NATS begins again with this store, or with none."""
    services = stack.scheduling
    for service in services:
        stack.kill(service)
    stack.nats.stop()
    at = stack.nats.directory / "store"
    shutil.rmtree(at)
    if store is not None:
        shutil.copytree(store, at)
    stack.nats.start()
    for service in services:
        stack.start(service, wait=False)
    for service in services:
        stack.processes[service].announce()


def test_a_lost_log_is_not_begun_anew_until_somebody_says_so(stack: Stack) -> None:
    stack.create_pod("before", vgpu(1000))
    stack.until(lambda: "before" in stack.bound(), "a pod is bound")
    stack.until(lambda: stack.kept().get("seq", 0) > 0, "how far the log has come is kept")
    early = stack.directory / "early"
    stack.nats.stop()
    shutil.copytree(stack.nats.directory / "store", early)
    stack.nats.start()
    stack.create_pod("between", vgpu(1000))
    stack.until(lambda: "between" in stack.bound(), "a second pod is bound")
    end = len(stack.records())
    stack.until(lambda: stack.kept()["seq"] >= end, "its record is kept")

    asking = [service for service in stack.scheduling if service in KUBE_ROLES]
    restart(stack, store=None)
    for service in asking:
        stack.until(lambda one=service: "LogLost" in stack.trouble(one), f"{service} says so")  # type: ignore[misc]
        assert "delete configmap allotment-log" in stack.trouble(service)
    assert not has_stream(stack)
    assert not any(map(stack.is_ready, stack.scheduling))

    restart(stack, store=early)  # an old backup: a log of the same name, and shorter
    stack.create_pod("after", vgpu(1000))
    for service in asking:
        stack.until(lambda one=service: "LogLost" in stack.trouble(one), f"{service} says so")  # type: ignore[misc]
    assert "after" not in stack.bound()

    stack.call("DELETE", IDENTITY, {})
    stack.until(lambda: "after" in stack.bound(), "the administrator accepted it: it goes on")
    stack.until(lambda: stack.kept().get("seq", 0) > 0, "the log has an identity again")
    assert_sound(stack)
