"""Scripts and what they say, line by line; and yesterday's logs, which still mean what they meant.
The decisions of both are made again and compared.

With ``--rewrite`` the transcripts are written anew, and the hashes of what the logs come to. Read
the diff, and only commit it if you understand what caused it. A log in ``logs/``, and who holds and
who waits at its end, is never rewritten: a bug from the field ends there.
"""

import json
from pathlib import Path

import pytest

from tests.golden.interpreter import Interpreter, ScriptError, fold
from tests.golden.record import meaning, read_log
from tests.replaying import assert_replays

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.txt"))
LOGS = sorted((HERE / "logs").glob("*.jsonl"))


def _play(text: str, world: Interpreter) -> str:
    """The script again, with the output of each block of commands as it is now."""
    out: list[str] = []
    head, *blocks = text.rstrip().split("\n\n")
    out.append(head)
    for block in blocks:
        commands = block.split("\n----")[0].splitlines()
        said = [line for command in commands for line in world.run(command)]
        out.append("\n".join([*commands, "----", *said]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# "), "the first paragraph says what the script is about"
    world = Interpreter()
    played = _play(text, world)
    assert_replays(world.log.records)
    if rewrite:
        path.write_text(played, encoding="utf-8")
    else:
        assert played == text


def test_a_word_that_is_no_command_is_refused() -> None:
    with pytest.raises(ScriptError, match="'frobnicate' is no command; known: node"):
        Interpreter().run("frobnicate a")


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_old_logs_fold_to_what_they_meant(path: Path, rewrite: bool) -> None:
    found = meaning(fold(read_log(path)))
    beside = path.with_suffix(".json")
    wanted = json.loads(beside.read_text(encoding="utf-8"))
    if rewrite:  # an image says more than it did, of the same holders
        wanted["state_sha256"] = found["state_sha256"]
        beside.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    assert found == wanted


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_old_decisions_come_out_the_same(path: Path) -> None:
    assert assert_replays(read_log(path)) > 0


def test_there_are_scripts_and_logs() -> None:
    assert len(SCRIPTS) >= 8
    assert LOGS
