"""The documents that people read, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from allotment_cli.main import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "tests/bench/*.md")
    for path in sorted(ROOT.glob(pattern))
]
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def section(document: str, title: str) -> str:
    """What stands under a heading of the second level."""
    return read(document).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """The shell commands of each block that is marked as such."""
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str, program: str) -> Iterator[list[str]]:
    """Every command line of a program, without its name: in fenced and indented blocks, and as
    inline code, where it may be abridged (`…`).
    """
    text = text.replace("\\\n", " ")
    rest, pieces = FENCED.sub("", text), FENCED.findall(text)
    lines = [line for piece in pieces for line in piece.splitlines()]
    lines += re.findall(r"^    (?! )(.*)$", rest, re.MULTILINE)
    lines += [" ".join(code.split()) for code in INLINE.findall(rest)]
    for line in lines:
        for part in re.split(r"\s(?:\||&&|>|&)\s|[;()]|<\(", line.partition(" # ")[0]):
            words = part.strip().removeprefix("$ ").partition("…")[0]
            if words.startswith(f"{program} "):
                yield shlex.split(words)[1:]


def check_allot(words: list[str]) -> None:
    """Fails if `allot` has no such command, or the command no such option."""
    command, given = cast(click.Command, main), words
    while isinstance(command, click.Group) and given and not given[0].startswith("-"):
        name, *others = given
        _, found, given = command.resolve_command(
            click.Context(command), [name.split("|")[0], *others]
        )
        assert found is not None, words
        command = found
    known = {one for each in command.params for one in (*each.opts, *each.secondary_opts)}
    asked = {word.partition("=")[0] for word in given if word.startswith("-")}
    assert asked <= {*known, "--help", "-"}, words
