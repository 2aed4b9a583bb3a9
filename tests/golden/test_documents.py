"""Every screen in a document is what the command prints on a recorded log.

Run with --rewrite and read the diff; commit only changes whose cause you understand.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from allotment_cli.main import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
SCREEN = re.compile(
    r"^```text (?P<log>\w+)(?: until (?P<end>\w+))?\n\$ allot (?P<command>.*)\n(?:.*\n)*?```$",
    re.MULTILINE,
)
"""A block names its log, and the line before which it ends if it does not show all."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_screens_in_documents_are_real(
    document: str, recorded: Callable[[str], Path], rewrite: bool
) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")

    def real(block: re.Match[str]) -> str:
        words = [*shlex.split(block["command"]), "--file", str(recorded(block["log"]))]
        shown = CliRunner(env={"COLUMNS": "100"}).invoke(main, words).stdout
        if block["end"]:
            shown, found, _ = shown.partition(f"\n{block['end']}")
            assert found, f"no line begins with {block['end']}"
        return "\n".join([*block[0].splitlines()[:2], shown.strip("\n"), "```"])

    found, screens = SCREEN.subn(real, text)
    assert screens == text.count("\n$ allot "), "a screen does not say on which log it was made"
    if rewrite:
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"{document} differs; see --rewrite"


def test_documents_have_screens() -> None:
    assert sum(len(SCREEN.findall((ROOT / one).read_text())) for one in DOCUMENTS) > 5
