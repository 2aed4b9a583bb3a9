"""Texts for people are plain English: what the code shows, and what it says to its readers."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.plain_english import ODD, ROOT, modules, remarks, shown

OTHER_TEXTS = (
    "services/allotment_inspector/templates/*.html",
    "deploy/components/monitoring/*.yaml",
    "deploy/chart/values.yaml",
    "deploy/chart/templates/*",
)


def odd(path: Path, texts: Iterable[tuple[int, str]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {found[0]!r} in {' '.join(text.split())[:200]!r}"
        for line, text in texts
        for found in ODD.finditer(" ".join(text.split()))
    ]


def test_what_people_see_is_plain_english() -> None:
    found = [line for path, (_, tree) in modules().items() for line in odd(path, shown(tree))]
    assert found == []


def test_docstrings_and_comments_are_plain_english() -> None:
    found = [line for path, given in modules().items() for line in odd(path, remarks(*given))]
    assert found == []


@pytest.mark.parametrize("pattern", OTHER_TEXTS)
def test_pages_and_alerts_are_plain_english(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    assert [line for path in files for line in odd(path, [(0, path.read_text("utf-8"))])] == []


def test_odd_words_are_found() -> None:
    tree = ast.parse('"""Nobody."""\nx = f"a {1} is told so"\ny = "all the same"\n# anew\n')
    texts = [text for _, text in shown(tree)]
    assert [bool(ODD.search(text)) for text in texts] == [True, True]
    said = [text for _, text in remarks('"""Nobody."""\n# anew\n', tree)]
    assert said == ["Nobody.", "# anew"]
