"""Scripts and what they say, line by line. Their decisions are made again and compared.

With ``--rewrite`` the transcripts are written anew. Read the diff, and only commit it if you
understand what caused it.
"""

from pathlib import Path

import pytest

from tests.golden.interpreter import Interpreter, ScriptError
from tests.replaying import assert_replays

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.txt"))


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


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 8
