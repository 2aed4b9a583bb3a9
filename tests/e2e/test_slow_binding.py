"""A Binding that takes effect long after the binder that sent it was killed: its card is kept."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml

from tests.e2e.audit import fold
from tests.e2e.stack import ROLES, Stack, vgpu

NODES = (
    "- {name: g, gpus: {model: Tesla T4, count: 1, memory_mib: 16000}, cpu: 64, memory: 256Gi}\n"
)
MERGE_PATCH = "application/merge-patch+json"
FAULT = "allotment.dev/fault"


class SlowServer(ThreadingHTTPServer):
    """Hands everything on to the API server; Bindings only once they are `released`.

    Then they are handed on although nobody waits for the answer any more.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.target = ""
        self.holds = threading.Event()
        self.released = threading.Event()
        self.answered: list[int] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: SlowServer

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_binding = self.command == "POST" and self.path.endswith("/binding")
        if is_binding:
            self.server.holds.set()
            self.server.released.wait(600)
        request = Request(self.server.target + self.path, body or None, method=self.command)
        request.add_header("Content-Type", self.headers.get("Content-Type") or "application/json")
        try:
            with urlopen(request, timeout=60) as answer:
                status, said = answer.status, answer.read()
        except HTTPError as error:
            with error:
                status, said = error.code, error.read()
        if is_binding:
            self.server.answered.append(status)
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
        except OSError:
            self.close_connection = True  # whoever asked is gone

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_any

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def slow_server(directory: Path) -> Iterator[SlowServer]:
    """A slow way to the API server, and a kubeconfig for it at `directory / "slow"`."""
    with SlowServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (directory / "slow").write_text(yaml.safe_dump(config))
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def ill(stack: Stack, fault: str | None) -> None:
    annotations = {"metadata": {"annotations": {FAULT: fault}}}
    stack.call("PATCH", "/api/v1/nodes/g", annotations, MERGE_PATCH)


def is_offered(stack: Stack) -> bool:
    """Whether the log has the node with a card that takes pods."""
    ledgers = fold(stack.records()).nodes["g"].ledgers
    return any(card.fact.healthy for ledger in ledgers.values() for card in ledger.cards)


def urgent(stack: Stack, name: str) -> None:
    """A pod that comes before all others and fits on the card alone."""
    importance = {"metadata": {"name": "urgent"}, "value": 1000}
    stack.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", importance)
    resources = {"limits": vgpu(15000)}
    spec = {
        "schedulerName": "allotment",
        "priorityClassName": "urgent",
        "containers": [{"name": "main", "image": "i:1", "resources": resources}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stack.call("POST", "/api/v1/namespaces/default/pods", body)


def test_a_card_that_flaps_while_a_binding_is_under_way_is_not_handed_out_twice(
    tmp_path: Path,
) -> None:
    with slow_server(tmp_path) as slow:
        options = {"binder": ["--kubeconfig", str(tmp_path / "slow")]}
        with Stack(tmp_path / "stack", NODES, services=(), options=options) as stack:
            slow.target = stack.url
            for role in ROLES:
                stack.start(role)
            stack.create_pod("first", vgpu(15000))
            stack.until(slow.holds.is_set, "its Binding is under way")
            stack.kill("binder")
            ill(stack, "card-unhealthy=0")
            stack.until(lambda: not is_offered(stack), "the card is ill")
            stack.options.clear()
            binder = stack.start("binder-2")
            stack.until(
                lambda: (
                    "not known yet" in binder.log_path.read_text()
                    or "pod not bound" in binder.log_path.read_text()
                ),
                "the second binder met the pod",
            )
            urgent(stack, "second")
            ill(stack, None)
            stack.until(lambda: is_offered(stack), "the card is well again")
            stack.until(lambda: bool(stack.bound()), "one of them is bound")
            slow.released.set()
            stack.until(lambda: bool(slow.answered), "the Binding that was under way has ended")
            stack.until(
                lambda: stack.refusal("second") != "" or len(stack.bound()) > 1,
                "the other one waits, or is bound as well",
            )
            assert stack.books()["incidents"] == []
            assert stack.bound() == {"first"}
