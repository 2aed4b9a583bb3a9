"""Processes by more than their number: a pid is reused, a pid with its start time is not."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

_POLL_S = 0.02
_PS_TIMEOUT_S = 5.0


class ProcessId(NamedTuple):
    """One process for ever: `started` is what the system says of its start, opaque to us."""

    pid: int
    started: str


def identify(pid: int) -> ProcessId | None:
    """The living process of this number; None if there is none. A zombie has ended."""
    started = _started(pid)
    return None if started is None else ProcessId(pid, started)


def is_alive(process: ProcessId) -> bool:
    """Whether it is still that process, and not another one of the same number."""
    return process.pid > 0 and _started(process.pid) == process.started


def send(process: ProcessId, number: signal.Signals) -> None:
    """Signal it if it is still there."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def wait_gone(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Those that are still alive after at most `timeout_s`. Blocking."""
    deadline_s = time.monotonic() + timeout_s
    while (alive := [process for process in processes if is_alive(process)]) and (
        time.monotonic() < deadline_s
    ):
        time.sleep(_POLL_S)
    return alive


def end(processes: Sequence[ProcessId], term_s: float, kill_s: float = 5.0) -> list[ProcessId]:
    """SIGTERM, then SIGKILL after `term_s`. Returns those that survived even that. Blocking."""
    for process in processes:
        send(process, signal.SIGTERM)
    stubborn = wait_gone(processes, term_s)
    for process in stubborn:
        send(process, signal.SIGKILL)
    return wait_gone(stubborn, kill_s)


def pids_text(processes: Sequence[ProcessId]) -> str:
    return ", ".join(str(process.pid) for process in processes)


def _started(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else _started_by_ps(pid)
    except ProcessLookupError:  # it ended while we read
        return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started


def _started_by_ps(pid: int) -> str | None:
    """For systems without /proc."""
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_S,
        check=False,
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else " ".join(started.split())
