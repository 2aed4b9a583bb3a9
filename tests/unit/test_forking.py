"""`tests.forking` runs a module as `python -m` does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forking import Forked
from tests.waiting import PATIENCE_S


def forked(tmp_path: Path, statement: str) -> Forked:
    """Runs one statement."""
    arguments = ["timeit", "-n", "1", "-r", "1", "-s", "import os, sys, time", statement]
    with open(tmp_path / "errors", "wb") as errors:
        return Forked(arguments, errors.fileno())


def test_a_process_of_its_own_session_and_today_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID_BY", "a test")
    process = forked(tmp_path, "print(os.environ['SAID_BY'], os.getpid(), os.getsid(0))")
    said = process.stdout.readline().decode()
    assert said == f"a test {process.pid} {process.pid}\n"
    assert process.pid != os.getpid()
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()


def test_a_binder_has_another_hash_seed_than_the_services_that_it_checks(tmp_path: Path) -> None:
    nowhere = ("--nats-url", "nats://127.0.0.1:1")  # they wait there for ever
    with open(tmp_path / "errors", "wb") as errors:
        roles = ("allotment_binder", "allotment_scorer", "allotment_filter")
        processes = [Forked([role, *nowhere], errors.fileno()) for role in roles]
    binder, scorer, filter_ = (parent_of(process.pid) for process in processes)
    assert binder != scorer == filter_
    for process in processes:
        process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        process.stdout.close()


def parent_of(pid: int) -> str:
    done = subprocess.run(
        ["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_how_it_ended_and_what_it_said_of_it(tmp_path: Path) -> None:
    process = forked(tmp_path, "{}['nothing here']")
    assert process.wait(PATIENCE_S) == 1
    assert "KeyError: 'nothing here'" in (tmp_path / "errors").read_text()
    process.stdout.close()


def test_a_signal_ends_it_and_nobody_waits_longer_than_said(tmp_path: Path) -> None:
    process = forked(tmp_path, "print('begun', flush=True); time.sleep(1000)")
    assert process.stdout.readline() == b"begun\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    process.kill()  # of what has ended: nothing
    process.stdout.close()
