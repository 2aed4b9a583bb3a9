"""The connections of the watcher's watches die without a word: the streams stand, nothing comes."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.audit import assert_sound
from tests.e2e.stack import Stack, vgpu

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
CHUNK = 65536


class HalfOpen:
    """Forwards to `target`; what was connected before `freeze` stays open and hears no more."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self._generation = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        self._generation += 1

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self.target)
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    arguments = (*pair, self._generation)
                    threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, generation: int) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                if generation == self._generation:
                    sink.sendall(chunk)
            if generation == self._generation:
                sink.shutdown(socket.SHUT_WR)


class BehindProxy(Stack):
    """The watcher reaches the API server through `way`."""

    way: HalfOpen

    def _write_kubeconfig(self) -> None:
        super()._write_kubeconfig()
        url = urlsplit(self.url)
        self.way.target = (str(url.hostname), int(url.port or 0))
        config = yaml.safe_load((self.directory / "kubeconfig").read_text())
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{self.way.port}"
        (self.directory / "behind").write_text(yaml.safe_dump(config))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[BehindProxy]:
    way = HalfOpen()
    try:
        options = {"watcher": ["--kubeconfig", str(tmp_path / "behind")]}
        made = BehindProxy(tmp_path, NODES, options=options)
        made.way = way
        with made as running:
            yield running
    finally:
        way.close()


def test_pods_are_placed_within_seconds_of_a_watch_going_silent(stack: BehindProxy) -> None:
    stack.create_pod("before", vgpu(1000))
    stack.until(lambda: "before" in stack.bound(), "a pod is bound")
    stack.way.freeze()
    stack.create_pod("after", vgpu(1000))
    took_s = stack.until(lambda: "after" in stack.bound(), "a pod is bound again")
    print(f"bound {took_s:.1f} s after the watches went silent")
    said = stack.processes["watcher"].log_path.read_text()
    assert "a second watch found: news" in said
    stack.until(lambda: stack.is_ready("watcher"), "the watcher is ready")
    assert_sound(stack)
