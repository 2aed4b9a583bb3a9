"""A compiler or a cache that does not work costs speed, and is told; it never ends anything."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import allotment_board
from allotment.answers import replay as replay_command
from allotment_board import machine_code
from allotment_board.loops import PLAIN, SIGNATURES, MachineCode
from allotment_board.machine_code import BrokenCompilerError, load, load_in_thread
from allotment_cli.main import main
from tests.recording import busy_cluster

Jit = Callable[..., Callable[..., Any]]


class FakeNumba:
    """What is used of numba. `njit` fails in the ways given, one after another, then works. What it
    compiled is kept in the cache.
    """

    __version__ = "0.0"

    def __init__(self, directory: str, failures: list[Exception]) -> None:
        self.config = SimpleNamespace(CACHE_DIR=directory, DISABLE_JIT=0)
        self.extending = SimpleNamespace(register_jitable=lambda part: part)
        self.core = SimpleNamespace(event=self)
        self.failures = failures
        self.cached: list[bool] = []
        self.compiled = 0
        self.typed: list[object] = []
        self.is_locked: list[bool] = []
        """Whether the cache was locked, by compilation."""
        self._listening: list[Any] = []

    class Listener:
        """The base of whoever listens to events."""

    @contextmanager
    def install_listener(self, kind: str, listener: Any) -> Iterator[None]:
        assert kind == "numba:compile"
        self._listening.append(listener)
        try:
            yield
        finally:
            self._listening.remove(listener)

    def typeof(self, value: object) -> None:
        self.typed.append(value)

    def njit(self, signature: str, *, cache: bool, error_model: str) -> Jit:
        self.cached.append(cache)
        if self.failures:
            raise self.failures.pop(0)
        kept = Path(self.config.CACHE_DIR) / f"code-{signature}".replace("/", "")
        if not (cache and kept.exists()):
            for listener in self._listening:
                listener.on_start(None)
            self.compiled += 1
            if cache:
                self.is_locked.append(_is_locked(kept.parent.parent))
                kept.touch()
        return lambda function: function


def _is_locked(directory: Path) -> bool:
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(MachineCode, "loops", PLAIN)
    monkeypatch.setattr(machine_code, "_loading", [])
    yield
    for thread in machine_code._loading:
        thread.join()


@pytest.fixture
def numba(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNumba:
    fake = FakeNumba(str(tmp_path), [])
    monkeypatch.setattr(machine_code, "_compiler", lambda: fake)
    return fake


def test_code_that_came_with_the_installation_is_taken_into_an_empty_cache(
    numba: FakeNumba, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    numba.config.CACHE_DIR = str(shipped)
    assert load()
    [made] = shipped.iterdir()
    (made / "code").write_text("of the image")
    monkeypatch.setattr(machine_code, "SHIPPED", shipped)
    numba.config.CACHE_DIR = str(tmp_path / "cache")
    for _ in range(2):  # into an empty one only
        monkeypatch.setattr(MachineCode, "loops", PLAIN)
        assert load()
        kept = tmp_path / "cache" / made.name / "code"
        assert kept.read_text() == "of the image"
        (made / "code").write_text("of a later one")
    assert numba.cached == [True] * 3 * len(SIGNATURES)


def test_a_cache_that_cannot_be_read_is_thrown_away(numba: FakeNumba, tmp_path: Path) -> None:
    numba.failures = [EOFError("Ran out of input")]
    assert load()
    assert MachineCode.loops == PLAIN._replace(is_compiled=True)
    assert numba.cached == [True, *[False] * len(SIGNATURES)], "all of it is made anew"
    assert list(tmp_path.iterdir()) == [], "the next start makes it anew"
    assert str(tmp_path) == numba.config.CACHE_DIR


def test_without_a_home_nothing_is_kept(numba: FakeNumba, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    numba.config.CACHE_DIR = ""
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert load()
    assert numba.cached == [False] * len(SIGNATURES)


def test_one_process_at_a_time_compiles_for_a_cache(numba: FakeNumba) -> None:
    assert load()
    assert numba.is_locked == [True] * len(SIGNATURES)


def test_the_first_decision_does_not_import_what_numba_needs_for_its_first_array(
    numba: FakeNumba,
) -> None:
    assert load()
    assert [type(value) for value in numba.typed] == [np.ndarray]


@pytest.fixture
def elsewhere(numba: FakeNumba, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often another process was asked to compile; it fills the same cache."""
    asked: list[int] = []

    def compile_elsewhere() -> None:
        asked.append(numba.compiled)
        before, MachineCode.loops = MachineCode.loops, PLAIN
        load()
        MachineCode.loops = before
        numba.compiled = 0

    monkeypatch.setattr(machine_code, "compile_elsewhere", compile_elsewhere)
    return asked


def _loaded_by_a_service() -> list[str]:
    """What it was told of a broken compiler."""
    told: list[str] = []
    load_in_thread(told.append)
    (thread,) = machine_code._loading
    thread.join()
    return told


def test_a_service_has_another_process_compile(
    numba: FakeNumba, elsewhere: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        monkeypatch.setattr(machine_code, "_loading", [])
        monkeypatch.setattr(MachineCode, "loops", PLAIN)
        assert _loaded_by_a_service() == []
        assert machine_code.is_in_use()
    assert elsewhere == [0], "once: then the code is in the cache"
    assert numba.compiled == 0


def test_a_service_throws_a_broken_cache_away_and_has_it_filled_again(
    numba: FakeNumba, elsewhere: list[int], tmp_path: Path
) -> None:
    numba.failures = [EOFError("Ran out of input")]
    assert _loaded_by_a_service() == []
    assert (elsewhere, numba.compiled, machine_code.is_in_use()) == ([0], 0, True)
    assert len(list(tmp_path.glob("*/code-*"))) == len(SIGNATURES)


def test_without_another_process_a_service_compiles_itself(
    numba: FakeNumba, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert _loaded_by_a_service() == []
    assert (numba.compiled, machine_code.is_in_use()) == (len(SIGNATURES), True)


def test_what_compiles_for_a_service_ends_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", machine_code.__name__, "--while-stdin-is-open"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 1
    assert not list(tmp_path.rglob("*.nbi")), "it did not wait for its end"


def test_a_service_is_told_why_and_goes_on(numba: FakeNumba, elsewhere: list[int]) -> None:
    numba.failures = [OSError("no\nLLVM") for _ in range(5)]
    told: list[str] = []
    for _ in range(2):
        load_in_thread(told.append)
    (thread,) = machine_code._loading
    thread.join()
    assert told == ["OSError: no LLVM"]
    assert not machine_code.is_in_use()


def test_a_compiler_that_cannot_be_imported_is_broken_not_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_code, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(BrokenCompilerError, match="import of numba halted"):
        load()
    assert machine_code.numba_version() is None
    monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    assert not load()


def test_a_bench_says_that_it_is_without(numba: FakeNumba) -> None:
    numba.failures = [EOFError(), OSError("no LLVM")]
    arguments = ["bench", "core", "--nodes", "20", "--shapes", "2", "--seconds", "0.1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "measuring without compiled loops: OSError: no LLVM" in result.stderr
    assert "numba none" in result.stdout


@pytest.mark.parametrize(("decisions", "is_worth_it"), [(1, True), (1_000, False)])
def test_a_long_replay_of_a_large_cluster_brings_the_code_in(
    elsewhere: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    decisions: int,
    is_worth_it: bool,
) -> None:
    monkeypatch.setattr(allotment_board, "NODES_MIN", 1)
    monkeypatch.setattr(allotment_board, "COMPILED_NODES_MIN", 1)
    monkeypatch.setattr(replay_command, "COMPILED_DECISIONS_MIN", decisions)
    log = busy_cluster().write(tmp_path / "log.jsonl")
    found = CliRunner().invoke(main, ["replay", "--verify", "--file", str(log)])
    assert found.exit_code == 0, found.output
    assert bool(machine_code._loading) is is_worth_it
