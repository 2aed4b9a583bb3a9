"""`python -m MODULE` for tests, without the second that each of them spends on imports.

One process has imported what the services are made of. It forks for each that is asked for, and
the child runs the module as `python -m` does: with arguments, environment, output and a session of
its own. What tests kill, freeze and wait for are real processes.

Children have the hash seed of the process that forked them. A binder and a scorer with the same one
would agree where the order of a set decides, so binders come from another process than the rest.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.util
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
BINDER = "allotment_binder"
MODULES = (
    "allotment_watcher",
    "allotment_filter",
    "allotment_scorer",
    BINDER,
    "allotment_controller",
    "allotment_inspector",
    "allotment_scheduler",
    "allotment_local.apiserver",
    "tests.e2e.cluster_process",
)
"""What is imported once. Any other module can be run as well, and imports the rest itself."""
_REQUEST_BYTES_MAX = 1 << 17
_FDS = 3
_STARTED_WITHIN_S = 100.0


class Forked:
    """A process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], stderr: int = 2) -> None:
        """Module and arguments, and the file descriptor of its errors. Its input is empty, its
        output can be read from `stdout`.
        """
        out, out_end = os.pipe()
        ended, ended_end = os.pipe()
        try:
            fds = (out_end, stderr, ended_end)
            self.pid = _ask(list(arguments), fds)
        finally:
            os.close(out_end)
            os.close(ended_end)
        self.stdout = os.fdopen(out, "rb")
        self.returncode: int | None = None
        self._ended = os.fdopen(ended, "rb")

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._look(0)

    def wait(self, timeout_s: float) -> int:
        """The exit status; negative: ended by that signal. Raises subprocess.TimeoutExpired."""
        if (status := self._look(timeout_s)) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout_s)[0]:
            said = self._ended.read()
            assert said, f"nobody says any more how process {self.pid} ended"
            self.returncode = int(said)
            self._ended.close()
        return self.returncode


@cache
def _server(kind: str) -> socket.socket:
    """The connection to this process' own forking process of that kind, which ends with it."""
    here, there = socket.socketpair()
    command = [sys.executable, "-m", "tests.forking", str(there.fileno())]
    with there:
        started = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
        )
    here.settimeout(_STARTED_WITHIN_S)

    def end() -> None:
        here.close()
        started.wait()

    atexit.register(end)
    return here


def _ask(arguments: list[str], fds: tuple[int, ...]) -> int:
    server = _server("binders" if arguments[0] == BINDER else "all others")
    request = msgspec.json.encode(_Request(arguments, dict(os.environ)))
    assert len(request) < _REQUEST_BYTES_MAX
    socket.send_fds(server, [len(request).to_bytes(4), request], fds)
    answer = server.recv(32)
    assert answer, "the forking process has ended"
    return int(answer)


# In the forking process


class _Request(msgspec.Struct):
    arguments: list[str]
    environment: dict[str, str]


def _serve(asking: socket.socket) -> _Request | None:
    """Fork for each request. Returns it in the child; in the parent None, once nobody asks."""
    wakes, woken = socket.socketpair()
    for end in (wakes, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    says_end: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asking, wakes], [], [])
        if wakes in ready:
            wakes.recv(4096)
            _bury(says_end)
        if asking not in ready:
            continue
        head, fds, _, _ = socket.recv_fds(asking, 4, _FDS)
        if not head:
            for pid in says_end:  # the tests are gone, however they ended
                os.kill(pid, signal.SIGKILL)
            return None
        asked = asking.recv(int.from_bytes(head), socket.MSG_WAITALL)
        if pid := os.fork():
            out, err, says_end[pid] = fds
            os.close(out)
            os.close(err)
            asking.send(str(pid).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        for fd in (*fds, *says_end.values()):
            os.close(fd)
        for other in (wakes, woken):
            other.close()
        return msgspec.json.decode(asked, type=_Request)


def _bury(says_end: dict[int, int]) -> None:
    """Tell of each child that ended how it did."""
    while says_end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        fd = says_end.pop(pid)
        # a test that has gone on reads it no more
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(fd)


def _import(module: str) -> None:
    """Import what a module is made of, but leave itself to `runpy`, as if nobody had seen it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    name = module if spec.submodule_search_locations is None else f"{module}.__main__"
    importlib.import_module(name)
    del sys.modules[name]


def _main() -> None:
    for module in MODULES:
        _import(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        request = _serve(asking)
    if request is not None:
        os.environ.clear()
        os.environ.update(request.environment)
        sys.argv = request.arguments
        # another module may have imported it as a part of itself
        sys.modules.pop(f"{request.arguments[0]}.__main__", None)
        # ends as the module ends: an exit status, a signal, an exception
        runpy.run_module(request.arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
