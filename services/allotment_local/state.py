"""What runs in a home, as `state.json` says it: written by the supervisor, read by everyone."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from allotment_local.processes import ProcessId

NOBODY = ProcessId(0, "")


class ServiceState(msgspec.Struct, forbid_unknown_fields=True):
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

    def is_now(self, process: ProcessId) -> None:
        """Another process runs the service, or no process does."""
        self.pid, self.started, self.http = *process, ""


class State(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A home's processes and addresses."""

    version: Literal[1] = 1
    services: list[ServiceState]
    phase: Literal["starting", "ready", "stopping", "stopped", "failed"] = "starting"
    supervisor: ProcessId = NOBODY
    warden: ProcessId = NOBODY
    started_at: str = ""
    apiserver: str = ""
    nats: str = ""
    inspector: str = ""
    """Where the pages are; they stay there when the inspector restarts."""
    problems: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.phase in ("stopped", "failed")

    def processes(self) -> list[ProcessId]:
        """Everything that was started, the supervisor excepted."""
        return [service.process for service in self.services if service.pid] + [self.warden]


class StateError(Exception):
    """Raised for a state.json that cannot be read; says what to do."""


def write_state(path: Path, state: State) -> None:
    """Replace the file in one step, so that readers never see half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    os.replace(temporary, path)


def read_state(path: Path) -> State | None:
    """The state of a home; None when nothing was ever started in it. Raises StateError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StateError(
            f"{path} cannot be read ({error}); end what still runs by hand, then delete the file"
        ) from error
