"""The command on a live log: the same answers as on an exported one; clear words without one."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result
from tests.foreground import in_the_foreground
from tests.recording import Recorder, busy_cluster
from tests.waiting import PATIENCE_S

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.api import open_log
from allotment_cli.main import main


async def fill(url: str, log: Recorder) -> None:
    async with connect(url, "test-cli") as connection:
        live = await JetStreamLog.open(connection)
        for record in log.records:
            await live.append(record.subject, record.payload, msg_id=record.msg_id)


def allot(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return busy_cluster()


def test_a_live_log_answers_as_its_export(
    own_nats_server: NatsServer, recorded: Recorder, tmp_path: Path
) -> None:
    url = own_nats_server.url
    anyio.run(fill, url, recorded)
    exported = tmp_path / "live.jsonl"
    exported.write_text(allot("log", "-o", "jsonl", "--nats", url).stdout)
    for words in (
        ("replay", "--verify", "-o", "json"),
        ("get", "pods", "-o", "wide"),
        ("ledger", "--node", "gpu-01"),
    ):
        live = allot(*words, "--nats", url)
        assert live.exit_code == 0, live.stderr
        assert live.stdout == allot(*words, "--file", str(exported)).stdout
    report = json.loads(allot("replay", "--verify", "-o", "json", "--nats", url).stdout)
    assert report["identical"] == report["decisions"] == 3


def test_usage_of_a_live_log_is_that_of_its_export(
    own_nats_server: NatsServer,
    recorded: Recorder,
    tmp_path: Path,
) -> None:
    url = own_nats_server.url
    anyio.run(fill, url, recorded)
    exported = tmp_path / "live.jsonl"
    exported.write_text(allot("log", "-o", "jsonl", "--nats", url).stdout)
    words = ("usage", "--to", str(recorded.seq), "-o", "json")
    live = allot(*words, "--nats", url)
    assert live.exit_code == 0, live.stderr
    assert live.stdout == allot(*words, "--file", str(exported)).stdout


def test_a_log_that_python_opened_has_what_is_appended_later(own_nats_server: NatsServer) -> None:
    url, written = own_nats_server.url, busy_cluster()
    anyio.run(fill, url, written)
    with open_log(url) as log:
        known = [pod.name for pod in log.get("pods")]
        written.pod("late")
        anyio.run(fill, url, written)  # what is there is not appended twice
        later = log.get("pods")
        assert sorted(pod.name for pod in later) == sorted([*known, "late"])
        assert log.explain("late").status.phase == "Pending"
        assert [pod.name for pod in log.at(len(written.records) - 1).get("pods")] == known


def test_a_server_without_a_log_is_said_to_be_one(own_nats_server: NatsServer) -> None:
    result = allot("get", "nodes", "--nats", own_nats_server.url)
    assert result.exit_code == 2
    assert "has no stream ALLOTMENT_LOG" in result.stderr


def test_no_server_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.answers.source.CONNECT_WITHIN_S", 0.5)
    result = allot("get", "nodes", "--nats", "nats://127.0.0.1:1")
    assert result.exit_code == 2
    assert "NATS cannot be reached" in result.stderr
    assert len(result.stderr.splitlines()) == 2


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, whose lines can be read as they come."""
    program = "from allotment_cli.main import main; main(prog_name='allot')"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=in_the_foreground,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_watch_goes_on_with_rows_that_are_new_or_change(
    own_nats_server: NatsServer, recorded: Recorder
) -> None:
    url = own_nats_server.url
    half = Recorder()
    half.records = recorded.records[:10]
    anyio.run(fill, url, half)
    with started("get", "pods", "-w", "-n", "default", "--nats", url) as watching:
        assert watching.stdout is not None
        header = watching.stdout.readline()
        first = [watching.stdout.readline() for _ in range(3)]
        assert header.startswith("NAME  STATUS")
        assert [line.split()[0] for line in first] == ["big", "half", "pair"]
        half.records = recorded.records[10:12]
        anyio.run(fill, url, half)
        changed = watching.stdout.readline()
        assert changed.split()[:2] == ["big", "Reserved"]
        assert changed.index("big") == first[0].index("big"), "columns stay where they were"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=PATIENCE_S) == 128 + signal.SIGINT


def test_wait_ends_when_the_log_says_so(own_nats_server: NatsServer, recorded: Recorder) -> None:
    url = own_nats_server.url
    half = Recorder()
    half.records = recorded.records[:8]
    anyio.run(fill, url, half)
    words = ("wait", "--for=running", "pod/big", "--timeout", "5m", "--nats", url)
    with started(*words) as waiting:
        half.records = recorded.records[8:]
        anyio.run(fill, url, half)
        said, _ = waiting.communicate(timeout=PATIENCE_S)
        assert (said, waiting.returncode) == ("pod/default/big running\n", 0)
    late = allot("wait", "--for=gone", "pod/big", "--timeout", "1s", "--nats", url)
    assert late.exit_code == 3
    assert "is not gone: Running" in late.stderr
    assert "waited for 1s" in late.stderr


def test_kubectl_runs_the_command_as_its_plugin(recorded: Recorder, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    plugin = Path(sys.executable).with_name("kubectl-allot")
    if kubectl is None:
        pytest.skip("no kubectl here")
    log = recorded.write(tmp_path / "busy.jsonl")
    done = subprocess.run(
        [kubectl, "allot", "get", "no", "gpu-01", "-o", "name", "--file", str(log)],
        env={**os.environ, "PATH": f"{plugin.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.returncode) == ("node/gpu-01\n", 0), done.stderr


def test_inspect_shows_an_exported_log_and_speaks_to_people(
    recorded: Recorder, tmp_path: Path
) -> None:
    path = recorded.write(tmp_path / "log.jsonl")
    with started("inspect", "--file", str(path)) as inspecting:
        assert inspecting.stdout is not None
        assert inspecting.stderr is not None
        line = inspecting.stdout.readline()
        found = re.fullmatch(
            rf"{path} is shown at (http://127\.0\.0\.1:\d+)   \(Ctrl-C .*\)\n", line
        )
        assert found, line
        with urllib.request.urlopen(f"{found[1]}/pods", timeout=PATIENCE_S) as page:
            assert "research/llama" in page.read().decode()
        taken = allot("inspect", "--file", str(path), "--port", found[1].rpartition(":")[2])
        assert taken.exit_code == 2
        assert "give another --port" in taken.stderr
        inspecting.send_signal(signal.SIGINT)
        said, noted = inspecting.communicate(timeout=PATIENCE_S)
        assert inspecting.returncode == 0
        assert said == ""
        assert noted == f"reading {path}\n"


def test_inspect_says_which_log_it_cannot_show(tmp_path: Path) -> None:
    unreadable = tmp_path / "log.jsonl"
    unreadable.write_text("nonsense\n")
    for words in (("--file", str(unreadable)), ("--file", "/nonexistent.jsonl")):
        result = allot("inspect", *words)
        assert result.exit_code == 2
        assert words[1] in result.stderr
        assert "Traceback" not in result.stderr
    assert "--file" in allot("inspect").stderr
