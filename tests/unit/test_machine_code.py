"""A compiler or a cache that does not work costs speed, and is told; it never ends anything."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from allotment.adapters.service import machine_code
from allotment.adapters.service.machine_code import BrokenCompilerError, load, load_if_large
from allotment.core.placement.board.loops import PLAIN, SIGNATURES, MachineCode
from allotment_cli import replay as replay_command
from allotment_cli.main import main
from tests.recording import busy_cluster

Jit = Callable[..., Callable[..., Any]]


class FakeNumba:
    """What is used of numba. `njit` fails in the ways given, one after another, then works."""

    __version__ = "0.0"

    def __init__(self, directory: str, failures: list[Exception]) -> None:
        self.config = SimpleNamespace(CACHE_DIR=directory, DISABLE_JIT=0)
        self.extending = SimpleNamespace(register_jitable=lambda part: part)
        self.failures = failures
        self.cached: list[bool] = []

    def njit(self, signature: str, *, cache: bool, error_model: str) -> Jit:
        self.cached.append(cache)
        if self.failures:
            raise self.failures.pop(0)
        return lambda function: function


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


def test_a_service_is_told_why_and_goes_on(numba: FakeNumba) -> None:
    numba.failures = [EOFError(), OSError("no\nLLVM")]
    told: list[str] = []
    load_if_large(machine_code.NODES_MIN - 1, told.append)
    assert not machine_code._loading
    for _ in range(2):
        load_if_large(machine_code.NODES_MIN, told.append)
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
    assert "compiled loops" in result.stdout


@pytest.mark.parametrize(("decisions", "is_worth_it"), [(1, True), (1_000, False)])
def test_a_long_replay_of_a_large_cluster_brings_the_code_in(
    numba: FakeNumba,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    decisions: int,
    is_worth_it: bool,
) -> None:
    monkeypatch.setattr(machine_code, "NODES_MIN", 1)
    monkeypatch.setattr(replay_command, "COMPILED_DECISIONS_MIN", decisions)
    log = busy_cluster().write(tmp_path / "log.jsonl")
    found = CliRunner().invoke(main, ["replay", "--verify", "--file", str(log)])
    assert found.exit_code == 0, found.output
    assert bool(machine_code._loading) is is_worth_it
