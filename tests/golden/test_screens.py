"""Every screen of the command on a recorded log, compared with `screens/`.

Run with --rewrite and read the diff; commit only changes whose cause you understand.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allotment_cli.main import main
from tests.golden.commands import (
    BATCH_COMMANDS,
    COMMANDS,
    PREEMPTION_COMMANDS,
    WIDTHS,
    WRAPPED_COMMANDS,
)

Recorded = Callable[[str], Path]
SCREENS = Path(__file__).parent / "screens"


def screen(command: str, result: Result) -> str:
    parts = [f"$ allot {command}", result.stdout.rstrip("\n")]
    if result.stderr:
        parts += ["---- stderr", result.stderr.rstrip("\n")]
    return "\n".join([*parts, f"---- exit {result.exit_code}", ""])


@pytest.mark.parametrize("name", COMMANDS)
def test_screen(name: str, recorded: Recorded, rewrite: bool) -> None:
    compare(name, COMMANDS[name], recorded("busy"), rewrite)


@pytest.mark.parametrize("name", BATCH_COMMANDS)
def test_batch_screen(name: str, recorded: Recorded, rewrite: bool) -> None:
    compare(name, BATCH_COMMANDS[name], recorded("queues"), rewrite)


@pytest.mark.parametrize("name", PREEMPTION_COMMANDS)
def test_preemption_screen(name: str, recorded: Recorded, rewrite: bool) -> None:
    compare(name, PREEMPTION_COMMANDS[name], recorded("preempted"), rewrite)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", WRAPPED_COMMANDS)
def test_wrapped_screen(
    name: str,
    width: int,
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    rewrite: bool,
) -> None:
    """Words and cells are wrapped; what has no blank in it is not."""
    monkeypatch.setattr("allotment_cli.show.output.screen_width", lambda: width)
    compare(f"{name}-{width}", WRAPPED_COMMANDS[name], recorded("preempted"), rewrite)


def compare(name: str, command: str, log_file: Path, rewrite: bool) -> None:
    words = shlex.split(command)
    at = words.index("show") if "show" in words else len(words)
    result = CliRunner(env={"COLUMNS": "100"}).invoke(
        main, [*words[:at], "--file", str(log_file), *words[at:]]
    )
    shown = screen(command, result).replace(f" --file {log_file}", "")
    path = SCREENS / f"{name}.txt"
    if rewrite:
        path.write_text(shown)
    assert shown == path.read_text(), f"{path.name} differs; see --rewrite"


def test_no_screen_is_left_over() -> None:
    wrapped = {f"{name}-{width}" for name in WRAPPED_COMMANDS for width in WIDTHS}
    known = {*COMMANDS, *BATCH_COMMANDS, *PREEMPTION_COMMANDS, *wrapped}
    assert {path.stem for path in SCREENS.glob("*.txt")} == known
