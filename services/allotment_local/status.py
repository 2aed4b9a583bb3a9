"""What runs in a home, asked of the processes themselves."""

from pathlib import Path
from typing import Any, NamedTuple

import anyio

from allotment_local.home import DEFAULT_HOME, Home
from allotment_local.probes import Answer, probe_http, probe_nats
from allotment_local.processes import is_alive
from allotment_local.state import ServiceState, State, StateError, read_state

_OVER = ("stopped", "failed")


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
    if state is None or state.phase in _OVER:
        return Addresses()
    return Addresses(state.nats, state.apiserver, place.kubeconfig)


async def status(home: Path = DEFAULT_HOME) -> dict[str, Any]:
    """What runs in a home, with every address, as it is at this moment."""
    place = Home(home)
    found: dict[str, Any] = {
        "ready": False,
        "home": str(place.path),
        "kubeconfig": None,
        "apiserver": None,
        "nats": None,
        "inspector": None,
        "supervisor": None,
        "services": [],
        "problems": [],
    }
    try:
        state = read_state(place.state)
    except StateError as error:
        found["problems"] = [str(error)]
        return found
    if state is None or state.phase in _OVER:
        found["problems"] = ["local mode is not running here; start it with: allot up -d"]
        if state is not None:
            found["problems"] += state.problems
        return found
    found["kubeconfig"] = str(place.kubeconfig)
    found["apiserver"], found["nats"] = state.apiserver or None, state.nats or None
    found["inspector"] = state.inspector or None
    supervised = is_alive(state.supervisor)
    found["supervisor"] = {"pid": state.supervisor.pid, "alive": supervised}
    answers: dict[str, Answer] = {}
    async with anyio.create_task_group() as asking:
        for service in state.services:
            asking.start_soon(_ask, state, service, answers)
    found["services"] = [_service_row(state, each, answers[each.name]) for each in state.services]
    if not supervised:
        found["problems"].append("the supervisor is gone; clean up with: allot down")
    elif state.phase != "ready":
        found["problems"].append(f"local mode is {state.phase}")
    found["problems"] += [
        f"{row['name']}: {row['detail'] or 'not ready'}"
        for row in found["services"]
        if not row["ready"]
    ]
    found["ready"] = not found["problems"]
    return found


async def _ask(state: State, service: ServiceState, answers: dict[str, Answer]) -> None:
    if not is_alive(service.process):
        answers[service.name] = Answer(False, service.detail or "not running")
    elif service.name == "nats":
        answers[service.name] = await probe_nats(state.nats)
    elif not service.http:
        answers[service.name] = Answer(False, "it has not announced its address yet")
    else:
        answers[service.name] = await probe_http(service.http)


def _service_row(state: State, service: ServiceState, answer: Answer) -> dict[str, Any]:
    http = service.http
    return {
        "name": service.name,
        "pid": service.pid or None,
        "http": f"http://{http}" if http else None,
        "alive": is_alive(service.process),
        "ready": answer.ready,
        "detail": answer.detail,
        "active": answer.active,
        "lag": None if answer.lag is None else answer.lag._asdict(),
        "silentSinceMs": answer.silent_since_ms,
        "refused": list(answer.refused),
        "log": service.log,
        "restarts": service.restarts,
    }
