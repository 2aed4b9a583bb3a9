"""Every screen of the command on a recorded log, compared with `screens/`.

Run with --rewrite and read the diff; commit only changes whose cause you understand.
"""

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allotment_cli.main import main
from tests.recording import busy_cluster
from tests.recording_batch import busy_queues, preempted

SCREENS = Path(__file__).parent / "screens"
COMMANDS = {
    "get-nodes": "get nodes",
    "get-nodes-wide": "get nodes -o wide",
    "get-nodes-json": "get nodes -o json",
    "get-pods": "get pods",
    "get-pods-wide": "get pods -o wide",
    "get-pods-json": "get pods -o json",
    "get-pods-pending": "get pods --pending -n research",
    "get-cards": "get cards",
    "get-cards-wide": "get cards --node gpu-01 -o wide",
    "get-cards-json": "get cards --node gpu-02 -o json",
    "ledger": "ledger",
    "ledger-before": "ledger --at 21~1 --node gpu-02",
    "ledger-json": "ledger --node whole-01 -o json",
    "usage": "usage",
    "usage-part": "usage --by node --from 21 --to 30 -o json",
    "log": "log",
    "log-pod": "log --pod half",
    "log-node": "log --node gpu-02 --type decided --type NodeObserved",
    "log-card": "log --card gpu-01/2 --since 11",
    "log-json": "log --pod half --type bound -o json",
    "log-show": "log show 12",
    "explain-scheduled": "explain pod big",
    "explain-scheduled-json": "explain pod big -o json",
    "explain-pending": "explain pod research/llama",
    "explain-pending-json": "explain pod research/llama -o json",
    "explain-pending-node": "explain pod research/llama --node gpu-02 --exit-code",
    "explain-counted": "explain pod whole-more",
    "explain-never": "explain pod research/never",
    "explain-problem": "explain pod wrong",
    "explain-gone": "explain pod half",
    "explain-before": "explain pod half --at 10",
    "explain-unknown": "explain pod halve",
    "doctor": "doctor",
    "replay": "replay --verify",
    "replay-range": "replay --verify --from 12 --to 25 -o json",
}
BATCH_COMMANDS = {
    "explain-gang-running": "explain gang llama",
    "explain-gang-short": "explain gang big --exit-code",
    "explain-gang-json": "explain gang big -o json",
    "explain-gang-quota": "explain gang default/quota",
    "explain-gang-few": "explain gang few",
    "explain-gang-gate": "explain gang late",
    "explain-gang-lost": "explain gang lost",
    "explain-gang-never": "explain gang huge",
    "explain-gang-unknown": "explain gang hugh",
    "explain-pod-of-gang": "explain pod big-worker-0",
    "get-pods-batch": "get pods",
    "log-batch": "log --type decided --type GroupObserved",
    "log-pod-of-gang": "log --pod big-worker-0",
    "explain-queue": "explain queue default",
    "explain-queue-quota": "explain queue training",
    "explain-queue-json": "explain queue training -o json",
    "explain-queue-closed": "explain queue closed",
    "explain-queue-unknown": "explain queue train",
}
PREEMPTION_COMMANDS = {
    "preemption-log": "log",
    "preemption-gang": "explain gang urgent --at 23",
    "preemption-gang-json": "explain gang urgent --at 23 -o json",
    "preemption-gang-placed": "explain gang urgent",
    "preemption-pod": "explain pod urgent-worker-0 --at 23",
    "preemption-victim": "explain pod background-worker-2 --at 23",
    "preemption-never": "explain gang patient --at 23",
    "preemption-never-pod": "explain pod patient-worker-0 --at 23",
    "preemption-replay": "replay --verify",
}


@pytest.fixture(scope="module")
def preemption_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preempted().write(tmp_path_factory.mktemp("log") / "preempted.jsonl")


@pytest.fixture(scope="module")
def batch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_queues().write(tmp_path_factory.mktemp("log") / "queues.jsonl")


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_cluster().write(tmp_path_factory.mktemp("log") / "busy.jsonl")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Screens show local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def screen(command: str, result: Result) -> str:
    parts = [f"$ allot {command}", result.stdout.rstrip("\n")]
    if result.stderr:
        parts += ["---- stderr", result.stderr.rstrip("\n")]
    return "\n".join([*parts, f"---- exit {result.exit_code}", ""])


@pytest.mark.parametrize("name", COMMANDS)
def test_screen(name: str, log_file: Path, rewrite: bool) -> None:
    compare(name, COMMANDS[name], log_file, rewrite)


@pytest.mark.parametrize("name", BATCH_COMMANDS)
def test_batch_screen(name: str, batch_file: Path, rewrite: bool) -> None:
    compare(name, BATCH_COMMANDS[name], batch_file, rewrite)


@pytest.mark.parametrize("name", PREEMPTION_COMMANDS)
def test_preemption_screen(name: str, preemption_file: Path, rewrite: bool) -> None:
    compare(name, PREEMPTION_COMMANDS[name], preemption_file, rewrite)


def compare(name: str, command: str, log_file: Path, rewrite: bool) -> None:
    words = shlex.split(command)
    at = words.index("show") if "show" in words else len(words)
    result = CliRunner().invoke(main, [*words[:at], "--file", str(log_file), *words[at:]])
    shown = screen(command, result)
    path = SCREENS / f"{name}.txt"
    if rewrite:
        path.write_text(shown)
    assert shown == path.read_text(), f"{path.name} differs; see --rewrite"


def test_no_screen_is_left_over() -> None:
    known = {*COMMANDS, *BATCH_COMMANDS, *PREEMPTION_COMMANDS}
    assert {path.stem for path in SCREENS.glob("*.txt")} == known
