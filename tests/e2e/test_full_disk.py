"""The disk of the log is full: everybody says so, nothing is lost, and room ends it."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.audit import assert_sound
from tests.e2e.stack import ROLES, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
STAYS_S = 10.0
"""Longer than it takes until a lease that was lost is tried for once more."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own where the NATS server keeps its store."""
    place = tmp_path / "nats"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(path: Path) -> None:
    """Take all the room there is."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096) == 4096:
            pass


def write_silence_s(stack: Stack, service: str) -> float:
    url = f"http://{stack.processes[service].announced['http']}/metrics"
    with urlopen(url, timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    wanted = 'allot_nats_unanswered_seconds{kind="write"}'
    (line,) = (line for line in lines if line.startswith(wanted))
    return float(line.split()[-1])


def test_a_full_disk_is_said_and_room_ends_it(disk: Path, tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("before", vgpu(1000))
        stack.until(lambda: "before" in stack.bound(), "a pod is bound")
        fill(disk / "filling")

        def said(service: str) -> str:
            status, body = stack.readiness(service)
            return body.get("reasons", {}).get("nats writes", "") if status == 503 else ""

        for role in ROLES:
            took_s = stack.until(lambda role=role: "full disk" in said(role), f"{role} says so")  # type: ignore[misc]
            print(f"{role} said it {took_s:.1f} s later: {said(role)}")
            stack.until(lambda role=role: write_silence_s(stack, role) > 3, f"{role} counts it")  # type: ignore[misc]
        # Only now: the last pages of files that are there already had room for a few records.
        stack.create_pod("during", vgpu(1000))
        for role in ROLES:
            log = stack.processes[role].log_path.read_text()
            assert "NATS takes no writes" in log
            assert "takes over" not in log
        until_s = time.monotonic() + STAYS_S
        while time.monotonic() < until_s:
            for role in ROLES:
                assert "full disk" in said(role), f"{role} says so no longer"
            time.sleep(0.5)
        assert "during" not in stack.bound()
        assert stack.refusal("during").startswith("The allocation log cannot be written")
        assert len(stack.events("during", "FailedScheduling")) == 1
        os.unlink(disk / "filling")
        stack.nats.stop()
        stack.nats.start()
        stack.until(lambda: "during" in stack.bound(), "the pod is bound once there is room")
        for role in ROLES:
            if not stack.processes[role].is_running:
                stack.start(role)
            stack.until(lambda role=role: stack.is_ready(role), f"{role} is ready again")  # type: ignore[misc]
        assert_sound(stack)
