"""A bar comes where somebody looks and something takes its time, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from allotment_cli.main import main
from allotment_cli.show import progress as module
from allotment_cli.show.progress import SHOWN_AFTER_S, in_silence, progress, waiting
from tests.recording_batch import busy_queues


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_a_program_gets_no_bar() -> None:
    with progress("reading", 10) as advance:
        assert advance is in_silence


@pytest.mark.usefixtures("on_a_terminal")
def test_a_bar_comes_after_a_second_and_counts_what_was_done_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[str, int]] = []
    counted: list[int] = []

    class Bar:
        def __enter__(self) -> object:
            return counted.append

        def __exit__(self, *_: object) -> None:
            made.append(("over", 0))

    def bar(title: str, total: int) -> Bar:
        made.append((title, total))
        return Bar()

    monkeypatch.setattr(module, "_bar", bar)
    clock = Clock()
    with progress("reading", 100, clock) as advance:
        advance(40)
        assert made == []
        clock.now_s = SHOWN_AFTER_S
        advance(10)
        assert (made, counted) == ([("reading", 100)], [50])
        advance(1)
        assert counted == [50], "not at every step"
        clock.now_s += 1
        advance(9)
        assert counted == [50, 10]
    assert made[-1] == ("over", 0)


class Due:
    """A timer whose time comes at once, or never."""

    def __init__(self, after_s: float, act: Callable[[], None]) -> None:
        assert after_s == SHOWN_AFTER_S
        self.act = act
        self.cancelled = False

    def start(self) -> None:
        self.act()

    def cancel(self) -> None:
        self.cancelled = True

    def join(self) -> None:
        assert self.cancelled


class NeverDue(Due):
    def __init__(self, after_s: float, act: Callable[[], None]) -> None:
        super().__init__(after_s, lambda: None)


def test_what_is_waited_for_is_said_after_a_second_and_wiped_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)  # that of capsys
    with waiting("waiting for them", Due):
        assert capsys.readouterr().err == "waiting for them …"
    wiped = capsys.readouterr().err
    assert wiped.startswith("\r")
    assert wiped.endswith("\r")
    assert not wiped.strip()
    with waiting("waiting for them", NeverDue):
        pass
    assert capsys.readouterr().err == ""


def test_a_program_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("waiting", Due):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "module"),
    [
        ("explain pod p", "show.progress"),
        ("explain gang big", "show.progress"),
        ("fit -f -", "show.progress"),
        ("doctor", "read.doctor"),
    ],
)
def test_what_may_take_long_says_so(
    words: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def waited(text: str) -> Iterator[None]:
        said.append(text)
        yield

    log = busy_queues()
    log.pod("p")
    path = str(log.write(tmp_path / "log.jsonl"))
    monkeypatch.setattr(f"allotment_cli.{module}.waiting", waited)
    pod = "{kind: Pod, metadata: {name: p}, spec: {schedulerName: volcano}}"
    CliRunner().invoke(main, [*words.split(), "--file", path], input=pod)
    assert [text for text in said if text.startswith(("trying", "looking"))]
