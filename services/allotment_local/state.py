"""What runs in a home, as `state.json` says it: written by the supervisor, read by everyone.

Standard library only; see `processes`.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from allotment_local.processes import ProcessId

Phase = Literal["starting", "ready", "stopping", "stopped", "failed"]
VERSION = 1
NOBODY = ProcessId(0, "")


@dataclass
class ServiceState:
    """One process under the supervisor. `pid` is 0 while it is down."""

    name: str
    log: str
    pid: int = 0
    started: str = ""
    http: str = ""
    """host:port of /healthz and /readyz; empty until it is announced."""
    restarts: int = 0
    detail: str = ""
    """The last thing that went wrong."""

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.started)


@dataclass
class State:
    """A home's processes and addresses."""

    phase: Phase = "starting"
    supervisor: ProcessId = NOBODY
    warden: ProcessId = NOBODY
    started_at: str = ""
    apiserver: str = ""
    nats: str = ""
    inspector: str = ""
    """Where the pages are; they stay there when the inspector restarts."""
    services: list[ServiceState] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def processes(self) -> list[ProcessId]:
        """Everything that was started, the supervisor excepted."""
        return [service.process for service in self.services if service.pid] + [self.warden]


class StateError(Exception):
    """Raised for a state.json that cannot be read; says what to do."""


def write_state(path: Path, state: State) -> None:
    """Replace the file in one step, so that readers never see half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"version": VERSION, **asdict(state)}, indent=1) + "\n")
    os.replace(temporary, path)


def read_state(path: Path) -> State | None:
    """The state of a home; None when nothing was ever started in it. Raises StateError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        raw: dict[str, Any] = json.loads(text)
        version = raw.pop("version")
        if version != VERSION:
            raise ValueError(f"version {version}, this program knows {VERSION}")
        services = [ServiceState(**service) for service in raw.pop("services")]
        supervisor, warden = (ProcessId(*raw.pop(name)) for name in ("supervisor", "warden"))
        return State(services=services, supervisor=supervisor, warden=warden, **raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{path} cannot be read ({error}); end what still runs by hand, then delete the file"
        ) from error
