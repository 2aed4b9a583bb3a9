"""A file that documents or docstrings name is there, and so is what they say is in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.py)(?:: (\w+))?`")
ROOMS = ("libs", "proto", "services", "tests", "deploy")
WRITTEN_ONCE = {"CHANGELOG.md"}
"""It tells of what was."""
READABLE = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "libs/**/*.*",
        "proto/**/*.*",
        "services/**/*.*",
        "deploy/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.suffix in {".md", ".py"} and path.name not in WRITTEN_ONCE
)
FILES = [
    "/" + path.relative_to(ROOT).as_posix() for r in ROOMS for path in (ROOT / r).rglob("*.py")
]


def wrong(text: str) -> list[str]:
    """What a text names that is not there."""
    found = []
    for path, name in NAMED.findall(text):
        there = [ROOT / file[1:] for file in FILES if file.endswith(f"/{path}")]
        if not there:
            found.append(path)
        elif name and not any(re.search(rf"\b{name}\b", one.read_text("utf-8")) for one in there):
            found.append(f"{path}: {name}")
    return found


def test_what_is_not_there_is_found() -> None:
    text = "`core/nowhere.py`, `units.py: no_such_name`, `core/units.py: parse`, `units.py`"
    assert wrong(text) == ["core/nowhere.py", "units.py: no_such_name"]


@pytest.mark.parametrize("suffix", [".md", ".py"])
def test_named_files_are_there(suffix: str) -> None:
    texts = {path: (ROOT / path).read_text("utf-8") for path in READABLE if path.endswith(suffix)}
    assert len(texts) > 5
    assert {path: bad for path, text in texts.items() if (bad := wrong(text))} == {}
