"""The log takes no records: pods that are created meanwhile are told, once, and go on with room."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from click.testing import CliRunner

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment_cli.main import main
from allotment_proto.subjects import STREAM
from tests.e2e.audit import assert_sound
from tests.e2e.stack import ROLES, Json, Stack, vgpu

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
SEVERAL_LOOKS_S = 5.0


class Way(NamedTuple):
    """A way in which the log is full, and room is made."""

    fill: Callable[[Stack], None]
    relieve: Callable[[Stack], None]
    says: str
    found: str
    """What `allot doctor` finds with nothing but the address of NATS."""


def limit_stream(stack: Stack, most: Callable[[int], int]) -> None:
    async def limit() -> None:
        async with connect(stack.nats.url, "e2e-admin") as connection:
            jetstream = JetStream(connection)
            info = await jetstream.stream_info(STREAM)
            assert info is not None
            config = {**info["config"], "max_bytes": most(info["state"]["bytes"])}
            await jetstream.request(f"STREAM.UPDATE.{STREAM}", config)

    anyio.run(limit)


def restart_with(stack: Stack, most: str) -> None:
    """Another `max_file_store` for the server."""
    stack.nats.stop()
    stack.nats.extra_config = "" if not most else storage_of(stack, most)
    stack.nats.start()


def storage_of(stack: Stack, most: str) -> str:
    store = stack.nats.directory / "store"
    return f'jetstream {{ store_dir: "{store}", sync_interval: always, max_file_store: {most} }}\n'


WAYS = {
    "limit": Way(
        lambda stack: limit_stream(stack, lambda used: used + 64),
        lambda stack: limit_stream(stack, lambda _: -1),
        "The allocation log is full (",
        "LogFull",
    ),
    "storage": Way(
        lambda stack: restart_with(stack, "1KB"),
        lambda stack: restart_with(stack, ""),
        "The allocation log ",
        "NobodyActive",
    ),
}


def allot(command: str, stack: Stack) -> Json:
    """What a command says of a stack's NATS."""
    result = CliRunner().invoke(main, [command, "--nats", stack.nats.url, "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    return dict(json.loads(result.stdout))


def codes(stack: Stack) -> list[str]:
    return [found["code"] for found in allot("doctor", stack)["findings"]]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_pods_are_told_that_the_log_is_full(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ALLOT_HOME", str(tmp_path / "home"))
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("before", vgpu(1000))
        stack.until(lambda: "before" in stack.bound(), "a pod is bound")
        assert codes(stack) == []
        active = {row["name"]: row["replica"] for row in allot("status", stack)["services"]}
        assert active == {role: role for role in ROLES} | {"archiver": ""}
        way.fill(stack)
        late = [f"late-{number}" for number in range(5)]
        for name in late:
            stack.create_pod(name, vgpu(1000))
        stack.create_pod("others", vgpu(1000), scheduler="default-scheduler")
        took_s = stack.until(lambda: all(map(stack.refusal, late)), "they are told")
        print(f"told after {took_s:.1f} s: {stack.refusal('late-0')}")
        stack.until(lambda: way.found in codes(stack), f"doctor finds {way.found}")
        stack.kill("watcher")
        stack.start("watcher", wait=False).announce()
        time.sleep(SEVERAL_LOOKS_S)
        for name in late:
            assert stack.refusal(name).startswith(way.says)
            assert stack.refusal(name).endswith("Ask your platform team.")
            assert len(stack.events(name, "FailedScheduling")) == 1
        assert not stack.refusal("others")
        stack.create_pod("never", vgpu(number=9))
        stack.until(lambda: stack.refusal("never").startswith(way.says), "one more is told")
        stack.kill("filter")  # so that pods are recorded, and nothing is decided about them
        way.relieve(stack)
        stack.until(lambda: not any(map(stack.refusal, late)), "it is taken back")
        stack.start("filter")
        stack.until(lambda: {*late} <= stack.bound(), "they are bound")
        stack.until(lambda: "nodes are available" in stack.refusal("never"), "the binder says why")
        assert_sound(stack)
