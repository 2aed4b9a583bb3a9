"""What `allot simulate` leaves behind: no file that it reads, none that is half written."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from allotment.core.errors import AllotError
from allotment_cli.plan import simulate as command
from allotment_lab.simulate.outputs import kept
from tests.simulating import CONFIGURATION, NODES, PODS, TEXT, simulate


@pytest.mark.parametrize("output", ["--record", "--csv"])
def test_nothing_that_is_read_is_overwritten(output: str, trace: list[str], tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.conf"
    configuration.write_text(CONFIGURATION)
    link = tmp_path / "link"
    link.symlink_to(trace[3])
    hard = tmp_path / "hard"
    hard.hardlink_to(trace[1])
    given = [*trace, "--policy", str(configuration)]
    roundabout = str(tmp_path / ".." / tmp_path.name / "pods.csv")
    for path in (trace[1], trace[3], str(link), str(hard), roundabout, str(configuration)):
        said = simulate(*given, output, path, code=2).stderr
        assert re.search(rf"{output} and --\w+.* are the same file", said), said
    assert [Path(file).read_text() for file in (trace[1], trace[3])] == [NODES, PODS]
    assert configuration.read_text() == CONFIGURATION
    for option in ("--file", "--workload"):
        recipe = tmp_path / "w"
        recipe.write_text(TEXT)
        said = simulate(option, str(recipe), output, str(recipe), code=2).stderr
        assert f"{output} and {option} are the same file" in said
        assert recipe.read_text() == TEXT


def test_two_outputs_are_two_files(trace: list[str], tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    outputs = ["--record", str(tmp_path / "x"), "--csv", str(tmp_path / "d" / ".." / "x")]
    assert "--csv and --record are the same file" in simulate(*trace, *outputs, code=2).stderr
    assert not (tmp_path / "x").exists()


def test_a_run_that_fails_leaves_the_earlier_file(
    trace: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("earlier")

    def fail(*arguments: object) -> None:
        raise AllotError("no")

    monkeypatch.setattr(command, "run_once", fail)
    simulate(*trace, "--record", str(path), code=2)
    assert path.read_text() == "earlier"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "nodes.csv",
        "pods.csv",
        "run.jsonl",
    ]


def test_a_run_can_be_kept_in_what_is_no_file(trace: list[str], tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text("".join(PODS.splitlines(keepends=True)[:3]))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        simulate(*trace, "--record", str(pipe))
        assert reader.read(1) == b"{"
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("load", ["0.01", "20"])
def test_a_full_disk_ends_a_run_with_a_word(trace: list[str], load: str) -> None:
    """It is found out in the middle of a long run, and at the end of a short one."""
    said = simulate(*trace, "--inflate", load, "--record", "/dev/full", code=2).stderr
    assert "/dev/full cannot be written: No space left on device" in said


def test_a_run_that_is_stopped_while_its_record_is_opened_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def stopped(path: Path, *arguments: Any, **named: Any) -> Any:
        opened(path, *arguments, **named).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", stopped)
    with pytest.raises(KeyboardInterrupt), kept(tmp_path / "run.jsonl"):
        pytest.fail("it was stopped before")
    assert list(tmp_path.iterdir()) == []
