"""kill -9 of anything at any moment loses nothing and double-books nothing."""

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.audit import assert_not_oversold, assert_sound
from tests.e2e.stack import LAYOUTS, ROLES, TOGETHER, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- prefix: g
  count: 4
  gpus: {model: Tesla T4, count: 4, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
PODS = 200
ROOM = 4 * 4 * 10
DOWN_S = 0.5


@pytest.fixture(params=LAYOUTS)
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    keep = ["--snapshot-dir", str(tmp_path / "snapshots")]
    services: Sequence[str] = request.param
    options = dict.fromkeys(ROLES, keep)
    with Stack(tmp_path, NODES, services=services, options=options) as running:
        yield running


def create(stack: Stack, first: int, last: int) -> None:
    """Ten to a card by memory, slots and compute: 160 of 200 fit. Some take two cards."""
    for number in range(first, last):
        two = number % 10 == 0
        stack.create_pod(f"p{number}", vgpu(1600, 10, 2 if two else 1))


def all_that_fit(stack: Stack) -> None:
    """Until every card is full, and what does not fit was told so."""
    cards = sum(1 if int(name[1:]) % 10 else 2 for name in stack.bound())

    def is_full() -> bool:
        nonlocal cards
        cards = sum(1 if int(name[1:]) % 10 else 2 for name in stack.bound())
        return cards == ROOM

    stack.until(is_full, f"all cards are full; {cards} of {ROOM} shares taken")
    waiting = {pod["metadata"]["name"] for pod in stack.pods()} - stack.bound()
    stack.until(lambda: all(stack.refusal(name) for name in waiting), "the rest was refused")


def settled(stack: Stack) -> None:
    """Until all that was bound also runs, and the log has been told."""
    stack.until(
        lambda: all(
            pod["status"].get("phase") == "Running"
            for pod in stack.pods()
            if pod["spec"].get("nodeName")
        ),
        "all bound pods run",
    )


@pytest.mark.parametrize(
    ("stack", "role"),
    [
        *((ROLES, role) for role in ROLES),
        (TOGETHER, "scheduler"),
        (("watcher", "scheduler"), "scheduler"),
    ],
    indirect=["stack"],
    ids=[*ROLES, "together", "all but the watcher"],
)
def test_killed_in_the_midst_of_200_pods(stack: Stack, role: str) -> None:
    create(stack, 0, 60)
    stack.kill(role)
    create(stack, 60, 120)
    time.sleep(DOWN_S)
    before = len(stack.bound())
    stack.start(role, wait=False)
    create(stack, 120, PODS)
    stack.until(lambda: len(stack.bound()) > before + 10, "it is at work again")
    stack.kill(role)
    assert_not_oversold(stack.pods(), stack.call("GET", "/api/v1/nodes")["items"])
    time.sleep(DOWN_S)
    stack.start(role, wait=False).announce()
    all_that_fit(stack)
    settled(stack)
    state = assert_sound(stack)
    assert len(state.pods) == PODS
    stack.until(lambda: stack.is_ready(role), f"{role} is ready")


@pytest.mark.parametrize("stack", [ROLES], indirect=True)
def test_all_four_killed_one_after_the_other(stack: Stack) -> None:
    for number, role in enumerate(ROLES):
        create(stack, number * 50, number * 50 + 50)
        stack.kill(role)
        time.sleep(DOWN_S)
        stack.start(role, wait=False).announce()
    all_that_fit(stack)
    settled(stack)
    assert_sound(stack)


def test_one_process_continues_what_four_began_also_while_they_run(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        create(stack, 0, 60)
        stack.start("scheduler", wait=False).announce()
        create(stack, 60, 120)
        stack.until(lambda: len(stack.bound()) > 60, "both work")
        for role in ROLES:
            stack.kill(role)
        create(stack, 120, PODS)
        all_that_fit(stack)
        settled(stack)
        assert_sound(stack)


def test_nats_killed_midway_comes_back_on_its_store_and_all_goes_on(stack: Stack) -> None:
    create(stack, 0, 100)
    stack.nats.kill()
    create(stack, 100, 150)
    time.sleep(1.0)
    stack.until(lambda: not stack.is_ready(stack.scheduling[-1]), "not ready without NATS")
    stack.nats.start()
    create(stack, 150, PODS)
    all_that_fit(stack)
    settled(stack)
    assert_sound(stack)
    for role in stack.scheduling:
        assert stack.processes[role].is_running
        stack.until(lambda role=role: stack.is_ready(role), f"{role} is ready")  # type: ignore[misc]


def test_an_api_server_frozen_for_three_seconds_loses_nothing(stack: Stack) -> None:
    create(stack, 0, 100)
    cluster = stack.processes["cluster"]
    cluster.signal(signal.SIGSTOP)
    try:
        time.sleep(3.0)
    finally:
        cluster.signal(signal.SIGCONT)
    create(stack, 100, PODS)
    all_that_fit(stack)
    settled(stack)
    assert_sound(stack)


def test_sigterm_ends_each_service_in_order_and_it_is_not_ready_meanwhile(stack: Stack) -> None:
    create(stack, 0, 50)
    for role in stack.scheduling:
        process = stack.processes[role]
        process.signal(signal.SIGTERM)
        answers = [200]
        while process.is_running:
            answers.append(stack.readiness(role)[0])
        assert process.wait(PATIENCE_S) == 0, process.tail()
        ready = [status == 200 for status in answers]
        assert ready == sorted(ready, reverse=True), "never ready again"
        assert list((stack.directory / "snapshots" / role).iterdir()), role
    for role in stack.scheduling:
        stack.start(role)
        assert "ignored" not in stack.processes[role].log_path.read_text()
    create(stack, 50, PODS)
    all_that_fit(stack)
    settled(stack)
    assert_sound(stack)
