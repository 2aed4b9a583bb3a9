"""Local mode for its callers: `up`, `down` and `status` of a home.

The default home is `~/.allotment`; any number of homes live side by side, as every address is a
free port on loopback.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import Process

from allotment.core.config.policy import PolicyError, parse
from allotment_local.home import DEFAULT_HOME, AlreadyRunning, Home, HomeError, append_to, tail
from allotment_local.nodes.shape_reader import ShapesError, read_shapes
from allotment_local.processes import end, is_alive, send, wait_gone
from allotment_local.specs import SCHEDULER_NAMES, ServiceSpec, default_services, to_json
from allotment_local.state import NOBODY, State, StateError, read_state, write_state
from allotment_local.status import status
from allotment_local.supervisor import READY_WITHIN_S, StartFailed, Supervisor

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
        checked = await anyio.to_thread.run_sync(_check_files, nodes_file, policy_file)
        nodes_file = checked.nodes_file
        for warning in checked.warnings:
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
        return await _foreground(place, services, nodes_file, allocate_ms, say)
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


class _Files(NamedTuple):
    nodes_file: Path | None
    warnings: tuple[str, ...]
    """Of the policy: lines without effect."""


def _check_files(nodes_file: Path | None, policy_file: Path | None) -> _Files:
    """Say what is wrong with the files before anything is started; the full path of the first."""
    warnings: tuple[str, ...] = ()
    try:
        if nodes_file is not None:
            nodes_file = nodes_file.expanduser().absolute()
            read_shapes(nodes_file)
        if policy_file is not None:
            text = policy_file.expanduser().read_text(encoding="utf-8")
            names = tuple(SCHEDULER_NAMES.split(","))
            warnings = parse(text, str(policy_file), names).warnings
    except (ShapesError, PolicyError) as error:
        raise LocalModeError(error.problems) from error
    except (OSError, UnicodeDecodeError) as error:
        raise LocalModeError([f"{policy_file}: cannot be read: {error}"]) from error
    return _Files(nodes_file, warnings)


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


async def _foreground(
    place: Home,
    services: Sequence[ServiceSpec],
    nodes_file: Path | None,
    allocate_ms: int,
    say: Say,
) -> dict[str, Any]:
    supervisor = Supervisor(place, services, nodes_file, say, allocate_ms=allocate_ms)
    await supervisor.run(lambda: say(f"ready; export KUBECONFIG={place.kubeconfig}"))
    return await status(place.path)


async def _detached(
    place: Home,
    services: Sequence[ServiceSpec],
    nodes_file: Path | None,
    allocate_ms: int,
    say: Say,
) -> dict[str, Any]:
    command = [sys.executable, "-m", "allotment_local.supervisor_main"]
    command += ["--home", str(place.path), "--services", to_json(services)]
    command += ["--allocate-ms", str(allocate_ms)]
    if nodes_file is not None:
        command += ["--nodes", str(nodes_file)]
    log = place.log_of("supervisor")
    with append_to(log) as errors:
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    try:
        ended = await _listen(process, say)
    except BaseException:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
                await process.wait()
        raise
    if ended is None:
        await process.wait()
        raise StartFailed([f"the supervisor ended; the end of {log}:", *tail(log)])
    if "failed" in ended:
        await process.wait()
        raise StartFailed(ended["failed"])
    if "running" in ended:
        await process.wait()
        raise AlreadyRunning
    return await status(place.path)


async def _listen(process: Process, say: Say) -> dict[str, Any] | None:
    """Pass on what the supervisor says until it has a result; None if it ends without one."""
    assert process.stdout is not None
    rest = b""
    async with process.stdout:
        async for piece in process.stdout:
            rest += piece
            while b"\n" in rest:
                line, _, rest = rest.partition(b"\n")
                message: dict[str, Any] = json.loads(line)
                if "say" not in message:
                    return message
                say(message["say"])
    return None


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
    survivors = end([supervisor, *processes], LEFT_S)
    if survivors:
        pids = ", ".join(str(process.pid) for process in survivors)
        raise HomeError(f"these processes could not be ended: {pids}")
    place.kubeconfig.unlink(missing_ok=True)
    _mark_stopped(place, state)
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


def _mark_stopped(place: Home, state: State) -> None:
    for service in state.services:
        service.pid, service.started, service.http = 0, "", ""
    state.supervisor = state.warden = NOBODY
    if state.phase != "failed":
        state.phase = "stopped"
    write_state(place.state, state)
