"""A home of local mode: whose it is, what is kept of the last run, who its processes are."""

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from allotment_local.child import PAUSE_FIRST_S, PAUSE_MAX_S, STEADY_S, Pause, environment
from allotment_local.home import KEPT_LOGS, AlreadyRunning, Home, HomeError
from allotment_local.nodes.timers import Timers
from allotment_local.processes import ProcessId, end, identify, is_alive
from allotment_local.state import ServiceState, State, StateError, read_state, write_state
from tests.waiting import patience


def test_a_home_is_closed_to_others_and_has_one_owner(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.create()
    home.create()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert not home.is_owned()
    with home.own():
        assert Home(home.path).is_owned()
        with pytest.raises(AlreadyRunning), Home(home.path).own(patience_s=0):
            pass
    assert not home.is_owned()


def test_a_home_that_cannot_be_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="ALLOT_HOME must be a directory of your own"):
        Home(tmp_path / "file").create()


def test_old_allocation_logs_are_kept_but_not_for_ever(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    (tmp_path / "nats.mine").mkdir()
    assert home.set_aside_nats(datetime.now(UTC)) is None
    kept: list[Path | None] = []
    for run in range(4):
        (home.nats / "store").mkdir(parents=True)
        day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=run // 2)
        kept.append(home.set_aside_nats(day))
    names = sorted(path.name for path in tmp_path.glob("nats*"))
    assert names == ["nats.20260102T000000Z", "nats.20260102T000000Z.2", "nats.mine"]
    assert kept[-KEPT_LOGS:] == [tmp_path / name for name in names[:2]]


def test_the_state_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path) is None
    state = State(
        phase="ready",
        supervisor=ProcessId(7, "x"),
        services=[ServiceState("binder", "/log", 8, "y", "127.0.0.1:1", 2, "ended")],
        problems=["p"],
    )
    write_state(path, state)
    assert read_state(path) == state
    assert state.processes() == [ProcessId(8, "y"), state.warden]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}', '{"version": 1, "new": 1}'])
def test_a_broken_state_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(StateError, match="delete the file"):
        read_state(path)


def test_a_process_is_more_than_its_number() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = identify(process.pid)
        assert found is not None
        assert is_alive(found)
        other = ProcessId(found.pid, "another start")
        assert not is_alive(other)
        assert end([other], term_s=0.1) == []
        assert process.poll() is None
        assert end([found], term_s=5) == []
        # A zombie until we reap it: it counts as gone.
        assert identify(process.pid) is None


def test_nobody_is_never_alive() -> None:
    assert not is_alive(ProcessId(0, ""))
    assert identify(os.getpid()) is not None


def test_pauses_grow_while_a_service_keeps_dying() -> None:
    pause = Pause()
    pauses = [pause.after(lived_s=0.0) for _ in range(10)]
    assert pauses[:3] == [PAUSE_FIRST_S, 2 * PAUSE_FIRST_S, 4 * PAUSE_FIRST_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert pause.after(lived_s=STEADY_S) == PAUSE_FIRST_S


def test_services_are_not_sent_elsewhere_by_the_users_variables() -> None:
    outer = {
        "ALLOT_NATS_URL": "nats://elsewhere",
        "ALLOT_LOG_LEVEL": "debug",
        "ALLOT_TRACE_FILE": "/tmp/spans.jsonl",
        "KUBECONFIG": "/mine",
        "HTTPS_PROXY": "http://proxy",
        "PATH": "/bin",
    }
    kept = {"ALLOT_LOG_LEVEL", "ALLOT_TRACE_FILE", "PATH", "PYTHONUNBUFFERED"}
    assert set(environment(outer)) == kept


def test_timers_run_in_order_and_survive_a_failing_one(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    timers = Timers(lambda: now_s)
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("planted")

    timers.after(2, lambda: ran.append("b"))
    timers.after(1, lambda: ran.append("a"))
    timers.after(2, fail)
    timers.after(2, lambda: ran.append("c"))
    timers.after(2, lambda: ran.append("never")).cancel()
    timers.after(0, lambda: ran.append("now"))
    assert ran == []
    now_s = 2.0
    assert timers.run_due(limit=2) == 2
    assert timers.run_due() == 3
    assert timers.run_due() == 0
    assert ran == ["now", "a", "b", "c"]
    assert "a timer of the fake nodes failed" in caplog.text


@pytest.mark.anyio
async def test_a_sleeping_timer_task_wakes_for_an_earlier_action() -> None:
    timers = Timers(anyio.current_time)
    done = anyio.Event()
    with patience():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timers.run)
            await anyio.wait_all_tasks_blocked()
            timers.after(3600, lambda: None)
            await anyio.wait_all_tasks_blocked()
            timers.after(0.01, done.set)
            await done.wait()
            tasks.cancel_scope.cancel()
