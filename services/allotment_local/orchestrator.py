"""Local mode for its callers: `up`, `down` and `status` of a home.

The default home is `~/.allotment`; any number of homes live side by side, as every address is a
free port on loopback.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from allotment.core.config.policy import PolicyError, parse
from allotment_local.home import DEFAULT_HOME, AlreadyRunning, Home, HomeError, append_to, tail
from allotment_local.nodes.shape_reader import ShapesError, read_shapes
from allotment_local.processes import end, is_alive, pids_text, send, wait_gone
from allotment_local.specs import SCHEDULER_NAMES, ServiceSpec, default_services, to_json
from allotment_local.state import NOBODY, State, StateError, read_state, write_state
from allotment_local.status import status
from allotment_local.supervisor import (
    IS_RUNNING,
    READY_WITHIN_S,
    STAMP_END,
    StartFailed,
    Supervisor,
)

ENDS_WITHIN_S = 45.0
"""Longer than a supervisor gives its services, the API server and NATS together."""
LEFT_S = 10.0
OWNER_WRITES_WITHIN_S = 3.0
_PAUSE_S = 0.1

Say = Callable[[str], None]


class LocalModeError(Exception):
    """Raised when local mode cannot do what was asked; `problems` say why and what to do."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def up(
    home: Path = DEFAULT_HOME,
    *,
    nodes_file: Path | None = None,
    policy_file: Path | None = None,
    allocate_ms: int = 0,
    detach: bool,
    inspector: bool = True,
    one_process: bool = False,
    services: Sequence[ServiceSpec] | None = None,
    say: Say = to_stderr,
) -> dict[str, Any]:
    """Start local mode; returns its status.

    Detached: returns when everything is ready. In the foreground: returns after it was stopped by
    SIGINT, SIGTERM or `down`. `allocate_ms`: how long device plugins take to serve a container
    where the nodes' file does not say. `one_process`: the services that schedule share one. If the
    home is running already, that is said, and nothing is started. Raises LocalModeError; then
    nothing runs.
    """
    place = Home(home)
    try:
        for warning in await anyio.to_thread.run_sync(_check_files, nodes_file, policy_file):
            say(f"warning: {warning}")
        place.create()
    except HomeError as error:
        raise LocalModeError([str(error)]) from error
    if services is None:
        services = default_services(policy_file, inspector=inspector, one_process=one_process)
    if place.is_owned():
        return await _is_running(place, say)
    try:
        if detach:
            return await _detached(place, services, nodes_file, allocate_ms, say)
        supervisor = Supervisor(place, services, nodes_file, say, allocate_ms=allocate_ms)
        await supervisor.run(lambda: say(f"ready; export KUBECONFIG={place.kubeconfig}"))
        return await status(place.path)
    except AlreadyRunning:
        return await _is_running(place, say)
    except StartFailed as error:
        raise LocalModeError(error.problems) from error


async def down(home: Path = DEFAULT_HOME, *, say: Say = to_stderr) -> bool:
    """End everything in a home; whether anything was running.

    Also when the supervisor was killed: what it recorded is ended if it is still that process.
    Raises LocalModeError when something cannot be ended.
    """
    place = Home(home)
    try:
        return await anyio.to_thread.run_sync(_down, place, say)
    except (StateError, HomeError) as error:
        raise LocalModeError([str(error)]) from error


def _check_files(nodes_file: Path | None, policy_file: Path | None) -> tuple[str, ...]:
    """Check the files before anything is started; the lines of the policy without effect."""
    try:
        if nodes_file is not None:
            read_shapes(nodes_file.expanduser())
        if policy_file is None:
            return ()
        text = policy_file.expanduser().read_text(encoding="utf-8")
        return parse(text, str(policy_file), tuple(SCHEDULER_NAMES.split(","))).warnings
    except (ShapesError, PolicyError) as error:
        raise LocalModeError(error.problems) from error
    except (OSError, UnicodeDecodeError) as error:
        raise LocalModeError([f"{policy_file}: cannot be read: {error}"]) from error


async def _is_running(place: Home, say: Say) -> dict[str, Any]:
    """Another supervisor owns the home: say so, and wait until it has started."""
    say(f"local mode is already running in {place.path}; to start again, first run: allot down")
    with anyio.move_on_after(READY_WITHIN_S):
        while place.is_owned():
            found = await status(place.path)
            if found["ready"]:
                return found
            await anyio.sleep(_PAUSE_S)
    found = await status(place.path)
    raise LocalModeError(found["problems"])


async def _detached(
    place: Home,
    services: Sequence[ServiceSpec],
    nodes_file: Path | None,
    allocate_ms: int,
    say: Say,
) -> dict[str, Any]:
    """Start a supervisor of its own, and pass on what it writes into its log until it is ready."""
    command = [sys.executable, "-m", "allotment_local.supervisor"]
    command += ["--home", str(place.path), "--services", to_json(services)]
    command += ["--allocate-ms", str(allocate_ms)]
    if nodes_file is not None:
        command += ["--nodes", str(nodes_file)]
    log = place.log_of("supervisor")
    with append_to(log) as out:
        heard = out.tell()
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        while True:
            ended = process.returncode
            state = await anyio.to_thread.run_sync(_state_by, place, process.pid)
            heard += _pass_on(log, heard, say)
            if state is not None and state.phase == "ready":
                return await status(place.path)
            if ended is not None:
                break
            await anyio.sleep(_PAUSE_S)
    except BaseException:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
                await process.wait()
        raise
    if ended == IS_RUNNING:
        raise AlreadyRunning
    problems = [] if state is None else state.problems
    raise StartFailed(problems or [f"the supervisor ended; the end of {log}:", *tail(log)])


def _state_by(place: Home, supervisor: int) -> State | None:
    """What a supervisor says of the home; None while it says nothing."""
    try:
        state = read_state(place.state)
    except StateError:
        return None
    return state if state is not None and state.supervisor.pid == supervisor else None


def _pass_on(log: Path, start: int, say: Say) -> int:
    """Say what a supervisor's log says from a byte on, without the times; how many bytes."""
    lines = log.read_bytes()[start:].rpartition(b"\n")[0]
    for line in lines.decode(errors="replace").splitlines():
        stamp, end_of_stamp, text = line.partition(STAMP_END)
        if end_of_stamp and stamp.startswith("["):
            say(text)
    return len(lines) + 1 if lines else 0


def _down(place: Home, say: Say) -> bool:
    state = _state_of_owner(place)
    if state is None:
        say(f"local mode is not running in {place.path}")
        return False
    supervisor, processes = state.supervisor, state.processes()
    alive = [process for process in (supervisor, *processes) if is_alive(process)]
    if is_alive(supervisor):
        send(supervisor, signal.SIGTERM)
        if wait_gone([supervisor], ENDS_WITHIN_S):
            say("the supervisor does not end in time; ending everything")
        # It may have restarted something since we looked.
        state = read_state(place.state) or state
        processes = state.processes()
    if survivors := end([supervisor, *processes], LEFT_S):
        raise HomeError(f"these processes could not be ended: {pids_text(survivors)}")
    place.kubeconfig.unlink(missing_ok=True)
    for service in state.services:
        service.is_now(NOBODY)
    state.supervisor = state.warden = NOBODY
    if state.phase != "failed":
        state.phase = "stopped"
    write_state(place.state, state)
    said = "stopped" if alive else "local mode is not running"
    say(f"{said} in {place.path}; nothing is left running")
    return bool(alive)


def _state_of_owner(place: Home) -> State | None:
    """The state; that of a supervisor which just took the home is waited for."""
    deadline_s = time.monotonic() + OWNER_WRITES_WITHIN_S
    while True:
        state = read_state(place.state)
        settled = state is not None and is_alive(state.supervisor)
        if settled or not place.is_owned() or time.monotonic() > deadline_s:
            return state
        time.sleep(_PAUSE_S)
