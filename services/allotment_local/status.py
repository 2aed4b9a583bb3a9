"""What runs in a home, asked of the processes themselves."""

from pathlib import Path
from typing import Any, NamedTuple

import anyio

from allotment_local.home import DEFAULT_HOME, Home
from allotment_local.probes import Answer, probe_http, probe_nats
from allotment_local.processes import is_alive
from allotment_local.state import ServiceState, State, StateError, read_state


class Addresses(NamedTuple):
    """Where the local mode of a home is, as far as its own file says; no service is asked."""

    nats: str = ""
    apiserver: str = ""
    kubeconfig: Path | None = None


def addresses(home: Path = DEFAULT_HOME) -> Addresses:
    """Where local mode is; nothing if it does not run there."""
    place = Home(home)
    try:
        state = read_state(place.state)
    except StateError:
        return Addresses()
    if state is None or state.is_over:
        return Addresses()
    return Addresses(state.nats, state.apiserver, place.kubeconfig)


async def status(home: Path = DEFAULT_HOME) -> dict[str, Any]:
    """What runs in a home, with every address, as it is at this moment."""
    place = Home(home)
    found: dict[str, Any] = {
        "ready": False,
        "home": str(place.path),
        **dict.fromkeys(("kubeconfig", "apiserver", "nats", "inspector", "supervisor")),
        "services": [],
        "problems": [],
    }
    try:
        state = read_state(place.state)
    except StateError as error:
        return {**found, "problems": [str(error)]}
    if state is None or state.is_over:
        problems = [] if state is None else state.problems
        said = "local mode is not running here; start it with: allot up -d"
        return {**found, "problems": [said, *problems]}
    is_supervised = is_alive(state.supervisor)
    rows: dict[str, dict[str, Any]] = {}

    async def ask(service: ServiceState) -> None:
        rows[service.name] = await _row(state, service)

    async with anyio.create_task_group() as asking:
        for service in state.services:
            asking.start_soon(ask, service)
    problems = [
        f"{name}: {rows[name]['detail'] or 'not ready'}"
        for name in (service.name for service in state.services)
        if not rows[name]["ready"]
    ]
    if not is_supervised:
        problems.insert(0, "the supervisor is gone; clean up with: allot down")
    elif state.phase != "ready":
        problems.insert(0, f"local mode is {state.phase}")
    return {
        "ready": not problems,
        "home": str(place.path),
        "kubeconfig": str(place.kubeconfig),
        "apiserver": state.apiserver or None,
        "nats": state.nats or None,
        "inspector": state.inspector or None,
        "supervisor": {"pid": state.supervisor.pid, "alive": is_supervised},
        "services": [rows[service.name] for service in state.services],
        "problems": problems,
    }


async def _row(state: State, service: ServiceState) -> dict[str, Any]:
    http = service.http
    lives = is_alive(service.process)
    if not lives:
        answer = Answer(False, service.detail or "not running")
    elif service.name == "nats":
        answer = await probe_nats(state.nats)
    elif not http:
        answer = Answer(False, "it has not announced its address yet")
    else:
        answer = await probe_http(http)
    return {
        "name": service.name,
        "pid": service.pid or None,
        "http": f"http://{http}" if http else None,
        "alive": lives,
        **answer.row(),
        "log": service.log,
        "restarts": service.restarts,
    }
