"""The directory of one local mode: what lies where, who owns it, what is kept of the last run."""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

CONTEXT = "allotment-local"
BINDER_CONTEXT = "allotment-local-binder"
"""Who may write what says which devices a pod holds."""
KEYS = "keys"
"""Where in a home the keys of NATS's users are."""
DEFAULT_HOME = Path("~/.allotment")
KEPT_LOGS = 2
"""How many allocation logs of earlier runs are kept."""
LOCK_PATIENCE_S = 0.5
_LOCK_PAUSE_S = 0.02
_OLD_NATS = re.compile(r"nats\.\d{8}T\d{6}Z(\.\d+)?")


class HomeError(Exception):
    """Raised when the directory cannot be used; says why."""


class AlreadyRunning(Exception):
    """Raised when another supervisor owns the home."""


class Home:
    """Paths inside a home. `create` makes it, `own` makes it ours."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.state = self.path / "state.json"
        self.kubeconfig = self.path / "kubeconfig"
        self.nats = self.path / "nats"
        self.archive = self.nats / "archive"
        """Next to the log that it is of: both are set aside together."""
        self.keys = self.path / KEYS
        self.writer_token = self.path / "apiserver.token"
        self.logs = self.path / "logs"
        self._lock = self.path / "lock"

    def create(self) -> None:
        """Make the directory if there is none, closed to others. Raises HomeError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            self._lock.touch(mode=0o600)
        except OSError as error:
            why = error.strerror or str(error)
            raise HomeError(
                f"{error.filename or self.path}: {why}; ALLOT_HOME must be a directory of your own"
            ) from error

    @contextlib.contextmanager
    def own(self, patience_s: float = LOCK_PATIENCE_S) -> Iterator[None]:
        """Hold the home until the scope is left, or the process has ended however it ended.

        Raises AlreadyRunning. Blocking, for as long as `patience_s`: who only looks whether the
        home is owned (`is_owned`) holds it for a moment, too.
        """
        deadline_s = time.monotonic() + patience_s
        with open(self._lock, "a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline_s:
                        raise AlreadyRunning from None
                    time.sleep(_LOCK_PAUSE_S)
            yield

    def is_owned(self) -> bool:
        """Whether a supervisor owns the home at this moment."""
        if not self._lock.exists():
            return False
        try:
            with self.own(patience_s=0):
                return False
        except AlreadyRunning:
            return True

    def log_of(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    def turn_logs(self) -> None:
        """Start a new log for every service; the last run's is kept as `<name>.log.1`."""
        for log in sorted(self.logs.glob("*.log")):
            if log.name != "supervisor.log":
                os.replace(log, log.with_name(f"{log.name}.1"))

    def set_aside_nats(self, now: datetime) -> Path | None:
        """Move the last run's allocation log away and forget the oldest; where it is now."""
        if not (self.nats / "store").exists():
            return None
        base = self.nats.with_name(f"nats.{now.astimezone(UTC):%Y%m%dT%H%M%SZ}")
        target, number = base, 1
        while target.exists():
            number += 1
            target = base.with_name(f"{base.name}.{number}")
        os.replace(self.nats, target)
        old = sorted(path for path in self.path.iterdir() if _OLD_NATS.fullmatch(path.name))
        for path in old[:-KEPT_LOGS]:
            shutil.rmtree(path)
        return target

    def write_kubeconfig(self, server: str) -> None:
        """For kubectl and the services: one cluster, without a user, or as the binder."""
        text = f"""apiVersion: v1
kind: Config
clusters:
- name: {CONTEXT}
  cluster:
    server: {server}
contexts:
- name: {CONTEXT}
  context:
    cluster: {CONTEXT}
    namespace: default
    user: ""
- name: {BINDER_CONTEXT}
  context:
    cluster: {CONTEXT}
    namespace: default
    user: binder
current-context: {CONTEXT}
users:
- name: binder
  user:
    tokenFile: {self.writer_token}
"""
        temporary = self.kubeconfig.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_text(text)
        os.replace(temporary, self.kubeconfig)


def append_to(path: Path) -> BinaryIO:
    """A log, open for more."""
    return open(path, "ab")


def tail(path: Path, lines: int = 12) -> list[str]:
    """The last lines of a file; none when it is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 8192))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]
