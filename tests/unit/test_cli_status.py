"""`allot status` and `allot doctor` about the services of local mode."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import nats.errors
import pytest
from click.testing import CliRunner

from allotment.adapters.service.moments import local_text
from allotment.adapters.telemetry.log import error_text
from allotment.answers import local
from allotment.answers.cluster import Access, Cluster
from allotment.answers.source import FileSource, Origin
from allotment_cli.main import main
from allotment_cli.read import doctor as module
from allotment_cli.setup.cluster import show_status
from allotment_local.probes import probe_http
from tests.waiting import PATIENCE_S

BEHIND = "log: folded to 644, 247 records behind the log's end for 12.3 s"


def row(name: str, *, detail: str = "", lag: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "pid": 7,
        "http": "http://127.0.0.1:1",
        "alive": True,
        "restarts": 0,
        "ready": not detail,
        "detail": detail,
        "lag": lag,
        "log": f"/home/{name}.log",
    }


FOUND = {
    "ready": False,
    "home": "/home",
    "kubeconfig": None,
    "apiserver": None,
    "nats": None,
    "inspector": None,
    "problems": [],
    "services": [
        row("nats"),
        row("filter", lag={"records": 0, "seconds": 0.0}),
        row("scorer", detail=BEHIND, lag={"records": 247, "seconds": 12.3}),
    ],
}


def test_status_shows_how_far_each_service_is_behind(capsys: pytest.CaptureFixture[str]) -> None:
    show_status(FOUND, "text")
    lines = capsys.readouterr().out.splitlines()
    (header,) = (line for line in lines if line.startswith("SERVICE"))
    assert "BEHIND LOG" in header
    assert "247 for 12.3s" in next(line for line in lines if line.startswith("scorer"))


def test_status_says_first_that_nats_brings_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    since_ms = 1_795_183_781_000
    silent = {**row("filter", detail="log: No news from NATS"), "silentSinceMs": since_ms}
    found = {"ready": False, "services": [row("nats"), silent], "problems": []}
    show_status(found, "text")
    first, *rest = capsys.readouterr().out.splitlines()
    since = local_text(since_ms)
    assert first.split(maxsplit=1) == [
        "Ready",
        f"no: No news from NATS since {since}; this is the state of then",
    ]
    assert not any("BEHIND" in line for line in rest), "how far it is behind is not known"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no answer in time"),
        (nats.errors.TimeoutError(), "no answer in time"),
        (nats.errors.StaleConnectionError(), "stale connection"),
        (anyio.EndOfStream(), "end of stream"),
        (ConnectionResetError(), "connection reset"),
        (OSError(111, "Connection refused"), "connection refused"),
    ],
)
def test_no_name_of_an_exception_reaches_people(error: Exception, text: str) -> None:
    assert error_text(error) == text


def test_status_shows_who_is_active(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {**row("binder-1", lag={"records": 0, "seconds": 0.0}), "active": True},
        {**row("binder-2"), "active": False},
        {"name": "filter", "ready": True, "replica": "filter-7", "active": True, "lag": None},
        {"name": "scorer", "ready": False, "replica": "", "active": False, "lag": None},
    ]
    show_status({"ready": False, "services": rows, "problems": []}, "text")
    lines = capsys.readouterr().out.splitlines()
    states = {words[0]: words[1:4] for words in map(str.split, lines) if words}
    assert states["SERVICE"] == ["STATE", "ACTIVE", "BEHIND"]
    assert states["binder-1"][:2] == ["ready", "yes"]
    assert states["binder-2"][:2] == ["ready", "standby"]
    assert states["filter"][:2] == ["ready", "filter-7"]
    assert states["scorer"] == ["not", "ready", "none"]
    assert not any(line.startswith("Home") for line in lines)
    show_status({"ready": False, "services": rows[2:], "problems": []}, "text")
    (header,) = (one for one in capsys.readouterr().out.splitlines() if "SERVICE" in one)
    assert header.split() == [
        "SERVICE",
        "STATE",
        "ACTIVE",
    ]


def test_doctor_says_which_service_is_not_ready_even_if_the_log_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def found(home: Path) -> dict[str, Any]:
        return FOUND

    monkeypatch.setattr(local, "status", found)
    answer = CliRunner().invoke(main, ["doctor", "--home", str(tmp_path)])
    assert answer.exit_code == 2  # no log to read
    assert "ServiceNotReady   service scorer" in answer.output
    assert BEHIND in answer.output
    assert "/home/scorer.log" in answer.output


def test_doctor_asks_the_services_that_are_named(tmp_path: Path) -> None:
    body = b'{"ready":true,"reasons":{},"refused":["Pod \'a/b\': KeyError: 1"]}'
    late = b'{"ready":false,"reasons":{"log":"3 records behind"}}'

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.server is ready else 503)
            self.end_headers()
            self.wfile.write(body if self.server is ready else late)

        def log_message(self, *_: object) -> None: ...

    ready, behind = (ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(2))
    (log := tmp_path / "log.jsonl").write_text("")
    with ready, behind:
        for server in (ready, behind):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        one, two = (f"127.0.0.1:{server.server_port}" for server in (ready, behind))
        named = ["--file", str(log), "--services", f"http://{one}/readyz, {two}"]
        answer = CliRunner().invoke(main, ["doctor", *named])
        wrong = CliRunner().invoke(main, ["doctor", "--file", str(log), "--services", "binder"])
        for server in (ready, behind):
            server.shutdown()
    assert f"ObjectRefused   service {one}" in answer.output, answer.output
    assert "Pod 'a/b': KeyError: 1" in answer.output
    assert f"ServiceNotReady   service {two}" in answer.output
    assert "log: 3 records behind" in answer.output
    assert wrong.exit_code == 2


def test_doctor_asks_all_services_at_once(tmp_path: Path) -> None:
    """Each answers only when all were asked: one after the other none would."""
    met = threading.Barrier(3)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            met.wait(PATIENCE_S)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ready":true}')

        def log_message(self, *_: object) -> None: ...

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(met.parties)]
    (log := tmp_path / "log.jsonl").write_text("")
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    named = ",".join(f"127.0.0.1:{server.server_port}" for server in servers)
    answer = CliRunner().invoke(main, ["doctor", "--file", str(log), "--services", named])
    for server in servers:
        server.shutdown()
        server.server_close()
    assert "no problems found" in answer.output, answer.output


def test_doctor_asks_local_mode_once_and_leaves_an_api_server_alone_that_is_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Path] = []

    async def found(home: Path) -> dict[str, Any]:
        asked.append(home)
        return {**FOUND, "services": [row("apiserver", detail="no answer within 2 s")]}

    @asynccontextmanager
    async def of_file(origin: Origin) -> AsyncIterator[FileSource]:
        (log := tmp_path / "log.jsonl").write_text("")
        yield FileSource(log)

    @asynccontextmanager
    async def nobody(access: Access) -> AsyncIterator[Cluster]:
        pytest.fail("it was asked though it does not answer")
        yield Cluster(None)

    monkeypatch.setattr(local, "status", found)
    monkeypatch.setattr(module, "open_source", of_file)
    monkeypatch.setattr(module, "open_cluster", nobody)
    answer = CliRunner().invoke(main, ["doctor", "--home", str(tmp_path)])
    assert asked == [tmp_path]
    assert "not compared with the API server: no answer within 2 s" in answer.stderr
    assert "ServiceNotReady   service apiserver" in answer.stdout


@pytest.mark.anyio
@pytest.mark.parametrize(("lease", "active"), [("active, epoch 7", True), ("standby: x", False)])
async def test_a_probe_reads_lag_and_lease_out_of_readyz(lease: str, active: bool) -> None:
    figures = {"log": {"recordsBehind": 3, "secondsBehind": 1.5}}
    body = json.dumps({"ready": True, "holds": {"lease": lease}, "figures": figures}).encode()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        found = await probe_http(f"127.0.0.1:{port}")
        group.cancel_scope.cancel()
    assert found.lag is not None
    assert (found.ready, found.active, *found.lag) == (True, active, 3, 1.5)


def test_each_mistake_of_a_file_has_a_line_of_its_own(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("- {name: a, mode: bad, gpus: nope}\n- {name: b, gpus: -1, nonsense: 1}\n")
    config = tmp_path / "scheduler.conf"
    config.write_text("actions: 'enqueue, alocate'\ntiers:\n- plugins:\n  - name: gangg\n")
    recipe = tmp_path / "workload.yaml"
    recipe.write_text("nodes: 1\npods: 2\nhours: x\n")
    example = "deploy/examples/simulate/training-and-inference.yaml"
    for words in (
        ("up", "--home", str(tmp_path / "home"), "--nodes", str(nodes)),
        ("simulate", "--workload", example, "--policy", str(config)),
        ("simulate", "--workload", str(recipe)),
    ):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2, words
        assert "\\n" not in result.stderr, words
        lines = [line for line in result.stderr.splitlines() if line.startswith("allot: ")]
        assert len(lines) > 2, result.stderr
