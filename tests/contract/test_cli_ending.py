"""A command that is stopped ends what it started, and its exit code says what stopped it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.foreground import in_the_foreground
from tests.simulating import NODES, PODS
from tests.waiting import PATIENCE_S, until_so

pytestmark = pytest.mark.slow

WATCH = ["bench", "watch", "--nodes", "200", "--pods", "2000", "--rounds", "1000"]
PIPELINE = ["bench", "pipeline", "--nodes", "200", "--pods", "2000", "--seconds", "100"]
E2E = ["bench", "e2e", "--nodes", "20", "--pods", "1500", "--seconds", "10"]
ALLOT = [sys.executable, "-m", "allotment_cli.main"]


@contextmanager
def begun(
    tmp_path: Path, arguments: list[str], before: Callable[[], object] = in_the_foreground
) -> Iterator["subprocess.Popen[str]"]:
    """The command as a process; its temporary files and its children are known by the directory."""
    running = subprocess.Popen(
        [*ALLOT, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def in_the_background() -> None:
    """As a shell starts a job that ends with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def assert_stopped(running: "subprocess.Popen[str]", number: signal.Signals) -> str:
    running.send_signal(number)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert said.splitlines()[-1] == f"allot: stopped by {number.name}", said
    assert running.returncode == 128 + number
    return said


@pytest.fixture
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes a while."""
    example = Path("deploy/examples/simulate/training-and-inference.yaml").read_text()
    path = tmp_path_factory.mktemp("workload") / "long.yaml"
    path.write_text(example.replace("lasts: 2d", "lasts: 60d"))
    return path


def children(tmp_path: Path, *words: str) -> list[str]:
    """Command lines of all processes that have to do with the directory, and have one of the words
    in them if there are any.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words and not any(word in command for word in words):
                continue
            environ = (path / "environ").read_bytes()
        except OSError:
            continue
        if str(tmp_path).encode() in environ and int(path.name) != os.getpid():
            found.append(command)
    return found


def all_run(tmp_path: Path, *words: str) -> bool:
    """Whether there is a process for each of the words."""
    found = children(tmp_path, *words)
    return all(any(word in command for command in found) for word in words)


@pytest.mark.parametrize(
    ("arguments", "last_started", "number"),
    [
        (WATCH, "allotment_watcher", signal.SIGTERM),
        (WATCH, "allotment_watcher", signal.SIGINT),
        (PIPELINE, "allotment_binder", signal.SIGTERM),
        (PIPELINE, "allotment_binder", signal.SIGHUP),
        (E2E, "allotment_binder", signal.SIGTERM),
    ],
)
def test_no_process_and_no_file_is_left(
    tmp_path: Path, arguments: list[str], last_started: str, number: signal.Signals
) -> None:
    with begun(tmp_path, arguments) as running:
        until_so(lambda: all_run(tmp_path, "nats-server", last_started))
        assert_stopped(running, number)
    assert not children(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_simulation_through_the_services_ends_them(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = tmp_path_factory.mktemp("trace")
    (trace / "nodes.csv").write_text(NODES)
    (trace / "pods.csv").write_text(PODS)
    files = ["--nodes", str(trace / "nodes.csv"), "--pods", str(trace / "pods.csv")]
    simulate = ["simulate", *files, "--inflate", "50", "--through", "services"]
    with begun(tmp_path, simulate) as running:
        until_so(lambda: all_run(tmp_path, "nats-server", "allotment_binder"))
        assert_stopped(running, signal.SIGTERM)
    assert not children(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_record_that_is_not_whole_is_taken_away(tmp_path: Path, workload: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    simulate = ["simulate", "--workload", str(workload), "--record", str(records / "run.jsonl")]
    with begun(tmp_path, simulate) as running:
        until_so(lambda: list(records.iterdir()))
        assert_stopped(running, signal.SIGTERM)
    assert not list(records.iterdir())


def test_in_the_background_of_a_shell_as_well(tmp_path: Path, workload: Path) -> None:
    """Shells start background jobs with SIGINT ignored."""
    arguments = ["simulate", "--workload", str(workload), "--record", str(tmp_path / "run.jsonl")]
    with begun(tmp_path, arguments, before=in_the_background) as running:
        until_so(lambda: list(tmp_path.iterdir()))
        running.send_signal(signal.SIGINT)
        assert_stopped(running, signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "last_started"), [(PIPELINE, "allotment_binder"), (WATCH, "allotment_watcher")]
)
def test_an_event_loop_in_the_background_ends_without_a_traceback(
    tmp_path: Path, arguments: list[str], last_started: str
) -> None:
    with begun(tmp_path, arguments, before=in_the_background) as running:
        until_so(lambda: all_run(tmp_path, "nats-server", last_started))
        running.send_signal(signal.SIGINT)  # is ignored
        said = assert_stopped(running, signal.SIGTERM)
    assert "Traceback" not in said
    assert not children(tmp_path)
    assert not list(tmp_path.iterdir())


def test_nobody_reads_that_it_was_stopped(tmp_path: Path, workload: Path) -> None:
    arguments = ["simulate", "--workload", str(workload), "--record", str(tmp_path / "run.jsonl")]
    with begun(tmp_path, arguments) as running:
        until_so(lambda: list(tmp_path.iterdir()))
        assert running.stderr is not None
        running.stderr.close()
        running.send_signal(signal.SIGINT)
        # Its progress finds no reader either, and may be written before the signal is read.
        assert running.wait(PATIENCE_S) in (128 + signal.SIGINT, 128 + signal.SIGPIPE)


def test_a_reader_that_went_away_and_a_full_disk(tmp_path: Path) -> None:
    with begun(tmp_path, ["version"]) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    with begun(tmp_path, PIPELINE) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "the bare client of a log: 2000 pods …\n"
        running.stderr.close()
        assert running.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert not children(tmp_path)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ALLOT, "version"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )
    assert done.returncode == 2
    assert done.stderr == "allot: the output cannot be written: No space left on device\n"
